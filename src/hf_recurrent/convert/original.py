"""Models of other packages: how their config fields and parameters are called, and what they are here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..registry import ARCHITECTURES, Architecture
from .renaming import rename


# of layer norms in the first checkpoints
OLD_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


@dataclass(frozen=True)
class Original:
    """An architecture of another package that one of ours computes exactly.

    Attributes:
        model_type: its name in configs.
        ours: that of our architecture.
        prefix: the beginning of its class names.
        base_prefix: the beginning of the names of its base model's parameters, in a model with a head.
        fields: its config fields that have another name here, and that name.
        same_fields: its config fields that have the same name here.
        defaults: values of its fields that a config leaves out, where ours differ.
        names: patterns of our parameters' names, and theirs.
        heads: classes of its own -> the Auto class of the head that is theirs here.
    """

    model_type: str
    ours: str
    prefix: str
    base_prefix: str
    fields: Mapping[str, str]
    same_fields: tuple[str, ...]
    defaults: Mapping[str, Any]
    names: dict[str, str]
    heads: Mapping[str, str] = field(default_factory=dict)

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.ours]

    def our_fields(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of our config that say the same as those of theirs that are about the model."""
        theirs = {**self.defaults, **theirs}
        renamed = {ours: theirs[name] for name, ours in self.fields.items() if name in theirs}
        return renamed | {name: theirs[name] for name in self.same_fields if name in theirs}

    def their_fields(self, config: Any) -> dict[str, Any]:
        """The inverse of `our_fields`."""
        renamed = {name: getattr(config, ours) for name, ours in self.fields.items()}
        return renamed | {name: getattr(config, name) for name in self.same_fields}

    def their_names(self, model: torch.nn.Module) -> dict[str, str]:
        """Their name of each parameter of our model -> ours.

        Raises:
            ValueError: a parameter is none of theirs, such as that of a probe.
        """
        is_base = not hasattr(model, model.base_model_prefix)
        prefix = f"{model.base_model_prefix}." if is_base else ""
        found = {ours: rename(prefix + ours, self.names) for ours, _ in model.named_parameters()}
        unknown = [ours for ours, theirs in found.items() if theirs is None]
        if unknown:
            raise ValueError(f"the {self.model_type} of other packages has no {', '.join(unknown)}")
        return {theirs.removeprefix(self.base_prefix if is_base else ""): ours for ours, theirs in found.items()}

    def key_mapping(self, model: torch.nn.Module) -> dict[str, str]:
        """The `key_mapping` by which `from_pretrained` finds the parameters of our model in their checkpoints."""
        names = self.their_names(model)
        for new, old in OLD_NAMES.items():
            names |= {theirs.replace(new, old): ours for theirs, ours in names.items() if new in theirs}
        # checkpoints of a base model are without its prefix
        start = f"^(?:{re.escape(self.base_prefix)})?"
        return {f"{start}{re.escape(theirs.removeprefix(self.base_prefix))}$": ours for theirs, ours in names.items()}

    def head_of(self, architectures: list[str] | None) -> str:
        """The Auto class of our head for a checkpoint of theirs, by the classes that its config names."""
        for name in architectures or ():
            if name in self.heads:
                return self.heads[name]
            suffix = name.removeprefix(self.prefix)
            for auto_class, ours in self.architecture.heads.items():
                if ours == suffix:
                    return auto_class
        return "AutoModel"

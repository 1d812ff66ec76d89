"""Models of other packages: how their config fields and parameters are called, and what they are here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..registry import ARCHITECTURES, Architecture

# of layer norms in the first checkpoints
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# the beginning of the names of the base model's parameters in a model with a head, here
BASE = "model."
# endings of buffers that early versions of transformers saved
BUFFERS = ("position_ids", "inv_freq")


def unchanged(*names: str) -> dict[str, str]:
    """Fields that have the same name in both configs."""
    return dict(zip(names, names, strict=True))


@dataclass(frozen=True)
class Original:
    """An architecture of another package that one of ours computes exactly.

    Attributes:
        model_type: its name in configs.
        ours: the name of our architecture.
        prefix: the beginning of its class names.
        base: the beginning of the names of the base model's parameters in a model with a head.
        fields: its config fields -> ours.
        names: parts of its parameters' names -> parts of ours, which are replaced one after another.
        head_names: beginnings of the names of its heads' parameters.
        heads: classes of its own -> the Auto class of the head that is theirs here.
        defaults: values of its fields that a config leaves out, where ours differ.
        may_lack: beginnings of our names of weights of the base model that some of its checkpoints do not have.
        may_leave: beginnings of our names of weights of the base model that some of our models do not use.
        read: function from a config of theirs to the fields of ours that follow from several of theirs.
        write: function from a config of ours to the fields of theirs that follow from several of ours.
        computed: function from a config of ours to tensors of their checkpoints that hold no weights.
    """

    model_type: str
    ours: str
    prefix: str
    base: str
    fields: Mapping[str, str]
    names: Mapping[str, str]
    head_names: tuple[str, ...]
    heads: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    may_lack: tuple[str, ...] = ()
    may_leave: tuple[str, ...] = ()
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda theirs: {}
    write: Callable[[Any], dict[str, Any]] = lambda config: {}
    computed: Callable[[Any], dict[str, torch.Tensor]] = lambda config: {}

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.ours]

    def our_fields(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of our config for those of theirs that are about the model.

        Raises:
            ValueError: a field that says what ours cannot.
        """
        theirs = {**self.defaults, **theirs}
        return {ours: theirs[name] for name, ours in self.fields.items() if name in theirs} | self.read(theirs)

    def their_fields(self, config: Any) -> dict[str, Any]:
        """The inverse of `our_fields`.

        Raises:
            ValueError: a field that says what theirs cannot.
        """
        return {name: getattr(config, ours) for name, ours in self.fields.items()} | self.write(config)

    def their_names(self, model: torch.nn.Module) -> dict[str, str]:
        """Their name of each parameter of our model -> ours.

        Raises:
            ValueError: a parameter is none of theirs, such as the weight of a probe.
        """
        is_base, found = not hasattr(model, model.base_model_prefix), {}
        for ours, _ in model.named_parameters():
            theirs = BASE * is_base + ours
            for their_part, part in self.names.items():
                theirs = theirs.replace(part, their_part)
            found[theirs] = ours
        unknown = [ours for theirs, ours in found.items() if not theirs.startswith((self.base, *self.head_names))]
        if unknown:
            raise ValueError(f"the {self.model_type} of other packages has no {', '.join(unknown)}")
        return {theirs.removeprefix(self.base * is_base): ours for theirs, ours in found.items()}

    @property
    def key_mapping(self) -> dict[str, str]:
        """The `key_mapping` by which `from_pretrained` finds our parameters in their checkpoints, part by part."""
        # checkpoints of a base model are without its prefix
        base = f"^(?:{re.escape(self.base)})?"
        return {re.escape(old): new for old, new in OLD_NAMES.items()} | {
            base * theirs.startswith(self.base) + re.escape(theirs.removeprefix(self.base)): ours
            for theirs, ours in self.names.items()
        }

    def check_backbone(self, model: torch.nn.Module, report: Mapping[str, Any], name: str) -> None:
        """Raise a ValueError if a checkpoint lacks weights of the base model, or has others than it.

        Args:
            model: ours, loaded from the checkpoint `name`.
            report: of transformers, what was not loaded: `missing_keys` and `unexpected_keys`.
        """
        is_base = not hasattr(model, model.base_model_prefix)
        backbone = tuple(part for part in self.names.values() if part.startswith(BASE))
        missing = [
            key
            for key in (BASE * is_base + key for key in report["missing_keys"])
            if key.startswith(backbone) and not key.startswith(self.may_lack)
        ]
        unexpected = [
            key
            for key in report["unexpected_keys"]
            if (is_base or key.startswith((BASE, self.base)))
            and not key.startswith(self.head_names)
            and not (BASE * is_base + key).startswith(self.may_leave)
            and not key.endswith(BUFFERS)
        ]
        for keys, problem, owner in ((missing, "lacks", "a"), (unexpected, "has", "no")):
            if keys:
                listed = ", ".join(sorted(keys)[:3]) + (", ..." if len(keys) > 3 else "")
                raise ValueError(
                    f"the checkpoint {name} {problem} {listed}, which {owner} {self.model_type} of this package has: "
                    "load it with the code of its authors"
                )

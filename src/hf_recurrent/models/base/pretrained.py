"""Base class of every architecture's `PreTrainedModel`: initialisation, attention switches, auxiliary losses."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import logging

from ..config.base import Capabilities, is_of
from ..config.saved_names import renamed
from ..depth.objectives import prior_divergence
from ..ops.initialization import embedding_like
from ..ops.losses import mean_of
from .arguments import call_options

logger = logging.get_logger(__name__)

Loaded = TypeVar("Loaded", bound=PreTrainedModel)


@contextmanager
def errors_only() -> Iterator[None]:
    """Keep transformers' warnings out of the log."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def share_weights(folder: Path, beside: str) -> None:
    """Give weights the mode of the file `beside` them: safetensors makes files that their owner alone can read."""
    for weights in folder.glob("*.safetensors"):
        weights.chmod((folder / beside).stat().st_mode)


def documentation(model_class: type) -> str | None:
    """The documentation of an architecture's class without any: of the base of its models, or of a model with a head.

    Heads have a `summary`, and as `example` fields of the config and a call.
    """
    name = model_class.__name__
    prefix, is_base, _ = name.partition("PreTrainedModel")
    if is_base:
        return f"Base of all {prefix} models: initialisation, loading and saving."
    prefix, head, _ = name.partition("For")
    if not (prefix and head and hasattr(model_class, "example")):
        return None
    fields, call = model_class.example
    lines = [
        f"{prefix} {model_class.summary}",
        "",
        "    The arguments are documented in `forward`, and the outputs in `RecurrentOutput`.",
        "",
        "    Example:",
        "",
        "    >>> import torch",
        f"    >>> from hf_recurrent import {prefix}Config, {name}",
        f'    >>> model = {name}({prefix}Config.preset("tiny"{fields})).eval()',
        *(f"    {line}" for line in call.strip().splitlines()),
    ]
    return "\n".join(lines) + "\n    "


class RecurrentPreTrainedModel(PreTrainedModel):
    """Base of all architectures. Initialisation follows the reference implementation of the dynamic-halt paper."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TransformerBlock", "MemoryBlock", "MemoryUpdate"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    # for scores with learned position biases, which few implementations support
    _learned_biases = False
    # a halting decision in half precision moves by whole steps
    _keep_in_fp32_modules_strict = ["halting_head", "exit_probe"]
    # method that writes the model's code into a folder; None in that code itself
    save_code: Callable[[str], None] | None = None

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__doc__ is None:
            cls.__doc__ = documentation(cls)

    def __init__(self, config, *args, **kwargs):
        expected = self.config_class
        # by model_type: code that a checkpoint brings along has classes of its own
        if not is_of(type(config), expected.model_type):
            raise TypeError(f"config is of {type(config).__name__}: {type(self).__name__} takes {expected.__name__}")
        super().__init__(config, *args, **kwargs)

    def post_init(self) -> None:
        """As of transformers; modules that decide on halting are also named as quantisers look for what they leave.

        Of the classes that are not to be split, those that the model has are named: sharding refuses others.
        """
        super().post_init()
        self._no_split_modules = set(self._no_split_modules) & {type(module).__name__ for module in self.modules()}
        kept = self._keep_in_fp32_modules_strict
        self._keep_in_fp32_modules |= {name for name, _ in self.named_modules() if name.rpartition(".")[2] in kept}

    @property
    def capabilities(self) -> Capabilities:
        return self.config.capabilities

    @classmethod
    def from_pretrained(cls: type[Loaded], *args, **kwargs) -> Loaded:
        """As of transformers.

        Raises:
            ValueError: the model is to have a plan of tensor parallelism.
        """
        plans = (kwargs.get("tp_plan"), getattr(kwargs.get("distributed_config"), "tp_plan", None))
        if "auto" in plans:
            raise ValueError(
                f"tp_plan is 'auto': {cls.__name__} has no plan of tensor parallelism; divide its parameters by FSDP2, "
                "or layers among devices by device_map"
            )
        # no field of our configs, whose models cache where a call asks for it
        use_cache = kwargs.pop("use_cache", None)
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        if use_cache is not None:
            model.config.use_cache = use_cache
        if getattr(model, "generation_config", None) is not None:
            model.generation_config.__dict__ = renamed(vars(model.generation_config))
        problem = model.calibration_fault()
        if problem:
            logger.warning_once(problem)
        return loaded

    def calibration_fault(self, state_dict: Mapping[str, torch.Tensor] | None = None) -> str | None:
        """Why the promise of `config.exit_calibration` does not hold for these weights; None if there is none."""
        return None

    def save_pretrained(self, save_directory, is_main_process=True, state_dict=None, **kwargs):
        """As of transformers, with the code by which `trust_remote_code=True` loads the model without this package.

        Adapters are saved without: they are loaded into a model that has its own.
        """
        problem = self.calibration_fault(state_dict)
        if problem:
            # the criterion and its threshold stay
            logger.warning_once(problem)
            self.config.exit_calibration = None
        generation_config = getattr(self, "generation_config", None)
        if generation_config is not None and call_options(vars(generation_config)):
            # transformers would leave them out of one that it takes for a part of the model's config
            generation_config._from_model_config = False
        adapters = getattr(self, "_hf_peft_config_loaded", False)
        # of several processes that all save, one writes
        writes = getattr(self, "should_save_on_this_rank", bool)(is_main_process)
        # transformers copies the code of classes that were loaded from a checkpoint, or registered by a user
        if writes and not adapters and self.save_code is not None and self._auto_class is None:
            self.save_code(save_directory)
        super().save_pretrained(save_directory, is_main_process, state_dict, **kwargs)
        if writes:
            share_weights(Path(save_directory), "adapter_config.json" if adapters else "config.json")

    def _get_files_timestamps(self, working_dir) -> dict[str, float]:
        """Of all files but the code, which `push_to_hub=True` then sends whether it is new or not."""
        times = super()._get_files_timestamps(working_dir)
        return {name: time for name, time in times.items() if not name.endswith(f"_{self.config.model_type}.py")}

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        flex = ("flex_attention",) if self._supports_flex_attn else ()
        if self._learned_biases and requested_attention not in (None, "sdpa", "eager", *flex):
            others = ", or 'flex_attention' on a GPU" if flex else ""
            raise ValueError(
                f"attn_implementation is {requested_attention!r}, which does not support learned position biases: use "
                f"'sdpa' or 'eager'{others}"
            )
        if str(requested_attention).startswith("paged"):
            raise ValueError(
                f"attn_implementation is {requested_attention!r}, which is for continuous batching: depth-recurrent "
                "and chunk-recurrent models cache more than its keys and values; use 'sdpa', 'eager' or, on a GPU, "
                "'flash_attention_2' or 'flex_attention'"
            )
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    def _check_and_adjust_attn_implementation(self, attn_implementation: str | None, *args, **kwargs) -> str:
        """As of transformers, but what the model does not support is refused before its kernel is looked for."""
        if str(attn_implementation).startswith("paged") or not self._supports_flash_attn:
            # which says why it is not supported
            self.get_correct_attn_implementation(attn_implementation)
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)

    def _set_gradient_checkpointing(self, enable: bool = True, gradient_checkpointing_func=None, **kwargs) -> None:
        """Reject reentrant checkpointing, whose only gradient is that of a block's first argument."""
        if enable and getattr(gradient_checkpointing_func, "keywords", {}).get("use_reentrant"):
            raise ValueError(
                "gradient_checkpointing_kwargs has use_reentrant=True: blocks of this model also pass gradients "
                "through soft states, memories and caches, which reentrant checkpointing loses; pass False"
            )
        super()._set_gradient_checkpointing(enable, gradient_checkpointing_func, **kwargs)

    @property
    def supervises_steps(self) -> bool:
        """Whether the loss reads the states after each depth step, rather than the final ones."""
        # transformers keeps unknown fields: one of this name on a config without it is not read
        known = hasattr(type(self.config), "depth_objective")
        return self.training and known and self.config.depth_objective in ("expected", "every_step", "gate")

    @staticmethod
    def lm_head_initializer(config) -> Callable[[nn.Linear], None]:
        """What fills the map of language models from states to token ids."""
        return embedding_like(config.initializer_range)

    def left_out(self, *args):
        """What code of a checkpoint has instead of methods that its config does not need, see `hub/bundle.py`.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "this needs code that the checkpoint was saved without, because its config had another depth_objective, "
            "depth_sampling or exit_probe_size, or its head no cache: import hf_recurrent before you load it"
        )

    loss_by_objective = left_out
    drawn_depth = left_out
    build_probe = left_out
    cached_rotations = left_out

    def loss_options(self) -> dict[str, bool]:
        """Arguments of the base model that a loss requires.

        Raises:
            ValueError: fields of the config that were set after loading do not train this model together.
        """
        if self.training and hasattr(type(self.config), "validate_objective"):
            self.config.validate_objective()
        return {"output_steps": True} if self.supervises_steps else {}

    def losses(
        self,
        task_loss: torch.Tensor | None,
        outputs,
        num_targets: torch.Tensor | int,
        fraction: torch.Tensor | None = None,
        labelled: torch.Tensor | None = None,
    ) -> dict:
        """The losses of an output: `loss`, `aux_loss` and the terms that add up to it, all weighted.

        In training `loss` is what is minimised, `task_loss` + `aux_loss`. In evaluation it is the task's alone.

        Args:
            task_loss: None without labels, which leaves the others out, too.
            outputs: of the base model, called with `loss_options`.
            num_targets: labelled examples or tokens.
            fraction: of the labels of an optimiser step, this batch's. `loss` is then its part of the step's mean; the
                others stay means over the batch.
            labelled: (N,) bool, the sequences whose depth counts; all if None.
        """
        if task_loss is None:
            return {}
        terms = self.auxiliary_losses(outputs, num_targets, labelled)
        aux_loss = sum(terms.values()) if terms else None
        total = task_loss if aux_loss is None or not self.training else task_loss + aux_loss
        if fraction is not None:
            total = total * fraction
        return {"loss": total, "aux_loss": aux_loss, **terms}

    def auxiliary_losses(
        self, outputs, num_targets: torch.Tensor | int, labelled: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """The weighted terms of the auxiliary loss, by the names of their outputs."""
        ponder_loss = self.ponder_loss(outputs, labelled)
        return {} if ponder_loss is None else {"ponder_loss": ponder_loss}

    def ponder_loss(self, outputs, labelled: torch.Tensor | None) -> torch.Tensor | None:
        """The weighted mean ponder cost, None without halting; or the divergence of halting from its prior.

        Sequences that are not `labelled` (N,) are left out; None: all count.
        """
        config = self.config
        if outputs.ponder_cost is None or config.halting == "none":
            return None
        if config.depth_objective == "gate":
            return None
        if config.depth_objective == "mixture":
            return config.ponder_loss_weight * mean_of(outputs.ponder_cost, labelled)
        if outputs.halting_distribution is None:
            return None
        divergence = prior_divergence(config, outputs.halting_distribution)
        if divergence.dim() == 2:
            exists = outputs.ponder_steps >= 0
            return config.depth_prior_weight * torch.where(exists, divergence, 0.0).sum() / exists.sum()
        return config.depth_prior_weight * mean_of(divergence, labelled)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        initializer = getattr(module, "initializer", None)
        if initializer is not None:
            initializer(module)
            return
        super()._init_weights(module)
        if isinstance(module, nn.Embedding):
            self._init_boundary_tokens(module)

    def _init_boundary_tokens(self, embedding: nn.Embedding) -> None:
        table = embedding.weight.detach().clone()
        for token in (self.config.bos_token_id, self.config.eos_token_id):
            if token is not None:
                table[token].normal_(std=self.config.boundary_initializer_range)
        init.copy_(embedding.weight, table)

"""What all task heads share: the call of the base model, and losses of tokens and of depth steps.

Shapes: B sequences, S tokens, E width, F features of an answer, C classes of an answer, L depth steps.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn

from ..base.arguments import UNSUPPORTED, RecurrentKwargs
from ..base.exit_calibration import calibration_problem
from ..base.outputs import RecurrentOutput
from ..depth.exit_criteria import AnswerHead
from ..depth.objectives import objective_loss
from ..ops.exit_probe import ExitProbe
from ..ops.initialization import initialized_linear, torch_default
from ..ops.layers import of_tokens
from ..ops.losses import NO_TARGET, num_labelled, token_losses


def mlp(num_features: int, hidden_size: int, num_outputs: int) -> nn.Module:
    """Two layers with a ReLU, as in the reference: (..., features) -> (..., outputs)."""
    return nn.Sequential(
        OrderedDict(
            hidden=initialized_linear(num_features, hidden_size, torch_default),
            activation=nn.ReLU(),
            output=initialized_linear(hidden_size, num_outputs, torch_default),
        )
    )


def task_head(config, num_features: int, num_outputs: int) -> nn.Module:
    """The last layers of a classifier, (..., features) -> (..., outputs), as `config.classifier` says."""
    if config.classifier == "mlp":
        return mlp(num_features, config.hidden_size, num_outputs)
    return initialized_linear(num_features, num_outputs, torch_default)


class Head:
    """Base of all task models: `class GUTForX(ForX, GUTPreTrainedModel)`, to which an architecture adds
    `base_model_class`.

    A subclass defines `forward`, and what follows.

    Attributes:
        answers: what the head predicts, see `AnswerHead`.
        pools: whether it reads the pooled state of each sequence, rather than the states of the tokens.
        joint_pairs: whether it cannot answer for sentences that are encoded apart.
        summary, example: what follows the name of the architecture in the documentation of a class, and the fields of
            the config and the call that are its example.
    """

    base_model_class: type
    answers = "classes"
    pools = joint_pairs = False
    summary = ""
    example = ("", "")
    calibration_fault = calibration_problem

    def __init__(self, config):
        self.check_config(config)
        config.require(
            not self.joint_pairs or config.pair_encoding == "joint",
            "pair_encoding",
            f"{type(self).__name__} answers by the tokens of one sequence, and sentences that are encoded apart are "
            "two; set it to 'joint'",
        )
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = self.base_model_class(config)
        self.build_head(config)
        if self.answers not in ("span", "choice") and getattr(config, "exit_probe_size", 0) > 0:
            self.build_probe(config)
        self.post_init()

    def check_config(self, config) -> None:
        """Raise a ValueError unless a head can be built for a config."""

    def build_head(self, config) -> None:
        self.classifier = task_head(config, self.num_features, config.num_labels)

    @property
    def num_features(self) -> int:
        siamese = self.pools and self.config.pair_encoding == "siamese"
        return self.config.hidden_size * (4 if siamese else 1)

    def build_probe(self, config) -> None:
        self.exit_probe = ExitProbe(self.num_features, config.exit_probe_size)
        # data-parallel ranks would wait for its gradient, which training never computes
        names = (f"exit_probe.{name}" for name, _ in self.exit_probe.named_parameters())
        self._ddp_params_and_buffers_to_ignore = list(names)

    def predict(self, features: torch.Tensor, steps: int | torch.Tensor | None = None) -> torch.Tensor:
        """Logits (..., C) from features (..., F), of sequences or of tokens, after so many depth steps."""
        return self.classifier(features)

    def answer_head(self) -> AnswerHead:
        """The head as exit criteria use it."""
        return AnswerHead(self.predict, getattr(self, "exit_probe", None), self.answers)

    def encode(
        self, *inputs: torch.Tensor | None, has_labels: bool, cached: dict | None = None, **kwargs
    ) -> RecurrentOutput:
        """The base model's output; with labels also what the losses read.

        Args:
            inputs: `input_ids`, `attention_mask`, `token_type_ids` and `inputs_embeds`.
            cached: arguments of the base model about its cache, of a head that takes some.
            kwargs: of `RecurrentKwargs`, or of the architecture alone.

        Raises:
            TypeError: there is another argument.
        """
        if cached is None and not kwargs.get("use_cache", True):
            # some trainers ask every model for no cache
            del kwargs["use_cache"]
        known = {*RecurrentKwargs.__optional_keys__, *self.model.model_arguments, *UNSUPPORTED}
        for name in kwargs.keys() - known:
            raise TypeError(f"{type(self).__name__}.forward() got an unexpected keyword argument {name!r}")
        return self.model(
            *inputs,
            answer_head=self.answer_head(),
            pooling=self.pools,
            return_dict=True,
            **(self.loss_options() if has_labels else {}),
            **(cached or {}),
            **kwargs,
        )

    def sequence_features(
        self, *inputs: torch.Tensor | None, has_labels: bool, **kwargs
    ) -> tuple[torch.Tensor, RecurrentOutput]:
        """Features (B, F) of sequences or pairs, and outputs of the base model; arguments are those of `encode`.

        Features are pooled states or, of siamese pairs (`config.pair_encoding`), [u; v; u * v; |u - v|] of those of
        both sentences, whose outputs are by pair.
        """
        if self.config.pair_encoding == "siamese":
            return self.encode_pairs(*inputs, has_labels=has_labels, **kwargs)
        outputs = self.encode(*inputs, has_labels=has_labels, **kwargs)
        return outputs.pooler_output, outputs

    def encode_pairs(self, *inputs: torch.Tensor | None, **kwargs) -> tuple[torch.Tensor, RecurrentOutput]:
        """Features and outputs of siamese pairs; heads of sequences define it.

        Raises:
            ValueError: here, in code of a checkpoint that was saved with pair_encoding="joint".
        """
        raise ValueError(
            "config.pair_encoding is 'siamese', but this checkpoint was saved with 'joint', and its code encodes no "
            "sentences separately: import hf_recurrent before you load it, or set config.pair_encoding to 'joint'"
        )

    def over_depth(
        self,
        losses: Callable[[torch.Tensor], torch.Tensor],
        final: torch.Tensor,
        by_step: Sequence[torch.Tensor],
        distribution: torch.Tensor | None,
    ) -> torch.Tensor:
        """Losses of the final logits, or by the depth objective those of the logits of each step.

        Args:
            losses: function from logits to losses.
            by_step: L logits, if the depth objective reads each step.
            distribution: (..., L) halting distributions, where the losses have the shape (...).
        """
        if not self.supervises_steps:
            return losses(final)
        return self.loss_by_objective([losses(logits) for logits in by_step], distribution)

    def loss_by_objective(self, losses: Sequence[torch.Tensor], distribution: torch.Tensor | None) -> torch.Tensor:
        return objective_loss(self.config, losses, distribution)

    def token_loss(
        self, logits: torch.Tensor, outputs: RecurrentOutput, targets: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Mean over labelled tokens of the loss of logits (B, S, C), or by the depth objective of those of each step.

        The loss is zero without labelled tokens; `targets` and `mask`, of the inputs, are (B, S). Architectures whose
        objective may be "gate" define `gate_loss`.
        """
        labelled, losses = targets != NO_TARGET, partial(token_losses, targets=targets)
        by_step = [of_tokens(self.predict, states, labelled) for states in outputs.step_features or ()]
        if by_step and self.config.depth_objective == "gate":
            return self.gate_loss([losses(each)[labelled] for each in by_step], outputs, labelled)
        distribution = outputs.halting_distribution
        if distribution is not None:
            mask = torch.ones_like(labelled) if mask is None else mask.bool()
            distribution = self.model.spread_over_tokens(distribution, mask)
        return self.over_depth(losses, logits, by_step, distribution).sum() / num_labelled(targets)

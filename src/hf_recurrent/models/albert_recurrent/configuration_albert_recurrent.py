"""Configuration of ALBERT with adaptive depth."""

import math
from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities, require
from ..config.depth import AdaptiveDepthConfig
from ..config.fields import (
    Count,
    Layers,
    Length,
    NotNegative,
    Positive,
    Share,
    Size,
    Threshold,
    Vocabulary,
    checked_config,
)
from ..config.presets import ALBERT_EARLIER, ALBERT_SIZES


@checked_config
class AlbertRecurrentConfig(AdaptiveDepthConfig, AttentionConfig):
    """Configuration of `AlbertRecurrentModel` (ALBERT, https://arxiv.org/abs/1909.11942, and PABEE,
    https://arxiv.org/abs/2006.04152).

    Defaults are those of ALBERT base, but training supervises every depth step, as in PABEE, so that an
    `exit_criterion` can stop early; `depth_objective="final"` trains the last step alone, as in ALBERT.
    `from_pretrained_recurrent` makes the config of a checkpoint from that of transformers' ALBERT. Further fields are
    those of `AdaptiveDepthConfig`, `AttentionConfig` and `RecurrentConfig`.

    Parameters by default: 11,683,584 (`AlbertRecurrentModel`).

    Args:
        num_attention_heads: heads per attention; if None as many of width 64 as `hidden_size` has, where it has a
            whole number of them, else as of `AttentionConfig`.
        embedding_size: width of embeddings, which a linear map widens to `hidden_size`.
        num_hidden_groups: groups of layers. Depth steps are divided among them in order: the first steps are the first
            group's, the last ones the last group's.
        inner_group_num: layers of a group, all of which are one depth step.
        hidden_act: activation of the feed-forward network.
        max_position_embeddings: positions that have an embedding, the most tokens of a sequence.
        classifier_dropout: dropout of what a sequence classifier reads.
        step_classifiers: the classifiers of sequences after each depth step: one that all steps have "shared", or a
            "separate" one for each, as in PABEE.
        hard_stop: leave the loop when an exit criterion has stopped every sequence. False runs all steps to the same
            result.
        compaction: gather sequences that have stopped out of the batch; never changes results beyond rounding.
        halting_threshold: without effect, as there is no halting head.
        halting: always "none": ALBERT has no halting head. An `exit_criterion` stops sequences.
        pooling: always "cls": a linear map and tanh of the first token.
        lm_head: always "mlp": a linear map to `embedding_size`, the activation, a layer norm and the embedding table.
    """

    model_type = "albert_recurrent"
    # of ALBERT base, large and xxlarge
    head_size, inner_ratio = 64, 4.0
    presets = ALBERT_SIZES
    earlier_defaults = ALBERT_EARLIER

    vocab_size: Vocabulary = 30_000
    type_vocab_size: Count = 2
    embedding_size: Size = 128
    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    num_hidden_groups: Layers = 1
    inner_group_num: Layers = 1
    hidden_act: Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh"] = "gelu_new"
    max_position_embeddings: Length = 512
    dropout: Share = 0.0
    attention_dropout: Share = 0.0
    classifier_dropout: Share = 0.1
    layer_norm_eps: Positive = 1e-12
    boundary_initializer_range: NotNegative | None = None
    pooling: Literal["cls"] = "cls"
    classifier: Literal["linear"] = "linear"
    step_classifiers: Literal["shared", "separate"] = "shared"
    halting: Literal["none"] = "none"
    halting_threshold: Threshold = 0.999
    lm_head: Literal["mlp"] = "mlp"
    pair_encoding: Literal["joint"] = "joint"
    is_causal: Literal[False] = False
    tie_word_embeddings: bool = True
    hard_stop: bool = True
    compaction: bool = True

    @property
    def capabilities(self) -> Capabilities:
        learned = replace(
            super().capabilities,
            shared_block=True,
            stops_when_halted=self.hard_stop,
            spares_steps=self.hard_stop,
            positions=self.max_position_embeddings,
        )
        return self.under_exit_criterion(learned)

    def validate_groups(self):
        require(
            self.num_hidden_groups <= self.num_hidden_layers,
            "num_hidden_groups",
            self.num_hidden_groups,
            f"each of them has a depth step at least; pass at most num_hidden_layers ({self.num_hidden_layers})",
        )
        require(
            self.num_hidden_groups == 1 or self.depth_sampling == "fixed",
            "depth_sampling",
            self.depth_sampling,
            "steps belong to groups of layers, so that their number is fixed; leave it 'fixed', or take one group",
        )

    def validate_step_classifiers(self):
        drawn = (1, self.num_hidden_layers if self.depth_sampling == "uniform" else math.inf)
        fixed = self.step_classifiers == "shared" or self.depth_sampling == "fixed"
        require(
            fixed or (self.depth_range or drawn)[-1] <= self.num_hidden_layers,
            "depth_range",
            self.depth_range,
            f"{self.depth_sampling!r} draws more steps than the {self.num_hidden_layers} that have classifiers "
            "(step_classifiers='separate'); set the most",
        )


__all__ = ["AlbertRecurrentConfig"]

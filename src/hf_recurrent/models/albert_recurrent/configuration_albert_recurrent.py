"""Configuration of ALBERT with adaptive depth."""

import math
from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities
from ..config.depth import AdaptiveDepthConfig
from ..config.fields import layers, length, share, size


class AlbertRecurrentConfig(AdaptiveDepthConfig, AttentionConfig):
    """Configuration of `AlbertRecurrentModel` (ALBERT, https://arxiv.org/abs/1909.11942;
    PABEE, https://arxiv.org/abs/2006.04152).

    Defaults are the sizes of ALBERT base. Training supervises every depth step, as in PABEE, so an `exit_criterion` can
    stop early; `depth_objective="final"` trains the last step alone, as in ALBERT. `from_pretrained_recurrent` makes
    the config of a checkpoint from the config of transformers' ALBERT.

    Parameters by default: 11,683,584 (`AlbertRecurrentModel`).

    Args:
        num_attention_heads: number of attention heads. If None, heads of width 64 if 64 divides `hidden_size`;
            otherwise 8, or the largest smaller number that divides it.
        embedding_size: width of the embeddings, which a linear layer widens to `hidden_size`.
        num_hidden_groups: number of groups of layers. Depth steps are divided among the groups in order: the first
            group takes the first steps, and the last group the last steps.
        inner_group_num: number of layers in a group; one depth step applies all of them.
        hidden_act: activation of the feed-forward network.
        max_position_embeddings: number of positions that have an embedding, the largest length of a sequence.
        classifier_dropout: dropout probability of the input of a sequence classifier.
        step_classifiers: classifiers of sequences after each depth step: one "shared" by all steps, or a "separate"
            classifier for each step, as in PABEE.
        hard_stop: leave the loop when an exit criterion has stopped every sequence. False runs all steps, with the same
            result.
        compaction: remove sequences that have stopped from the batch. It changes results by rounding at most.
        halting_threshold: without effect, because there is no halting head.
        halting: always "none": ALBERT has no halting head. An `exit_criterion` stops sequences.
        pooling: always "cls": a linear layer and tanh of the first token.
        lm_head: always "mlp": a linear layer to `embedding_size`, the activation, a layer norm and the embedding table.
        is_causal: always False: tokens see both sides.
    """

    model_type = "albert_recurrent"
    # of ALBERT base, large and xxlarge
    head_size, inner_ratio = 64, 4.0
    # sizes of ALBERT base and large, version 2
    presets = {
        "tiny": {"embedding_size": 32, "hidden_size": 64, "num_attention_heads": 4},
        "small": {"embedding_size": 64, "hidden_size": 256},
        "base": {},
        "large": {"hidden_size": 1024, "num_hidden_layers": 24},
    }
    earlier_defaults = {"depth_objective": "mixture"}

    vocab_size: int = 30_000
    type_vocab_size: int = 2
    embedding_size: int = size(128)
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_hidden_groups: int = layers(1)
    inner_group_num: int = layers(1)
    hidden_act: Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh"] = "gelu_new"
    max_position_embeddings: int = length(512)
    dropout: float = 0.0
    attention_dropout: float = 0.0
    classifier_dropout: float = share(0.1)
    layer_norm_eps: float = 1e-12
    boundary_initializer_range: float | None = None
    pooling: Literal["cls"] = "cls"
    classifier: Literal["linear"] = "linear"
    step_classifiers: Literal["shared", "separate"] = "shared"
    halting: Literal["none"] = "none"
    lm_head: Literal["mlp"] = "mlp"
    pair_encoding: Literal["joint"] = "joint"
    is_causal: Literal[False] = False
    tie_word_embeddings: bool = True

    @property
    def capabilities(self) -> Capabilities:
        return self.under_exit_criterion(replace(super().capabilities, positions=self.max_position_embeddings))

    def validate_groups(self):
        self.require(
            self.num_hidden_groups <= self.num_hidden_layers,
            "num_hidden_groups",
            f"each of them has a depth step at least; pass at most num_hidden_layers ({self.num_hidden_layers})",
        )
        self.require(
            self.num_hidden_groups == 1 or self.depth_sampling == "fixed",
            "depth_sampling",
            "steps belong to groups of layers, so that their number is fixed; leave it 'fixed', or take one group",
        )

    def validate_step_classifiers(self):
        drawn = (1, self.num_hidden_layers if self.depth_sampling == "uniform" else math.inf)
        fixed = self.step_classifiers == "shared" or self.depth_sampling == "fixed"
        self.require(
            fixed or (self.depth_range or drawn)[-1] <= self.num_hidden_layers,
            "depth_range",
            f"{self.depth_sampling!r} draws more steps than the {self.num_hidden_layers} that have classifiers "
            "(step_classifiers='separate'); set the most",
        )


__all__ = ["AlbertRecurrentConfig"]

"""Configuration of the Neural Data Router and its Transformer baselines."""

import math
from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities, require
from ..config.depth import AdaptiveDepthConfig
from ..config.fields import Finite, Layers, NotNegative, Share, Size, Threshold, checked_config
from ..config.presets import NDR_SIZES


@checked_config
class NDRConfig(AdaptiveDepthConfig, AttentionConfig):
    """Configuration of `NDRModel` ("The Neural Data Router", sections 2 and 3, and its appendices).

    Defaults are the paper's NDR on compositional table lookup. The rows of its tables are, besides sizes: `NDRConfig()`
    the NDR; `attention="absolute", copy_gate=False` the Transformer; `attention="relative", copy_gate=False` "+ rel";
    `attention="relative"` "+ rel + gate"; `attention="absolute_relative"` "+ abs/rel + gate"; `copy_gate=False,
    normalize_attention=True` "+ geom. att."; `copy_gate=False, halting="act"` or `"act_universal"` with any attention
    its ACT variants. Without ACT, training reads the last step alone, as in the paper. Further fields are those of
    `AdaptiveDepthConfig`, `AttentionConfig` and `RecurrentConfig`.

    Parameters by default: 666,629 (`NDRModel`).

    Args:
        attention: keys that a token attends to. "geometric": the nearest match (section 2.2); "absolute": softmax
            over content, sinusoids are added to the embeddings once; "relative": softmax over content and distance;
            "absolute_relative": the same, and a gate of each head chooses between distance and place (appendix B).
        copy_gate: a gate chooses, for each unit, between a step's update and a copy (section 2.1). Without it a step
            is a post-norm Transformer layer.
        gated_update: function of the update before the gate: "layer_norm", or "tanh", which the reference
            implementation uses with softmax attention; if None as it does.
        normalize_attention: divide geometric attention by its sum, as the reference implementation does in its
            baselines without a gate and with ACT.
        halting: "none": always `num_hidden_layers` steps, or `max_depth` of a call. "act": tokens halt one by one by
            adaptive computation time (Graves 2016), at the last step at the latest. "act_universal": the form of
            Universal Transformers, whose output is overwritten by its share instead of summed.
        halting_threshold: halting mass in (0, 1] beyond which a token stops; may be changed after loading.
        halting_bias_init: initial bias of the halting head; torch's default if None.
        ponder_loss_weight: weight of the mean ponder cost in the loss.
        padding_in_ponder_cost: divide a sequence's ponder cost by the batch's padded length instead of its own, as the
            reference implementation does.
        hard_stop: leave the loop when every token has halted. False runs all steps to the same result.
        compaction: gather sequences whose tokens have all halted out of the batch; never changes results beyond
            rounding.
        attention_dropout: dropout of attention probabilities with "absolute" attention; elsewhere of the units of
            keys, as in the reference implementation.
        gate_dropout: probability that, in training, a token's whole gate is closed for a step.
        position_dropout: dropout after the sum of embeddings and sinusoids ("absolute").
        gate_bias_init: initial bias of the copy gate; at -3 most of a state is copied at first.
        embedding_init: initial distribution of the embeddings: "normal", with standard deviation `initializer_range`,
            or "xavier_uniform".
        boundary_initializer_range: standard deviation of BOS and EOS embeddings; that of the others if None.
        pooling: representation of a sequence: the last token ("end"), the first ("cls"), or the "mean" over tokens.
    """

    model_type = "ndr"
    presets = NDR_SIZES

    hidden_size: Size = 256
    num_attention_heads: Size = 1
    num_hidden_layers: Layers = 14
    dropout: Share = 0.5
    attention_dropout: Share = 0.1
    initializer_range: NotNegative = 1.0
    boundary_initializer_range: NotNegative | None = None
    depth_objective: Literal["mixture", "final", "expected", "every_step"] = "mixture"
    pooling: Literal["end", "cls", "mean"] = "end"
    classifier: Literal["linear", "mlp"] = "linear"
    attention: Literal["geometric", "relative", "absolute_relative", "absolute"] = "geometric"
    copy_gate: bool = True
    gated_update: Literal["layer_norm", "tanh"] | None = None
    normalize_attention: bool = False
    halting: Literal["none", "act", "act_universal"] = "none"
    halting_threshold: Threshold = 0.99
    halting_bias_init: Finite | None = None
    ponder_loss_weight: NotNegative = 0.03
    padding_in_ponder_cost: bool = False
    hard_stop: bool = True
    compaction: bool = True
    gate_dropout: Share = 0.1
    position_dropout: Share = 0.1
    gate_bias_init: Finite = -3.0
    embedding_init: Literal["normal", "xavier_uniform"] = "normal"

    def __post_init__(self, **kwargs):
        if self.gated_update is None:
            self.gated_update = "layer_norm" if self.attention == "geometric" else "tanh"
        super().__post_init__(**kwargs)

    @property
    def token_units(self) -> bool:
        """Whether tokens halt one by one, rather than whole sequences."""
        return self.halting != "none" or self.is_causal

    @property
    def capabilities(self) -> Capabilities:
        halts = self.halting != "none"
        learned = replace(
            super().capabilities,
            halting=self.halting,
            halting_unit="token" if halts else None,
            shared_block=True,
            synchronous=halts,
            stops_when_halted=self.hard_stop,
            spares_steps=self.hard_stop,
            halting_threshold=self.halting_threshold,
            gates="tokens" if self.copy_gate else None,
        )
        return self.under_exit_criterion(learned)

    def validate_routing(self):
        require(
            self.attention == "geometric" or not self.normalize_attention,
            "normalize_attention",
            self.normalize_attention,
            f"softmax attention (attention={self.attention!r}) sums to one already, leave it False",
        )

    def validate_halting(self):
        other = self.halting == "none" or self.depth_objective == "expected"
        drawn = (1, math.inf if self.depth_sampling == "poisson_lognormal" else 1)
        require(
            other or (self.depth_range or drawn)[-1] <= self.num_hidden_layers,
            "depth_range",
            self.depth_range,
            "adaptive computation time takes at most num_hidden_layers steps; draw no more",
        )
        require(
            other or not self.copy_gate,
            "halting",
            self.halting,
            "adaptive computation time is defined for steps without a gate; set copy_gate=False, halting='none', or "
            "depth_objective='expected'",
        )


__all__ = ["NDRConfig"]

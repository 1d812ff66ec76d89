"""Configuration of the Neural Data Router and its Transformer baselines."""

import math
from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities
from ..config.depth import AdaptiveDepthConfig
from ..config.fields import not_negative, share


class NDRConfig(AdaptiveDepthConfig, AttentionConfig):
    """Configuration of `NDRModel` ("The Neural Data Router", sections 2 and 3, and its appendices).

    Defaults are the paper's NDR on compositional table lookup. These options are the rows of the paper's tables, which
    also differ in size:

    - `NDRConfig()`: the NDR.
    - `attention="absolute", copy_gate=False`: the Transformer.
    - `attention="relative", copy_gate=False`: "+ rel".
    - `attention="relative"`: "+ rel + gate".
    - `attention="absolute_relative"`: "+ abs/rel + gate".
    - `copy_gate=False, normalize_attention=True`: "+ geom. att.".
    - `copy_gate=False, halting="act"` or `halting="act_universal"`, with any attention: the ACT variants.

    Without ACT, training reads the last step alone, as in the paper.

    Parameters by default: 666,629 (`NDRModel`).

    Args:
        attention: the keys that a token attends to. "geometric": the nearest match (section 2.2). "absolute": softmax
            over content; sinusoids are added to the embeddings once. "relative": softmax over content and distance.
            "absolute_relative": like "relative", and a gate in each head chooses between distance and position
            (appendix B).
        copy_gate: whether a gate chooses, for each unit of a state, between the update of a step and a copy (section
            2.1). Without the gate a step is a post-norm Transformer layer.
        gated_update: function of the update before the gate: "layer_norm" or "tanh". If None, "layer_norm" with
            geometric attention and "tanh" with softmax attention, as in the reference implementation.
        normalize_attention: divide geometric attention by its sum, as the reference implementation does in its
            baselines without a gate and with ACT.
        halting: "none": always `num_hidden_layers` steps, or the `max_depth` of a call. "act": tokens halt one by
            one by adaptive computation time (Graves 2016), at the last step at the latest. "act_universal": the variant
            of Universal Transformers, whose output is overwritten by its share rather than added up.
        halting_threshold: halting mass beyond which a token stops. You can change it after loading.
        halting_bias_init: initial bias of the halting head; torch's default if None.
        ponder_loss_weight: weight of the mean ponder cost in the loss.
        padding_in_ponder_cost: divide the ponder cost of a sequence by the padded length of the batch rather than by
            the length of the sequence, as the reference implementation does.
        compaction: remove sequences from the batch when all of their tokens have halted. It changes results by rounding
            at most.
        attention_dropout: dropout probability of attention weights with "absolute" attention, and of the units of keys
            with other attention, as in the reference implementation.
        gate_dropout: probability that the whole gate of a token is closed for a step in training.
        position_dropout: dropout probability of the sum of embeddings and sinusoids, with "absolute" attention.
        gate_bias_init: initial bias of the copy gate. At -3 most of a state is copied at first.
        embedding_init: initial distribution of the embeddings: "normal", with standard deviation `initializer_range`,
            or "xavier_uniform".
        pooling: representation of a sequence: the last token ("end"), the first token ("cls"), or the "mean" over
            tokens.
    """

    model_type = "ndr"
    # large: the paper's NDR on ListOps
    presets = {
        "tiny": {"hidden_size": 64},
        "small": {"hidden_size": 128},
        "base": {},
        "large": {"hidden_size": 512, "num_attention_heads": 16, "num_hidden_layers": 20},
    }

    hidden_size: int = 256
    num_attention_heads: int = 1
    num_hidden_layers: int = 14
    dropout: float = 0.5
    attention_dropout: float = 0.1
    initializer_range: float = 1.0
    boundary_initializer_range: float | None = None
    depth_objective: Literal["mixture", "final", "expected", "every_step"] = "mixture"
    pooling: Literal["end", "cls", "mean"] = "end"
    classifier: Literal["linear", "mlp"] = "linear"
    attention: Literal["geometric", "relative", "absolute_relative", "absolute"] = "geometric"
    copy_gate: bool = True
    gated_update: Literal["layer_norm", "tanh"] | None = None
    normalize_attention: bool = False
    halting: Literal["none", "act", "act_universal"] = "none"
    halting_threshold: float = 0.99
    halting_bias_init: float | None = None
    ponder_loss_weight: float = not_negative(0.03)
    padding_in_ponder_cost: bool = False
    gate_dropout: float = share(0.1)
    position_dropout: float = share(0.1)
    gate_bias_init: float = -3.0
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
            halting_unit="token" if halts else None,
            synchronous=halts,
            halting_threshold=self.halting_threshold,
            gates="tokens" if self.copy_gate else None,
        )
        return self.under_exit_criterion(learned)

    def validate_routing(self):
        self.require(
            self.attention == "geometric" or not self.normalize_attention,
            "normalize_attention",
            f"softmax attention (attention={self.attention!r}) sums to one already, leave it False",
        )

    def validate_halting(self):
        other = self.halting == "none" or self.depth_objective == "expected"
        drawn = (1, math.inf if self.depth_sampling == "poisson_lognormal" else 1)
        self.require(
            other or (self.depth_range or drawn)[-1] <= self.num_hidden_layers,
            "depth_range",
            "adaptive computation time takes at most num_hidden_layers steps; draw no more",
        )
        self.require(
            other or not self.copy_gate,
            "halting",
            "adaptive computation time is defined for steps without a gate; set copy_gate=False, halting='none', or "
            "depth_objective='expected'",
        )


__all__ = ["NDRConfig"]

"""Configuration of the Sparse Universal Transformer."""

from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities
from ..config.depth import AdaptiveDepthConfig
from ..config.fields import count, layers, length, not_negative, share, size, token_id


class SUTConfig(AdaptiveDepthConfig, AttentionConfig):
    """Configuration of `SUTModel` ("Sparse Universal Transformer", https://arxiv.org/abs/2310.07096).

    Defaults are the sizes of the paper's SUT base on WMT'14. By default the model has no halting head. Training
    supervises every depth step, and an `exit_criterion` that `hf-recurrent calibrate` chooses stops early. In an
    encoder-decoder each step of the encoder then takes a pass of the decoder in training.
    `SUTConfig.preset("sparse_universal")` is the paper's SUT, which learns to halt.

    These options are the rows of the paper's tables, which also differ in size:

    - `attention_experts=1, attention_experts_per_token=1, feed_forward_experts=1, feed_forward_experts_per_token=1`:
      the Universal Transformer; with `relative_positions="t5", layer_norm="pre"` the variant based on T5.
    - `num_attention_heads=1` and proportionally more experts: a mixture of single heads ("- MoMHA").
    - `router_loss="switch"`: "- MIM loss".
    - `ponder_loss_weight=0`: "- ACT loss".
    - `halting="none", depth_objective="final"`: "- halting".

    Parameters by default: 19,761,920 (`SUTModel`), 46,337,024 (`SUTForConditionalGeneration`).

    Args:
        num_attention_heads: number of attention heads of one expert.
        head_dim: width of an attention head; an eighth of `hidden_size` if None.
        intermediate_size: inner width of one feed-forward expert; `hidden_size` if None.
        num_hidden_layers: largest number of depth steps, L, of the encoder, or of the only stack.
        num_decoder_layers: largest number of depth steps of the decoder; `num_hidden_layers` if None.
        attention_experts: number of attention experts, E. An expert has its own query and output maps; keys and values
            are shared by all experts (mixture of multi-head attention).
        attention_experts_per_token: number of attention experts that serve a token, k.
        feed_forward_experts: number of feed-forward experts.
        feed_forward_experts_per_token: number of feed-forward experts that serve a token.
        relative_positions: distances in the attention within a stack. "window": queries are compared with a learned
            vector for each distance up to `relative_window`. "t5": T5's position biases. "none": no distances.
        relative_window: largest distance that has its own vector, W.
        relative_attention_num_buckets: number of buckets of T5's position biases.
        relative_attention_max_distance: distance beyond which T5's position biases do not change.
        absolute_positions: whether sinusoids are added to the embeddings.
        scale_embeddings: whether embeddings are multiplied by the square root of the width.
        layer_norm: "post": after each residual sum. "pre": before each sub-layer, and once at the end.
        halting: "token": tokens learn to halt one by one by stick-breaking, as in the paper. "none": there is no
            halting head.
        halting_threshold: halting mass beyond which a token stops. You can change it after loading.
        halting_bias_init: initial bias of the halting head. If None, the head has no bias, as in the reference
            implementation, and at first halts half of the remaining mass after each step.
        halted_tokens: what happens to a token after it has halted. "frozen": nothing changes. "released": as in the
            reference implementation, its state still passes through the layer norms and its halting mass keeps growing.
            This changes its ponder cost but no output, and every step is taken.
        compaction: leave padding out of the computation, and remove halted tokens from queries and experts. It changes
            results by rounding at most.
        ponder_loss_weight: weight of the mean ponder cost in the loss (ACT loss, Eq. 4). The mean is over all tokens of
            both stacks in an encoder-decoder, and over sequences in a single stack.
        router_loss: auxiliary loss for an even use of the experts: "mutual_information" (Eq. 1), "switch" (load
            balancing of Switch Transformers), "importance" (squared coefficient of variation), or "none".
        router_loss_weight: weight of the router loss, which is summed over all routers.
        mutual_information_sign: "paper" rewards an even use of the experts; "released" punishes it, as the reference
            implementation does.
        aux_loss_reduction: how auxiliary losses are weighed. "mean": they are added to the mean cross-entropy. "sum":
            they are added to the sum over the labelled tokens, as in the reference implementation, so their share
            falls with the number of tokens.
        attention_router_samples: number of a token's attention experts that are drawn by their probability in training.
        label_smoothing: share of the target that sequence-to-sequence training spreads over the other token ids.
        activation_dropout: dropout probability within feed-forward experts.
        router_dropout: dropout probability within routers.
        halting_dropout: dropout probability within the halting head.
        initializer_range: standard deviation of the embeddings at initialization; `hidden_size ** -0.5` if None.
        tie_word_embeddings: whether the encoder, the decoder and the output layer share one embedding table.
        is_encoder_decoder: whether there are two stacks, as `SUTForConditionalGeneration` needs.
        decoder_start_token_id: first input of the decoder; the EOS token if None.
    """

    model_type = "sut"
    inner_ratio = 1
    # large: the paper's SUT big; small: its recipe for logical inference
    presets = {
        "tiny": {
            "hidden_size": 64,
            "attention_experts": 4,
            "attention_experts_per_token": 2,
            "num_attention_heads": 2,
            "head_dim": 16,
            "feed_forward_experts": 4,
            "feed_forward_experts_per_token": 2,
        },
        "small": {
            "hidden_size": 256,
            "attention_experts": 12,
            "num_attention_heads": 2,
            "feed_forward_experts": 12,
            "intermediate_size": 128,
        },
        "base": {},
        "large": {"attention_experts": 48, "feed_forward_experts": 48},
    }
    papers = {"sparse_universal": {"halting": "token", "depth_objective": "mixture"}}
    earlier_defaults = papers["sparse_universal"]
    special_tokens = (*AttentionConfig.special_tokens, "decoder_start_token_id")
    keys_to_ignore_at_inference = [
        *AttentionConfig.keys_to_ignore_at_inference,
        "decoder_hidden_states",
        "decoder_attentions",
        "encoder_last_hidden_state",
        "encoder_hidden_states",
        "encoder_attentions",
        "encoder_ponder_cost",
        "encoder_ponder_steps",
        "encoder_halting_probabilities",
        "encoder_attention_experts",
        "encoder_feed_forward_experts",
    ]

    num_hidden_layers: int = 6
    num_decoder_layers: int | None = layers(None)
    num_attention_heads: int = 4
    attention_experts: int = size(24)
    attention_experts_per_token: int = size(4)
    feed_forward_experts: int = size(24)
    feed_forward_experts_per_token: int = size(4)
    relative_positions: Literal["window", "t5", "none"] = "window"
    relative_window: int = count(63)
    relative_attention_num_buckets: int = length(32)
    relative_attention_max_distance: int = length(128)
    absolute_positions: bool = True
    scale_embeddings: bool = True
    layer_norm: Literal["post", "pre"] = "post"
    halting: Literal["token", "none"] = "none"
    halting_bias_init: float | None = None
    halted_tokens: Literal["frozen", "released"] = "frozen"
    ponder_loss_weight: float = not_negative(0.001)
    router_loss: Literal["mutual_information", "switch", "importance", "none"] = "mutual_information"
    router_loss_weight: float = not_negative(0.1)
    mutual_information_sign: Literal["paper", "released"] = "paper"
    aux_loss_reduction: Literal["mean", "sum"] = "mean"
    attention_router_samples: int = count(0)
    label_smoothing: float = share(0.0)
    dropout: float = 0.2
    attention_dropout: float = 0.2
    activation_dropout: float = share(0.2)
    router_dropout: float = share(0.2)
    halting_dropout: float = share(0.0)
    initializer_range: float | None = None
    boundary_initializer_range: float | None = None
    classifier: Literal["linear", "mlp"] = "linear"
    tie_word_embeddings: bool = True
    is_encoder_decoder: bool = False
    decoder_start_token_id: int | None = token_id(None)

    def __post_init__(self, **kwargs):
        if self.head_dim is None:
            # several experts serve a token, whose heads need not divide the width
            self.head_dim = max(1, self.hidden_size // 8)
        if self.num_decoder_layers is None:
            self.num_decoder_layers = self.num_hidden_layers
        if self.initializer_range is None:
            self.initializer_range = self.hidden_size**-0.5
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.eos_token_id
        super().__post_init__(**kwargs)

    @property
    def counts_by_token(self) -> bool:
        """True, whatever halts: each token has experts of its own at each step."""
        return True

    @property
    def capabilities(self) -> Capabilities:
        halts = self.halting != "none"
        across = ("cross_attention",) if self.is_encoder_decoder else ()
        learned = replace(
            super().capabilities,
            halting_unit="token" if halts else None,
            stops_when_halted=self.hard_stop and self.halted_tokens == "frozen",
            spares_steps=self.hard_stop and self.halted_tokens == "frozen",
            halting_threshold=self.halting_threshold,
            resumable=self.is_causal or self.is_encoder_decoder,
            routers=("attention", *across, "feed_forward"),
            stacks=("encoder", "decoder") if self.is_encoder_decoder else ("",),
        )
        return self.under_exit_criterion(learned)

    def validate_experts(self):
        for kind in ("attention_experts", "feed_forward_experts"):
            per_token = f"{kind}_per_token"
            most = getattr(self, kind)
            remedy = f"a token cannot use more experts than there are ({kind} is {most})"
            self.require(getattr(self, per_token) <= most, per_token, remedy)
        most = self.attention_experts_per_token
        remedy = f"it must be at most attention_experts_per_token ({most})"
        self.require(self.attention_router_samples <= most, "attention_router_samples", remedy)

    def validate_stacks(self):
        self.require(
            self.label_smoothing == 0 or self.vocab_size > 1,
            "label_smoothing",
            "there is no other id to spread it over (vocab_size is 1)",
        )
        self.require(
            not (self.is_encoder_decoder and self.is_causal),
            "is_causal",
            "an encoder sees all of its source, and the decoder is causal anyway: leave it False",
        )
        self.require(
            not (self.is_encoder_decoder and self.type_vocab_size > 0),
            "type_vocab_size",
            "a source and a target are in stacks of their own: leave it at 0 with is_encoder_decoder=True",
        )
        self.require(
            self.hidden_size % 2 == 0 or not self.absolute_positions,
            "hidden_size",
            "sinusoids come in pairs, so it must be even; or set absolute_positions=False",
        )

    def validate_distances(self):
        buckets, exact = self.relative_attention_num_buckets, self.relative_attention_num_buckets // 2
        fits = buckets >= 4 and buckets % 2 == 0
        self.require(fits, "relative_attention_num_buckets", "it must be even and at least 4")
        remedy = f"it must be more than half the buckets ({exact})"
        self.require(self.relative_attention_max_distance > exact, "relative_attention_max_distance", remedy)


__all__ = ["SUTConfig"]

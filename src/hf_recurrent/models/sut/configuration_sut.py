"""Configuration of the Sparse Universal Transformer."""

from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities, require
from ..config.depth import AdaptiveDepthConfig
from ..config.fields import Count, Finite, Layers, Length, NotNegative, Share, Size, Threshold, TokenId, checked_config
from ..config.presets import SUT_PAPERS, SUT_SIZES


@checked_config
class SUTConfig(AdaptiveDepthConfig, AttentionConfig):
    """Configuration of the Sparse Universal Transformer ("Sparse Universal Transformer", https://arxiv.org/abs/2310.07096).

    Defaults are the sizes of the paper's SUT base on WMT'14. By default the model has no halting head. Training
    supervises every depth step, and an `exit_criterion` that `hf-recurrent calibrate` chooses stops early. In an
    encoder-decoder each step of the encoder then takes a pass of the decoder in training.
    `SUTConfig.preset("sparse_universal")` is the paper's SUT, which learns to halt.

    The rows of the paper's tables are, besides sizes: one expert each
    (`attention_experts=1, attention_experts_per_token=1, feed_forward_experts=1, feed_forward_experts_per_token=1`) the
    Universal Transformer; that with `relative_positions="t5", layer_norm="pre"` the T5-based one;
    `num_attention_heads=1` and as many more experts a mixture of single heads ("- MoMHA"); `router_loss="switch"`
    "- MIM loss"; `ponder_loss_weight=0` "- ACT loss"; `halting="none", depth_objective="final"` "- halting". Further
    fields are those of `AttentionConfig`, where `num_attention_heads` and `intermediate_size` are of one expert, and of
    `RecurrentConfig`.

    Parameters by default: 19,761,920 (`SUTModel`), 46,337,024 (`SUTForConditionalGeneration`).

    Args:
        head_dim: width of a head; an eighth of `hidden_size` if None.
        num_hidden_layers: maximum of depth steps L of the encoder or, of a model with one stack, of that.
        num_decoder_layers: maximum of depth steps of the decoder; None: as many as the encoder's at this time.
        attention_experts, attention_experts_per_token: E query and output maps, of which k serve a token; keys and
            values are shared by all (mixture of multi-head attention).
        feed_forward_experts, feed_forward_experts_per_token: the same of feed-forward networks.
        relative_positions: distances in attention within a stack: "window", a learned vector for each up to
            `relative_window` that queries are compared with; "t5", T5's biases; or "none".
        relative_window: largest distance W with a vector of its own.
        relative_attention_num_buckets, relative_attention_max_distance: of T5's biases.
        absolute_positions: add sinusoids to the embeddings.
        scale_embeddings: multiply embeddings by the square root of the width.
        layer_norm: after each residual sum ("post") or before each sub-layer, and once at the end ("pre").
        halting: tokens learn to halt one by one by stick-breaking, as in the paper ("token"), or there is no halting
            head ("none").
        halting_threshold: halting mass in (0, 1] beyond which a token stops; may be changed after loading.
        halting_bias_init: initial bias of the halting head; None for the reference implementation's head, which has
            none and at first halts half of the remaining mass after each step.
        halted_tokens: further computation of a token that has halted. "frozen": nothing changes any more. "released":
            as in the reference implementation its state goes on through the layer norms and its halting mass keeps
            growing, which changes its ponder cost but no output; every step is then taken.
        hard_stop: leave the loop when every token has halted. False runs all steps to the same result.
        compaction: leave padding out of a call, and tokens that have halted out of its queries and experts; never
            changes results beyond rounding.
        ponder_loss_weight: weight of the mean ponder cost in the loss (ACT loss, Eq. 4): of an encoder-decoder the mean
            over all tokens of either stack, of one stack the mean over sequences.
        router_loss: auxiliary loss for an even use of the experts: "mutual_information" (Eq. 1), "switch" (load
            balancing of Switch Transformers), "importance" (squared coefficient of variation), or "none".
        router_loss_weight: its weight in the loss; the terms of all routers are added up.
        mutual_information_sign: "paper" rewards an even use of the experts; "released" punishes it, as the reference
            implementation does.
        aux_loss_reduction: "mean": auxiliary terms stand beside the mean cross-entropy. "sum": beside the sum over the
            labelled tokens, as released, so that they weigh less by their number.
        attention_router_samples: in training, draw so many of a token's attention experts by their share.
        label_smoothing: share of the target that sequence-to-sequence training spreads over the other token ids.
        activation_dropout: dropout within feed-forward experts.
        router_dropout: dropout within routers.
        halting_dropout: dropout within the halting head.
        initializer_range: standard deviation of embeddings at the start; one over the root of the width if None.
        boundary_initializer_range: that of BOS and EOS embeddings; the same if None.
        tie_word_embeddings: one table for the encoder's tokens, the decoder's and the output.
        is_encoder_decoder: whether there are two stacks, as `SUTForConditionalGeneration` needs.
        decoder_start_token_id: first input of a decoder; the EOS token if None.
    """

    model_type = "sut"
    presets = SUT_SIZES
    papers = SUT_PAPERS
    earlier_defaults = SUT_PAPERS["sparse_universal"]
    inner_ratio = 1
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

    hidden_size: Size = 512
    num_hidden_layers: Layers = 6
    num_decoder_layers: Layers | None = None
    num_attention_heads: Size = 4
    attention_experts: Size = 24
    attention_experts_per_token: Size = 4
    feed_forward_experts: Size = 24
    feed_forward_experts_per_token: Size = 4
    relative_positions: Literal["window", "t5", "none"] = "window"
    relative_window: Count = 63
    relative_attention_num_buckets: Length = 32
    relative_attention_max_distance: Length = 128
    absolute_positions: bool = True
    scale_embeddings: bool = True
    layer_norm: Literal["post", "pre"] = "post"
    halting: Literal["token", "none"] = "none"
    halting_threshold: Threshold = 0.999
    halting_bias_init: Finite | None = None
    halted_tokens: Literal["frozen", "released"] = "frozen"
    ponder_loss_weight: NotNegative = 0.001
    router_loss: Literal["mutual_information", "switch", "importance", "none"] = "mutual_information"
    router_loss_weight: NotNegative = 0.1
    mutual_information_sign: Literal["paper", "released"] = "paper"
    aux_loss_reduction: Literal["mean", "sum"] = "mean"
    attention_router_samples: Count = 0
    label_smoothing: Share = 0.0
    dropout: Share = 0.2
    attention_dropout: Share = 0.2
    activation_dropout: Share = 0.2
    router_dropout: Share = 0.2
    halting_dropout: Share = 0.0
    initializer_range: NotNegative | None = None
    boundary_initializer_range: NotNegative | None = None
    classifier: Literal["linear", "mlp"] = "linear"
    tie_word_embeddings: bool = True
    hard_stop: bool = True
    compaction: bool = True
    is_encoder_decoder: bool = False
    decoder_start_token_id: TokenId | None = None

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
            halting=self.halting,
            halting_unit="token" if halts else None,
            shared_block=True,
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
            require(
                getattr(self, per_token) <= most,
                per_token,
                getattr(self, per_token),
                f"a token cannot use more experts than there are ({kind} is {most})",
            )
        samples, most = self.attention_router_samples, self.attention_experts_per_token
        require(
            samples <= most,
            "attention_router_samples",
            samples,
            f"it must lie between 0 and attention_experts_per_token ({most})",
        )

    def validate_stacks(self):
        smoothing = self.label_smoothing
        require(
            smoothing == 0 or self.vocab_size > 1,
            "label_smoothing",
            smoothing,
            "there is no other id to spread it over (vocab_size is 1)",
        )
        self.require_token("decoder_start_token_id")
        require(
            not (self.is_encoder_decoder and self.is_causal),
            "is_causal",
            self.is_causal,
            "an encoder sees all of its source, and the decoder is causal anyway: leave it False",
        )
        require(
            not (self.is_encoder_decoder and self.type_vocab_size > 0),
            "type_vocab_size",
            self.type_vocab_size,
            "a source and a target are in stacks of their own: leave it at 0 with is_encoder_decoder=True",
        )
        require(
            self.hidden_size % 2 == 0 or not self.absolute_positions,
            "hidden_size",
            self.hidden_size,
            "sinusoids come in pairs, so it must be even; or set absolute_positions=False",
        )

    def validate_distances(self):
        buckets, most = self.relative_attention_num_buckets, self.relative_attention_max_distance
        require(
            buckets >= 4 and buckets % 2 == 0,
            "relative_attention_num_buckets",
            buckets,
            "it must be even and at least 4",
        )
        require(
            most > buckets // 2,
            "relative_attention_max_distance",
            most,
            f"it must be more than half the buckets ({buckets // 2})",
        )


__all__ = ["SUTConfig"]

"""Configurations of models that share one block between depth steps: when units stop, and how depth is trained."""

from dataclasses import replace
from typing import Literal

from .base import AttentionConfig, Capabilities, EncoderConfig, RecurrentConfig
from .exit_criteria import CRITERIA, CRITERION_SETTINGS, LEARNED
from .fields import count, layers, length, not_negative, positive, probability, size, threshold


class AdaptiveDepthConfig(RecurrentConfig):
    """Fields of every model that iterates one block.

    Args:
        halting_threshold: halting mass at which a token or sequence stops. You can change it after loading.
        hard_stop: leave the loop when every token or sequence has stopped. False runs all steps, with the same result.
        compaction: remove tokens or sequences that have stopped from the batch. It changes results by rounding at most.
        exit_criterion: early-exit criterion, which decides when a token or sequence stops in evaluation mode.
            "learned": the halting head decides, if there is one. The other criteria replace the halting head:
            "convergence" of the states, "agreement" of successive predictions, "stability" of the predicted class,
            "confidence" or "entropy" of the prediction, or a "probe" that judges the present answer. In causal models
            each token stops separately. In other models the sequence stops as a whole, unless halting is by tokens and
            the criterion is "convergence" or the head answers for each token. If you replace one criterion by another,
            `exit_threshold` and `exit_patience` are reset: set them afterwards.
        exit_threshold: threshold of the early-exit criterion; the criterion's default if None. "learned" reads
            `halting_threshold` instead.
        exit_patience: number of successive steps for which the criterion must hold; the criterion's default if None.
        min_depth: number of depth steps before which no criterion stops a token or sequence. The maximum number of
            steps has priority over this and over the patience.
        exit_probe_size: inner width of the probe that `hf-recurrent fit-probe` fits; 0 without a probe.
        exit_calibration: record of the calibration that chose the criterion (`hf-recurrent calibrate`).
        depth_objective: the states that the training loss reads. "every_step": the states of all steps, weighted by
            `step_weights`. "final": the state after the last step. "mixture": the halting-weighted mean of the states,
            as in the papers, or the state after the last step without halting. "expected": the expected loss under
            the halting distribution, plus the divergence of that distribution from `depth_prior` (PonderNet, arXiv
            2107.05407). If None, "every_step" without a halting head and "mixture" with one.
        step_weights: weight of step k in "every_step": proportional to k ("linear"), or equal ("uniform").
        depth_prior: prior over the depth in "expected": "geometric", or "uniform" as in Ouro (arXiv 2510.25741).
        depth_prior_rate: halting probability of each step under the geometric prior.
        depth_prior_weight: weight of the divergence from the prior in the loss.
        depth_sampling: number of depth steps in training. "fixed": `num_hidden_layers`. "uniform": drawn uniformly from
            `depth_range`. "poisson_lognormal": one more than a draw whose mean is `num_hidden_layers`, limited to
            `depth_range` (Huginn, arXiv 2502.05171).
        depth_range: smallest and largest number of steps that are drawn, [low, high]. If None, 1 and
            `num_hidden_layers`, and no upper limit for "poisson_lognormal".
        backprop_steps: number of last steps through which training propagates gradients; all steps if None. The
            embeddings are then trained only by calls of at most this many steps.
    """

    halting_threshold: float = threshold(0.999)
    hard_stop: bool = True
    compaction: bool = True
    exit_criterion: Literal["learned", "convergence", "agreement", "stability", "confidence", "entropy", "probe"] = (
        "learned"
    )
    exit_threshold: float | None = not_negative(None)
    exit_patience: int | None = layers(None)
    min_depth: int = layers(1)
    exit_probe_size: int = count(0)
    exit_calibration: dict | None = None
    depth_objective: Literal["mixture", "final", "expected", "every_step"] | None = None
    step_weights: Literal["linear", "uniform"] = "linear"
    depth_prior: Literal["geometric", "uniform"] = "geometric"
    depth_prior_rate: float = probability(0.2)
    depth_prior_weight: float = not_negative(0.01)
    depth_sampling: Literal["fixed", "uniform", "poisson_lognormal"] = "fixed"
    depth_range: list[int] | tuple[int, ...] | None = layers(None)
    backprop_steps: int | None = layers(None)

    def __post_init__(self, **kwargs):
        if self.depth_objective is None:
            self.depth_objective = "every_step" if self.halting == "none" else "mixture"
        super().__post_init__(**kwargs)

    def __setattr__(self, name: str, value: object):
        before = self.__dict__.get("exit_criterion", LEARNED)
        super().__setattr__(name, value)
        # those that are set under learned halting, which has none, are meant for the criterion to come
        if name == "exit_criterion" and before not in (LEARNED, value):
            for setting in CRITERION_SETTINGS:
                setattr(self, setting, None)

    @property
    def capabilities(self) -> Capabilities:
        return replace(
            super().capabilities,
            halting=self.halting,
            shared_block=True,
            stops_when_halted=self.hard_stop,
            spares_steps=self.hard_stop,
        )

    @property
    def keeps_last_keys(self) -> bool:
        """Whether a token that has stopped leaves the keys and values of its last step to later ones.

        Otherwise they are those of its final state.
        """
        return False

    @property
    def token_units(self) -> bool:
        """Whether tokens halt one by one, rather than whole sequences."""
        return self.halting == "token" or self.is_causal

    @property
    def counts_by_token(self) -> bool:
        """Whether `ponder_steps` has the steps of each token, rather than of whole sequences or chunks."""
        return self.token_units

    def stops_by_token(self, criterion: str) -> bool:
        """Whether tokens stop one by one under an exit criterion, rather than whole sequences."""
        return self.is_causal or (CRITERIA[criterion].evidence == "states" and self.token_units)

    def under_exit_criterion(self, learned: Capabilities) -> Capabilities:
        """The capabilities under the config's exit criterion, from those under learned halting."""
        if self.exit_criterion == LEARNED:
            return replace(learned, exit_criterion=LEARNED)
        return replace(
            learned,
            exit_criterion=self.exit_criterion,
            halting_unit="token" if self.stops_by_token(self.exit_criterion) else "sequence",
            computes_candidate=False,
            synchronous=False,
            stops_when_halted=self.hard_stop,
            spares_steps=self.hard_stop,
        )

    def validate_exit(self):
        if self.exit_criterion == LEARNED:
            for field in CRITERION_SETTINGS:
                remedy = "exit_criterion='learned' reads halting_threshold; leave it None, or set exit_criterion"
                self.require(getattr(self, field) is None, field, remedy)
            return
        CRITERIA[self.exit_criterion].check_threshold(self.exit_threshold, "config field `exit_threshold`")
        self.require(
            self.exit_criterion != "probe" or self.exit_probe_size > 0,
            "exit_criterion",
            "this model has no fitted probe (exit_probe_size is 0); run `hf-recurrent fit-probe` first",
        )

    def validate_objective(self):
        objective, trains_head, bounds = self.depth_objective, self.halting != "none", self.depth_range
        self.require(
            not trains_head or objective in ("mixture", "expected", "gate"),
            "depth_objective",
            f"it trains no halting head, but halting is {self.halting!r}; set halting='none', and an exit_criterion "
            "to stop by",
        )
        self.require(
            trains_head or objective not in ("expected", "gate"),
            "depth_objective",
            "it needs a halting distribution; set halting to what halts",
        )
        self.require(
            bounds is None or (len(bounds) == 2 and bounds[0] <= bounds[1]),
            "depth_range",
            "pass the smallest and the largest number of steps, [low, high] with 1 <= low <= high",
        )
        self.require(
            bounds is None or self.depth_sampling != "fixed",
            "depth_range",
            "depth_sampling='fixed' draws nothing; set depth_sampling, or leave it None",
        )


class StackedDepthConfig(AdaptiveDepthConfig, AttentionConfig):
    """Fields of causal models whose depth step is a stack of layers with rotary positions, such as Ouro and Huginn.

    Args:
        layers_per_step: number of layers of a depth step; each has its own keys and values.
        skipped_steps: keys and values of a token for the steps after the token has stopped. "computed": all steps are
            computed, and the answer is read from the state at which the token stopped, as in the authors' code; this
            saves no time. "last": the keys and values of the token's last step are used again.
        max_position_embeddings: number of tokens for which the model was trained; longer sequences are possible.
        rope_theta: base of the frequencies of the rotary positions.
        is_causal: always True: a token sees itself and earlier tokens.
    """

    # rotations turn pairs of dimensions
    head_step = 2

    layers_per_step: int = layers(4)
    skipped_steps: Literal["computed", "last"] = "computed"
    max_position_embeddings: int = length(4096)
    rope_theta: float = positive(10_000.0)
    dropout: float = 0.0
    attention_dropout: float = 0.0
    layer_norm_eps: float = 1e-6
    boundary_initializer_range: float | None = None
    classifier: Literal["linear", "mlp"] = "linear"
    pooling: Literal["mean", "end", "cls"] = "end"
    pair_encoding: Literal["joint"] = "joint"
    lm_head: Literal["linear"] = "linear"
    is_causal: Literal[True] = True

    def validate_rotations(self):
        self.require(self.head_dim % 2 == 0, "head_dim", "rotations turn pairs of dimensions; make it even")

    @property
    def keeps_last_keys(self) -> bool:
        return self.skipped_steps == "last"

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, spares_steps=self.hard_stop and self.keeps_last_keys)

    def under_exit_criterion(self, learned: Capabilities) -> Capabilities:
        return replace(super().under_exit_criterion(learned), spares_steps=learned.spares_steps)


class DepthRecurrentConfig(AdaptiveDepthConfig, EncoderConfig):
    """Fields of encoders that iterate one block and halt.

    A causal model halts token by token. In it, `halting="global"` means that a token halts by the mean over itself and
    the tokens before it, and `halting="token"` that it halts by its own state alone.

    Args:
        halting: halting granularity of the halting head: every "token", or the whole sequence ("global"). "none": the
            model has no halting head and takes `num_hidden_layers` steps, or stops by an `exit_criterion`. The papers'
            models learn to halt: `preset("dynamic_halt")`.
        transition_aware: whether the halting head sees the state before and after the candidate step.
        halting_bias_init: initial bias of the halting head. With about -3 training reaches all depths before it learns
            to stop. With 0, the value of the reference implementation, a model stops after two steps at first and may
            never use more.
        ponder_loss_weight: weight of the mean ponder cost in the loss.
        hard_stop: leave the loop when every token or sequence has halted. False runs all steps, with the same result
            (the paper's "upper bound" timing).
        cap_depth_by_length: halt a sequence of n tokens after n + 1 steps, as the reference implementation does.
        halted_candidates: whether a causal model with "global" halting includes the candidate states of halted tokens
            in its running means, as the reference implementation does; then no step can be skipped. By default a
            halted token counts with the state that it keeps.
    """

    halting: Literal["token", "global", "none"] = "none"
    transition_aware: bool = True
    halting_bias_init: float = -3.0
    ponder_loss_weight: float = not_negative(0.1)
    cap_depth_by_length: bool = False
    halted_candidates: bool = False

    @property
    def running_mean(self) -> bool:
        """Whether a token halts by the mean over itself and the tokens before it."""
        return self.halting == "global" and self.is_causal

    @property
    def capabilities(self) -> Capabilities:
        halts = self.halting != "none"
        learned = replace(
            super().capabilities,
            halting_unit=("token" if self.token_units else "sequence") if halts else None,
            computes_candidate=halts and self.transition_aware,
            spares_steps=self.hard_stop and not (self.running_mean and self.halted_candidates),
            halting_threshold=self.halting_threshold,
            resumable=self.is_causal and not self.cap_depth_by_length,
        )
        return self.under_exit_criterion(learned)


class GatedDepthConfig(DepthRecurrentConfig):
    """Fields of depth-recurrent encoders whose block is gated.

    Args:
        feed_forward: "gated": a gate mixes the result of a step with the state before the step. "plain": no gate, the
            paper's "-Gate".
        gate_intermediate_size: inner width of the gate, d_gff; `intermediate_size` if None.
    """

    feed_forward: Literal["gated", "plain"] = "gated"
    gate_intermediate_size: int | None = size(None)

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.gate_intermediate_size is None:
            self.gate_intermediate_size = self.intermediate_size

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, gates="tokens" if self.feed_forward == "gated" else None)

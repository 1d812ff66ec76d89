"""Configurations of models that share one block between depth steps: when units stop, and how depth is trained."""

from dataclasses import replace
from typing import Literal

from .base import EXIT_SETTINGS, AttentionConfig, Capabilities, EncoderConfig, RecurrentConfig, require
from .exit_criteria import CRITERIA, LEARNED
from .fields import (
    Count,
    Finite,
    Layers,
    Length,
    NotNegative,
    Positive,
    Probability,
    Share,
    Size,
    Threshold,
    checked_config,
)


@checked_config
class AdaptiveDepthConfig(RecurrentConfig):
    """Fields of every model that iterates one block.

    Args:
        exit_criterion: when units stop in evaluation mode. "learned": by the halting head, if there is one. Otherwise
            the criterion replaces it: "convergence" of the states, "agreement" of successive predictions, "stability"
            of the predicted class, "confidence" or "entropy" of the prediction, or a "probe" that judges the present
            answer (see `exit_criteria.CRITERIA`). A unit is the token in causal models; in others the sequence, but
            the token under "convergence", and with a head that answers for each token, if halting is by tokens. Setting
            another criterion drops the threshold and patience of the one before: set those after it.
        exit_threshold: threshold of the criterion, its own default if None. "learned" reads `halting_threshold`.
        exit_patience: successive steps for which the criterion must hold; the criterion's default if None.
        min_depth: depth steps before which no criterion stops a unit. The maximum of steps stops every unit, even if it
            is smaller than this or the patience.
        exit_probe_size: inner width of the probe; 0 without one (`hf-recurrent fit-probe` fits it).
        exit_calibration: record of the calibration that chose the criterion (`hf-recurrent calibrate`).
        depth_objective: state that training reads. "every_step": all steps, by `step_weights`. "final": the state after
            the last step. "mixture": the halting-weighted states, as in the papers; without halting the state after the
            last step. "expected": expected loss under the halting distribution, and its divergence from `depth_prior`
            (PonderNet, arXiv 2107.05407). If None "every_step" without a halting head, and "mixture" with one.
        step_weights: weight of the k-th step with "every_step": proportional to k ("linear"), or equal ("uniform").
        depth_prior: prior over depth with "expected": "geometric", or "uniform" as in Ouro (arXiv 2510.25741).
        depth_prior_rate: halting probability of each step under the geometric prior.
        depth_prior_weight: weight of the divergence from the prior in the loss.
        depth_sampling: number of depth steps of a training call: "fixed" at `num_hidden_layers`, "uniform" in
            `depth_range`, or "poisson_lognormal", one more than a number of mean `num_hidden_layers`, within that range
            (Huginn, arXiv 2502.05171).
        depth_range: smallest and largest number of steps drawn; if None from 1 to `num_hidden_layers`, and without
            upper limit for "poisson_lognormal".
        backprop_steps: training propagates gradients through the last so many steps only; all if None. Embeddings are
            then trained by calls of at most so many steps.
    """

    exit_criterion: Literal["learned", "convergence", "agreement", "stability", "confidence", "entropy", "probe"] = (
        "learned"
    )
    exit_threshold: NotNegative | None = None
    exit_patience: Layers | None = None
    min_depth: Layers = 1
    exit_probe_size: Count = 0
    exit_calibration: dict | None = None
    depth_objective: Literal["mixture", "final", "expected", "every_step"] | None = None
    step_weights: Literal["linear", "uniform"] = "linear"
    depth_prior: Literal["geometric", "uniform"] = "geometric"
    depth_prior_rate: Probability = 0.2
    depth_prior_weight: NotNegative = 0.01
    depth_sampling: Literal["fixed", "uniform", "poisson_lognormal"] = "fixed"
    depth_range: list[Layers] | tuple[Layers, ...] | None = None
    backprop_steps: Layers | None = None

    def __post_init__(self, **kwargs):
        if self.depth_objective is None:
            self.depth_objective = "every_step" if self.halting == "none" else "mixture"
        super().__post_init__(**kwargs)

    def __setattr__(self, name: str, value: object):
        before = self.__dict__.get("exit_criterion", LEARNED)
        super().__setattr__(name, value)
        # those that are set under learned halting, which has none, are meant for the criterion to come
        if name == "exit_criterion" and before not in (LEARNED, value):
            for setting in EXIT_SETTINGS:
                setattr(self, setting, None)

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
            for field in EXIT_SETTINGS:
                value = getattr(self, field)
                remedy = "exit_criterion='learned' reads halting_threshold; leave it None, or set exit_criterion"
                require(value is None, field, value, remedy)
            return
        CRITERIA[self.exit_criterion].check_threshold(self.exit_threshold, "config field `exit_threshold`")
        require(
            self.exit_criterion != "probe" or self.exit_probe_size > 0,
            "exit_criterion",
            self.exit_criterion,
            "this model has no fitted probe (exit_probe_size is 0); run `hf-recurrent fit-probe` first",
        )

    def validate_objective(self):
        objective, trains_head = self.depth_objective, self.halting != "none"
        require(
            not trains_head or objective in ("mixture", "expected", "gate"),
            "depth_objective",
            objective,
            f"it trains no halting head, but halting is {self.halting!r}; set halting='none', and an exit_criterion "
            "to stop by",
        )
        require(
            trains_head or objective not in ("expected", "gate"),
            "depth_objective",
            objective,
            "it needs a halting distribution; set halting to what halts",
        )
        bounds = self.depth_range
        require(
            bounds is None or (len(bounds) == 2 and bounds[0] <= bounds[1]),
            "depth_range",
            bounds,
            "pass the smallest and the largest number of steps, [low, high] with 1 <= low <= high",
        )
        require(
            bounds is None or self.depth_sampling != "fixed",
            "depth_range",
            bounds,
            "depth_sampling='fixed' draws nothing; set depth_sampling, or leave it None",
        )


@checked_config
class StackedDepthConfig(AdaptiveDepthConfig, AttentionConfig):
    """Fields of causal models whose depth step is a stack of layers with rotary positions, as Ouro's and Huginn's.

    Args:
        layers_per_step: layers of a step, each with keys and values of its own.
        skipped_steps: keys and values of a token that has stopped in the steps after. "computed": all steps are
            computed, and only the state that is answered from is that of the step it stopped at, as the authors' code
            does; this saves no time. "last": those of its last step, again and again.
        max_position_embeddings: tokens of a sequence that the model was trained for; longer ones are read, too.
        rope_theta: base of the frequencies of rotations.
        hard_stop: leave the loop when every token has stopped. False runs all steps to the same result.
        compaction: gather tokens that have stopped out of the batch; never changes results beyond rounding.
        is_causal: always True: a token sees itself and those before it.
    """

    # rotations turn pairs of dimensions
    head_step = 2

    layers_per_step: Layers = 4
    skipped_steps: Literal["computed", "last"] = "computed"
    max_position_embeddings: Length = 4096
    rope_theta: Positive = 10_000.0
    dropout: Share = 0.0
    attention_dropout: Share = 0.0
    layer_norm_eps: Positive = 1e-6
    boundary_initializer_range: NotNegative | None = None
    classifier: Literal["linear", "mlp"] = "linear"
    pooling: Literal["mean", "end", "cls"] = "end"
    pair_encoding: Literal["joint"] = "joint"
    lm_head: Literal["linear"] = "linear"
    is_causal: Literal[True] = True
    hard_stop: bool = True
    compaction: bool = True

    def validate_rotations(self):
        require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "rotations turn pairs of dimensions; make it even")

    @property
    def keeps_last_keys(self) -> bool:
        return self.skipped_steps == "last"

    @property
    def capabilities(self) -> Capabilities:
        spares = self.hard_stop and self.keeps_last_keys
        return replace(super().capabilities, shared_block=True, stops_when_halted=self.hard_stop, spares_steps=spares)

    def under_exit_criterion(self, learned: Capabilities) -> Capabilities:
        return replace(super().under_exit_criterion(learned), spares_steps=learned.spares_steps)


@checked_config
class DepthRecurrentConfig(AdaptiveDepthConfig, EncoderConfig):
    """Fields of encoders that iterate one block and halt.

    Args:
        halting: the unit that learns to halt: every "token" by itself, the whole sequence ("global"), or nothing
            ("none": no halting head; `num_hidden_layers` steps, or as an `exit_criterion` says). The paper's models
            learn to halt: `preset("dynamic_halt")`.
        transition_aware: the halting head sees the state before and after the candidate step.
        halting_threshold: halting mass in (0, 1] at which a unit stops; may be changed after loading.
        halting_bias_init: initial bias of the halting head. About -3 lets training reach depth before it learns
            to stop; 0 (the reference implementation) stops after two steps at first and may never leave that.
        ponder_loss_weight: weight of the mean ponder cost in the loss.
        hard_stop: leave the loop when every unit has halted. False runs all steps to the same result (the paper's
            "upper bound" timing).
        compaction: gather halted units out of the batch; never changes results beyond rounding.
        cap_depth_by_length: halt a sequence after n + 1 steps, n its number of tokens, as the reference does.
        halted_candidates: count the candidates of tokens that have halted in the running means by which a
            causal model with "global" halting decides, as the reference does; then no step can be spared. By default
            a halted token counts with the state it keeps.

    A causal model halts token by token: "global" then means that a token halts by the mean over itself and the
    tokens before it, "token" that it halts by its own state alone.
    """

    halting: Literal["token", "global", "none"] = "none"
    transition_aware: bool = True
    halting_threshold: Threshold = 0.999
    halting_bias_init: Finite = -3.0
    ponder_loss_weight: NotNegative = 0.1
    hard_stop: bool = True
    compaction: bool = True
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
            halting=self.halting,
            halting_unit=("token" if self.token_units else "sequence") if halts else None,
            shared_block=True,
            computes_candidate=halts and self.transition_aware,
            stops_when_halted=self.hard_stop,
            spares_steps=self.hard_stop and not (self.running_mean and self.halted_candidates),
            halting_threshold=self.halting_threshold,
            resumable=self.is_causal and not self.cap_depth_by_length,
        )
        return self.under_exit_criterion(learned)


@checked_config
class GatedDepthConfig(DepthRecurrentConfig):
    """Fields of depth-recurrent encoders whose block is gated.

    Args:
        feed_forward: "gated" mixes a step's result with the state before it; "plain" is the paper's "-Gate".
        gate_intermediate_size: inner width of the gate, d_gff; `intermediate_size` if None.
    """

    feed_forward: Literal["gated", "plain"] = "gated"
    gate_intermediate_size: Size | None = None

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.gate_intermediate_size is None:
            self.gate_intermediate_size = self.intermediate_size

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, gates="tokens" if self.feed_forward == "gated" else None)

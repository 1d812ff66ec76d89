"""Models that iterate one shared block: halting, exit criteria, and the depth of training calls.

Shapes: B sequences, S tokens, R rows of W columns, E width, L maximum of steps.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.utils import logging

from ..config.fields import shown
from ..depth.early_exit import EarlyExit, exit_indicator
from ..depth.exit_criteria import AnswerHead, ExitOptions, ExitRule, default_threshold_problem, resolve_exit
from ..depth.halting import FixedDepth, HaltingStrategy
from ..depth.layouts import PaddedLayout, lay_out
from ..depth.loop import DepthOptions, DepthOutput, iterate
from ..depth.objectives import sampled_depth
from ..depth.stick_breaking import StickBreaking
from ..ops.attention import PaddedContext
from ..ops.checks import check_halting_threshold, check_not_nan
from ..ops.graphs import in_graph
from ..ops.halting_heads import HaltingHead
from ..ops.sharding import is_sharded, same_on_all_ranks
from .base_model import BaseModel, ForwardCall, XPosModel

logger = logging.get_logger(__name__)


def check_never_halting(call: ForwardCall, max_depth: int, cache_depth: int | None) -> None:
    """Raise a ValueError for choices that a model without halting has not."""
    if call.halting_threshold is not None:
        threshold = call.halting_threshold
        raise ValueError(f"halting_threshold is {shown(threshold)}: this model never halts (halting='none')")
    if cache_depth not in (None, max_depth):
        raise ValueError(
            f"this call takes {max_depth} steps but `past_key_values` was made for {cache_depth}: a model that never "
            f"halts takes the same number for all tokens of a sequence, pass max_depth={cache_depth}"
        )


class AdaptiveDepthModel(BaseModel):
    """Depth, exit criteria and halting strategy of a call."""

    # of sampled depths; processes that must draw the same seed it before each call
    depth_generator: torch.Generator | None = None
    # whether a traced call ends its loop over depth with the last unit, see `DepthOptions`
    loop_in_graph = None
    # whether tokens are the units of a model without halting, rather than sequences
    fixed_depth_by_token = False

    @property
    def depth_config(self):
        """The config whose fields on depth may be changed after loading."""
        return self.config

    def build_halting(self, config) -> None:
        if config.halting != "none":
            self.halting_head = self.new_halting_head(config)

    def new_halting_head(self, config) -> nn.Module:
        """The head of the model's own halting; architectures define it.

        Raises:
            ValueError: here, in code of a checkpoint that was saved with halting="none".
        """
        raise ValueError(
            f"config.halting is {config.halting!r}, but this checkpoint was saved with 'none', and its code has no "
            "halting: import hf_recurrent before you load it, or leave halting out"
        )

    def trained_strategy(self, call: ForwardCall, max_depth: int, cache) -> HaltingStrategy:
        """The model's own halting, which stops no unit if the call has an exit rule; architectures define it."""

    def resolve_exit(
        self, options: ExitOptions, max_depth: int | None, halting_threshold: float | None, head: AnswerHead | None
    ) -> ExitRule | None:
        rule = resolve_exit(self.depth_config, options)
        if rule is None:
            return None
        name, reason = rule.criterion.name, None
        if halting_threshold is not None:
            raise ValueError(
                f"halting_threshold is {shown(halting_threshold)} but exit_criterion is {name!r}, which reads "
                "exit_threshold: pass that, or exit_criterion='learned'"
            )
        if rule.criterion.evidence != "states":
            reason = self.unread_answers(rule, head)
        if reason is not None:
            raise ValueError(f"exit_criterion is {name!r}, which looks at predictions, but {reason}")
        if self.training:
            return None
        problem = None if in_graph() else default_threshold_problem(self.depth_config, options)
        if problem:
            logger.warning_once(problem)
        return rule

    def unread_answers(self, rule: ExitRule, head: AnswerHead | None) -> str | None:
        """Why a criterion that looks at answers cannot look at those of a head, and what to do; None if it can."""
        if head is None:
            return (
                f"{type(self).__name__} has no head: pass exit_criterion='convergence' or 'learned', or load the "
                "checkpoint with its head"
            )
        if head.answers in ("span", "choice"):
            among = "tokens of a sequence" if head.answers == "span" else "sequences of a question"
            return (
                f"this model chooses among the {among}, each of which predicts nothing alone: use 'convergence' or "
                "'learned'"
            )
        if head.answers == "tokens" and not self.config.token_units:
            return (
                "this model answers for each token while its sequences stop as a whole: use 'convergence' or "
                "'learned', or a config whose tokens halt one by one (such as halting='token')"
            )
        if rule.criterion.evidence == "probe" and head.probe is None:
            return "no probe was fitted (config.exit_probe_size is 0): run `hf-recurrent fit-probe` first"
        if head.joined is not None and self.config.is_causal:
            return (
                "tokens of this model stop one by one (is_causal=True), and those of pairs that are encoded apart "
                "predict nothing alone: use 'convergence' or 'learned'"
            )
        if rule.criterion.name in ("stability", "confidence", "entropy") and head.answers == "number":
            return (
                "this model predicts a number, without a distribution: use 'agreement', whose threshold is then the "
                "largest difference of successive predictions, or 'convergence'"
            )
        return None

    def resolve_max_depth(self, call: ForwardCall) -> int:
        """Maximum of depth steps of a call."""
        return self.config.num_hidden_layers if call.max_depth is None else call.max_depth

    def call_depth(self, max_depth: int | None, cache: Cache | None) -> int | None:
        """`max_depth` of a call; in training it may be drawn."""
        # all pieces of a sequence that is read with a cache take the same steps
        fixed = self.config.depth_sampling == "fixed" or max_depth is not None or cache is not None
        if fixed or not self.training:
            return max_depth
        return self.drawn_depth()

    def drawn_depth(self) -> int:
        steps = sampled_depth(self.config, self.config.num_hidden_layers, self.depth_generator)
        return same_on_all_ranks([steps], self.device)[0] if is_sharded(self) else steps

    def own_threshold(self, call: ForwardCall, never: float = math.inf) -> float:
        """Halting mass at which the model's own halting stops units, `never` if it stops none."""
        config = self.depth_config
        threshold = check_halting_threshold(
            config.halting_threshold if call.halting_threshold is None else call.halting_threshold
        )
        no_stop = call.exit is not None or (self.training and config.depth_objective in ("expected", "gate"))
        return never if no_stop else threshold

    def watched(self, states: torch.Tensor) -> torch.Tensor:
        """The part of running states (..., E) that exit criteria on states look at."""
        return states

    def strategy(self, call: ForwardCall, max_depth: int, cache) -> HaltingStrategy:
        """The model's own strategy, or an early exit in its place.

        Raises:
            ValueError: the config's `halting` was set after loading, on a model without a halting head.
        """
        halting = self.depth_config.halting
        self.config.require(
            halting == "none" or hasattr(self, "halting_head"),
            "halting",
            "this model was made with 'none', so it has no halting head; set an exit_criterion instead, or load it by "
            f"from_pretrained(..., halting={halting!r}) and train the head",
        )
        if halting != "none":
            inner = self.trained_strategy(call, max_depth, cache)
        else:
            inner = FixedDepth(self.fixed_depth_by_token)
            if call.exit is None:
                check_never_halting(call, max_depth, None if cache is None else cache.depth)
        rule, head = call.exit, call.head
        if rule is None:
            return inner
        # where tokens halt one by one, those that are answered for one by one also stop so
        answers_by_token = head is not None and head.answers == "tokens" and self.config.token_units
        by_token = self.config.stops_by_token(rule.criterion.name) or answers_by_token

        # what a head reads of a mean is not the mean of what it reads
        standard = call.features == self.features and type(self).features is BaseModel.features
        standard = standard and (self.config.pooling != "mean" or type(self).readout is BaseModel.readout)

        def of_rows(states: torch.Tensor, *place, steps: int | torch.Tensor) -> torch.Tensor:
            return head.judged(call.features(states, *place), rule.criterion, steps)

        def of_units(states: torch.Tensor, *, steps: int | torch.Tensor) -> torch.Tensor:
            return head.judged(self.readout(states), rule.criterion, steps)

        predict = of_units if by_token or standard else of_rows
        token_units = by_token or inner.token_units
        pooling = self.config.pooling if standard else None
        return EarlyExit(inner, rule, predict, max_depth, token_units, not by_token, self.watched, pooling)

    def depth_options(self, call: ForwardCall, max_depth: int) -> DepthOptions:
        config = self.depth_config
        backprop = config.backprop_steps if self.training else None
        return DepthOptions(
            max_depth=max_depth,
            compaction=config.compaction,
            hard_stop=config.hard_stop,
            record_halting=call.record_halting,
            record_states=call.record_states,
            cap_depth_by_length=self.depth_follows_length and call.exit is None,
            steps_without_gradient=0 if backprop is None else max(0, max_depth - backprop),
            loop_in_graph=self.loop_in_graph,
            full=call.full,
        )

    def with_exit_steps(self, depth: DepthOutput, call: ForwardCall, max_depth: int) -> DepthOutput:
        """The output of a call with an exit rule, whose halting probabilities are those of its steps."""
        if call.exit is None or not call.record_halting:
            return depth
        return depth._replace(halting_probabilities=exit_indicator(depth.ponder_steps, max_depth))


class SharedBlockModel(AdaptiveDepthModel):
    """Runs states through one shared block until every halting unit has stopped, or for a fixed number of steps."""

    @property
    def depth_follows_length(self) -> bool:
        return self.config.cap_depth_by_length

    def new_halting_head(self, config) -> nn.Module:
        width = config.hidden_size
        features = 2 * width if config.transition_aware else width
        return HaltingHead(features, config.halting_bias_init, inner_size=width)

    def trained_strategy(self, call: ForwardCall, max_depth: int, cache) -> HaltingStrategy:
        config = self.config
        mixes = config.depth_objective == "mixture"
        return StickBreaking(
            self.halting_head,
            self.own_threshold(call),
            config.token_units,
            config.running_mean,
            config.transition_aware,
            halted_candidates=config.halted_candidates and call.exit is None,
            mixes=mixes,
            attends_to_mixture=mixes and config.halting == "token",
        )

    # keys that tokens see in layers that slide; None if no layer does
    window: int | None = None

    def depth_blocks(self, max_depth: int) -> Sequence[nn.Module]:
        """The block that all steps share, or the block of each step."""
        return [self.block]

    @staticmethod
    def stays_whole(strategy: HaltingStrategy) -> bool:
        """Whether the tokens of a row leave the loop together."""
        return getattr(strategy, "by_row", not strategy.token_units)

    def run_depth(
        self, hidden: torch.Tensor, mask: torch.Tensor, context: PaddedContext, call: ForwardCall, cache
    ) -> DepthOutput:
        max_depth = self.resolve_max_depth(call)
        strategy = self.strategy(call, max_depth, cache)
        options = self.depth_options(call, max_depth)
        leaving = "rows" if self.stays_whole(strategy) else "tokens"
        if self.window is None:
            layout = lay_out(self.config, strategy, hidden, mask, context, cache, options, leaving, call.packed)
        else:
            # masks of windows are made for whole rows
            layout = PaddedLayout(self.config, strategy, mask, context, cache)
        depth = iterate(self.depth_blocks(max_depth), strategy, layout, hidden, mask, options)
        if not strategy.halts:
            check_not_nan("the states are", depth.hidden_states)
        if strategy.halts or call.exit is not None:
            return self.with_exit_steps(depth, call, max_depth)
        by_token = torch.where(mask, max_depth, -1)
        return depth._replace(
            ponder_steps=by_token if self.config.is_causal else torch.full_like(by_token[:, 0], max_depth)
        )


class DepthRecurrentModel(SharedBlockModel, XPosModel):
    """One shared block over all tokens of a sequence."""

    def build(self, config, block: nn.Module) -> None:
        self.build_embedding(config)
        self.block = block
        self.build_halting(config)
        self.post_init()

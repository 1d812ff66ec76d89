"""One example under every stopping rule: attention and the answer at each step, and the tokens that stop there.

A *pass* is the states' way through depth. Rules that stop a sequence as a whole share the pass at full depth, whose
first steps are theirs; a rule that stops tokens one by one changes what others attend to, and has a pass of its own.

Shapes: L steps of the model, P steps of a pass, S tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ...inference.modes import inference_mode
from ...models.common.exit_criteria import CRITERIA, LEARNED, ExitOptions, ExitRule
from ..exit_settings import Setting, usable_criteria
from ..inference import config_fields
from ..sweep import FULL_DEPTH, threshold_fields
from .explanation import Explanation, check_model, encode_text, explain_encoded

# the maps of an example have the square of its tokens
MAX_TOKENS = 128
FULL = "full depth"
# maps, gates and probabilities that differ by no more are those of one pass
SAME = 1e-4
# shares are stored in hundredths, probabilities of answers in thousandths
SHARE_DIGITS, PROBABILITY_DIGITS = 2, 3


class Rule(NamedTuple):
    """A stopping rule: "full depth", "learned" or an exit criterion.

    Attributes:
        label: the rule with its setting, for readers.
        own: whether the checkpoint stops by it.
        fields: config fields of a model that stops by it.
    """

    name: str
    label: str
    own: bool
    fields: dict[str, Any]


class Pass(NamedTuple):
    attention: np.ndarray  # (P, S, S), the greatest over heads
    gates: np.ndarray | None  # (P, S)
    answers: list[tuple[str, float | None]]  # P, each with its probability; the last alone of layers that differ

    def serves(self, found: Explanation) -> bool:
        """Whether another pass is the beginning of this one: in all that its live tokens do, and in its answer."""
        taken = found.num_steps
        if taken > len(self.attention):
            return False
        live = ~found.idle()[:taken]
        pairs = [(self.attention, found.head_attention()), (self.gates, found.gates)]
        same = all(
            np.allclose(mine[:taken][live], theirs[:taken][live], atol=SAME)
            for mine, theirs in pairs
            if theirs is not None
        )
        name, share = self.answers[min(taken, len(self.answers)) - 1]
        return same and name == found.prediction and close(share, found.probability)


class Run(NamedTuple):
    """The model's behaviour under a rule.

    Attributes:
        steps: (S,) steps that each token takes and keeps.
        answer, probability: of the model; None for the probability of a number.
        freezes: whether a token that has stopped stays as it is, see `Explanation`.
        number: of its pass.
    """

    rule: Rule
    steps: np.ndarray
    answer: str
    probability: float | None
    freezes: bool
    number: int


@dataclass(frozen=True)
class Inside:
    """One example under every stopping rule of a model.

    Attributes:
        tokens: S strings, special tokens by their names.
        readout: the token whose final state is classified or continued; None where it is no single one.
        predicts_next: whether answers are next tokens, rather than labels.
        stage: what is counted: "step", or "layer" where each has weights of its own.
        runs: the first one at full depth.
        passes: those of the runs, each once.
    """

    tokens: list[str]
    readout: int | None
    predicts_next: bool
    stage: str
    runs: list[Run]
    passes: list[Pass]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a page: shares in hundredths, rows of maps without the zeros at their ends."""
        return {
            "tokens": self.tokens,
            "readout": self.readout,
            "next": self.predicts_next,
            "stage": self.stage,
            "runs": [
                {
                    "rule": run.rule.name,
                    "label": run.rule.label,
                    "own": run.rule.own,
                    "steps": run.steps.tolist(),
                    "answer": [run.answer, rounded(run.probability)],
                    "freezes": run.freezes,
                    "pass": run.number,
                }
                for run in self.runs
            ],
            "passes": [
                {
                    "attention": [[short(row) for row in rows] for rows in each.attention],
                    "gates": None if each.gates is None else [short(row) for row in each.gates],
                    "answers": [[name, rounded(share)] for name, share in each.answers],
                }
                for each in self.passes
            ],
        }


def look_inside(model: Any, tokenizer: Any, text: str, text_pair: str | None = None) -> Inside:
    """One text, or one pair of texts, under every stopping rule that a classifier or causal language model can use.

    Raises:
        ValueError: as `explain`; or more than `MAX_TOKENS` tokens.
    """
    check_model(model)
    inputs = encode_text(model, tokenizer, text, text_pair, max_tokens=None)
    if (number := inputs["input_ids"].shape[1]) > MAX_TOKENS:
        raise ValueError(f"text has {number} tokens, special tokens included: pass at most {MAX_TOKENS}")
    runs, passes = [], []
    for rule in stopping_rules(model):
        with config_fields(model, **rule.fields):
            found = explain_encoded(model, tokenizer, inputs)
            number = next((at for at, known in enumerate(passes) if known.serves(found)), len(passes))
            if number == len(passes):
                passes.append(pass_of(model, tokenizer, inputs, found))
        steps = np.full(len(found.tokens), len(found.attention)) if found.steps is None else found.steps
        runs.append(Run(rule, steps, found.prediction, found.probability, found.freezes, number))
    stage = "step" if model.capabilities.shared_block else "layer"
    return Inside(found.tokens, found.readout, found.predicts_next, stage, runs, passes)


def stopping_rules(model: Any) -> list[Rule]:
    """Full depth, and each rule that the model can stop by, its own with the setting that it has."""
    config = model.config
    if not model.capabilities.shared_block:
        return [Rule(FULL, FULL, True, {})]
    own = config.exit_criterion
    fixed = own == LEARNED and config.capabilities.halting == "none"
    # a token whose halting mass rounds to 1 still stops
    label = FULL if config.capabilities.halting == "none" else f"{FULL}, threshold 1"
    rules = [Rule(FULL, label, fixed, threshold_fields(FULL_DEPTH))]
    for name in usable_criteria(config):
        if name == LEARNED:
            threshold = config.halting_threshold
            setting, label = Setting(name, threshold, None), f"learned, threshold {threshold:g}"
        else:
            rule = exit_rule(model, name)
            if rule is None:
                continue
            setting = Setting(name, rule.threshold, rule.patience)
            times = "" if rule.patience == 1 else f" for {rule.patience} steps"
            if rule.threshold is None:
                label = f"{name} for {rule.patience} step{'' if rule.patience == 1 else 's'}"
            else:
                label = f"{name} {'≤' if rule.criterion.falls else '≥'} {rule.threshold:g}{times}"
        rules.append(Rule(name, label, name == own, setting.fields))
    return rules


def exit_rule(model: Any, criterion: str) -> ExitRule | None:
    """The rule of a call with this criterion; None if the model's answers cannot be judged by it."""
    config = model.config
    chosen = config.exit_threshold if criterion == config.exit_criterion else None
    # the default is shown as such, and nobody is warned of it
    threshold = CRITERIA[criterion].default_threshold if chosen is None else chosen
    options, steps = ExitOptions(criterion=criterion, threshold=threshold), config.num_hidden_layers
    with inference_mode(model):
        try:
            return model.base_model.resolve_exit(options, steps, None, model.answer_head())
        except ValueError:
            return None


def pass_of(model: Any, tokenizer: Any, inputs: Mapping[str, torch.Tensor], found: Explanation) -> Pass:
    """The pass of an explanation up to the last step in which a token lives, with the answer after each."""
    taken = found.num_steps
    # what the model says if it may go no deeper
    earlier = range(1, taken) if model.capabilities.shared_block else ()
    explained = [explain_encoded(model, tokenizer, inputs, max_depth=steps) for steps in earlier]
    return Pass(
        found.head_attention()[:taken],
        None if found.gates is None else found.gates[:taken],
        [(each.prediction, each.probability) for each in (*explained, found)],
    )


def close(share: float | None, other: float | None) -> bool:
    return share == other if share is None or other is None else abs(share - other) < SAME


def rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, PROBABILITY_DIGITS)


def short(shares: np.ndarray) -> list[int]:
    """Shares (S,) in hundredths, up to the last that is not zero."""
    hundredths = np.rint(shares * 10**SHARE_DIGITS).astype(int)
    return np.trim_zeros(hundredths, "b").tolist()

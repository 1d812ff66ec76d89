"""One example under every stopping rule: attention and the answer at each step, and the tokens that stop there.

A *pass* is the states' way through depth. Rules by which all tokens stop together share the pass at full depth, whose
first steps are theirs; a rule that stops some before others changes what these attend to, and has a pass of its own.

Shapes: P steps of a pass, S tokens.
"""

from typing import Any, NamedTuple

import numpy as np

from ...models.config.exit_criteria import CRITERIA, LEARNED
from ...models.depth.exit_criteria import ExitOptions, ExitRule
from ...models.ops.modes import inference_mode
from ..evaluate import config_fields
from ..exit_settings import FULL_DEPTH, Setting, threshold_fields
from .explanation import Explanation, check_model, encode_text, explain_encoded

# the maps of an example have the square of its tokens
MAX_TOKENS = 128
FULL = "full depth"


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


def look_inside(model: Any, tokenizer: Any, text: str, text_pair: str | None = None) -> dict[str, Any]:
    """A text, or a pair of texts, under every stopping rule of a classifier or causal language model, as plain data.

    - `tokens`; `readout`, the token whose final state is classified or continued (None: no single one); `next`, whether
      answers are next tokens; `stage`, "step", or "layer" where each has weights of its own.
    - `runs`: for each rule its name (`rule`), its `label`, whether it is the checkpoint's `own`, the `steps` that each
      token takes and keeps, the `answer` with its probability (None of a number), whether a token that stopped
      `freezes` (see `Explanation`), and the number of its `pass`.
    - `passes`: `attention` (P, S, S), the greatest over heads; `gates` (P, S), or None; and `answers`, the answer after
      each step, of layers that differ the last alone. Shares are in hundredths, without the zeros at the end of a row.

    Raises:
        ValueError: as `explain`; or more than `MAX_TOKENS` tokens.
    """
    check_model(model)
    inputs = encode_text(model, tokenizer, text, text_pair, MAX_TOKENS)
    shared, runs, passes = model.capabilities.shared_block, [], []
    for rule in stopping_rules(model):
        with config_fields(model, **rule.fields):
            found = explain_encoded(model, tokenizer, inputs)
            steps = np.full(len(found.tokens), found.num_steps) if found.steps is None else found.steps
            # tokens that all stop together do until then what they do at full depth
            together = runs and len({*runs[0]["steps"]}) == len({*steps}) == 1
            number = 0 if together else len(passes)
            if number == len(passes):
                # what the model says if it may go no deeper
                earlier = range(1, found.num_steps) if shared else ()
                answers = [answer(explain_encoded(model, tokenizer, inputs, depth)) for depth in earlier]
                gates = None if found.gates is None else list(map(short, found.gates[: found.num_steps]))
                maps = [list(map(short, step)) for step in found.head_attention()[: found.num_steps]]
                passes.append({"attention": maps, "gates": gates, "answers": [*answers, answer(found)]})
        run = {"rule": rule.name, "label": rule.label, "own": rule.own, "steps": steps.tolist()}
        runs.append({**run, "answer": answer(found), "freezes": found.freezes, "pass": number})
    facts = {"tokens": found.tokens, "readout": found.readout, "next": found.predicts_next, "stage": found.stage}
    return {**facts, "runs": runs, "passes": passes}


def stopping_rules(model: Any) -> list[Rule]:
    """Full depth, and each rule that the model can stop by, its own with the setting that it has."""
    config = model.config
    if not model.capabilities.shared_block:
        return [Rule(FULL, FULL, True, {})]
    own, learned = config.exit_criterion, config.capabilities.halting != "none"
    # a token whose halting mass rounds to 1 still stops
    label = f"{FULL}, threshold 1" if learned else FULL
    rules = [Rule(FULL, label, own == LEARNED and not learned, threshold_fields(FULL_DEPTH))]
    for name in (*([LEARNED] if learned else []), *CRITERIA):
        if name == LEARNED:
            threshold, patience = config.halting_threshold, None
            label = f"learned, threshold {threshold:g}"
        elif rule := exit_rule(model, name):
            threshold, patience = rule.threshold, rule.patience
            times = f" for {patience} step{'' if patience == 1 else 's'}" if threshold is None or patience > 1 else ""
            at = "" if threshold is None else f" {'≤' if rule.criterion.falls else '≥'} {threshold:g}"
            label = name + at + times
        else:
            continue
        rules.append(Rule(name, label, name == own, Setting(name, threshold, patience).fields))
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


def answer(found: Explanation) -> list[Any]:
    """The answer and its probability in thousandths."""
    return [found.prediction, None if found.probability is None else round(found.probability, 3)]


def short(shares: np.ndarray) -> list[int]:
    """Shares (S,) in hundredths, up to the last that is not zero."""
    return np.trim_zeros(np.rint(100 * shares).astype(int), "b").tolist()

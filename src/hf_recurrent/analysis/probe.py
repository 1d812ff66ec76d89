"""The probe of a frozen model: a small head that says whether the answer after a depth step is right.

Source: the early exit classifier of "Confident Adaptive Language Modeling" (arXiv 2207.07061), which is trained on the
states of a frozen model; its targets are whether an answer is that of full depth, here whether it is right.

Shapes: B sequences, S tokens, N units of a batch (examples, or tokens that are not padding), U units whose answers are
judged, K depth steps but the last, after which nothing is left to decide, F features, C classes.
"""

import copy
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from scipy.stats import mannwhitneyu
from torch import nn

from ..models.config.exit_criteria import CRITERIA
from ..models.depth.exit_criteria import ExitRule
from ..models.ops.exit_probe import ExitProbe
from ..models.ops.losses import NO_TARGET
from .answers import as_numpy, is_classifier, prepare_batch, require_early_answers, token_mask
from .evaluate import each_batch
from .halting import stack_depths

# texts have many tokens, whose answers are much alike: so many are judged, of so many times as many that are run
MOST_UNITS, RUN_SHARE = 10_000, 5
HELD_OUT = 0.2
LEARNING_RATE, WEIGHT_DECAY = 5e-3, 0.01
MOST_UPDATES, BATCH_SIZE = 500, 1024
# fitting ends when the loss of the held-out examples has not fallen for so many checks
CHECK_EVERY, PATIENCE = 20, 4


class JudgedAnswers(NamedTuple):
    """Answers of a model after each step but the last, as the exit criterion "probe" sees them."""

    features: torch.Tensor  # (U, K, F)
    right: torch.Tensor  # (U, K) bool
    example: torch.Tensor  # (U,) number of each unit's example

    def of(self, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features (n, F) and whether the answers are right (n,), of the `chosen` (U,) units after all steps."""
        return self.features[chosen].flatten(0, 1), self.right[chosen].flatten()


class Goals(NamedTuple):
    """Inputs of a batch, and the answers that its units should give."""

    inputs: dict[str, torch.Tensor]
    wanted: torch.Tensor  # (N,) class or token ids, -100 where there is none; or (N, C) of independent labels
    example: torch.Tensor  # (N,) number of each unit's example

    @property
    def labelled(self) -> torch.Tensor:
        """(N,) bool."""
        return (self.wanted != NO_TARGET).reshape(len(self.wanted), -1).all(1)


class Recorder(nn.Module):
    """In the place of a probe: keeps in a list what it is to judge, and stops no unit."""

    def __init__(self, seen: list[torch.Tensor]):
        super().__init__()
        self.seen = seen

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(n, F) -> (n,)."""
        self.seen.append(features)
        return features.new_zeros(len(features), dtype=torch.float32)


@contextmanager
def recorded_features(model: Any) -> Iterator[list[torch.Tensor]]:
    """What a probe is asked to judge in calls of the model; a probe that it has is put back afterwards."""
    probe, seen = getattr(model, "exit_probe", None), []
    model.exit_probe = Recorder(seen)
    try:
        yield seen
    finally:
        del model.exit_probe
        if probe is not None:
            model.exit_probe = probe


def fit_probe(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    size: int = 64,
    max_depth: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> tuple[ExitProbe, dict[str, Any]]:
    """Fit a probe to a model, which stays as it is -> the probe, and how well it tells right answers from wrong ones.

    Args:
        model: a classifier of sequences or tokens, or a language model, that iterates one block.
        batches: as of `evaluate_batches`.
        size: inner width of the probe.
        max_depth: depth of the model, instead of its own.
        seed: of the choice of tokens and of held-out examples, and of the probe.
        progress: show a progress bar.

    Returns:
        The probe, and as plain data the numbers of `examples`, of `units` (examples, their chunks, or tokens) and of
        the `steps` after which they are judged; of the answers to `held_out` examples, by whose loss fitting is
        stopped, the share that is `right`, and the `accuracy`, area under the ROC curve (`auc`, None if all are right
        or all wrong) and mean squared error (`brier`) of the probe; the number of `updates`, and `seconds` in all.

    Raises:
        ValueError: a probe cannot judge this model, labels are missing, or there is nothing to learn because all
            answers are right or all are wrong.
    """
    start = time.perf_counter()
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"size is {size!r}: pass a whole number, at least 1")
    answers = judged_answers(model, batches, max_depth=max_depth, seed=seed, progress=progress)
    held_out = held_out_units(answers.example, seed)
    probe, updates = fit(answers, held_out, size, seed)
    features, judged = answers.of(held_out)
    probability, right = as_numpy(probe(features)), judged.cpu().numpy()
    hits, misses = probability[right], probability[~right]
    pairs = len(hits) * len(misses)
    auc = float(mannwhitneyu(hits, misses).statistic / pairs) if pairs else None
    units, steps = answers.right.shape
    return probe, {
        "examples": len(answers.example.unique()),
        "units": units,
        "steps": steps,
        "held_out": len(answers.example[held_out].unique()),
        "right": float(right.mean()),
        "accuracy": float(((probability > 0.5) == right).mean()),
        "auc": auc,
        "brier": float(((probability - right) ** 2).mean()),
        "updates": updates,
        "seconds": time.perf_counter() - start,
    }


def judged_answers(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    max_depth: int | None = None,
    most_units: int = MOST_UNITS,
    seed: int = 0,
    progress: bool = False,
) -> JudgedAnswers:
    """Features that a probe would see, and whether the answers from them are right, of about `most_units` at random.

    A unit is an example, or a labelled token of a model that answers for each; of a classifier that reads chunks, the
    text up to the end of each chunk.

    Raises:
        ValueError: as `fit_probe`.
    """
    require_answers(model, max_depth)
    goals = list(read_goals(model, batches))
    labelled = sum(int(each.labelled.sum()) for each in goals)
    if not labelled:
        raise ValueError("there are no labelled examples to fit a probe to")
    goals = goals[:: max(1, labelled // (RUN_SHARE * most_units))]
    share = most_units / sum(int(each.labelled.sum()) for each in goals)
    generator = torch.Generator().manual_seed(seed)
    # drawn for all batches, of which each of several processes runs its share
    drawn = [(each, each.labelled & (torch.rand(len(each.wanted), generator=generator) < share)) for each in goals]
    head, steps = model.answer_head(), full_depth(model, max_depth) - 1
    options = {"exit_criterion": "probe", "exit_threshold": 1.0, "exit_patience": 1, "min_depth": 1}

    def judge(item: tuple[Goals, torch.Tensor]) -> JudgedAnswers:
        each, chosen = item
        with recorded_features(model) as seen:
            model(**each.inputs, **options, max_depth=max_depth)
        features = by_unit(seen, steps, None if is_classifier(model) else len(each.inputs["input_ids"]))
        # a classifier is judged after each chunk of a text; its units follow chunk by chunk
        chunks = len(features) // len(each.wanted)
        chosen, wanted, example = (torch.cat([own] * chunks) for own in (chosen, each.wanted, each.example))
        features, wanted = features[chosen.to(features.device)], wanted[chosen].to(features.device)
        right = [is_right(head.logits(own, step), wanted) for step, own in enumerate(features.unbind(1), 1)]
        return JudgedAnswers(features.float().cpu(), torch.stack(right, 1).cpu(), example[chosen])

    found = each_batch(model, drawn, judge, progress="running the model" if progress else None)
    features, right, example = map(torch.cat, zip(*found, strict=True))
    return JudgedAnswers(features.to(model.device), right.to(model.device), example)


def require_answers(model: Any, max_depth: int | None) -> None:
    """Raise a ValueError unless the model has answers, right or wrong, at several depths."""
    require_early_answers(model)
    head = replace(model.answer_head(), probe=Recorder([]))
    if head.answers in ("tokens", "span", "choice"):
        unread = model.base_model.unread_answers(ExitRule(CRITERIA["probe"], None, 1, 1), head)
        if unread is not None:
            raise ValueError(f"no probe can judge the answers of {type(model).__name__}: {unread}")
    if is_classifier(model) and model.config.is_causal:
        raise ValueError(
            f"{type(model).__name__} classifies sequences, but its tokens stop one by one (is_causal=True), so that no "
            "probe sees a sequence as a whole: stop by 'convergence', or use an encoder"
        )
    if head.answers == "number":
        raise ValueError("the model predicts a number, which is neither right nor wrong: use 'convergence' instead")
    if full_depth(model, max_depth) < 2:
        raise ValueError("the model takes one depth step, so there is nothing to decide: pass max_depth above 1")


def full_depth(model: Any, max_depth: int | None) -> int:
    """Most steps of the stack that answers."""
    return list(stack_depths(model.config).values())[-1] if max_depth is None else max_depth


def read_goals(model: Any, batches: Iterable[Mapping[str, Any]]) -> Iterator[Goals]:
    """The batches on the model's device, with the answers wanted; where chunks are read, those of one length together.

    Raises:
        ValueError: they have no labels.
    """
    first = 0
    for batch in batches:
        goals = goals_of(model, batch, first)
        first += len(goals.inputs["input_ids"])
        yield from equal_lengths(goals) if model.config.capabilities.reads == "chunks" else [goals]


def goals_of(model: Any, batch: Mapping[str, Any], first: int) -> Goals:
    """The goals of a batch, whose `first` example has that number; tokens are in the order of rows."""
    inputs, values, by_token = prepare_batch(model, batch)
    labels = torch.as_tensor(values)
    rows = torch.arange(first, first + len(labels))
    if is_classifier(model):
        return Goals(inputs, labels if model.answer_head().answers == "labels" else labels.flatten(), rows)
    has_target = model.config.capabilities.two_stacks
    tokens = (inputs["decoder_attention_mask"].bool() if has_target else token_mask(inputs)).cpu()
    wanted = labels if has_target or by_token else nn.functional.pad(labels[:, 1:], (0, 1), value=NO_TARGET)
    return Goals(inputs, wanted[tokens], rows[:, None].expand_as(tokens)[tokens])


def equal_lengths(goals: Goals) -> Iterator[Goals]:
    """The goals of sequences of the same length, without padding: all their chunks are then of the same size."""
    mask = token_mask(goals.inputs)
    lengths, numbers = mask.sum(1), goals.example.unique_consecutive()
    for length in lengths.unique().tolist():
        rows = lengths == length
        inputs = {name: values[rows][mask[rows]].view(-1, length) for name, values in goals.inputs.items()}
        here = torch.isin(goals.example, numbers[rows.cpu()])
        yield Goals(inputs, goals.wanted[here], goals.example[here])


def by_unit(seen: list[torch.Tensor], steps: int, rows: int | None) -> torch.Tensor:
    """Recorded features (n, F), step by step and chunk by chunk -> (U, K, F).

    Args:
        steps: K.
        rows: the number of sequences whose tokens are the units; None if units are sequences, or chunks of them, which
            then follow chunk by chunk.
    """
    chunks = [torch.stack(seen[first : first + steps], dim=1) for first in range(0, len(seen), steps)]
    if rows is None or len(chunks) == 1:
        return torch.cat(chunks)
    return torch.cat([chunk.unflatten(0, (rows, -1)) for chunk in chunks], dim=1).flatten(0, 1)


def is_right(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Whether answers are right, of independent labels all: logits (n, C), wanted (n,) or (n, C) -> (n,) bool."""
    return logits.argmax(-1) == wanted if wanted.dim() == 1 else ((logits > 0) == wanted.bool()).all(-1)


def held_out_units(example: torch.Tensor, seed: int) -> torch.Tensor:
    """The units of a random fifth of the examples: (U,) -> (U,) bool.

    Raises:
        ValueError: there is one example only.
    """
    numbers = example.unique()
    if len(numbers) < 2:
        raise ValueError("a probe cannot be fitted to one example and tested on others: pass more examples")
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
    return torch.isin(example, numbers[order[: math.ceil(HELD_OUT * len(numbers))]])


@torch.enable_grad()
def fit(answers: JudgedAnswers, held_out: torch.Tensor, size: int, seed: int) -> tuple[ExitProbe, int]:
    """A probe by logistic loss, the best one on held-out units (U,), and the number of its updates.

    Raises:
        ValueError: all answers are right, or all are wrong.
    """
    features, right = answers.of(~held_out)
    if right.all() or not right.any():
        raise ValueError(
            f"all {len(right):,} answers to fit to are {'right' if right.any() else 'wrong'}, so there is nothing to "
            f"learn: pass examples of which the model answers some rightly and some wrongly after 1 to "
            f"{answers.right.shape[1]} steps"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = ExitProbe(features.shape[-1], size).to(features.device)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)

    def loss_of(features: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(probe.log_odds(features), right.float())

    best, least, best_update = copy.deepcopy(probe), math.inf, 0
    for update in range(1, MOST_UPDATES + 1):
        batch = torch.randint(len(right), (BATCH_SIZE,), generator=generator).to(features.device)
        optimizer.zero_grad()
        loss_of(features[batch], right[batch]).backward()
        optimizer.step()
        if update % CHECK_EVERY:
            continue
        with torch.no_grad():
            loss = float(loss_of(*answers.of(held_out)))
        if loss < least:
            best, least, best_update = copy.deepcopy(probe), loss, update
        elif update >= best_update + PATIENCE * CHECK_EVERY:
            break
    best.zero_grad()
    return best.eval(), best_update

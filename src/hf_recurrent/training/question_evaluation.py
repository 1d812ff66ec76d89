"""Answers to questions by spans of texts, and the steps that they take.

Shapes: B windows of a batch, N of all, Q questions, S tokens, L maximum depth steps.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..analysis.answers import best_spans
from ..analysis.evaluate import each_batch
from ..analysis.halting import HaltingRecord, halting_columns, unit_kind
from ..analysis.inference import as_numpy, to_device
from ..analysis.tables import join_batches
from ..metrics.answers import exact_match, f1, normalized
from .collator import SpanCollator

if TYPE_CHECKING:
    from .question_data import SpanSplit


QUESTION, CONTEXT, ANSWERS = "question", "context", "answers"
# a column of windows: the characters of the context that each token is of
OFFSETS = "offsets"


def collect_spans(
    model: Any,
    tokenizer: Any,
    split: "SpanSplit",
    batch_size: int,
    *,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> HaltingRecord:
    """A `HaltingRecord` whose examples are the questions, with their `answer`, its `f1`, and steps over all windows.

    `label` is the first true answer as SQuAD compares answers, and `prediction` the same where the answer is any true
    one, or else the answer itself: they are equal just where it is an exact match.

    Args:
        max_depth: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        progress: show a progress bar.
    """
    config, options = model.config, {"max_depth": max_depth, "halting_threshold": halting_threshold}
    depth = config.num_hidden_layers if max_depth is None else max_depth
    halts, longest = config.capabilities.halts, split.rules.max_answer_length

    def of_batch(numbered: tuple[int, Mapping[str, Any]]) -> tuple[dict[str, np.ndarray], str | None]:
        first, batch = numbered[0] * batch_size, numbered[1]
        inputs = to_device({name: value for name, value in batch.items() if name not in SpanCollator.ends}, model)
        output = model(**inputs, output_halting=halts, **options)
        offsets = split.dataset[first : first + len(batch["input_ids"])][OFFSETS]
        found = window_answers(output, inputs["attention_mask"].bool(), offsets, longest)
        if not halts:
            return found, None
        return found | halting_columns(output, config, depth), unit_kind(output, config)

    batches = enumerate(split.batches(tokenizer, batch_size))
    found = each_batch(model, batches, of_batch, progress="reading questions" if progress else None)
    windows, unit = join_batches(columns for columns, _ in found), found[0][1]
    answers = question_answers(windows, split)
    halting = by_question(windows, split.owners) if halts else {}
    return HaltingRecord.of_run(config, answers | halting, split.slices, unit, **options)


def window_answers(output: Any, mask: torch.Tensor, offsets: list[list], longest: int) -> dict[str, np.ndarray]:
    """Columns (B,) of windows: characters `begin` to `end` of the likeliest span, its `score` and `confidence`, and the
    `null_score` of no answer.

    Args:
        mask: (B, S), of the inputs.
        offsets: the characters of the context that each token of a window is of.
        longest: the most tokens of a span.
    """
    characters = torch.full((*mask.shape, 2), -1, device=mask.device)
    characters[mask] = torch.tensor([pair for own in offsets for pair in own], device=mask.device)
    allowed = mask & (characters[..., 1] > characters[..., 0])
    ends = [logits.float().log_softmax(-1) for logits in (output.start_logits, output.end_logits)]
    score, start, end = best_spans(*ends, allowed, longest)
    rows = torch.arange(len(mask), device=mask.device)
    before = mask.long().argmax(1)
    logits = [each.float() for each in (output.start_logits, output.end_logits)]
    return {
        "begin": characters[rows, start, 0].cpu().numpy(),
        "end": characters[rows, end, 1].cpu().numpy(),
        "confidence": as_numpy(score.exp()),
        # as of windows of one question they are compared before the softmax
        "score": as_numpy(logits[0][rows, start] + logits[1][rows, end]),
        "null_score": as_numpy(logits[0][rows, before] + logits[1][rows, before]),
    }


def question_answers(windows: Mapping[str, np.ndarray], split: "SpanSplit") -> dict[str, np.ndarray]:
    """Columns (Q,) `label`, `prediction`, `answer`, `f1` and `confidence`, from the best window of each question."""
    rules, owners = split.rules, split.owners
    # of each question the last one, which has the greatest score
    order = np.lexsort((windows["score"], owners))
    best = order[np.append(np.flatnonzero(np.diff(owners[order])), len(order) - 1)]
    null = np.full(len(best), np.inf)
    np.minimum.at(null, owners, windows["null_score"])
    empty = rules.version_2_with_negative & (null - windows["score"][best] > rules.null_score_diff_threshold)
    spans = zip(windows["begin"][best], windows["end"][best], empty, strict=True)
    texts, true = split.questions[CONTEXT], [own["text"] for own in split.questions[ANSWERS]]
    answers = ["" if lacks else text[begin:end] for text, (begin, end, lacks) in zip(texts, spans, strict=True)]
    label = [normalized(own[0]) if own else "" for own in true]
    right = [exact_match(*pair) for pair in zip(answers, true, strict=True)]
    return {
        "label": np.array(label, object),
        "prediction": np.array(
            [
                true if matches else normalized(answer)
                for true, matches, answer in zip(label, right, answers, strict=True)
            ],
            object,
        ),
        "answer": np.array(answers, object),
        "f1": np.array([f1(*pair) for pair in zip(answers, true, strict=True)]),
        "confidence": windows["confidence"][best],
    }


def by_question(windows: Mapping[str, np.ndarray], owners: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of halting (N, ...) of windows as those of their questions (Q, ...)."""
    counts = np.bincount(owners)
    found: dict[str, np.ndarray] = {}
    for name in ("steps", "forced", "mass", "ponder_cost", "step_counts", "deepest"):
        values = windows[name]
        if name == "deepest":
            found[name] = np.zeros(len(counts), values.dtype)
            np.maximum.at(found[name], owners, values)
            continue
        found[name] = np.zeros((len(counts), *values.shape[1:]), values.dtype)
        np.add.at(found[name], owners, values)
        if name != "step_counts":
            found[name] = (found[name].T / counts).T
    return found

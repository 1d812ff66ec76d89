"""`inside.json` of a checkpoint folder: a few examples, with their way through depth for the gallery's page."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..analysis.explain.inside import look_inside
from ..analysis.model_facts import is_classifier
from ..analysis.tables import INSIDE_FILE
from ..files import read_json, write_bytes
from ..models.common.classification import predicts_number
from ..text_data.labels import MULTI, listed

# of one checkpoint: the page holds those of all
MAX_BYTES = 75_000
# hundredths of shares, and probabilities, that another machine's rounding may change
SHARE_ROUNDING, PROBABILITY_ROUNDING = 1, 0.005
AGAIN = "run `hf-recurrent card inside` on the folder"


class Example(NamedTuple):
    """`answer`: the right one; None if it is not known."""

    text: str
    text_pair: str | None = None
    answer: str | None = None


def shown_examples(model: Any, tokenizer: Any, examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Plain data of each example.

    Raises:
        ValueError: as `look_inside`, or an answer is no label of a classifier whose texts have one each.
    """
    if is_classifier(model) and not predicts_number(model.config) and model.config.problem_type != MULTI:
        labels = list(model.config.id2label.values())
        for answer in (example.answer for example in examples):
            if answer is not None and answer not in labels:
                raise ValueError(f"answer is {answer!r}: expected a label of the model, one of {listed(labels)}")
    return [
        {**example._asdict(), "inside": look_inside(model, tokenizer, example.text, example.text_pair).to_dict()}
        for example in examples
    ]


def write_inside(folder: str | os.PathLike, shown: Sequence[dict[str, Any]]) -> Path:
    """Write `shown_examples` into a checkpoint folder, one a line.

    Raises:
        ValueError: they take more than `MAX_BYTES`.
    """
    lines = ",\n".join(compact(example) for example in shown)
    content = f'{{"examples": [\n{lines}\n]}}\n'.encode()
    if len(content) > MAX_BYTES:
        raise ValueError(
            f"the {len(shown)} examples take {len(content):,} bytes, and a page has room for {MAX_BYTES:,} of each "
            "checkpoint: pass fewer or shorter ones"
        )
    return write_bytes(Path(folder) / INSIDE_FILE, content)


def compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def read_inside(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """The examples in a checkpoint folder; none if it has no such file.

    Raises:
        ValueError: the file does not hold what `write_inside` writes.
    """
    path = Path(folder) / INSIDE_FILE
    if not path.is_file():
        return []
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES:,} bytes: {AGAIN}, with fewer or shorter texts")
    data = read_json(path)
    try:
        examples = data["examples"]
        for example in examples:
            check_shown(example)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ValueError(f"{path} does not hold what this package writes ({error!r}): {AGAIN}") from error
    return examples


def check_shown(example: dict[str, Any]) -> None:
    """Raise an error unless an example is what `shown_examples` gives."""
    inside = example["inside"]
    size = len(inside["tokens"])
    texts = [example["text"], *inside["tokens"], *(run["label"] for run in inside["runs"])]
    texts += [name for each in inside["passes"] for name, _ in each["answers"]]
    texts += [given for given in (example["text_pair"], example["answer"]) if given is not None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a text is none")
    if not inside["runs"] or any(len(run["steps"]) != size for run in inside["runs"]):
        raise ValueError("a rule has not the steps of each token")
    for run in inside["runs"]:
        inside["passes"][run["pass"]]
    shares(inside)


def dense(rows: Sequence[Sequence[int]], number: int, width: int) -> np.ndarray:
    """Rows without the zeros at their ends -> (number, width)."""
    if len(rows) != number:
        raise ValueError(f"{len(rows)} rows instead of {number}")
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], dtype=int).reshape(number, width)


def inside_differences(stored: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each example that is no longer as stored, beyond rounding, with the parts that differ."""
    for before, now in zip(stored, found, strict=True):
        changed = [name for name, same in same_parts(before["inside"], now["inside"]) if not same]
        if changed:
            yield f"{before['text']!r} has other {', '.join(changed)}: {AGAIN}"


def same_parts(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Parts of an example by name, and whether they agree within rounding."""
    yield "tokens", all(before[name] == now[name] for name in ("tokens", "readout", "next", "stage"))
    for part, names in (("rules", ("rule", "label", "own", "freezes", "pass")), ("steps", ("steps",))):
        yield (
            part,
            [[run[name] for name in names] for run in before["runs"]]
            == [[run[name] for name in names] for run in now["runs"]],
        )
    yield "answers", same_answers(answers(before), answers(now))
    maps, maps_now = shares(before), shares(now)
    yield (
        "attention or gates",
        [each.shape for each in maps] == [each.shape for each in maps_now]
        and all(
            np.abs(mine - theirs).max(initial=0) <= SHARE_ROUNDING for mine, theirs in zip(maps, maps_now, strict=True)
        ),
    )


def answers(inside: dict[str, Any]) -> list[tuple[str, float | None]]:
    """All answers with their probabilities: of the rules, and after each step of each pass."""
    listed = ([run["answer"] for run in inside["runs"]], *(each["answers"] for each in inside["passes"]))
    return [(name, share) for each in listed for name, share in each]


def same_answers(before: list[tuple[str, float | None]], now: list[tuple[str, float | None]]) -> bool:
    if [name for name, _ in before] != [name for name, _ in now]:
        return False
    pairs = [(share, other) for (_, share), (_, other) in zip(before, now, strict=True)]
    return all(
        share == other if share is None or other is None else abs(share - other) <= PROBABILITY_ROUNDING
        for share, other in pairs
    )


def shares(inside: dict[str, Any]) -> list[np.ndarray]:
    """The maps of each step, (S, S), and the gates of each pass, (P, S)."""
    size = len(inside["tokens"])
    maps = [dense(rows, size, size) for each in inside["passes"] for rows in each["attention"]]
    gated = [each for each in inside["passes"] if each["gates"] is not None]
    return [*maps, *(dense(each["gates"], len(each["attention"]), size) for each in gated)]

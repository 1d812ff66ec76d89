"""`inside.json` of a checkpoint folder: a few examples, with their way through depth for the gallery's page."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..analysis.explain.inside import look_inside
from ..analysis.model_facts import is_classifier
from ..analysis.tables import INSIDE_FILE
from ..files import read_json, write_bytes
from ..models.common.classification import predicts_number
from ..text_data.labels import MULTI, listed

# of one checkpoint: the page holds those of all
MAX_BYTES = 75_000


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
        {**example._asdict(), "inside": look_inside(model, tokenizer, example.text, example.text_pair)}
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
    """The examples in a checkpoint folder; none if it has no such file."""
    path = Path(folder) / INSIDE_FILE
    return read_json(path)["examples"] if path.is_file() else []

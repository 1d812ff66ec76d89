"""`inside.json` of a checkpoint folder: a few examples, with their way through depth for the gallery's page.

An example is its `text`, `text_pair` and right `answer` (None: none, or not known), and what is `inside`.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.answers import is_classifier
from ..analysis.explain.inside import look_inside
from ..data.labels import MULTI, listed
from ..models.heads.classification import predicts_number
from ..utils import read_json, write_bytes
from .results import INSIDE_FILE

# of one checkpoint: the page holds those of all
MAX_BYTES = 75_000
EXAMPLE = ("text", "text_pair", "answer")


def shown_examples(model: Any, tokenizer: Any, examples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Examples with what is inside of them now.

    Raises:
        ValueError: as `look_inside`, or an answer is no label of a classifier whose texts have one each.
    """
    one_label = is_classifier(model) and not predicts_number(model.config) and model.config.problem_type != MULTI
    labels, shown = list(model.config.id2label.values()), []
    for example in examples:
        text, pair, answer = (example[name] for name in EXAMPLE)
        if one_label and answer is not None and answer not in labels:
            raise ValueError(f"answer is {answer!r}: expected a label of the model, one of {listed(labels)}")
        inside = look_inside(model, tokenizer, text, pair)
        shown.append({"text": text, "text_pair": pair, "answer": answer, "inside": inside})
    return shown


def write_inside(folder: str | os.PathLike, shown: Sequence[Mapping[str, Any]]) -> Path:
    """Write `shown_examples` into a checkpoint folder, one a line.

    Raises:
        ValueError: they take more than `MAX_BYTES`.
    """
    lines = ",\n".join(map(compact, shown))
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

"""The rows of logical inference as a source and a target.

source      ( not ( a ( or b ) ) ) #SEP# ( not a )
target      <
"""

from collections.abc import Mapping
from typing import Any

from ..logical_inference import sentences

SEPARATOR = "#SEP#"
VOCABULARY = (*sentences.VOCABULARY, SEPARATOR, *sentences.RELATIONS)


def translated(row: Mapping[str, Any]) -> dict[str, object]:
    """The row of two sentences and their label, as a source and a target; `length` counts the separator too."""
    return {
        "source": f"{row['text']} {SEPARATOR} {row['text_pair']}",
        "target": sentences.RELATIONS[row["label"]],
        "num_operators": row["num_operators"],
        "length": row["length"] + 1 + row["length_pair"],
    }


def restored(source: str, target: str) -> dict[str, object]:
    """The two sentences and the label of a source and a target in the benchmark's own spelling."""
    text, text_pair = source.split(f" {SEPARATOR} ")
    return {"text": text, "text_pair": text_pair, "label": sentences.RELATIONS.index(target)}


def normalize(text: str) -> str:
    """The benchmark's spelling of a source with loose spacing, or of a target.

    >>> normalize("(not a)#SEP# b")
    '( not a ) #SEP# b'

    Raises ValueError for a text that is neither two sentences nor the symbol of a relation.
    """
    symbol = text.strip()
    if symbol in sentences.RELATIONS:
        return symbol
    parts = text.split(SEPARATOR)
    if len(parts) != 2:
        raise ValueError(
            f"not a text of logical inference as translation: {text!r}: expected 'sentence {SEPARATOR} sentence', or "
            f"one of {' '.join(sentences.RELATIONS)}"
        )
    return f" {SEPARATOR} ".join(map(sentences.normalize, parts))

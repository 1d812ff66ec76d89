"""Logical inference as translation: from two sentences to the symbol of the relation between them.

source      ( not ( a ( or b ) ) ) #SEP# ( not a )
target      <
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..benchmark import Plan
from ..papers import SPARSE_UNIVERSAL_TRANSFORMER
from ..sampling import Shard
from . import sentences
from .benchmark import LogicalInference
from .rendering import describe_label, render

SEPARATOR = "#SEP#"
VOCABULARY = (*sentences.VOCABULARY, SEPARATOR, *sentences.RELATIONS)


def translated(example: Mapping[str, Any]) -> dict[str, object]:
    """The example of two sentences and their label, as a source and a target; `length` counts the separator too."""
    return {
        "source": f"{example['text']} {SEPARATOR} {example['text_pair']}",
        "target": sentences.RELATIONS[example["label"]],
        "num_operators": example["num_operators"],
        "length": example["length"] + 1 + example["length_pair"],
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


_SENTENCES = LogicalInference.info


def _translated(shard: Shard) -> Iterator[dict[str, object]]:
    return map(translated, shard.examples())


def _translated_plan(plan: Plan) -> Plan:
    return {split: [Shard(_translated, (shard,), shard.paths) for shard in shards] for split, shards in plan.items()}


class LogicalInferenceTranslation(LogicalInference):
    """The examples of logical inference, for the same parameters in the same order, as sources and targets."""

    token_pattern = rf"{SEPARATOR}|[()]"
    read_text = staticmethod(normalize)
    info = dataclasses.replace(
        _SENTENCES,
        name="logical_inference_translation",
        title="Logical Inference as Translation",
        description="Two propositional sentences over six variables are the source; the target, one token long, is the "
        "symbol of the relation between them.",
        label_names=(),
        label_meanings=None,
        text_columns=("source", "target"),
        target_column="target",
        slice_columns=("num_operators", "length"),
        column_meanings=MappingProxyType(
            {
                "source": "the two sentences with `#SEP#` between them; tokens are separated by single spaces",
                "target": "the relation: "
                + "; ".join(
                    f"`{name}` {meaning}"
                    for name, meaning in zip(_SENTENCES.label_names, _SENTENCES.label_meanings, strict=True)
                ),
                "num_operators": _SENTENCES.column_meanings["num_operators"],
                "length": "tokens of the source; each bracket is one, and so is `#SEP#`",
            }
        ),
        vocabulary=VOCABULARY,
        **SPARSE_UNIVERSAL_TRANSFORMER,
        limits=(
            "The pairs are those of the benchmark `logical_inference` for the same parameters; the sentences and "
            "relations are Bowman, Manning and Potts' (arXiv:1506.04834), the compositional splits Shen et al.'s "
            "(Ordered Memory, 2019).",
            "More than half of the targets are `#`: compare exact match with that of always answering it.",
            "`num_operators` of 12 stands for 12 or more, as in the paper's table.",
        ),
    )

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        return _translated_plan(super().plan(config_name, params))

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        return _translated_plan(super().plan_files(config_name, params, folder))

    def render(self, texts: Mapping[str, str], max_lines: int) -> str:
        return render(restored(texts["source"], texts["target"]), max_lines)

    def describe_answer(self, example: Mapping[str, Any]) -> str:
        return describe_label(restored(example["source"], example["target"]))

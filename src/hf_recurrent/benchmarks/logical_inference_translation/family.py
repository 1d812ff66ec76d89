"""What logical inference as translation says about itself."""

import dataclasses
from types import MappingProxyType

from ..logical_inference import configs
from ..logical_inference.family import LOGICAL_INFERENCE
from ..sparse_universal import BIBTEX, CITATION, PAPER
from . import files, splits, trees
from .pairs import VOCABULARY, normalize

_SENTENCES = LOGICAL_INFERENCE.info

LOGICAL_INFERENCE_TRANSLATION = dataclasses.replace(
    LOGICAL_INFERENCE,
    info=dataclasses.replace(
        _SENTENCES,
        name="logical_inference_translation",
        title="Logical Inference as Translation",
        description="Two propositional sentences over six variables are the source; the target, one word long, is the "
        "symbol of the relation between them.",
        label_names=(),
        label_meanings=None,
        text_columns=("source", "target"),
        target_column="target",
        slice_columns=("num_operators", "length"),
        column_meanings=MappingProxyType(
            {
                "source": "the two sentences with `#SEP#` between them; words are separated by single spaces",
                "target": "the relation: "
                + "; ".join(
                    f"`{name}` {meaning}"
                    for name, meaning in zip(_SENTENCES.label_names, _SENTENCES.label_meanings, strict=True)
                ),
                "num_operators": _SENTENCES.column_meanings["num_operators"],
                "length": "words of the source; each bracket is one, and so is `#SEP#`",
            }
        ),
        vocabulary=VOCABULARY,
        paper=PAPER,
        citation=CITATION,
        bibtex=BIBTEX,
        limits=(
            "The pairs are those of the benchmark `logical_inference` for the same parameters; the sentences and "
            "relations are Bowman, Manning and Potts' (arXiv:1506.04834), the compositional splits Shen et al.'s "
            "(Ordered Memory, 2019).",
            "More than half of the targets are `#`: compare exact match with that of always answering it.",
            "`num_operators` of 12 stands for 12 or more, as in the paper's table.",
        ),
    ),
    configs=configs,
    splits=splits,
    files=files,
    trees=trees,
    normalize=normalize,
)

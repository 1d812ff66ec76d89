"""What logical inference says about itself."""

from types import MappingProxyType

from ..family import Family, family_info
from . import configs, files, splits, trees
from .sentences import RELATIONS, VOCABULARY, normalize

LOGICAL_INFERENCE = Family(
    info=family_info(
        configs,
        name="logical_inference",
        title="Logical Inference",
        description="Two propositional sentences over six variables; the label is the relation between them.",
        label_names=RELATIONS,
        label_meanings=(
            "independence: none of the other relations",
            "forward entailment: where the first is true, so is the second",
            "reverse entailment: where the second is true, so is the first",
            "equivalence: always both true or both false",
            "negation: always exactly one of them is true",
            "alternation: never both true, but sometimes both false",
            "cover: never both false, but sometimes both true",
        ),
        text_columns=("text", "text_pair"),
        slice_columns=("num_operators", "length", "length_pair"),
        column_meanings=MappingProxyType(
            {
                "text": "the first sentence; words are separated by single spaces",
                "text_pair": "the second sentence; words are separated by single spaces",
                "num_operators": "`and`, `or` and `not` of the sentence that has more; 12 stands for 12 or more",
                "length": "words of the first sentence; each bracket is one",
                "length_pair": "words of the second sentence; each bracket is one",
            }
        ),
        parse_meaning="each sentence in usual notation, above its operators with what they join indented below them; "
        "`true in 48 of 64`: so many of the 64 assignments of truth values to the six variables make this part true",
        vocabulary=VOCABULARY,
        paper="https://arxiv.org/abs/1506.04834",
        citation="Samuel R. Bowman, Christopher D. Manning and Christopher Potts. Tree-structured "
        "Composition in Neural Networks without Tree-structured Architectures. NIPS CoCo Workshop, 2015.",
        bibtex="""@inproceedings{bowman2015tree,
  title = {Tree-structured Composition in Neural Networks without Tree-structured Architectures},
  author = {Bowman, Samuel R. and Manning, Christopher D. and Potts, Christopher},
  booktitle = {NIPS CoCo Workshop},
  year = {2015},
  url = {https://arxiv.org/abs/1506.04834}
}""",
        limits=(),
    ),
    configs=configs,
    splits=splits,
    files=files,
    trees=trees,
    normalize=normalize,
    file_parameters=("max_train_operators",),
    file_configs=tuple(configs.CONFIGS),
    file_names="train0 ... train12 and test0 ... test12",
)

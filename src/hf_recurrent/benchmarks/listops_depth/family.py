"""What ListOps with dependency depth says about itself."""

from types import MappingProxyType

from ..data_router import BIBTEX, CITATION, PAPER
from ..family import Family, family_info
from . import configs, splits, trees
from .expressions import DIGITS, VOCABULARY, normalize

LISTOPS_DEPTH = Family(
    info=family_info(
        configs,
        name="listops_depth",
        title="ListOps by Dependency Depth",
        description="Nested lists of MIN, MAX, MED, SM (sum modulo 10) over digits; the label is the value, and rows "
        "are balanced over the number of operations, one after another, that it really depends on.",
        label_names=DIGITS,
        text_columns=("text",),
        slice_columns=("depth", "structural_depth", "length", "num_operators"),
        # the depths of a deeper split are the same, or nearly
        filter_column="length",
        column_meanings=MappingProxyType(
            {
                "text": "the expression; words are separated by single spaces",
                "depth": "most operations one after another that the value depends on: MIN and MAX depend on the first "
                "argument that has their value, MED on the middle one or two of a stable sort, SM on all",
                "structural_depth": "most lists inside one another",
                "length": "words of the expression; an operator with its bracket is one word, as is `]`",
                "num_operators": "operators of the expression, each of which opens a list",
            }
        ),
        parse_meaning="each list as its operator and value, with the depth of what it depends on, and its arguments "
        "indented below it; MED is the median, rounded down",
        vocabulary=VOCABULARY,
        paper=PAPER,
        citation=CITATION,
        bibtex=BIBTEX,
        limits=(
            "`depth` counts operations; the authors' dependency depth is one more, because it counts a digit as one.",
            "`validation_ood` and `test_ood` have deeper rows than train. The paper selects models on the first.",
            "The authors' train and held-out rows overlap, mostly in short expressions. Here no row is in two splits "
            "of the same parameters, and held-out rows are drawn first; data of another seed or other sizes can share "
            "rows with these.",
            "`length_limit` is the authors': it counts 3 for an operator and 1 for a digit, so that the longest rows "
            "have fewer words.",
            "Depths take turns in the order of rows.",
        ),
    ),
    configs=configs,
    splits=splits,
    trees=trees,
    normalize=normalize,
)

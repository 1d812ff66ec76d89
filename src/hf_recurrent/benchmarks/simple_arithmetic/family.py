"""What simple arithmetic says about itself."""

from types import MappingProxyType

from ..data_router import BIBTEX, CITATION, PAPER
from ..family import Family, family_info
from . import configs, splits, trees
from .expressions import DIGITS, VOCABULARY, normalize

SIMPLE_ARITHMETIC = Family(
    info=family_info(
        configs,
        name="simple_arithmetic",
        title="Simple Arithmetic",
        description="Sums and products of digits modulo 10, nested in brackets; the label is the value.",
        label_names=DIGITS,
        text_columns=("text",),
        slice_columns=("depth", "length", "num_operators"),
        column_meanings=MappingProxyType(
            {
                "text": "the expression; words are separated by single spaces",
                "depth": "operations on the longest chain from a digit to the value",
                "length": "words of the expression; each bracket is one",
                "num_operators": "operations of the expression",
            }
        ),
        parse_meaning="each operation as its operator and value, with its operands indented below it",
        vocabulary=VOCABULARY,
        paper=PAPER,
        citation=CITATION,
        bibtex=BIBTEX,
        limits=(
            "`validation` and `test` have the depths of train; `validation_ood` and `test_ood` are deeper than any row "
            "of train. The paper selects models on `validation_ood`.",
            "The paper's test set of the training distribution repeats much of its training set. With "
            "`disjoint=False` this data set does too, and what was seen in training is scored as if it were new. By "
            "default nothing in validation or test is in train, of data sets with the same seed.",
            "Labels are not balanced: even values are more frequent, and 0 most, because of products.",
            "What is added to make an expression deep enough always stands on the left, because the reference "
            "implementation never swaps operands, though it means to.",
            "An operand of the deeper splits is an operation with a probability of 0.3, in the others of 0.2: so the "
            "reference implementation; the paper names 0.2 alone.",
        ),
    ),
    configs=configs,
    splits=splits,
    trees=trees,
    normalize=normalize,
)

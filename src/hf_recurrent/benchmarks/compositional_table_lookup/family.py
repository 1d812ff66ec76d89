"""What compositional table lookup says about itself."""

from types import MappingProxyType

from ..data_router import BIBTEX, CITATION, PAPER
from ..family import Family, family_info
from . import configs, splits, trees
from .expressions import ARGUMENTS, VOCABULARY, normalize

COMPOSITIONAL_TABLE_LOOKUP = Family(
    info=family_info(
        configs,
        default_config="forward",
        name="compositional_table_lookup",
        title="Compositional Table Lookup",
        description="Functions `a` to `k`, known by heart, are applied to one of eight arguments, one after another; "
        "the label is the value.",
        label_names=ARGUMENTS,
        text_columns=("text",),
        slice_columns=("depth",),
        column_meanings=MappingProxyType(
            {
                "text": "the argument and the functions; words are separated by single spaces",
                "depth": "functions that are applied one after another",
            }
        ),
        parse_meaning="each function as its name and value, with what it is applied to indented below it",
        vocabulary=VOCABULARY,
        paper=PAPER,
        citation=CITATION,
        bibtex=BIBTEX,
        limits=(
            "`validation` and `test` are held out of the training distribution; `validation_ood` and `test_ood` need "
            "more functions than any row of train has. The paper selects models on `validation_ood`.",
            "Depths are not balanced, except in `validation_ood` and `test_ood`: commands are drawn without "
            "repetition, so that there are few short ones.",
            "Rows of train with one function repeat: each command of `j` or `k` is there 31 times. These functions "
            "are never composed in train, which `test_new_primitive_1` (`j`) and `test_new_primitive_2` (`k`) test.",
            "All rows of `test_basic` are in train: it says whether the tables are known. So are the rows of one "
            "function in `test_new_composition`, three with the paper's depths; its others are compositions that no "
            "row of train has alone, with any argument.",
            "The reference implementation chooses the held-out rows without a seed, and its order puts no command of "
            "two functions into its validation split, by accident; here both parts are drawn alike, with a seed.",
        ),
    ),
    configs=configs,
    splits=splits,
    trees=trees,
    normalize=normalize,
)

"""What ListOps says about itself."""

from types import MappingProxyType

from ..family import Family, family_info
from . import configs, expressions, files, splits, trees

LISTOPS = Family(
    info=family_info(
        configs,
        name="listops",
        title="ListOps",
        description="Nested lists of MIN, MAX, MED, SM (sum modulo 10) over digits; the label is the value.",
        label_names=expressions.DIGITS,
        text_columns=("text",),
        slice_columns=("length", "depth", "num_operators", "max_arguments"),
        column_meanings=MappingProxyType(
            {
                "text": "the expression; words are separated by single spaces",
                "length": "words of the expression; an operator with its bracket is one word, as is `]`",
                "depth": "most lists inside one another; 0 for a bare digit",
                "num_operators": "operators of the expression, each of which opens a list",
                "max_arguments": "arguments of the list that has the most; 0 for a bare digit",
            }
        ),
        parse_meaning="each list as its operator and value, with its arguments indented below it; "
        "MED is the median, rounded down",
        vocabulary=expressions.VOCABULARY,
        paper="https://aclanthology.org/N18-4013",
        citation="Nikita Nangia and Samuel Bowman. ListOps: A Diagnostic Dataset for Latent Tree Learning. "
        "NAACL Student Research Workshop, 2018.",
        bibtex="""@inproceedings{nangia2018listops,
  title = {ListOps: A Diagnostic Dataset for Latent Tree Learning},
  author = {Nangia, Nikita and Bowman, Samuel},
  booktitle = {NAACL Student Research Workshop},
  year = {2018},
  url = {https://aclanthology.org/N18-4013}
}""",
        limits=(
            "Papers do not say how many rows the generalization splits have; the default of 2,000 was chosen here.",
            "For `argument_generalization`, papers give the lengths and the most arguments only; that the number of "
            "arguments is uniform and that there are at most 10 levels was chosen here.",
        ),
    ),
    configs=configs,
    splits=splits,
    files=files,
    trees=trees,
    normalize=expressions.normalize,
    file_parameters=("max_train_length",),
    file_configs=tuple(files.FILES),
    file_names="train_d20s.tsv and test_d20s.tsv for 'original', basic_{train,val,test}.tsv for 'lra'",
)

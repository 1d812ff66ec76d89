"""The one table of benchmark families: what they are, what they take, how their rows are made."""

from collections.abc import Mapping
from types import MappingProxyType

from .cfq.family import CFQ
from .compositional_table_lookup.family import COMPOSITIONAL_TABLE_LOOKUP
from .family import Family, family_info
from .flip_flop import configs as flip_flop_configs
from .flip_flop import splits as flip_flop_splits
from .flip_flop import strings
from .flip_flop import trees as flip_flop_trees
from .info import BenchmarkInfo
from .listops import configs as listops_configs
from .listops import expressions
from .listops import files as listops_files
from .listops import splits as listops_splits
from .listops import trees as listops_trees
from .listops_depth.family import LISTOPS_DEPTH
from .logical_inference.family import LOGICAL_INFERENCE
from .logical_inference_translation.family import LOGICAL_INFERENCE_TRANSLATION
from .long_documents.family import LONG_DOCUMENTS
from .parameters import unknown
from .simple_arithmetic.family import SIMPLE_ARITHMETIC
from .wmt14_en_de.family import WMT14_EN_DE

LISTOPS = Family(
    info=family_info(
        listops_configs,
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
    configs=listops_configs,
    splits=listops_splits,
    files=listops_files,
    trees=listops_trees,
    normalize=expressions.normalize,
    file_parameters=("max_train_length",),
    file_configs=tuple(listops_files.FILES),
    file_names="train_d20s.tsv and test_d20s.tsv for 'original', basic_{train,val,test}.tsv for 'lra'",
)

FLIP_FLOP = Family(
    info=family_info(
        flip_flop_configs,
        name="flip_flop",
        title="Flip-Flop Language Modelling",
        description="Strings of instructions, each followed by a bit: w writes it, i is to be ignored, and after r "
        "stands the bit that was written last, which a language model must predict.",
        label_names=(),
        text_columns=("text",),
        slice_columns=("length", "ignore_percent", "num_reads", "distance"),
        # the others are the same, or nearly, in all rows of a test split
        filter_column="distance",
        column_meanings=MappingProxyType(
            {
                "text": "the string; words are separated by single spaces",
                "length": "words of the string, instructions and bits alike",
                "ignore_percent": "100 times the probability that an instruction is `i`, other than the first, which "
                "is `w`, and the last, which is `r`",
                "num_reads": "reads (`r`) of the string",
                "distance": "words between the last read and the write that it must recall, each with its bit; 0 if "
                "they are neighbours",
            }
        ),
        parse_meaning="the string in columns of an instruction and its bit; below each write its number, and below "
        "each read `=` with the number of the write whose bit it must have (and `!` if it has another)",
        vocabulary=strings.VOCABULARY,
        paper="https://arxiv.org/abs/2306.00946",
        citation="Bingbin Liu, Jordan T. Ash, Surbhi Goel, Akshay Krishnamurthy and Cyril Zhang. Exposing Attention "
        "Glitches with Flip-Flop Language Modeling. arXiv:2306.00946, 2023.",
        bibtex="""@article{liu2023exposing,
  title = {Exposing Attention Glitches with Flip-Flop Language Modeling},
  author = {Liu, Bingbin and Ash, Jordan T. and Goel, Surbhi and Krishnamurthy, Akshay and Zhang, Cyril},
  journal = {arXiv preprint arXiv:2306.00946},
  year = {2023},
  url = {https://arxiv.org/abs/2306.00946}
}""",
        limits=(
            "Only the bit after an `r` can be predicted: train and score on these bits alone. Instructions are random, "
            "and so are the bits after `w` and `i`.",
            "Reads before the last one show the bit of their write too: with many reads, copying it from the nearest "
            "one is easier than `distance` says.",
            "The defaults of lengths, probabilities and sizes are those of Ray Chowdhury and Caragea, Investigating "
            "Recurrent Transformers with Dynamic Halt; their validation split counts the training distribution twice, "
            "this one does not.",
        ),
    ),
    configs=flip_flop_configs,
    splits=flip_flop_splits,
    trees=flip_flop_trees,
    normalize=strings.normalize,
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.info.name: family
        for family in (
            LISTOPS,
            LOGICAL_INFERENCE,
            FLIP_FLOP,
            COMPOSITIONAL_TABLE_LOOKUP,
            SIMPLE_ARITHMETIC,
            LISTOPS_DEPTH,
            LONG_DOCUMENTS,
            LOGICAL_INFERENCE_TRANSLATION,
            CFQ,
            WMT14_EN_DE,
        )
    }
)


def get_family(name: str) -> Family:
    if name not in FAMILIES:
        raise unknown("benchmark", name, FAMILIES)
    return FAMILIES[name]


def list_benchmarks() -> list[str]:
    """The names that `load_benchmark` knows."""
    return list(FAMILIES)


def benchmark_info(name: str) -> BenchmarkInfo:
    """What a benchmark is: its configs, labels, columns, words, parameters and paper."""
    return get_family(name).info

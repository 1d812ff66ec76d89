"""The ListOps configs: their splits, their parameters, and where each comes from.

- `original`: Nangia & Bowman's data. They drew trees until 100,000 were distinct and put 90,000 into the
  training file and 10,000 into the test file. Following Ray Chowdhury & Caragea, the first 1,000 training
  trees are the validation split (unfiltered) and training trees of more than 100 tokens are left out.
- `length_generalization`: the same grammar conditioned on lengths of 200-300, 300-400, ..., 900-1000 tokens.
- `argument_generalization`: 2-10 or 2-15 arguments per list instead of 2-5, conditioned on 100-1000 tokens.
  Papers give the lengths and the maximum number of arguments only. Chosen here: the number of arguments is uniform, as
  in training, and there are at most 10 levels, as in Long Range Arena. With the 20 levels of training, trees of
  up to 15 arguments are either hardly longer than 100 tokens or endless.
- `lra`: Long Range Arena's generator: 10 levels, 2-10 arguments, 501-1999 tokens.

Papers do not give the sizes of the generalization splits; the default is 2,000 each.

Of the authors' files, `original` reads `train_d20s.tsv` and `test_d20s.tsv`, whichever exist, with lines of

    label<TAB>expression            9	( ( ( [MAX 2 ) 9 ) ] )

and `lra` reads `basic_train.tsv`, `basic_val.tsv` and `basic_test.tsv`, which start with a header line and
put the expression first. Every label is computed again, and a difference is an error.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..benchmark import Benchmark, Config, Plan, make_info
from ..files import read_lines
from ..parameters import SEED, Check, Parameter, boolean, integer, optional, probability
from ..sampling import Shard, in_order
from . import splits
from .expressions import DIGITS, IGNORED_PATTERN, OPERATORS, TOKEN_PATTERN, VOCABULARY, make_example, normalize, render


def _operators(value: Any) -> tuple[str, ...]:
    """Operators with or without their bracket, in the benchmark's order."""
    if isinstance(value, str):
        value = (value,)
    names = {"[" + name.lstrip("[").upper() for name in value}
    if not names or not names <= set(OPERATORS):
        raise ValueError
    return tuple(name for name in OPERATORS if name in names)


PARAMETERS = {
    "seed": SEED,
    "num_train": Parameter(
        optional(integer(0)), "examples of the train split; None, for `original`: all of the authors' examples"
    ),
    "num_validation": Parameter(integer(0), "examples of the validation split"),
    "num_test": Parameter(integer(0), "examples of each test split"),
    "max_depth": Parameter(integer(1), "maximum number of lists inside one another"),
    "max_arguments": Parameter(
        optional(integer(2)),
        "maximum number of arguments of a list; None, for `argument_generalization`: a split for 10 and one for 15",
    ),
    "operators": Parameter(Check(_operators, f"one or more of {', '.join(OPERATORS)}"), "operators to draw from"),
    "value_probability": Parameter(probability, "probability that an argument is a digit, not a list"),
    "min_length": Parameter(
        optional(integer(1)),
        "minimum number of tokens; None: no limit, for `length_generalization` the published ranges",
    ),
    "max_length": Parameter(
        optional(integer(1)),
        "maximum number of tokens; None: no limit, for `length_generalization` the published ranges",
    ),
    "max_train_length": Parameter(
        optional(integer(1)), "maximum number of tokens of training examples; None: no limit"
    ),
    "depth_balanced": Parameter(boolean, "as many examples of every depth from 1 to max_depth"),
}

_GRAMMAR = {
    "max_depth": 19,
    "max_arguments": 5,
    "operators": OPERATORS,
    "value_probability": 0.75,
    "min_length": None,
    "max_length": None,
    "depth_balanced": False,
}
CONFIGS = {
    "original": Config(
        "Nangia & Bowman's distribution: train (at most 100 tokens), validation, test",
        {
            "seed": 0,
            "num_train": None,
            "num_validation": 1000,
            "num_test": 10_000,
            **_GRAMMAR,
            "max_train_length": 100,
        },
    ),
    "length_generalization": Config(
        "test splits of 200-300, 300-400, ..., 900-1000 tokens", {"seed": 0, "num_test": 2000, **_GRAMMAR}
    ),
    "argument_generalization": Config(
        "test splits with up to 10 and up to 15 arguments, 100-1000 tokens",
        {
            "seed": 0,
            "num_test": 2000,
            **_GRAMMAR,
            "max_depth": 9,
            "max_arguments": None,
            "min_length": 100,
            "max_length": 1000,
        },
    ),
    "lra": Config(
        "Long Range Arena: 501-1999 tokens, up to 10 arguments, train, validation, test",
        {
            "seed": 0,
            "num_train": 96_000,
            "num_validation": 2000,
            "num_test": 2000,
            **_GRAMMAR,
            "max_depth": 9,
            "max_arguments": 10,
            "min_length": 501,
            "max_length": 1999,
        },
    ),
}

# config -> split -> file
FILES = {
    "original": {"train": "train_d20s.tsv", "validation": "train_d20s.tsv", "test": "test_d20s.tsv"},
    "lra": {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"},
}
VALIDATION_EXAMPLES = 1000
_HEADER = "Source\tTarget"


def file_examples(path: str, config_name: str, split: str, limit: int | None) -> Iterator[dict[str, object]]:
    """The examples of a file that belong to a split; train examples have at most `limit` tokens."""
    swapped = config_name == "lra"
    in_train_file = config_name == "original" and split != "test"
    for number, line in read_lines(path):
        if swapped and number == 1:
            if line != _HEADER:
                raise ValueError(f"{path}:1: expected the header {_HEADER!r}, got {line[:80]!r}")
            continue
        if in_train_file and (number <= VALIDATION_EXAMPLES) != (split == "validation"):
            continue
        example = _parse(line, swapped, f"{path}:{number}")
        if in_train_file and split == "train" and limit is not None and example["length"] > limit:
            continue
        yield example


def _parse(line: str, swapped: bool, place: str) -> dict[str, object]:
    form = "expression<TAB>label" if swapped else "label<TAB>expression"
    fields = line.split("\t")
    if len(fields) != 2:
        raise ValueError(f"{place}: expected '{form}', got {line[:80]!r}")
    expression, label = fields if swapped else reversed(fields)
    if label not in tuple("0123456789"):
        raise ValueError(f"{place}: expected a label from 0 to 9 ('{form}'), got {label[:80]!r}")
    tokens = [token for token in expression.split() if token not in ("(", ")")]
    try:
        example = make_example(tokens)
    except ValueError as error:
        raise ValueError(f"{place}: expected a ListOps expression: {error}") from error
    if example["label"] != int(label):
        raise ValueError(f"{place}: expected the label {example['label']}, the expression's value, got {label}")
    return example


class ListOps(Benchmark):
    """Nested lists of operations on digits (Nangia & Bowman, 2018)."""

    parameters = PARAMETERS
    read_text = staticmethod(normalize)
    draw_text = staticmethod(render)
    answer = "its value is {}"
    token_pattern = TOKEN_PATTERN
    ignored_pattern = IGNORED_PATTERN
    file_configs = tuple(FILES)
    file_parameters = ("max_train_length",)
    file_names = "train_d20s.tsv and test_d20s.tsv for 'original', basic_{train,val,test}.tsv for 'lra'"
    info = make_info(
        PARAMETERS,
        CONFIGS,
        name="listops",
        title="ListOps",
        description="Nested lists of MIN, MAX, MED, SM (sum modulo 10) over digits; the label is the value.",
        label_names=DIGITS,
        text_columns=("text",),
        slice_columns=("length", "depth", "num_operators", "max_arguments"),
        column_meanings={
            "text": "the expression; tokens are separated by single spaces",
            "length": "tokens of the expression; an operator with its bracket is one token, as is `]`",
            "depth": "maximum number of lists inside one another; 0 for a bare digit",
            "num_operators": "operators of the expression, each of which opens a list",
            "max_arguments": "arguments of the list that has the most; 0 for a bare digit",
        },
        parse_meaning="each list as its operator and value, with its arguments indented below it; "
        "MED is the median, rounded down",
        vocabulary=VOCABULARY,
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
            "Papers do not give the sizes of the generalization splits; the default of 2,000 was chosen here.",
            "For `argument_generalization`, papers give the lengths and the maximum number of arguments only; that the "
            "number of arguments is uniform and that there are at most 10 levels was chosen here.",
        ),
    )

    def shift(self, config_name: str, params: Mapping[str, Any], split: str) -> str:
        if split == "test":
            return "up to any length" if params.get("max_train_length") else ""
        more = split.startswith(("argument_generalization/", "lra/"))
        return "longer, more arguments" if more else "longer than training" if "/" in split else ""

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that depend on several parameters, and defaults that follow from others."""
        without = {"original": "num_train", "argument_generalization": "max_arguments"}.get(config_name)
        for name in ("num_train", "num_validation", "max_arguments"):
            if params.get(name, 0) is None and name != without:
                raise ValueError(f"{name}=None: config {config_name!r} needs a number")
        low, high = params["min_length"], params["max_length"]
        if high is not None and low is not None and low > high:
            raise ValueError(f"min_length={low} is larger than max_length={high}")
        if config_name == "length_generalization" and (low is None) != (high is None):
            raise ValueError(
                f"min_length={low}, max_length={high}: config 'length_generalization' has one split per range of "
                "lengths; give both limits (one split), or neither (the published ranges)"
            )
        if config_name not in ("original", "length_generalization") and high is None:
            raise ValueError(f"max_length=None: config {config_name!r} needs a number")
        if params["depth_balanced"] and high is None and config_name == "original":
            # deep trees have no useful length limit of their own
            params["max_length"] = params["max_train_length"] or 1000
        elif low is not None and high is None:
            raise ValueError(f"min_length={low}: give max_length too")
        return params

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        return in_order(request.split for request in splits.requests(config_name, params))

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        return splits.plan(config_name, params)

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """One shard for each split whose file exists."""
        limit = params.get("max_train_length")
        paths = {split: str(folder / name) for split, name in FILES[config_name].items()}
        return {
            split: [Shard(file_examples, (path, config_name, split, limit), (path,))]
            for split, path in paths.items()
            if Path(path).is_file()
        }

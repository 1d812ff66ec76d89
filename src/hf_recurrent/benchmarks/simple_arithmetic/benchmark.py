"""The simple arithmetic of the Neural Data Router paper: its config, its parameters and its splits.

- `original`: the data of the paper. Train and the first validation and test split have 1 to 5 operations on the longest
  chain, `validation_ood` has 6 and `test_ood` 7 and 8. An operand is an operation with a probability of 0.2, in the
  deeper splits of 0.3 (the paper names the first only).

Every depth of a split has a stream of its own (`distribution.py`), of which the split has the first different
expressions. With `disjoint`, test comes first, then validation, then train, and each leaves out those of the splits
before it. At least `RESERVED` examples are set aside for test and validation each, however few are asked for: nothing
that a model was trained on is in the splits of default size either, if only the seed is the same. That costs train
little: there are 8,000 expressions of depth 2 with two operators, of which it has 7,546 by default, and 7,988 without
`disjoint`.
"""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from ..benchmark import Benchmark, Config, Plan, make_info
from ..papers import NEURAL_DATA_ROUTER
from ..parameters import SEED, Parameter, boolean, check_ood_depths, integer
from ..sampling import in_order, make_rng, make_shards, non_empty, shuffled
from .distribution import LISTED_DEPTH, ConditionalSampler, Process, bin_sizes, capacity, first_different, listed
from .expressions import DIGITS, VOCABULARY, make_example, normalize, render

MAX_TOKENS = 100
_SHORTEST_OPERATION = 5

PARAMETERS = {
    "seed": SEED,
    "num_train": Parameter(integer(0), "examples of the train split"),
    "num_validation": Parameter(integer(0), "examples of each validation split"),
    "num_test": Parameter(integer(0), "examples of each test split"),
    "max_train_depth": Parameter(integer(2), "most operations on the longest chain in train, validation and test"),
    "valid_extra_depth": Parameter(
        integer(1), "`validation_ood` has expressions of up to so many operations more than max_train_depth"
    ),
    "max_test_depth": Parameter(integer(4), "most operations on the longest chain in `test_ood`"),
    "max_length": Parameter(integer(_SHORTEST_OPERATION, MAX_TOKENS), "maximum number of tokens of an expression"),
    "disjoint": Parameter(
        boolean,
        "True: no example of validation or test is in train, which alone has expressions of one operation; False: as "
        "the authors have it, where their splits overlap (200 examples, all there are, have one operation in each)",
    ),
}

CONFIGS = {
    "original": Config(
        "the paper's data: as many examples of every depth, and deeper ones for model selection and test",
        {
            "seed": 0,
            "num_train": 100_200,
            "num_validation": 1000,
            "num_test": 1000,
            "max_train_depth": 5,
            "valid_extra_depth": 1,
            "max_test_depth": 8,
            "max_length": 50,
            "disjoint": True,
        },
    )
}


def max_operators(max_length: int) -> int:
    """Each operator adds four tokens: two brackets, itself and another digit."""
    return (max_length - 1) // 4


BRANCH_PROBABILITY, BRANCH_PROBABILITY_OOD = 0.2, 0.3
# the minimum depth that the process of train, validation and test grows its expressions to
GROWN_DEPTH = 2
RESERVED = 1000


class Request(NamedTuple):
    """A split: its process, how many of its examples have each depth, and how many of each are set aside for it."""

    split: str
    process: Process
    sizes: dict[int, int]
    reserved: dict[int, int]

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


def requests(params: Mapping[str, Any]) -> list[Request]:
    """The requests of all splits, in the order in which expressions are dealt out.

    Raises ValueError for more examples than there are expressions for.
    """
    trained, validated = params["max_train_depth"], params["max_train_depth"] + params["valid_extra_depth"]
    most = max_operators(params["max_length"])
    process = Process(GROWN_DEPTH, trained, BRANCH_PROBABILITY, most)
    wanted = _distributed(params, process, most)
    for split, low, high in (
        ("validation_ood", trained + 1, validated),
        ("test_ood", validated + 1, params["max_test_depth"]),
    ):
        capacities = {depth: capacity(depth, most) for depth in range(low, high + 1)}
        sizes = _sizes(params, split, capacities)
        wanted.append(Request(split, Process(low, high, BRANCH_PROBABILITY_OOD, most), sizes, sizes))
    non_empty({request.split: request.size for request in wanted})
    return wanted


def _distributed(params: Mapping[str, Any], process: Process, most: int) -> list[Request]:
    """The splits of the training distribution."""
    capacities = {depth: capacity(depth, most) for depth in range(LISTED_DEPTH, process.max_depth + 1)}
    if not params["disjoint"]:
        splits = {split: _sizes(params, split, capacities) for split in ("test", "validation", "train")}
        return [Request(split, process, sizes, sizes) for split, sizes in splits.items()]
    wanted = []
    # expressions of one operation are too few to be divided
    left = {depth: most for depth, most in capacities.items() if depth != LISTED_DEPTH}
    for split in ("test", "validation"):
        reserved = _sizes(params, split, left, at_least=RESERVED)
        wanted.append(Request(split, process, _sizes(params, split, left), reserved))
        left = {depth: most - reserved[depth] for depth, most in left.items()}
    left |= {LISTED_DEPTH: capacities[LISTED_DEPTH]}
    sizes = _sizes(params, "train", left)
    return [*wanted, Request("train", process, sizes, sizes)]


def _sizes(params: Mapping[str, Any], split: str, capacities: Mapping[int, int], at_least: int = 0) -> dict[int, int]:
    parameter = f"num_{split.split('_')[0]}"
    sizes = bin_sizes(max(params[parameter], at_least), capacities)
    if sizes is None:
        depths = f"{min(capacities)} to {max(capacities)}" if len(capacities) > 1 else f"{min(capacities)}"
        raise ValueError(
            f"{parameter}={params[parameter]}: split {split!r} can have {sum(capacities.values())} examples at most, "
            f"of depth {depths} and up to {params['max_length']} tokens; ask for fewer, or raise max_length or the "
            "depths"
        )
    return sizes


def _draw(request: Request, seed: int, taken: frozenset[str]) -> dict[int, list[str]]:
    """The expressions that are set aside for a split, by depth."""
    sampler = ConditionalSampler(request.process)
    drawn = {}
    for depth, size in request.reserved.items():
        rng = make_rng("simple_arithmetic", request.split, list(request.process), depth, seed)
        if depth == LISTED_DEPTH:
            drawn[depth] = shuffled(listed(), rng)[:size]
        else:
            drawn[depth] = list(islice(first_different(sampler, depth, rng, taken), size))
    return drawn


class SimpleArithmetic(Benchmark):
    """Sums and products modulo 10, nested in brackets (Csordás et al., 2022)."""

    parameters = PARAMETERS
    read_text = staticmethod(normalize)
    draw_text = staticmethod(render)
    answer = "its value is {}"
    token_pattern = r"[()*+0-9]"
    info = make_info(
        PARAMETERS,
        CONFIGS,
        name="simple_arithmetic",
        title="Simple Arithmetic",
        description="Sums and products of digits modulo 10, nested in brackets; the label is the value.",
        label_names=DIGITS,
        text_columns=("text",),
        slice_columns=("depth", "length", "num_operators"),
        column_meanings={
            "text": "the expression; tokens are separated by single spaces",
            "depth": "operations on the longest chain from a digit to the value",
            "length": "tokens of the expression; each bracket is one",
            "num_operators": "operations of the expression",
        },
        parse_meaning="each operation as its operator and value, with its operands indented below it",
        vocabulary=VOCABULARY,
        **NEURAL_DATA_ROUTER,
        limits=(
            "`validation` and `test` have the depths of train; `validation_ood` and `test_ood` are deeper than any "
            "example of train. The paper selects models on `validation_ood`.",
            "The paper's test set of the training distribution repeats much of its training set. With "
            "`disjoint=False` this data set does too, and what was seen in training is scored as if it were new. By "
            "default nothing in validation or test is in train, of data sets with the same seed.",
            "Labels are not balanced: even values are more frequent, and 0 most, because of products.",
            "Parts that are added to make an expression deep enough always stand on the left, because the reference "
            "implementation never swaps operands, though it means to.",
            "An operand of the deeper splits is an operation with a probability of 0.3, in the others of 0.2: so the "
            "reference implementation; the paper names 0.2 alone.",
        ),
    )

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that depend on several parameters."""
        check_ood_depths(params)
        if params["max_test_depth"] > max_operators(params["max_length"]):
            raise ValueError(
                f"max_length={params['max_length']}: an expression of max_test_depth={params['max_test_depth']} "
                f"operations on a chain has at least {4 * params['max_test_depth'] + 1} tokens; raise max_length (to "
                f"at most {MAX_TOKENS}) or lower the depths"
            )
        return params

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        return in_order(request.split for request in requests(params) if request.size)

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        seed, taken = params["seed"], frozenset()
        texts: dict[str, list[str]] = {}
        for request in requests(params):
            drawn = _draw(request, seed, taken)
            chosen = [text for depth, size in request.sizes.items() for text in drawn[depth][:size]]
            texts[request.split] = shuffled(chosen, make_rng("simple_arithmetic", "order", request.split, seed))
            if params["disjoint"]:
                taken = taken.union(*drawn.values())
        return {
            split: make_shards(partial(map, make_example), texts[split])
            for split in self.split_names(config_name, params)
        }

"""ListOps by dependency depth: its config, its parameters and its splits.

- `original`: the data of the Neural Data Router paper. Examples of every split are balanced over the operations that
  their value depends on: 1 to 5 in train and the first validation and test split, 6 in `validation_ood`, 7 and 8 in
  `test_ood`. The authors have one set beside train of 1 to 5 operations; here `validation` and `test` are two.

The authors draw samples, leave out those that they have had, and keep one if its depth is still wanted. Of each
depth they so keep the first n different samples of that depth. Here each depth has draws of its own, of that depth
alone, which is the same in distribution: example number k of a depth is the first draw of a stream of its own, made of
the source, seed, split, depth and k, that no example before it has. Depths take turns.

Tests come first, then validation, then train, and no example is in two splits. So held-out examples do not depend on
how much is trained on. They take 400 examples of each depth from train, by default, and of depth 1 the most frequent:
of the 400 lists of two digits, 26 are held out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from ..benchmark import Benchmark, Config, Plan, make_info
from ..listops.expressions import DIGITS, IGNORED_PATTERN, TOKEN_PATTERN, VOCABULARY, normalize
from ..papers import NEURAL_DATA_ROUTER
from ..parameters import SEED, Parameter, check_ood_depths, integer, probability
from ..sampling import digest, make_rng, make_shards, non_empty
from .expressions import make_example, render
from .rules import Source, shortest
from .sampler import depth_sampler
from .weights import count, fewest

# beyond, the weights of deep expressions take too long
MAX_LENGTH_LIMIT = 100

PARAMETERS = {
    "seed": SEED,
    "num_train": Parameter(integer(0), "examples of the train split"),
    "num_validation": Parameter(integer(0), "examples of each validation split"),
    "num_test": Parameter(integer(0), "examples of each test split"),
    "max_train_depth": Parameter(
        integer(1), "maximum number of operations that the value of an example depends on in train, validation and test"
    ),
    "valid_extra_depth": Parameter(
        integer(1), "`validation_ood` has expressions of up to so many operations more than max_train_depth"
    ),
    "max_test_depth": Parameter(
        integer(3), "maximum number of operations that the value of an example depends on in `test_ood`"
    ),
    "length_limit": Parameter(
        integer(shortest(1), MAX_LENGTH_LIMIT),
        "the greatest length, for which an operator with its brackets counts 3, and a digit 1",
    ),
    "value_probability": Parameter(probability, "probability that an argument is a digit, not a list"),
}

CONFIGS = {
    "original": Config(
        "the paper's data: as many examples of every depth, and deeper ones for model selection and test",
        {
            "seed": 0,
            "num_train": 1_000_000,
            "num_validation": 1000,
            "num_test": 1000,
            "max_train_depth": 5,
            "valid_extra_depth": 1,
            "max_test_depth": 8,
            "length_limit": 50,
            "value_probability": 0.7,
        },
    )
}

_ORDER = ("train", "validation", "validation_ood", "test", "test_ood")
# draws of examples that are there already, before the others are taken for too rare; 50 more for each example
PATIENCE = 100_000
_HINT = "ask for fewer examples (num_train, num_validation, num_test), other depths or a larger length_limit"


class Request(NamedTuple):
    """`size` examples of a split, the depths of whose source take turns."""

    split: str
    size: int
    source: Source

    def parts(self) -> dict[int, int]:
        """How many of the examples are of each depth."""
        depths = range(self.source.low, self.source.high + 1)
        return {depth: len(range(turn, self.size, len(depths))) for turn, depth in enumerate(depths)}


def requests(params: Mapping[str, Any]) -> list[Request]:
    """The requests of all splits that have examples, in the order in which these are drawn.

    Raises ValueError where there are fewer expressions of a depth than examples.
    """
    train, test = params["max_train_depth"], params["max_test_depth"]
    deepest = train + params["valid_extra_depth"]
    depths = {
        "test_ood": (deepest + 1, test),
        "validation_ood": (train + 1, deepest),
        "test": (1, train),
        "validation": (1, train),
        "train": (1, train),
    }
    limits = params["length_limit"], params["value_probability"]
    sizes = {split: params[f"num_{split.removesuffix('_ood')}"] for split in depths}
    wanted = [Request(split, size, Source(*depths[split], *limits)) for split, size in non_empty(sizes).items()]
    for source in {request.source: None for request in wanted}:
        for depth in range(source.low, source.high + 1):
            needed = sum(request.parts()[depth] for request in wanted if request.source == source)
            if needed > fewest(source, depth) and needed > count(source, depth):
                raise ValueError(
                    f"there are only {count(source, depth)} different expressions that depend on {depth} operation(s) "
                    f"with length_limit={source.length_limit}, but the splits need {needed} of them; {_HINT}"
                )
    return wanted


def _texts(request: Request, seed: int, seen: dict[int, set[str]]) -> list[str]:
    """The expressions of a split; `seen` grows with them."""
    texts = [""] * request.size
    parts = request.parts()
    for turn, (depth, size) in enumerate(parts.items()):
        if size:
            texts[turn :: len(parts)] = _distinct(request, depth, size, seed, seen.setdefault(depth, set()))
    return texts


def _distinct(request: Request, depth: int, size: int, seed: int, seen: set[str]) -> Iterator[str]:
    """`size` expressions of a depth that are not in `seen`, which grows with them."""
    sampler = depth_sampler(request.source, depth)
    key = digest("listops_depth", asdict(request.source), seed, request.split, depth)
    repeated = 50 * size + PATIENCE
    for number in range(size):
        rng = make_rng(key, number)
        while (text := " ".join(sampler.draw(rng))) in seen:
            repeated -= 1
            if not repeated:
                raise ValueError(
                    f"split {request.split!r}: found only {number} of {size} new expressions that depend on {depth} "
                    f"operation(s): the others are too rare; {_HINT}"
                )
        seen.add(text)
        yield text


def make_examples(texts: Iterable[str]) -> Iterator[dict[str, object]]:
    return (make_example(text.split(" ")) for text in texts)


class ListOpsDepth(Benchmark):
    """ListOps, balanced over the operations that a value depends on (Csordás et al., 2022)."""

    parameters = PARAMETERS
    read_text = staticmethod(normalize)
    draw_text = staticmethod(render)
    answer = "its value is {}"
    token_pattern = TOKEN_PATTERN
    ignored_pattern = IGNORED_PATTERN
    info = make_info(
        PARAMETERS,
        CONFIGS,
        name="listops_depth",
        title="ListOps by Dependency Depth",
        description="Nested lists of MIN, MAX, MED, SM (sum modulo 10) over digits; the label is the value, and "
        "examples are balanced over the number of operations, one after another, that it really depends on.",
        label_names=DIGITS,
        text_columns=("text",),
        slice_columns=("depth", "structural_depth", "length", "num_operators"),
        # the depths of a deeper split are the same, or nearly
        filter_column="length",
        column_meanings={
            "text": "the expression; tokens are separated by single spaces",
            "depth": "maximum number of operations one after another that the value depends on: MIN and MAX depend "
            "on the first argument that has their value, MED on the middle one or two of a stable sort, SM on all",
            "structural_depth": "maximum number of lists inside one another",
            "length": "tokens of the expression; an operator with its bracket is one token, as is `]`",
            "num_operators": "operators of the expression, each of which opens a list",
        },
        parse_meaning="each list as its operator and value, with the depth of what it depends on, and its arguments "
        "indented below it; MED is the median, rounded down",
        vocabulary=VOCABULARY,
        **NEURAL_DATA_ROUTER,
        limits=(
            "`depth` counts operations; the authors' dependency depth is one more, because it counts a digit as one.",
            "`validation_ood` and `test_ood` have deeper examples than train. The paper selects models on the first.",
            "The authors' train and held-out examples overlap, mostly in short expressions. Here no example is in two "
            "splits of the same parameters, and held-out examples are drawn first; data of another seed or other sizes "
            "can share examples with these.",
            "`length_limit` is the authors': it counts 3 for an operator and 1 for a digit, so that the longest "
            "examples have fewer tokens.",
            "Depths take turns in the order of examples.",
        ),
    )

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that depend on several parameters."""
        check_ood_depths(params)
        deepest, limit = params["max_test_depth"], params["length_limit"]
        if shortest(deepest) > limit:
            raise ValueError(
                f"max_test_depth={deepest}: a value that depends on so many operations needs a length of at least "
                f"{shortest(deepest)}, but length_limit={limit}; raise length_limit (to at most {MAX_LENGTH_LIMIT}) or "
                "lower the depths"
            )
        return params

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        wanted = [request.split for request in requests(params)]
        return [split for split in _ORDER if split in wanted]

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        # equal expressions have equal depths
        seen: dict[int, set[str]] = {}
        texts = {request.split: _texts(request, params["seed"], seen) for request in requests(params)}
        return {split: make_shards(make_examples, texts[split]) for split in _ORDER if split in texts}

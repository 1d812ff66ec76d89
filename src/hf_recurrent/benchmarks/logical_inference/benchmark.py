r"""Logical inference: its configs, its parameters, its files and its random pairs of sentences.

- `original`: train and validation have sentences of at most 6 operators, test has 7 to 12 ("12 or more"). Where it
  is asked for, test_short has at most 6, too.
- `split_a`, `split_b`, `split_c`: pairs of at most 6 operators; those in which either sentence contains a
  pattern are the test split (Shen et al., 2019, Ordered Memory).

The default sizes are those that the authors' files give. These are `train0` ... `train12` and `test0` ... `test12`,
with lines of

    label<TAB>sentence<TAB>sentence            <	( a ( and b ) )	a

Train and validation come from `train0` ... `train6`, one after the other: every tenth pair is a validation pair. The
test split of `original` is `test7` ... `test12`, its test_short `test0` ... `test6`; the compositional configs divide
`train0` ... `train6` only. Every label is computed again, and a difference is an error.

Random pairs follow the authors' process. Four of the six variables are chosen for a pair. Both sentences are then drawn
from

    S(n) -> variable                       with probability 5/9, and always when n < 2
    S(n) -> ( S(n/2) ( op S(n/2) ) )       with probability 2/9 each for `and`, `or`
    S(n) -> ( not S'(n) )                  S' is S without this rule, with probability 1/3

from n = 12, so no sentence has more than three binary operators inside one another. Pairs with a sentence
that is always true or always false are thrown away. Of 500,000 pairs the authors kept the distinct ones.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ..benchmark import Benchmark, Config, Plan, make_info
from ..files import read_lines
from ..parameters import SEED, SIZES, Parameter, integer
from ..sampling import Shard, keep_probability, make_rng, make_shards, non_empty, shuffled
from .rendering import describe_label, render
from .sentences import ALL_WORLDS, RELATIONS, VARIABLES, VOCABULARY, WORLDS, make_example, normalize

PATTERNS = {
    "split_a": ("( and ( not a ) )",),
    "split_b": ("( and ( not ",),
    "split_c": ("( and ( not ", "( or ( not "),
}
MAX_OPERATORS = 12
# every tenth pair that is not held out for testing is a validation pair
VALIDATION_EVERY = 10
SPLITS = ("train", "validation", "test", "test_short")

PARAMETERS = {
    "seed": SEED,
    **SIZES,
    "num_test_short": Parameter(
        integer(0),
        "examples of the test_short split: pairs of at most max_train_operators operators that train and validation "
        "leave over",
    ),
    "max_train_operators": Parameter(
        integer(1, MAX_OPERATORS - 1), "maximum number of operators of a training sentence"
    ),
}


def _defaults(num_train: int, num_validation: int, num_test: int) -> dict[str, Any]:
    return {
        "seed": 0,
        "num_train": num_train,
        "num_validation": num_validation,
        "num_test": num_test,
        "max_train_operators": 6,
    }


CONFIGS = {
    "original": Config(
        "train, validation and test_short: at most 6 operators; test: 7 to 12 operators",
        _defaults(121_977, 13_552, 13_445) | {"num_test_short": 0},
    ),
    "split_a": Config(
        "test: pairs that contain `( and ( not a ) )`, at most 6 operators", _defaults(116_073, 12_896, 6_560)
    ),
    "split_b": Config("test: pairs that contain `( and ( not`, at most 6 operators", _defaults(79_154, 8_794, 47_581)),
    "split_c": Config(
        "test: pairs that contain `( and ( not` or `( or ( not`, at most 6 operators",
        _defaults(46_707, 5_189, 83_633),
    ),
}


def is_held_out(config_name: str, text: str, text_pair: str) -> bool:
    """Whether either sentence contains the pattern of a compositional config."""
    patterns = PATTERNS.get(config_name, ())
    return any(pattern in sentence for pattern in patterns for sentence in (text, text_pair))


_FORM = "label<TAB>sentence<TAB>sentence"


def file_examples(config_name: str, split: str, files: Iterable[str]) -> Iterator[dict[str, object]]:
    """The examples of the files that belong to a split."""
    compositional = config_name in PATTERNS
    seen = 0  # pairs that are for train or validation
    for path in files:
        for number, line in read_lines(path):
            fields = line.split("\t")
            if len(fields) != 3:
                raise ValueError(f"{path}:{number}: expected '{_FORM}', got {line[:80]!r}")
            if compositional and is_held_out(config_name, *fields[1:]) != (split == "test"):
                continue
            if split in ("train", "validation"):
                seen += 1
                if (seen % VALIDATION_EVERY == 0) != (split == "validation"):
                    continue
            yield _parse(*fields, place=f"{path}:{number}")


def _parse(label: str, text: str, text_pair: str, place: str) -> dict[str, object]:
    if label not in RELATIONS:
        raise ValueError(f"{place}: expected a label out of {' '.join(RELATIONS)} ('{_FORM}'), got {label[:80]!r}")
    try:
        example = make_example(text, text_pair)
    except ValueError as error:
        raise ValueError(f"{place}: expected two sentences: {error}") from error
    expected = RELATIONS[example["label"]]
    if label != expected:
        raise ValueError(f"{place}: expected the label {expected}, by truth tables, got {label}")
    return example


AUTHORS_DRAWS = 500_000
# distinct pairs by operators of the longer sentence (the last: 12 or more), train and test files together
AUTHORS_PAIRS = (36, 2729, 14649, 27356, 35734, 40179, 38768, 31378, 22309, 14864, 9625, 5758, 5684)

_VARIABLES_PER_PAIR = 4
_SIZE = 12
# fraction of pairs in which neither sentence is always true or always false
_CONTINGENT = 0.8519


class Sentence(NamedTuple):
    text: str
    meaning: int
    num_operators: int
    probability: float


class Pair(NamedTuple):
    text: str
    text_pair: str
    num_operators: int


def _draw_sentence(variables: list[str], size: int, rng: Random) -> Sentence:
    choice = int(rng.random() * 9)
    if size < 2 or choice >= 4:
        variable = variables[int(rng.random() * len(variables))]
        probability = (1.0 if size < 2 else 5 / 9) / len(variables)
        text, meaning, num_operators = variable, WORLDS[variable], 0
    else:
        left = _draw_sentence(variables, size // 2, rng)
        right = _draw_sentence(variables, size // 2, rng)
        connective = "and" if choice < 2 else "or"
        text = f"( {left.text} ( {connective} {right.text} ) )"
        meaning = left.meaning & right.meaning if choice < 2 else left.meaning | right.meaning
        num_operators = left.num_operators + right.num_operators + 1
        probability = 2 / 9 * left.probability * right.probability
    if rng.random() >= 1 / 3:
        return Sentence(text, meaning, num_operators, probability * 2 / 3)
    return Sentence(f"( not {text} )", ALL_WORLDS & ~meaning, num_operators + 1, probability / 3)


def draw_pair(rng: Random) -> tuple[Sentence, Sentence]:
    """One pair of sentences that are neither always true nor always false."""
    while True:
        variables = shuffled(VARIABLES, rng)[:_VARIABLES_PER_PAIR]
        first = _draw_sentence(variables, _SIZE, rng)
        second = _draw_sentence(variables, _SIZE, rng)
        if not {first.meaning, second.meaning} & {0, ALL_WORLDS}:
            return first, second


def pair_probability(first: Sentence, second: Sentence) -> float:
    """The probability that `draw_pair` gives exactly this pair."""
    used = len(set(VARIABLES) & set((first.text + " " + second.text).split()))
    free, unused = _VARIABLES_PER_PAIR - used, len(VARIABLES) - used
    choices = math.comb(unused, free) / math.comb(len(VARIABLES), _VARIABLES_PER_PAIR)
    return choices * first.probability * second.probability / _CONTINGENT


def draw_pool(fraction: float, rng: Random) -> list[Pair]:
    """A `fraction` of the authors' distinct pairs, in random order (more pairs than theirs when above 1)."""
    pool: dict[Pair, None] = {}
    for _ in range(math.ceil(fraction * AUTHORS_DRAWS)):
        first, second = draw_pair(rng)
        if fraction < 1.0:
            expected = AUTHORS_DRAWS * pair_probability(first, second)
            if rng.random() >= keep_probability(expected, fraction):
                continue
        num_operators = min(12, max(first.num_operators, second.num_operators))
        pool[Pair(first.text, second.text, num_operators)] = None
    return shuffled(list(pool), rng)


# fraction of the authors' pairs of at most 6 operators that a config holds out for testing
_HELD_OUT = {"split_a": 6_560 / 135_529, "split_b": 47_581 / 135_529, "split_c": 83_633 / 135_529}
# twice the authors' draws: beyond, the pairs that are left are too rare to be worth the wait
_MAX_FRACTION = 2.0


def _deal(config_name: str, params: Mapping[str, Any], pool: list[Pair]) -> dict[str, list[Pair]]:
    most = params["max_train_operators"]
    if config_name in PATTERNS:
        pool = [pair for pair in pool if pair.num_operators <= most]
        roles = [is_held_out(config_name, pair.text, pair.text_pair) for pair in pool]
    else:
        roles = [pair.num_operators > most for pair in pool]
    train = (pair for pair, is_test in zip(pool, roles, strict=True) if not is_test)
    test = (pair for pair, is_test in zip(pool, roles, strict=True) if is_test)
    # validation first: the size of train does not change it; test_short last: it changes no other split
    validation = list(islice(train, params["num_validation"]))
    return {
        "train": list(islice(train, params["num_train"])),
        "validation": validation,
        "test": list(islice(test, params["num_test"])),
        "test_short": list(islice(train, params.get("num_test_short", 0))),
    }


class LogicalInference(Benchmark):
    """Relations between propositional sentences (Bowman, Manning & Potts, 2015)."""

    parameters = PARAMETERS
    read_text = staticmethod(normalize)
    token_pattern = r"[()]"
    file_configs = tuple(CONFIGS)
    file_parameters = ("max_train_operators",)
    file_names = "train0 ... train12 and test0 ... test12"
    info = make_info(
        PARAMETERS,
        CONFIGS,
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
        column_meanings={
            "text": "the first sentence; tokens are separated by single spaces",
            "text_pair": "the second sentence; tokens are separated by single spaces",
            "num_operators": "`and`, `or` and `not` of the sentence that has more; 12 stands for 12 or more",
            "length": "tokens of the first sentence; each bracket is one",
            "length_pair": "tokens of the second sentence; each bracket is one",
        },
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
    )

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        return list(non_empty({split: params.get(f"num_{split}", 0) for split in SPLITS}))

    def shift(self, config_name: str, params: Mapping[str, Any], split: str) -> str:
        if split != "test":
            return ""
        return "more operators than training" if config_name == "original" else "patterns not in training"

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        sizes = {split: params[f"num_{split}"] for split in self.split_names(config_name, params)}
        num_short = sizes.pop("test_short", 0)
        if num_short and not params["num_train"]:
            raise ValueError(
                f"num_test_short is {num_short} and num_train 0: test_short are pairs that training leaves over, give "
                "the numbers that the model was trained with"
            )
        # the fraction of the authors' pool that should hold all splits, with a small reserve
        most = params["max_train_operators"]
        short, long = sum(AUTHORS_PAIRS[: most + 1]), sum(AUTHORS_PAIRS[most + 1 :])
        held_out = _HELD_OUT.get(config_name, 0.0)
        train = params["num_train"] + params["num_validation"]
        needed = ((train, (1 - held_out) * short), (params["num_test"], held_out * short if held_out else long))
        fraction = max((1.03 * size + 20) / available for size, available in needed)
        dealt: dict[str, list[Pair]] = {}
        while fraction <= _MAX_FRACTION:
            rng = make_rng("logical_inference", params["seed"])
            dealt = _deal(config_name, params, draw_pool(fraction, rng))
            if all(len(dealt[split]) == size for split, size in sizes.items()):
                left = len(dealt["test_short"])
                # a larger pool would change the other splits: pairs that a model was trained on might be tested
                if left < num_short:
                    raise ValueError(
                        f"num_test_short is {num_short}, but train and validation leave {left} pairs over: ask for at "
                        "most so many"
                    )
                return {
                    split: make_shards(partial(starmap, make_example), [pair[:2] for pair in pairs])
                    for split, pairs in dealt.items()
                    if pairs
                }
            fraction *= 1.3
        found = ", ".join(f"{split} {len(pairs)}" for split, pairs in dealt.items()) or "not even tried"
        asked = ", ".join(f"num_{split}={size}" for split, size in sizes.items())
        raise ValueError(
            f"config {config_name!r} with max_train_operators={params['max_train_operators']} does not give "
            f"{asked} distinct pairs (found: {found}); ask for fewer examples"
        )

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """One shard per split; a split whose files are not all there is left out."""
        limit = params["max_train_operators"]
        train = [folder / f"train{n}" for n in range(limit + 1)]
        test = train if config_name in PATTERNS else [folder / f"test{n}" for n in range(limit + 1, MAX_OPERATORS + 1)]
        of_split = {"train": train, "validation": train, "test": test}
        if config_name not in PATTERNS:
            of_split["test_short"] = [folder / f"test{n}" for n in range(limit + 1)]
        found = {}
        for split, files in of_split.items():
            if all(file.is_file() for file in files):
                paths = tuple(map(str, files))
                found[split] = [Shard(file_examples, (config_name, split, paths), paths)]
        return found

    def render(self, texts: Mapping[str, str], max_lines: int) -> str:
        return render(texts, max_lines)

    def describe_answer(self, example: Mapping[str, Any]) -> str:
        return describe_label(example)

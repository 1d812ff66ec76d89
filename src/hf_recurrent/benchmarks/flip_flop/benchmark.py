"""Flip-flop language modelling: its config, its parameters, and random strings.

- `original`: Ray Chowdhury & Caragea's setting of Liu et al.'s task. 160,000 strings of 512 tokens with p_i = 0.8 to
  train on; 10,000 strings for each of the lengths 512 and 1024 and each p_i of 0.1, 0.8 and 0.98 to test on.

The validation split has 1,000 strings of each distribution that is tested, as in the paper. The reference
implementation has 7,000, because it counts a second thousand of the training distribution among them.

Every string has its own place in a stream of random words: string i of a stream is always the same, however many
are drawn, and in whatever pieces. Only the raw words of Philox are used: numpy keeps these stable across versions.

Example i of a split is string i of a stream of its own. Short strings repeat: one that an earlier example has, or
one of a split before, is replaced by the first new one of a second stream. The tests come before validation and train,
so that they do not depend on how much is trained on. Long strings never repeat.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..benchmark import Benchmark, Config, Plan, make_info
from ..parameters import SEED, Check, Parameter, integer, optional
from ..sampling import Shard, digest, in_order, non_empty, parts
from .strings import IGNORE, READ, VOCABULARY, WRITE, describe_last_read, normalize, render


def _even(value: Any) -> int:
    value = integer(4)(value)
    if value % 2:
        raise ValueError
    return value


def _percentage(value: Any) -> float:
    """A probability in whole percent: `ignore_percent` and the names of splits have no place for more."""
    if isinstance(value, (bool, str)):
        raise TypeError
    percent = round(100 * float(value))
    if not 0 < percent < 100 or abs(100 * float(value) - percent) > 1e-9:
        raise ValueError
    return percent / 100


def _several(check: Callable[[Any], Any]) -> Callable[[Any], tuple]:
    """One or more values, in ascending order, each once."""

    def convert(value: Any) -> tuple:
        if isinstance(value, str):
            raise TypeError
        values = list(value) if hasattr(value, "__iter__") else [value]
        if not values:
            raise ValueError
        return tuple(sorted({check(item) for item in values}))

    return convert


_LENGTH = Check(_even, "an even integer >= 4")
_PERCENTAGE = Check(_percentage, "a probability from 0.01 to 0.99, in whole percent")
_LENGTHS = Check(_several(_even), "a list of even integers >= 4, such as [512,1024]")
_PERCENTAGES = Check(
    _several(_percentage), "a list of probabilities from 0.01 to 0.99, in whole percent, such as [0.3,0.9]"
)

PARAMETERS = {
    "seed": SEED,
    "num_train": Parameter(integer(0), "examples of the train split"),
    "num_validation": Parameter(
        integer(0), "examples of the validation split, in which the distributions of the test splits take turns"
    ),
    "num_test": Parameter(integer(0), "examples of each test split"),
    "train_length": Parameter(_LENGTH, "tokens of a training string"),
    "p_ignore": Parameter(_PERCENTAGE, "probability of an `i` in training strings; `w` and `r` share the rest equally"),
    "test_lengths": Parameter(
        optional(_LENGTHS),
        "tokens of test strings, a split for each; None: train_length and twice that",
    ),
    "test_p_ignore": Parameter(_PERCENTAGES, "probabilities of an `i` in test strings, a split for each"),
}

CONFIGS = {
    "original": Config(
        "train at one length and one share of distractors; a test split for each length and share to be tested",
        {
            "seed": 0,
            "num_train": 160_000,
            "num_validation": 6000,
            "num_test": 10_000,
            "train_length": 512,
            "p_ignore": 0.8,
            "test_lengths": None,
            "test_p_ignore": (0.1, 0.8, 0.98),
        },
    )
}

# random words drawn at a time: 8 MiB of them
BLOCK_WORDS = 1 << 20
# Philox makes four words at each step of its counter
_WORDS_PER_STEP = 4
_W, _I, _R = (VOCABULARY.index(token) for token in (WRITE, IGNORE, READ))
_ZERO = VOCABULARY.index("0")


class Source(NamedTuple):
    """A distribution of strings: their `length` in tokens, and 100 p_i."""

    length: int
    ignore_percent: int

    def count(self) -> int:
        """How many different strings there are: 2 bits to write first, then `w 0`, `w 1`, `i 0`, `i 1` or a read."""
        return 2 * 5 ** (self.length // 2 - 2)

    def describe(self) -> str:
        return f"{self.length} tokens and p_ignore={self.ignore_percent / 100}"


def draw(source: Source, key: tuple, start: int, stop: int) -> Iterator[np.ndarray]:
    """Strings `start` to `stop` of the stream `key`, in blocks `(B, length)` of indices into VOCABULARY (uint8)."""
    pairs = source.length // 2
    steps = -(-pairs // _WORDS_PER_STEP)
    stream = np.random.Philox(key=int(digest("flip_flop", *source, *key)[:32], 16))
    stream.advance(start * steps)
    size = max(1, BLOCK_WORDS // (steps * _WORDS_PER_STEP))
    for first in range(start, stop, size):
        count = min(size, stop - first)
        words = stream.random_raw(count * steps * _WORDS_PER_STEP).reshape(count, -1)[:, :pairs]
        yield _strings(words, source.ignore_percent)


def _strings(words: np.ndarray, ignore_percent: int) -> np.ndarray:
    """One random word `(B, pairs)` for each instruction (its upper 63 bits) with its bit (the lowest)."""
    ignore = (1 << 63) * ignore_percent // 100
    write = ignore + ((1 << 63) - ignore) // 2
    uniform = words >> np.uint64(1)
    instructions = np.full(words.shape, _R, dtype=np.uint8)
    instructions[uniform < np.uint64(write)] = _W
    instructions[uniform < np.uint64(ignore)] = _I
    instructions[:, 0] = _W
    instructions[:, -1] = _R
    bits = (words & np.uint64(1)).astype(np.uint8)
    written = np.take_along_axis(bits, last_write(instructions), axis=1)
    bits = np.where(instructions == _R, written, bits)
    return np.stack((instructions, bits + np.uint8(_ZERO)), axis=2).reshape(len(words), -1)


def last_write(instructions: np.ndarray) -> np.ndarray:
    """For each instruction `(B, pairs)`, the index of the last `w` up to it."""
    places = np.arange(instructions.shape[1])
    return np.maximum.accumulate(np.where(instructions == _W, places, 0), axis=1)


# two strings of so many tokens are equal with a probability below 2 ** -127, whatever p_i is
ALWAYS_DISTINCT = 256
# strings of the second stream that are drawn at a time
_REPLACEMENTS = 64

_HINT = "ask for fewer examples (num_train, num_validation, num_test) or longer strings (train_length, test_lengths)"
_LETTERS = np.frombuffer("".join(VOCABULARY).encode(), dtype=np.uint8)


class Request(NamedTuple):
    """`size` examples of a split; the `sources` take turns."""

    split: str
    size: int
    sources: tuple[Source, ...]

    def part(self, turn: int) -> int:
        """How many of the examples are from source number `turn`."""
        return len(range(turn, self.size, len(self.sources)))


def requests(params: Mapping[str, Any]) -> list[Request]:
    """The requests of all splits that have examples, in the order in which strings are dealt out.

    Raises ValueError where there are fewer strings of a length than examples.
    """
    tests = [Source(length, round(100 * p)) for length in params["test_lengths"] for p in params["test_p_ignore"]]
    train = Source(params["train_length"], round(100 * params["p_ignore"]))
    wanted = [
        *(Request(f"test_{source.length}_p{source.ignore_percent}", params["num_test"], (source,)) for source in tests),
        Request("validation", params["num_validation"], tuple(tests)),
        Request("train", params["num_train"], (train,)),
    ]
    filled = non_empty({request.split: request.size for request in wanted})
    wanted = [request for request in wanted if request.split in filled]
    needed: dict[int, int] = {}
    for request in wanted:
        for turn, source in enumerate(request.sources):
            needed[source.length] = needed.get(source.length, 0) + request.part(turn)
    for length, size in needed.items():
        count = Source(length, 1).count()
        if size > count:
            raise ValueError(
                f"there are only {count} different strings of {length} tokens, but the splits need {size} of them; "
                + _HINT
            )
    return wanted


def _replacements(request: Request, seed: int, seen: set[bytes]) -> dict[int, int]:
    """The examples that need another string, with its place in their second streams; `seen` grows with all strings."""
    replaced: dict[int, int] = {}
    for turn, source in enumerate(request.sources):
        if source.length >= ALWAYS_DISTINCT:
            continue
        count = request.part(turn)
        budget = 50 * count + 100_000
        blocks = draw(source, (seed, request.split), 0, count)
        for number, codes in enumerate(codes for block in blocks for codes in block):
            text = codes.tobytes()
            if text in seen:
                place, text = _first_new(source, (seed, request.split, number), seen, budget)
                replaced[turn + number * len(request.sources)] = place
                budget -= place
                if text is None:
                    raise ValueError(
                        f"split {request.split!r}: found only {number} of {count} new strings of {source.describe()}: "
                        f"the others are too rare; {_HINT}"
                    )
            seen.add(text)
    return replaced


def _first_new(source: Source, key: tuple, seen: set[bytes], budget: int) -> tuple[int, bytes | None]:
    """The first string of a stream that is not in `seen`, and its place; no string where `budget` ends before."""
    for first in range(0, max(budget, 0), _REPLACEMENTS):
        for block in draw(source, key, first, first + _REPLACEMENTS):
            for place, codes in enumerate(block, start=first):
                text = codes.tobytes()
                if text not in seen:
                    return place, text
    return budget, None


def make_examples(
    request: Request, seed: int, indices: range, replaced: Mapping[int, int]
) -> Iterator[dict[str, object]]:
    """Examples `indices` of a split; `replaced` maps those that repeat others to strings of the second stream."""
    sources, split = request.sources, request.split
    turns = []
    for turn, source in enumerate(sources):
        numbers = [-(-(end - turn) // len(sources)) for end in (indices.start, indices.stop)]
        turns.append(_examples(source, draw(source, (seed, split), *numbers)))
    for i in indices:
        turn = i % len(sources)
        example = next(turns[turn])
        if i in replaced:
            key = (seed, split, i // len(sources))
            (example,) = _examples(sources[turn], draw(sources[turn], key, replaced[i], replaced[i] + 1))
        yield example


def _examples(source: Source, blocks: Iterator[np.ndarray]) -> Iterator[dict[str, object]]:
    """The examples of strings in blocks `(B, length)`."""
    for block in blocks:
        letters = np.full((len(block), 2 * source.length), ord(" "), dtype=np.uint8)
        letters[:, ::2] = _LETTERS[block]
        reads = (block[:, ::2] == _R).sum(axis=1)
        # a read and its write are two tokens each: so many tokens lie between them
        distances = source.length - 4 - 2 * last_write(block[:, ::2])[:, -1]
        for text, num_reads, distance in zip(letters, reads.tolist(), distances.tolist(), strict=True):
            yield {
                "text": text[:-1].tobytes().decode(),
                "length": source.length,
                "ignore_percent": source.ignore_percent,
                "num_reads": num_reads,
                "distance": distance,
            }


class FlipFlop(Benchmark):
    """Remember the last written bit (Liu et al., 2023)."""

    parameters = PARAMETERS
    read_text = staticmethod(normalize)
    draw_text = staticmethod(render)
    framed = False
    token_pattern = r"[wir01]"
    info = make_info(
        PARAMETERS,
        CONFIGS,
        name="flip_flop",
        title="Flip-Flop Language Modelling",
        description="Strings of instructions, each followed by a bit: w writes it, i is to be ignored, and after r "
        "stands the bit that was written last, which a language model must predict.",
        text_columns=("text",),
        slice_columns=("length", "ignore_percent", "num_reads", "distance"),
        # the others are the same, or nearly, in all examples of a test split
        filter_column="distance",
        column_meanings={
            "text": "the string; tokens are separated by single spaces",
            "length": "tokens of the string, instructions and bits alike",
            "ignore_percent": "100 times the probability that an instruction is `i`, other than the first, which "
            "is `w`, and the last, which is `r`",
            "num_reads": "reads (`r`) of the string",
            "distance": "tokens between the last read and the write that it must recall, each with its bit; 0 if "
            "they are neighbours",
        },
        parse_meaning="the string in columns of an instruction and its bit; below each write its number, and below "
        "each read `=` with the number of the write whose bit it must have (and `!` if it has another)",
        vocabulary=VOCABULARY,
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
    )

    def shift(self, config_name: str, params: Mapping[str, Any], split: str) -> str:
        if not split.startswith("test_"):
            return ""
        length, percent = map(int, split.removeprefix("test_").split("_p"))
        trained = round(100 * params["p_ignore"])
        parts = ["longer"] if length > params["train_length"] else []
        parts += [f"{'more' if percent > trained else 'fewer'} ignored bits"] if percent != trained else []
        return ", ".join(parts)

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """The lengths of the test strings follow from that of the training strings, where they are not given."""
        if params["test_lengths"] is None:
            params["test_lengths"] = (params["train_length"], 2 * params["train_length"])
        return params

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        return in_order(request.split for request in requests(params))

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        seed, seen = params["seed"], set()
        shards = {}
        for request in requests(params):
            replaced = _replacements(request, seed, seen)
            shards[request.split] = [
                Shard(make_examples, (request, seed, indices, {i: replaced[i] for i in indices if i in replaced}))
                for indices in parts(range(request.size))
            ]
        return {split: shards[split] for split in in_order(shards)}

    def describe_answer(self, example: Mapping[str, Any]) -> str:
        return describe_last_read(example["text"])

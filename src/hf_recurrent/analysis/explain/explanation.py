"""One example's way through depth: who attends to whom, whose state changes, and who has stopped.

Shapes: T steps, H heads, S tokens, E width, W tokens of the longer sequence; N sequences, which are the example itself,
or the two texts of a siamese pair. Step t of a model stands at index t - 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ...data.labels import MULTI
from ...models.depth.chunk_plan import chunk_size
from ...models.heads.classification import predicts_number
from ...models.ops.modes import inference_mode
from ...registry import ARCHITECTURES
from ..answers import answer_name, answers_tokens, as_numpy, is_classifier, predicts_tokens, several_labels, to_device
from ..evaluate import attention_implementation
from ..halting import adds_probabilities, stopping_rule

# more would be too small to see, and to print; of pictures, maps of more take too much memory
MAX_TOKENS, MAX_PICTURE_TOKENS = 64, 1100
MAX_LISTED_WORDS = 40
# values that are words; pixels have more
DIGITS = 10


class NotExplainedError(ValueError):
    """A model or an example of which there is nothing to show; the message has the reason."""


class Picture(NamedTuple):
    """A square of pixels: their `places` (side * side,) among the tokens, and their `values` (side, side)."""

    places: np.ndarray
    values: np.ndarray

    def square(self, values: np.ndarray) -> np.ndarray:
        """(..., S) values of tokens as those of the pixels, (..., side, side)."""
        return values[..., self.places].reshape(*values.shape[:-1], *self.values.shape)


@dataclass(frozen=True)
class Explanation:
    """One example's pass through depth.

    Attributes:
        tokens: S strings, special tokens by their names.
        prediction: the name of the label, or of all labels that apply; of a language model the token that would come
            next; of a regression the value.
        probability: of the prediction; None for a regression.
        attention: (T, H, S, S) weights with which each token (row) attends to each (column). Rows of geometric
            attention may sum to less than 1, where nothing matched; zero between different chunks and sentences.
        gates: (T, S) mean share of a token's state that a step overwrites; None without gates.
        steps: (S,) steps that each token took and kept; None for a fixed depth.
        halting: (T, S) conditional probabilities of halting; None for a fixed depth.
        freezes: whether the state of a token that stopped stays as it is. Otherwise (adaptive computation time) it goes
            on changing for others to attend to, and only its share in the output is settled.
        stage: what T counts: "step", or "layer" where each has weights of its own.
        predicts_next: whether the prediction is the next token, rather than a label.
        texts: (S,) number of the text of each token, by which siamese pairs are told apart.
        readers: (S,) whether a token's final state is classified or continued; none is where a memory is read out.
        pictures: those whose pixels a classifier of pixels reads; empty of other texts.
    """

    tokens: list[str]
    prediction: str
    probability: float | None
    attention: np.ndarray
    gates: np.ndarray | None = None
    steps: np.ndarray | None = None
    halting: np.ndarray | None = None
    freezes: bool = True
    stage: str = "step"
    predicts_next: bool = False
    texts: np.ndarray | None = None
    readers: np.ndarray | None = None
    pictures: tuple[Picture, ...] = ()

    @property
    def num_steps(self) -> int:
        """Steps until the last token stopped, at least 1: inference takes none after that."""
        return len(self.attention) if self.steps is None else max(1, int(self.steps.max()))

    @property
    def readout(self) -> int | None:
        """The only token whose final state is classified or continued; None where it is no single one."""
        return int(self.readers.argmax()) if self.readers.sum() == 1 else None

    @property
    def reader(self) -> str:
        """What is classified: the tokens that are read out by their names, if there are few."""
        names = [token for token, read in zip(self.tokens, self.readers, strict=True) if read]
        return " and ".join(names) if len(names) <= 2 else f"the mean of {len(names)} tokens"

    @property
    def reads(self) -> np.ndarray:
        """(T, S) attention of `readers` to each token, their mean, as a multiple of an even share over the text.

        NaN in steps that no reader of the text takes.
        """
        depth = len(self.attention)
        live = np.arange(depth)[:, None] < np.broadcast_to(
            depth if self.steps is None else self.steps, len(self.tokens)
        )
        of_text, taking = self.texts[:, None] == self.texts, (self.readers & live).astype(float)
        # of each token's own text
        number = taking @ of_text
        total = np.einsum("ts,tsk->tk", taking, self.attention.mean(1))
        return total / np.where(number > 0, number, np.nan) * of_text.sum(0)

    def head_attention(self, head: int | None = None) -> np.ndarray:
        """(T, S, S) attention of one head, or the greatest over heads.

        Raises:
            ValueError: there is no such head.
        """
        if head is None:
            return self.attention.max(1)
        num_heads = self.attention.shape[1]
        if not 0 <= head < num_heads:
            raise ValueError(f"head is {head}: this model has heads 0 to {num_heads - 1}")
        return self.attention[:, head]

    def idle(self) -> np.ndarray:
        """(T, S) whether a token takes no step any more, and so attends to nothing."""
        depth = len(self.attention)
        if self.steps is None or not self.freezes:
            return np.zeros((depth, len(self.tokens)), dtype=bool)
        return np.arange(depth)[:, None] >= self.steps


def explain(
    model: Any, tokenizer: Any, text: str, text_pair: str | None = None, max_depth: int | None = None
) -> Explanation:
    """Attention, gates and halting of a classifier or causal language model on one text, or one pair of texts.

    Args:
        text: words or, of a classifier of pixels, the values of a square picture, row by row.
        max_depth: depth limit of this pass instead of the model's.

    Raises:
        ValueError: a model of another package, without attention or without a head; a text that `encode_text` does not
            accept, or whose pixels make no square; or `max_depth` that the model does not accept.
    """
    check_model(model)
    most = MAX_PICTURE_TOKENS if reads_pixels(model, tokenizer) else MAX_TOKENS
    return explain_encoded(model, tokenizer, encode_text(model, tokenizer, text, text_pair, most), max_depth)


def check_model(model: Any) -> None:
    """Raise a NotExplainedError unless `model` is of this package and attends from tokens to tokens."""
    config = model.config
    if config.model_type not in ARCHITECTURES:
        raise NotExplainedError(f"model is of type {config.model_type!r}: expected one of {', '.join(ARCHITECTURES)}")
    if config.capabilities.two_stacks or answers_tokens(model):
        raise NotExplainedError(
            f"model is of class {type(model).__name__}, which gives a text no single answer: expected a classifier of "
            "texts or a causal language model"
        )
    if not config.capabilities.attends or config.capabilities.window_size is not None:
        raise NotExplainedError(
            f"model is of the architecture {config.model_type!r}, which has no attention between the tokens of a row: "
            "there are no maps to show"
        )


def explain_encoded(
    model: Any, tokenizer: Any, inputs: Mapping[str, torch.Tensor], max_depth: int | None = None
) -> Explanation:
    """`explain` of an encoded example without padding: tensors (1, S) by the names of the model's inputs."""
    inputs, config = to_device(inputs, model), model.config
    with inference_mode(model), attention_implementation(model, "eager"):
        records = {"output_attentions": True, "output_gates": True, "output_halting": True}
        output = model(**inputs, max_depth=max_depth, **records)
    if getattr(output, "logits", None) is None:
        raise ValueError(f"model is of class {type(model).__name__}, which predicts nothing: pass one with a head")
    texts, chunk = token_places(config, inputs)
    found: dict[str, Any] = {}
    if config.capabilities.halts:
        steps = by_token(output.ponder_steps[0].cpu().numpy(), texts, chunk, config)
        halting = by_token(as_numpy(output.halting_probabilities)[0], texts, chunk, config).T
        found = {"steps": steps, "halting": halting}
    prediction, probability = format_prediction(output.logits, config, tokenizer)
    return Explanation(
        tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()),
        prediction,
        probability,
        *merged_maps(output, texts),
        freezes=not adds_probabilities(stopping_rule(config)[0]),
        stage="step" if config.capabilities.shared_block else "layer",
        predicts_next=predicts_tokens(output),
        texts=texts,
        readers=read_tokens(config, texts, predicts_tokens(output)),
        pictures=pictures_of(tokenizer, inputs) if reads_pixels(model, tokenizer) else (),
        **found,
    )


def format_prediction(logits: torch.Tensor, config: Any, tokenizer: Any) -> tuple[str, float | None]:
    """Name of the predicted label, labels or token, and its probability, from logits (1, C) or (1, S, V)."""
    language = logits.dim() == 3
    if not language and predicts_number(config):
        return answer_name(logits.item(), config), None
    if not language and config.problem_type == MULTI:
        names, shares = several_labels(logits, config)
        return names[0], float(shares[0])
    share, best = logits.flatten(0, -2)[-1].float().softmax(-1).max(-1)
    return tokenizer.convert_ids_to_tokens(int(best)) if language else answer_name(best, config), float(share)


def read_tokens(config: Any, texts: np.ndarray, language: bool) -> np.ndarray:
    """(S,) whether a token's final state is read out: of each text the last, the first, or all; none of a memory."""
    first, last = np.diff(texts, prepend=-1) != 0, np.diff(texts, append=-1) != 0
    if language:
        return last
    every = np.full(len(texts), config.capabilities.memory_slots == 0)
    return {"end": last, "cls": first}.get(config.pooling, every)


def token_places(config: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """(S,) numbers of the sequence of each token, and of its chunk in the sequence, if it is read in chunks."""
    sequence = np.zeros(inputs["input_ids"].shape[1], dtype=int)
    if config.capabilities.siamese:
        sequence = inputs["token_type_ids"][0].cpu().numpy()
    chunk, sizes = np.zeros_like(sequence), np.bincount(sequence)
    if config.capabilities.reads == "chunks":
        for number, size in enumerate(sizes):
            width = max(sizes) if config.capabilities.division == "balanced" else size
            chunk[sequence == number] = np.arange(size) // chunk_size(config, int(width))
    return sequence, chunk


def by_token(values: np.ndarray, sequence: np.ndarray, chunk: np.ndarray, config: Any) -> np.ndarray:
    """Values of an example's halting units, (units...) or (units..., T), for each token: (S) or (S, T).

    Units are tokens, or each sequence as a whole, or each of its chunks.
    """
    if config.token_units or getattr(config, "counts_by_token", False):
        return values
    number = int(sequence.max()) + 1
    unit_axes = (number > 1) + (config.capabilities.reads == "chunks")
    return values.reshape(number, -1, *values.shape[unit_axes:])[sequence, chunk]


def merged_maps(output: Any, sequence: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Attention (N, H, W, W) and gates (N, W, E) of each step -> (T, H, S, S), zero between sequences, and (T, S)."""
    # single precision, for maps of pictures are large
    maps, length = torch.stack(output.attentions).float().cpu().numpy(), len(sequence)
    attention = np.zeros((len(maps), maps.shape[2], length, length), dtype=maps.dtype)
    gates = None if output.gates is None else np.zeros((len(maps), length))
    for number in range(sequence.max() + 1):
        own = np.flatnonzero(sequence == number)
        attention[:, :, own[:, None], own] = maps[:, number, :, : len(own), : len(own)]
        if gates is not None:
            gates[:, own] = [as_numpy(step)[number, : len(own)].mean(-1) for step in output.gates]
    return attention, gates


def reads_pixels(model: Any, tokenizer: Any) -> bool:
    """Whether a model classifies pictures by the values of their pixels."""
    return is_classifier(model) and bool(pixel_values(tokenizer))


def pixel_values(tokenizer: Any) -> dict[int, int]:
    """The value of each token id that is one of a pixel; empty unless all symbols are numbers, more than ten."""
    vocabulary = tokenizer.get_vocab()
    symbols = set(vocabulary) - set(tokenizer.all_special_tokens)
    if len(symbols) <= DIGITS or not all(symbol.isascii() and symbol.isdigit() for symbol in symbols):
        return {}
    return {vocabulary[symbol]: int(symbol) for symbol in symbols}


def pictures_of(tokenizer: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[Picture, ...]:
    """The picture of an example (1, S) without padding, or the two of a pair.

    Raises:
        NotExplainedError: pixels make no square.
    """
    of_token, pictures = pixel_values(tokenizer), []
    ids = inputs["input_ids"][0].tolist()
    values = np.array([of_token.get(token, -1) for token in ids])
    texts = inputs["token_type_ids"][0].cpu().numpy() if "token_type_ids" in inputs else np.zeros(len(ids), dtype=int)
    for text in range(texts.max() + 1):
        places = np.flatnonzero((values >= 0) & (texts == text))
        side = max(math.isqrt(len(places)), 2)
        if side * side != len(places):
            raise NotExplainedError(
                f"text has {len(places)} pixels, which make no square: pass {side**2} or {(side + 1) ** 2} of them"
            )
        pictures.append(Picture(places, values[places].reshape(side, side)))
    return tuple(pictures)


def encode_text(
    model: Any, tokenizer: Any, text: str, text_pair: str | None, max_tokens: int
) -> dict[str, torch.Tensor]:
    """A text, or a pair of texts, as a batch of one.

    Raises:
        ValueError: a text without a word or with one that the tokenizer does not know, a pair where one text is
            expected or the other way round, or more than `max_tokens` tokens.
    """
    siamese = model.config.capabilities.siamese
    if siamese and text_pair is None:
        raise ValueError("text_pair is missing: this model compares two sentences, pass the second one (`--pair`)")
    if text_pair is not None and not siamese and model.config.is_causal:
        raise ValueError(f"text_pair is {text_pair!r}: a causal language model continues one text, leave it out")
    texts = {"text": text} if text_pair is None else {"text": text, "text_pair": text_pair}
    for name, value in texts.items():
        check_words(tokenizer, name, value)
    inputs = dict(tokenizer(*texts.values(), return_tensors="pt"))
    if (length := inputs["input_ids"].shape[1]) > max_tokens:
        raise ValueError(f"text has {length} tokens, special tokens included: pass at most {max_tokens}")
    return inputs


def check_words(tokenizer: Any, name: str, text: str) -> None:
    """Raise a ValueError unless the text `name` is words that the tokenizer knows."""
    if not isinstance(text, str):
        raise ValueError(f"{name} is {text!r}: pass a text")
    # of bytes that are not UTF-8
    text.encode()
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    if not encoded["input_ids"]:
        raise ValueError(f"{name} is {text!r}: there is no word in it, pass an input of the task")
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown not in encoded["input_ids"]:
        return
    place = encoded["input_ids"].index(unknown)
    start, end = encoded["offset_mapping"][place]
    vocabulary = tokenizer.get_vocab()
    words = [word for word in sorted(vocabulary, key=vocabulary.get) if word not in tokenizer.all_special_tokens]
    known = f"; it knows {' '.join(words)}" if 0 < len(words) <= MAX_LISTED_WORDS else ""
    raise ValueError(
        f"{name}: word {place + 1} of it, {text[start:end]!r} at character {start + 1}, is not in the vocabulary of "
        f"this checkpoint{known}"
    )

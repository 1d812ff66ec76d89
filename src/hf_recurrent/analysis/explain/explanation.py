"""Attention, gates and halting of one example, step by step: who attends to whom, and whose state changes.

Shapes: T steps, H heads, S tokens, E width, W tokens of the longer sentence; N sequences, which are the example itself,
or the two sentences of a siamese pair. Step t of a model stands at index t - 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...inference.modes import inference_mode
from ...models.common.classification import predicts_number, split_pairs
from ...models.engine.chunk_plan import chunk_size
from ...registry import ARCHITECTURES
from ...text_data.labels import MULTI
from ..inference import as_numpy, attention_implementation, predicts_tokens, several_labels, to_device
from ..model_facts import adds_probabilities, answers_tokens, halting_unit, stopping_rule

# more would be too small to see, and to print
MAX_TOKENS = 64
MAX_LISTED_WORDS = 40


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
        gates: (T, S) fraction of a token's state that is overwritten, mean over units; None where there is no gate.
        steps: (S,) steps that each token took and kept; None for a fixed depth.
        halting: (T, S) conditional probabilities of halting; None for a fixed depth.
        freezes: whether the state of a token that stopped stays as it is. Otherwise (adaptive computation time) it goes
            on changing for others to attend to, and only its share in the output is settled.
        readout: the token whose final state is classified or continued; None where it is no single one.
        predicts_next: whether the prediction is the next token, rather than a label.
    """

    tokens: list[str]
    prediction: str
    probability: float | None
    attention: np.ndarray
    gates: np.ndarray | None = None
    steps: np.ndarray | None = None
    halting: np.ndarray | None = None
    freezes: bool = True
    readout: int | None = None
    predicts_next: bool = False

    @property
    def num_steps(self) -> int:
        """Steps until the last token stopped, at least 1: inference takes none after that."""
        return len(self.attention) if self.steps is None else max(1, int(self.steps.max()))

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

    def strongest_attention(self, head: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(T, S) token that each one attends to most, the first of equals, and its weight."""
        weights = self.head_attention(head)
        return weights.argmax(-1), weights.max(-1)

    def idle(self) -> np.ndarray:
        """(T, S) whether a token takes no step any more, and so attends to nothing."""
        if self.steps is None or not self.freezes:
            return np.zeros((len(self.attention), len(self.tokens)), dtype=bool)
        return np.arange(len(self.attention))[:, None] >= self.steps


def explain(
    model: Any,
    tokenizer: Any,
    text: str,
    text_pair: str | None = None,
    max_depth: int | None = None,
    max_tokens: int | None = MAX_TOKENS,
) -> Explanation:
    """Attention, gates and halting of a classifier or causal language model on one text, or one pair of texts.

    Args:
        max_depth: depth limit of this pass instead of the model's.
        max_tokens: limit to the length of the text; None: none.

    Raises:
        ValueError: a model of another package, without attention or without a head; a text that `encode_text` does not
            accept; or `max_depth` that the model does not accept.
    """
    check_model(model)
    return explain_encoded(model, tokenizer, encode_text(model, tokenizer, text, text_pair, max_tokens), max_depth)


def check_model(model: Any) -> None:
    """Raise a ValueError unless `model` is of this package and attends from tokens to tokens."""
    config = model.config
    if config.model_type not in ARCHITECTURES:
        raise ValueError(f"model is of type {config.model_type!r}: expected one of {', '.join(ARCHITECTURES)}")
    if config.capabilities.two_stacks:
        raise ValueError(
            "model is an encoder-decoder, whose target is not known: expected a classifier or a causal language model"
        )
    if answers_tokens(model):
        raise ValueError(
            f"model is of class {type(model).__name__}, which gives a text no single answer: expected a classifier of "
            "texts or a causal language model"
        )
    if not config.capabilities.attends:
        raise ValueError(
            f"model is of the architecture {config.model_type!r}, which has no attention: there are no maps or gates "
            "to show"
        )
    if config.capabilities.window_size is not None:
        raise ValueError(
            f"model is of the architecture {config.model_type!r}, whose tokens attend to the places of a window, not "
            "to the tokens of a row: call it with output_attentions=True and output_gates=True"
        )


def explain_encoded(
    model: Any, tokenizer: Any, inputs: Mapping[str, torch.Tensor], max_depth: int | None = None
) -> Explanation:
    """`explain` of an encoded example without padding: tensors (1, S) by the names of the model's inputs."""
    inputs, config = to_device(inputs, model), model.config
    wanted = {"output_attentions": True, "output_gates": True, "output_halting": True, "max_depth": max_depth}
    with inference_mode(model), attention_implementation(model, "eager"):
        output = model(**inputs, **wanted)
    if getattr(output, "logits", None) is None:
        raise ValueError(f"model is of class {type(model).__name__}, which predicts nothing: pass one with a head")
    columns, length = sequence_columns(config, inputs), inputs["input_ids"].shape[1]
    prediction, probability = format_prediction(output.logits, config, tokenizer)
    steps = halting = None
    if config.capabilities.halts:
        steps = expand_units(output.ponder_steps[0].cpu().numpy(), columns, length, config)
        probabilities = as_numpy(output.halting_probabilities)[0]
        halting = expand_units(probabilities, columns, length, config).T[: len(output.attentions)]
    return Explanation(
        tokens=tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()),
        prediction=prediction,
        probability=probability,
        attention=np.stack([merge_maps(as_numpy(maps), columns, length) for maps in output.attentions]),
        gates=None if output.gates is None else np.stack([merge_gates(gate, columns, length) for gate in output.gates]),
        steps=steps,
        halting=halting,
        freezes=not adds_probabilities(stopping_rule(config)[0]),
        readout=readout_token(config, length, predicts_tokens(output)),
        predicts_next=predicts_tokens(output),
    )


def format_prediction(logits: torch.Tensor, config: Any, tokenizer: Any) -> tuple[str, float | None]:
    """Name of the predicted label, labels or token, and its probability, from logits (1, C) or (1, S, V)."""
    if logits.dim() == 3:
        shares = logits[0, -1].float().softmax(-1)
        best = int(shares.argmax())
        return tokenizer.convert_ids_to_tokens(best), float(shares[best])
    scores = logits[0].float()
    if len(scores) == 1 and predicts_number(config):
        return f"{scores.item():.4g}", None
    if config.problem_type == MULTI:
        names, shares = several_labels(logits, config)
        return names[0], float(shares[0])
    shares = scores.softmax(-1)
    best = int(shares.argmax())
    return str(config.id2label[best]), float(shares[best])


def readout_token(config: Any, length: int, language: bool) -> int | None:
    """The token whose state is read out; None where it is a mean, a memory, or one of each sentence."""
    if language:
        return length - 1
    return None if config.capabilities.siamese else {"end": length - 1, "cls": 0}.get(config.pooling)


def sequence_columns(config: Any, inputs: Mapping[str, torch.Tensor]) -> list[np.ndarray]:
    """The columns of each sequence that the model encodes by itself."""
    length = inputs["input_ids"].shape[1]
    if not config.capabilities.siamese:
        return [np.arange(length)]
    mask = torch.ones_like(inputs["input_ids"], dtype=torch.bool)
    pairs = split_pairs(mask, inputs["token_type_ids"])
    return [index[kept].cpu().numpy() for index, kept in zip(pairs.index, pairs.mask, strict=True)]


def merge_maps(maps: np.ndarray, columns: Sequence[np.ndarray], length: int) -> np.ndarray:
    """(N, H, W, W) -> (H, S, S), zero between sequences."""
    merged = np.zeros((maps.shape[1], length, length))
    for block, own in zip(maps, columns, strict=True):
        merged[:, own[:, None], own] = block[:, : len(own), : len(own)]
    return merged


def merge_gates(gates: torch.Tensor, columns: Sequence[np.ndarray], length: int) -> np.ndarray:
    """(N, W, E) -> (S,) mean over units."""
    merged = np.zeros(length)
    for row, own in zip(as_numpy(gates).mean(-1), columns, strict=True):
        merged[own] = row[: len(own)]
    return merged


def expand_units(values: np.ndarray, columns: Sequence[np.ndarray], length: int, config: Any) -> np.ndarray:
    """Values of an example's halting units, (units...) or (units..., T), for each token: (S) or (S, T).

    Units are tokens, or each sequence as a whole, or each of its chunks.
    """
    if halting_unit(config) == "token" or getattr(config, "counts_by_token", False):
        return values
    unit_axes = (len(columns) > 1) + (config.capabilities.reads == "chunks")
    by_sequence = values.reshape(len(columns), -1, *values.shape[unit_axes:])
    merged = np.zeros((length, *by_sequence.shape[2:]), dtype=values.dtype)
    for units, own, chunks in zip(by_sequence, columns, chunk_columns(config, columns), strict=True):
        merged[own] = units[np.repeat(range(len(chunks)), [len(chunk) for chunk in chunks])]
    return merged


def chunk_columns(config: Any, columns: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The columns of each chunk of each sequence; of models that read whole sequences, the sequence itself."""
    if config.capabilities.reads != "chunks":
        return [[own] for own in columns]
    width = max(map(len, columns))
    sizes = [chunk_size(config, width if (config.capabilities.division == "balanced") else len(own)) for own in columns]
    return [np.split(own, range(size, len(own), size)) for own, size in zip(columns, sizes, strict=True)]


def encode_text(
    model: Any, tokenizer: Any, text: str, text_pair: str | None = None, max_tokens: int | None = MAX_TOKENS
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
    length = inputs["input_ids"].shape[1]
    if max_tokens is not None and length > max_tokens:
        raise ValueError(
            f"text has {length} tokens, special ones included, but only {max_tokens} can be drawn: pass a shorter one"
        )
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
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    words = [word for word in words if word not in tokenizer.all_special_tokens]
    known = f"; it knows {' '.join(words)}" if 0 < len(words) <= MAX_LISTED_WORDS else ""
    raise ValueError(
        f"{name}: word {place + 1} of it, {text[start:end]!r} at character {start + 1}, is not in the vocabulary of "
        f"this checkpoint{known}"
    )

"""One example's way through depth: who attends to whom, whose state changes, and who has stopped.

Shapes: T steps, A steps or layers in which the readout attends, H heads, S tokens, E width, W tokens of the longer
sequence; N sequences, which are the example itself, or the two texts of a siamese pair. Step t of a model stands at
index t - 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...data.labels import MULTI
from ...inference.modes import inference_mode
from ...models.common.classification import predicts_number
from ...models.engine.chunk_plan import chunk_size
from ...registry import ARCHITECTURES
from ..answers import several_labels
from ..inference import as_numpy, attention_implementation, predicts_tokens, to_device
from ..model_facts import adds_probabilities, answers_tokens, halting_unit, stopping_rule
from .canvas import Canvas, NotDrawableError, canvas_of
from .readout import describe_readout, readout_attention, readout_modules, recorded_calls

# more would be too small to see, and to print
MAX_TOKENS = 64
MAX_LISTED_WORDS = 40


@dataclass(frozen=True)
class Explanation:
    """One example's pass through depth: of a short text all attention, of pixels or bytes that of the readout.

    Attributes:
        tokens: S strings, special tokens by their names.
        prediction: the name of the label, or of all labels that apply; of a language model the token that would come
            next; of a regression the value.
        probability: of the prediction; None for a regression.
        attention: (T, H, S, S) weights with which each token (row) attends to each (column). Rows of geometric
            attention may sum to less than 1, where nothing matched; zero between different chunks and sentences.
        gates: (T, S) mean share of a token's state that a step overwrites; None without gates.
        unit: what halts: "token", "chunk", "sentence" (each text of a pair by itself), "row"; None for a fixed depth.
        steps: (S,) steps that each token took and kept; None for a fixed depth.
        halting: (T, S) conditional probabilities of halting; None for a fixed depth.
        freezes: whether the state of a token that stopped stays as it is. Otherwise (adaptive computation time) it goes
            on changing for others to attend to, and only its share in the output is settled.
        readout: the token whose final state is classified or continued; None where it is no single one.
        predicts_next: whether the prediction is the next token, rather than a label.
        canvas: the pixels or bytes among the tokens; None of other texts. With a canvas there are no `attention` and
            `gates`, but:
        reads: (A, S) weights with which the readout attends to each token, NaN where it takes no such step; None where
            these are not known.
        reader: description of the readout; None without `reads`.
        stage: what A counts: "step", "layer" or "memory layer".
        chunks: (S,) number of the chunk that each token is read in, counted over all texts; a text that is read as a
            whole is one chunk.
    """

    tokens: list[str]
    prediction: str
    probability: float | None
    attention: np.ndarray | None = None
    gates: np.ndarray | None = None
    steps: np.ndarray | None = None
    halting: np.ndarray | None = None
    freezes: bool = True
    readout: int | None = None
    predicts_next: bool = False
    unit: str | None = None
    canvas: Canvas | None = None
    reads: np.ndarray | None = None
    reader: str | None = None
    stage: str = "step"
    chunks: np.ndarray | None = None

    @property
    def num_steps(self) -> int:
        """Steps until the last token stopped, at least 1: inference takes none after that."""
        return len(self.attention) if self.steps is None else max(1, int(self.steps.max()))

    @property
    def relative(self) -> np.ndarray:
        """(A, S) reads as a multiple of an even share: 1 where all tokens of a chunk are attended to alike."""
        return self.reads * np.bincount(self.chunks)[self.chunks]

    @property
    def halts_whole(self) -> bool:
        """Whether all tokens of a text halt together."""
        return self.unit in ("row", "sentence")

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


def explain_symbols(
    model: Any, tokenizer: Any, text: str, text_pair: str | None = None, max_depth: int | None = None
) -> Explanation:
    """Depth and readout attention of a classifier on a picture's pixels, the bytes of a text, or a pair of either.

    Raises:
        NotDrawableError: see `canvas_of` and `explain_encoded`.
        ValueError: as of `explain`.
    """
    inputs = encode_text(model, tokenizer, text, text_pair, max_tokens=None)
    return explain_encoded(model, tokenizer, inputs, max_depth, canvas_of(tokenizer, inputs))


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
    model: Any,
    tokenizer: Any,
    inputs: Mapping[str, torch.Tensor],
    max_depth: int | None = None,
    canvas: Canvas | None = None,
) -> Explanation:
    """`explain` of an encoded example without padding: tensors (1, S) by the names of the model's inputs.

    Args:
        canvas: the pixels or bytes among the tokens, of which the readout's attention is wanted rather than all.

    Raises:
        ValueError: the model has no head.
        NotDrawableError: there is a canvas, and the model is no classifier, or neither halts nor has attention that is
            known.
    """
    inputs, config = to_device(inputs, model), model.config
    halts, modules = config.capabilities.halts, readout_modules(model) if canvas else []
    if canvas and not (halts or modules):
        raise NotDrawableError(
            f"model is of the architecture {config.model_type!r}, of whose depth and attention there is nothing to draw"
        )
    # a record of states keeps tokens that have stopped in their places
    records = {"output_hidden_states": True} if canvas else {"output_attentions": True, "output_gates": True}
    with (
        inference_mode(model),
        attention_implementation(model, "sdpa" if modules else config._attn_implementation if canvas else "eager"),
        recorded_calls(modules) as calls,
    ):
        output = model(**inputs, output_halting=True, max_depth=max_depth, **records)
    logits = getattr(output, "logits", None)
    if canvas and (logits is None or logits.dim() != 2):
        raise NotDrawableError(f"model is of class {type(model).__name__}: only what a classifier reads is drawn")
    if logits is None:
        raise ValueError(f"model is of class {type(model).__name__}, which predicts nothing: pass one with a head")
    sequence, chunk = token_places(config, inputs)
    prediction, probability = format_prediction(logits, config, tokenizer)
    stages, memory = "step" if model.capabilities.shared_block else "layer", config.capabilities.memory_slots > 0
    found = {} if canvas else merged_maps(output, sequence)
    if halts:
        steps = by_token(output.ponder_steps[0].cpu().numpy(), sequence, chunk, config)
        halting = by_token(as_numpy(output.halting_probabilities)[0], sequence, chunk, config).T
        found |= {"unit": halting_unit(config), "steps": steps, "halting": halting}
    if modules:
        reads = readout_attention(model, calls, sequence, chunk, found.get("steps"))
        found |= {"reads": reads, "reader": describe_readout(config)}
    return Explanation(
        tokens=tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()),
        prediction=prediction,
        probability=probability,
        freezes=not adds_probabilities(stopping_rule(config)[0]),
        readout=readout_token(config, len(sequence), predicts_tokens(output)),
        predicts_next=predicts_tokens(output),
        canvas=canvas,
        stage="memory layer" if canvas and memory else stages,
        chunks=np.unique(np.stack([sequence, chunk]), axis=1, return_inverse=True)[1],
        **found,
    )


def format_prediction(logits: torch.Tensor, config: Any, tokenizer: Any) -> tuple[str, float | None]:
    """Name of the predicted label, labels or token, and its probability, from logits (1, C) or (1, S, V)."""
    scores = logits[0, -1] if logits.dim() == 3 else logits[0]
    if logits.dim() == 2 and predicts_number(config):
        return f"{scores.item():.4g}", None
    if logits.dim() == 2 and config.problem_type == MULTI:
        names, shares = several_labels(logits, config)
        return names[0], float(shares[0])
    share, best = scores.float().softmax(-1).max(-1)
    name = tokenizer.convert_ids_to_tokens(int(best)) if logits.dim() == 3 else str(config.id2label[int(best)])
    return name, float(share)


def readout_token(config: Any, length: int, language: bool) -> int | None:
    """The token whose state is read out; None where it is a mean, a memory, or one of each sentence."""
    if language:
        return length - 1
    return None if config.capabilities.siamese else {"end": length - 1, "cls": 0}.get(config.pooling)


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
    if halting_unit(config) == "token" or getattr(config, "counts_by_token", False):
        return values
    number = int(sequence.max()) + 1
    unit_axes = (number > 1) + (config.capabilities.reads == "chunks")
    return values.reshape(number, -1, *values.shape[unit_axes:])[sequence, chunk]


def merged_maps(output: Any, sequence: np.ndarray) -> dict[str, np.ndarray]:
    """Attention (N, H, W, W) and gates (N, W, E) of each step -> (T, H, S, S), zero between sequences, and (T, S)."""
    maps = np.stack([as_numpy(step) for step in output.attentions])
    attention = np.zeros((len(maps), maps.shape[2], len(sequence), len(sequence)))
    gates = np.zeros((len(maps), len(sequence)))
    for number in range(sequence.max() + 1):
        own = np.flatnonzero(sequence == number)
        attention[:, :, own[:, None], own] = maps[:, number, :, : len(own), : len(own)]
        if output.gates is not None:
            gates[:, own] = [as_numpy(step)[number, : len(own)].mean(-1) for step in output.gates]
    return {"attention": attention} if output.gates is None else {"attention": attention, "gates": gates}


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
    vocabulary = tokenizer.get_vocab()
    words = [word for word in sorted(vocabulary, key=vocabulary.get) if word not in tokenizer.all_special_tokens]
    known = f"; it knows {' '.join(words)}" if 0 < len(words) <= MAX_LISTED_WORDS else ""
    raise ValueError(
        f"{name}: word {place + 1} of it, {text[start:end]!r} at character {start + 1}, is not in the vocabulary of "
        f"this checkpoint{known}"
    )

"""Answers of a checkpoint for tokens of texts, as columns of a table: labels of tokens or words, and what masks hide.

Shapes: N texts of a window, B of a batch, S tokens of a text, C labels, V token ids, M masks of a batch, K likeliest
tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from ..data.words import first_tokens, words_of_tokens
from .evaluate import of_tokens
from .inference import as_numpy
from .predictors import Predictor
from .text_batches import EncodedTexts

TOP_K = 5


def token_steps(model: Any, output: Any, mask: torch.Tensor) -> np.ndarray:
    """Executed depth steps of each token (B, S), NaN for a fixed depth."""
    if output.get("ponder_steps") is None:
        return np.full(mask.shape, np.nan)
    return as_numpy(of_tokens(model, output, "ponder_steps", mask))


def nested(lists: Sequence[Sequence[Any]], kind: pa.DataType) -> pa.Array:
    """Lists as a column; NaN is nothing."""
    if pa.types.is_float32(kind):
        lists = [[None if value is None or np.isnan(value) else value for value in values] for values in lists]
    return pa.array(lists, pa.list_(kind))


class TokenPredictor(Predictor):
    """Labels by a token classifier: of words where rows hold lists of them, else of the tokens of texts.

    Columns of lists: `prediction`, the label of the greatest probability, `probability`, with `all_probabilities` also
    `probability_<label>` for each label, and `steps`. There is one entry for each word, that of its first token, which
    training gives a label; nothing for a word of which the tokenizer leaves no token. Of a text there is one for each
    token that has characters, and before these columns `token`, its characters, with `start` and `end` in the text.

    Args:
        model: a token classifier.
        options: of its forward pass, such as `max_depth`.
        all_probabilities: whether there are columns for the probability of each label.
        of_words: whether texts are lists of words.
    """

    offsets = True

    def __init__(self, model: Any, options: Mapping[str, Any], all_probabilities: bool = False, of_words: bool = False):
        self.model, self.options, self.all_probabilities, self.of_words = model, options, all_probabilities, of_words
        self.labels = [str(model.config.id2label[index]) for index in range(model.config.num_labels)]

    @property
    def names(self) -> list[str]:
        """The columns, in order."""
        each = [f"probability_{label}" for label in self.labels] if self.all_probabilities else []
        return [*(() if self.of_words else ("token", "start", "end")), "prediction", "probability", *each, "steps"]

    def start(self, number: int) -> dict[str, Any]:
        return {name: np.full(number, None, object) for name in ("classes", "probabilities", "steps")}

    def answer(self, rows: np.ndarray, inputs: Mapping[str, torch.Tensor], found: dict[str, Any]) -> None:
        output = self.model(**inputs, **self.options)
        mask = inputs["attention_mask"].bool()
        probabilities = output.logits.double().softmax(-1)
        # those of all labels are many
        kept = probabilities if self.all_probabilities else probabilities.amax(-1)
        values = {
            "classes": probabilities.argmax(-1).cpu().numpy(),
            "probabilities": as_numpy(kept),
            "steps": token_steps(self.model, output, mask),
        }
        for name, batch in values.items():
            for row, own, length in zip(rows, batch, mask.sum(-1).tolist(), strict=True):
                found[name][row] = own[:length]

    def columns(self, found: Mapping[str, Any]) -> list[pa.Array]:
        rows: dict[str, list[list]] = {name: [] for name in self.names}
        answers = (found[name] for name in ("classes", "probabilities", "steps"))
        offsets = found["encoded"].parts(found["encoded"].offsets)
        for text, own, classes, probabilities, steps in zip(found["given"], offsets, *answers, strict=True):
            if self.of_words:
                first = first_tokens(words_of_tokens(text, own.tolist()))
                # a text without tokens has no answers, nor has a word without
                places = [None if classes is None else first.get(number) for number in range(len(text))]
            else:
                places = np.flatnonzero(own[:, 1] > own[:, 0]).tolist()
                spans = own[places].tolist()
                rows["token"].append([text[start:end] for start, end in spans])
                rows["start"].append([start for start, _ in spans])
                rows["end"].append([end for _, end in spans])
            rows["prediction"].append([None if place is None else self.labels[classes[place]] for place in places])
            of_places = [None if place is None else probabilities[place] for place in places]
            rows["probability"].append([None if each is None else each.max() for each in of_places])
            for number, label in enumerate(self.labels if self.all_probabilities else ()):
                each_label = [None if each is None else each[number] for each in of_places]
                rows[f"probability_{label}"].append(each_label)
            rows["steps"].append([None if place is None else steps[place] for place in places])
        kinds = {"token": pa.string(), "start": pa.int64(), "end": pa.int64(), "prediction": pa.string()}
        return [nested(rows[name], kinds.get(name, pa.float32())) for name in self.names]


class MaskPredictor(Predictor):
    """The likeliest tokens for each mask of a text, by a masked language model.

    Columns of lists with an entry for each mask token of a text: `prediction`, a list of the K likeliest tokens in
    order, `probability`, theirs, and `steps`, those of the mask.

    Args:
        model: a masked language model.
        tokenizer: its tokenizer, which reads the name of its mask token in a text as that token.
        options: of its forward pass, such as `max_depth`.
        top_k: K.

    Raises:
        ValueError: the tokenizer has no mask token, or `top_k` is no number of tokens.
    """

    names = ("prediction", "probability", "steps")

    def __init__(self, model: Any, tokenizer: Any, options: Mapping[str, Any], top_k: int | None = None):
        self.model, self.tokenizer, self.options = model, tokenizer, options
        self.top_k = TOP_K if top_k is None else top_k
        if not 1 <= self.top_k <= model.config.vocab_size:
            raise ValueError(
                f"top_k is {top_k}: expected a number of tokens, from 1 to the {model.config.vocab_size:,} there are"
            )
        if tokenizer.mask_token_id is None:
            raise ValueError("the checkpoint's tokenizer has no mask token: set tokenizer.mask_token and save it")

    def problems(self, encoded: EncodedTexts) -> dict[int, str]:
        masks = [(ids == self.tokenizer.mask_token_id).any() for ids in encoded.parts(encoded.ids)]
        reason = f"its text has no {self.tokenizer.mask_token} among the tokens that are read, so nothing is predicted"
        return {place: reason for place, has_mask in enumerate(masks) if not has_mask}

    def start(self, number: int) -> dict[str, Any]:
        found = {name: np.full(number, None, object) for name in self.names}
        for values in found.values():
            values[:] = [[] for _ in range(number)]
        return found

    def answer(self, rows: np.ndarray, inputs: Mapping[str, torch.Tensor], found: dict[str, Any]) -> None:
        output = self.model(**inputs, **self.options)
        steps = token_steps(self.model, output, inputs["attention_mask"].bool())
        masks = inputs["input_ids"] == self.tokenizer.mask_token_id
        best = output.logits[masks].double().softmax(-1).topk(self.top_k)
        texts = [[self.tokenizer.decode([token]) for token in own] for own in best.indices.tolist()]
        owners = rows[masks.nonzero()[:, 0].cpu().numpy()]
        values = (texts, best.values.tolist(), steps[masks.cpu().numpy()].tolist())
        for name, of_masks in zip(self.names, values, strict=True):
            for row, value in zip(owners, of_masks, strict=True):
                found[name][row].append(value)

    def columns(self, found: Mapping[str, Any]) -> list[pa.Array]:
        tokens, probabilities, steps = (found[name].tolist() for name in self.names)
        return [
            pa.array(tokens, pa.list_(pa.list_(pa.string()))),
            pa.array(probabilities, pa.list_(pa.list_(pa.float32()))),
            nested(steps, pa.float32()),
        ]

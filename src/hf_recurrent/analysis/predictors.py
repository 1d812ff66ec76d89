"""Answers of a checkpoint to texts, as rows of a table: labels or numbers, labels of tokens or words, tokens for masks,
and text that a model writes.

Shapes: B texts of a batch, S tokens of the longest one, C labels.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from ..data.labels import MULTI
from ..data.words import first_tokens, words_of_tokens
from ..models.common.classification import predicts_number
from ..models.common.masked_lm import ForMaskedLM
from .evaluate import of_tokens
from .inference import as_numpy, mean_steps
from .model_facts import is_classifier, labels_tokens

TOP_K = 5
# settings that not every model reads, and the models that do
WRITING, FILLING, CLASSIFYING = "models that write text", "masked language models", "classifiers"
READERS = {
    "max_new_tokens": WRITING,
    "source_prefix": WRITING,
    "top_k": FILLING,
    "all_probabilities": CLASSIFYING,
}
NUMBER, NUMBERS = pa.float32(), pa.list_(pa.float32())
# one row of a table
Row = dict[str, Any]


def predictor_of(model: Any, tokenizer: Any, settings: Any, of_words: bool) -> "Predictor":
    """The way in which a model answers.

    Args:
        settings: `PredictionSettings`.
        of_words: whether texts are lists of words.

    Raises:
        ValueError: a setting is not for such a model, or it has no head.
    """
    if model.base_model is model:
        raise ValueError(
            f"{type(model).__name__} has no head, so it answers nothing: load it with the head of its task"
        )
    group, kind, predictor = WRITING, "a model that writes text", Writer
    if labels_tokens(model):
        group, kind, predictor = CLASSIFYING, "a classifier", TokenClassifier
    elif is_classifier(model):
        group, kind, predictor = CLASSIFYING, "a classifier", Classifier
    elif isinstance(model, ForMaskedLM):
        group, kind, predictor = FILLING, "a masked language model", MaskFiller
    for name, readers in READERS.items():
        value = getattr(settings, name)
        if readers != group and value != getattr(type(settings), name):
            raise ValueError(f"{name} is {value!r}, but it is for {readers}, and this is {kind}: leave it out")
    return predictor(model, tokenizer, settings, of_words)


def rounded(values: Any) -> Any:
    """Numbers of float32, in lists too, with as many digits as they have; None where they are NaN."""
    if isinstance(values, torch.Tensor | np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return None if values is None or math.isnan(values) else float(f"{values:.7g}")


class Predictor:
    """A way to answer texts.

    Attributes:
        columns: name -> type of each column of the answers.
        of_words: whether a text is a list of words.
        pads_left: whether batches are padded on the left.
        offsets: whether it needs the characters of each token.
    """

    columns: Mapping[str, pa.DataType]
    pads_left = offsets = False

    def __init__(self, model: Any, tokenizer: Any, settings: Any, of_words: bool):
        self.model, self.tokenizer, self.options = model, tokenizer, dict(settings.options)
        self.of_words = of_words and labels_tokens(model)
        self.prepare(settings)

    def prepare(self, settings: Any) -> None:
        """Set `columns`. Raises a ValueError for settings that do not fit the model."""

    def problem(self, ids: Sequence[int]) -> str | None:
        """Why there is no answer to a text of these tokens; None if there is one."""
        return None if len(ids) else "its text has no token"

    def rows(self, inputs: dict[str, torch.Tensor], texts: Sequence, offsets: Sequence) -> list[Row]:
        """The answers to the texts of a batch.

        Args:
            inputs: (B, S), on the model's device.
            texts: B texts, or lists of words.
            offsets: the characters of the tokens of each text, if they are needed.
        """
        raise NotImplementedError


class Classifier(Predictor):
    """Labels or numbers by a sequence classifier.

    Columns: `prediction`, the label of the greatest probability, or of multiple labels a list of those above one half,
    or the number (a list, if there are several) of a regression; `probability` of what is predicted, not of a
    regression; with `all_probabilities` also `probability_<label>` for each label; `steps`.
    """

    def prepare(self, settings: Any) -> None:
        config = self.model.config
        self.is_number, self.several = predicts_number(config), config.problem_type == MULTI
        self.labels = [str(config.id2label[index]) for index in range(config.num_labels)]
        self.each = [f"probability_{label}" for label in self.labels] if settings.all_probabilities else []
        if self.each and self.is_number:
            raise ValueError(
                "all_probabilities: the model predicts numbers (regression), which have none: leave it out"
            )
        if self.is_number:
            self.columns = {"prediction": NUMBER if len(self.labels) == 1 else NUMBERS, "steps": NUMBER}
            return
        answer = {"prediction": pa.string(), "probability": NUMBER}
        if self.several:
            answer = {name: pa.list_(kind) for name, kind in answer.items()}
        self.columns = {**answer, **dict.fromkeys(self.each, NUMBER), "steps": NUMBER}

    def rows(self, inputs: dict[str, torch.Tensor], texts: Sequence, offsets: Sequence) -> list[Row]:
        output = self.model(**inputs, **self.options)
        logits, steps = output.logits.double(), rounded(mean_steps(output.get("ponder_steps"), len(texts)))
        if self.is_number:
            numbers = rounded(logits.squeeze(-1) if len(self.labels) == 1 else logits)
            return [{"prediction": number, "steps": own} for number, own in zip(numbers, steps, strict=True)]
        shares = rounded(logits.sigmoid() if self.several else logits.softmax(-1))
        return [
            {**self.answer(own), **dict(zip(self.each, own, strict=False)), "steps": taken}
            for own, taken in zip(shares, steps, strict=True)
        ]

    def answer(self, shares: list[float]) -> Row:
        """The prediction from the probabilities of the labels, and its own."""
        if self.several:
            chosen = [place for place, share in enumerate(shares) if share > 0.5]
            return {"prediction": [self.labels[place] for place in chosen], "probability": [shares[p] for p in chosen]}
        best = max(range(len(shares)), key=shares.__getitem__)
        return {"prediction": self.labels[best], "probability": shares[best]}


class TokenClassifier(Classifier):
    """Labels by a token classifier: of words where rows hold lists of them, else of the tokens of texts.

    Columns of lists: `prediction`, `probability`, with `all_probabilities` also `probability_<label>`, and `steps`.
    There is one entry for each word, that of its first token, which training gives a label; nothing for a word of
    which the tokenizer leaves no token. Of a text there is one for each token that has characters, and before these
    columns `token`, its characters, with `start` and `end` in the text.
    """

    offsets = True

    def prepare(self, settings: Any) -> None:
        super().prepare(settings)
        spans = {} if self.of_words else {"token": pa.string(), "start": pa.int64(), "end": pa.int64()}
        self.columns = {name: pa.list_(kind) for name, kind in {**spans, **self.columns}.items()}

    def rows(self, inputs: dict[str, torch.Tensor], texts: Sequence, offsets: Sequence) -> list[Row]:
        output = self.model(**inputs, **self.options)
        steps, shares = steps_of_tokens(self.model, output, inputs), output.logits.double().softmax(-1).cpu()
        found = []
        for text, spans, own_shares, own_steps in zip(texts, offsets, shares, steps, strict=True):
            if self.of_words:
                first = first_tokens(words_of_tokens(text, spans))
                units = [{"place": first.get(number)} for number in range(len(text))]
            else:
                units = [
                    {"place": place, "token": text[start:end], "start": start, "end": end}
                    for place, (start, end) in enumerate(spans)
                    if end > start
                ]
            for unit in units:
                if (place := unit["place"]) is not None:
                    own = rounded(own_shares[place])
                    unit |= self.answer(own) | dict(zip(self.each, own, strict=False))
                    unit["steps"] = rounded(own_steps[place])
            found.append({name: [unit.get(name) for unit in units] for name in self.columns})
        return found


class MaskFiller(Predictor):
    """The likeliest tokens for each mask of a text, by a masked language model.

    Columns of lists with an entry for each mask token of a text: `prediction`, a list of the likeliest tokens in order,
    `probability`, theirs, and `steps`, those of the mask.
    """

    columns = {"prediction": pa.list_(pa.list_(pa.string())), "probability": pa.list_(NUMBERS), "steps": NUMBERS}

    def prepare(self, settings: Any) -> None:
        self.top_k, size = settings.top_k or TOP_K, self.model.config.vocab_size
        if not 1 <= self.top_k <= size:
            raise ValueError(f"top_k is {self.top_k}: expected a number of tokens, from 1 to the {size:,} there are")
        if self.tokenizer.mask_token_id is None:
            raise ValueError("the checkpoint's tokenizer has no mask token: set tokenizer.mask_token and save it")

    def problem(self, ids: Sequence[int]) -> str | None:
        if len(ids) and self.tokenizer.mask_token_id not in ids:
            return (
                f"its text has no {self.tokenizer.mask_token} among the tokens that are read, so nothing is predicted"
            )
        return super().problem(ids)

    def rows(self, inputs: dict[str, torch.Tensor], texts: Sequence, offsets: Sequence) -> list[Row]:
        output = self.model(**inputs, **self.options)
        steps, masks = steps_of_tokens(self.model, output, inputs), inputs["input_ids"] == self.tokenizer.mask_token_id
        best = output.logits[masks].double().softmax(-1).topk(self.top_k)
        names = [[self.tokenizer.decode([token]) for token in own] for own in best.indices.tolist()]
        answers = zip(names, rounded(best.values), rounded(steps[masks.cpu().numpy()]), strict=True)
        found = [{name: [] for name in self.columns} for _ in texts]
        for row, answer in zip(masks.nonzero()[:, 0].tolist(), answers, strict=True):
            for name, value in zip(self.columns, answer, strict=True):
                found[row][name].append(value)
        return found


class Writer(Predictor):
    """Text that a causal language model adds to a prompt, or an encoder-decoder writes for a source, without sampling.

    Columns: `prediction`, the new text without special tokens; `steps`, the mean over its tokens, which of beams and of
    fixed depths are not known.
    """

    columns = {"prediction": pa.string(), "steps": NUMBER}

    def prepare(self, settings: Any) -> None:
        number = settings.max_new_tokens or self.model.generation_config.max_new_tokens
        if number is None:
            raise ValueError(
                "max_new_tokens is not given, nor in the checkpoint's generation_config: pass a number "
                "(--max_new_tokens on the command line)"
            )
        self.options |= {"max_new_tokens": number, "do_sample": False, "return_dict_in_generate": True}
        self.options["pad_token_id"] = self.tokenizer.pad_token_id
        self.pads_left = not self.model.config.is_encoder_decoder

    def rows(self, inputs: dict[str, torch.Tensor], texts: Sequence, offsets: Sequence) -> list[Row]:
        output = self.model.generate(**inputs, **self.options)
        prompt = inputs["input_ids"].shape[1] if self.pads_left else 0
        written = self.tokenizer.batch_decode(output.sequences[:, prompt:], skip_special_tokens=True)
        steps = rounded(mean_steps(output.get("ponder_steps"), len(texts)))
        return [{"prediction": text, "steps": own} for text, own in zip(written, steps, strict=True)]


def steps_of_tokens(model: Any, output: Any, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
    """Executed depth steps of each token (B, S), NaN for a fixed depth."""
    mask = inputs["attention_mask"].bool()
    if output.get("ponder_steps") is None:
        return np.full(mask.shape, np.nan)
    return as_numpy(of_tokens(model, output, "ponder_steps", mask))

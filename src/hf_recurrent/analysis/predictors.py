"""Answers of a checkpoint to texts, as columns of a table: labels or numbers, labels of tokens or words, tokens for
masks, and text that a model writes.

Shapes: B texts of a batch, S tokens of the longest one, C labels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch

from ..data.labels import MULTI
from ..data.reading import first_tokens, words_of_tokens
from ..models.heads.classification import predicts_number
from ..models.heads.masked import ForMaskedLM
from .answers import as_numpy, is_classifier, labels_tokens, mean_steps
from .evaluate import of_tokens

TOP_K = 5
NUMBER = pa.float32()
# a row of a table
Row = dict[str, Any]
Inputs = Mapping[str, torch.Tensor]


def rounded(values: Any) -> Any:
    """Numbers of float32, in lists too, with as many digits as they have; None where they are NaN."""
    if isinstance(values, torch.Tensor | np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return None if math.isnan(values) else float(f"{values:.7g}")


@dataclass(frozen=True)
class Predictor:
    """A way to answer texts.

    Attributes:
        settings: `PredictionSettings`.
        of_words: whether texts are lists of words.
        kind: the models that answer so, as messages call them.
        takes: the settings that are for such models alone.
        needs_spans: whether it needs the characters of each token.
        pads_left: whether batches are padded on the left.
        types: the names and types of the columns, in order.
    """

    model: Any
    tokenizer: Any
    settings: Any
    of_words: bool = False

    kind: ClassVar[str]
    takes: ClassVar[tuple[str, ...]]
    needs_spans: ClassVar[bool] = False
    pads_left: ClassVar[bool] = False
    types: ClassVar[Sequence[tuple[str, pa.DataType]]] = (("prediction", pa.string()), ("steps", NUMBER))

    def check(self) -> None:
        """Raise a ValueError for settings that do not fit the model."""

    def problem(self, ids: Sequence[int]) -> str | None:
        """Why there is no answer to a text of these tokens; None if there is one."""
        return None if ids else "its text has no token"

    def rows(self, inputs: Inputs, texts: Sequence, spans: Sequence) -> list[Row]:
        """The answers to a batch.

        Args:
            inputs: (B, S), on the model's device.
            texts: B texts, or lists of words.
            spans: the characters of the tokens of each text, if they are needed.
        """
        output = self.model(**inputs, **self.settings.options)
        return self.as_rows(self.named(output.logits.double()), output)

    def named(self, logits: torch.Tensor) -> dict[str, list]:
        """What logits (N, C) predict, and its probability."""
        raise NotImplementedError

    def as_rows(self, columns: dict[str, list], output: Any) -> list[Row]:
        """The rows of columns (B,), with the mean depth steps of each text."""
        steps = rounded(mean_steps(output.get("ponder_steps"), len(columns["prediction"])))
        columns = {**columns, "steps": steps}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


class OfTokens(Predictor):
    """A predictor of some tokens of each text, whose columns hold lists."""

    def rows(self, inputs: Inputs, texts: Sequence, spans: Sequence) -> list[Row]:
        output, mask = self.model(**inputs, **self.settings.options), inputs["attention_mask"].bool()
        logits, steps = output.logits.double(), np.full(mask.shape, np.nan)
        if output.get("ponder_steps") is not None:
            steps = as_numpy(of_tokens(self.model, output, "ponder_steps", mask))
        found = []
        for row, ids in enumerate(inputs["input_ids"].tolist()):
            places, tokens = self.places(ids, texts[row], spans[row])
            read = [place or 0 for place in places]
            units = {**tokens, **self.named(logits[row, read]), "steps": rounded(steps[row, read])}
            found.append(
                {
                    name: [None if place is None else value for place, value in zip(places, values, strict=True)]
                    for name, values in units.items()
                }
            )
        return found

    def places(self, ids: Sequence[int], text: Any, spans: Sequence) -> tuple[list[int | None], dict[str, list]]:
        """The tokens of a text (S,) that are answered for, None where nothing can be answered; and facts on each."""
        raise NotImplementedError


class Classifier(Predictor):
    """Labels or numbers by a sequence classifier.

    Columns: `prediction`, the label of the greatest probability, or of multiple labels a list of those above one half,
    or the number (a list, if there are several) of a regression; `probability` of what is predicted, not of a
    regression; with `all_probabilities` also `probability_<label>` for each label; `steps`.
    """

    kind, takes = "classifiers", ("all_probabilities",)

    @property
    def labels(self) -> list[str]:
        return [str(self.model.config.id2label[place]) for place in range(self.model.config.num_labels)]

    @property
    def each(self) -> list[str]:
        """The columns of the probabilities of all labels, if they are wanted."""
        return [f"probability_{label}" for label in self.labels] if self.settings.all_probabilities else []

    @property
    def types(self) -> Sequence[tuple[str, pa.DataType]]:
        kinds, config = {"prediction": pa.string(), "probability": NUMBER}, self.model.config
        if predicts_number(config):
            kinds = {"prediction": NUMBER}
        if config.problem_type == MULTI or (predicts_number(config) and config.num_labels > 1):
            kinds = {name: pa.list_(kind) for name, kind in kinds.items()}
        return [*kinds.items(), *((name, NUMBER) for name in self.each), ("steps", NUMBER)]

    def check(self) -> None:
        if self.settings.all_probabilities and predicts_number(self.model.config):
            raise ValueError("all_probabilities: the model predicts numbers, which have none: leave it out")

    def named(self, logits: torch.Tensor) -> dict[str, list]:
        config, several = self.model.config, self.model.config.problem_type == MULTI
        if predicts_number(config):
            return {"prediction": rounded(logits.squeeze(-1) if config.num_labels == 1 else logits)}
        shares = rounded(logits.sigmoid() if several else logits.softmax(-1))
        labels = self.labels
        if several:
            chosen = [[place for place, share in enumerate(row) if share > 0.5] for row in shares]
            names = [[labels[place] for place in places] for places in chosen]
            best = [[row[place] for place in places] for row, places in zip(shares, chosen, strict=True)]
        else:
            best = [max(row) for row in shares]
            names = [labels[row.index(share)] for row, share in zip(shares, best, strict=True)]
        probabilities = {name: [row[place] for row in shares] for place, name in enumerate(self.each)}
        return {"prediction": names, "probability": best, **probabilities}


class TokenClassifier(OfTokens, Classifier):
    """Labels by a token classifier: of words where rows hold lists of them, else of the tokens of texts.

    Columns of lists: `prediction`, `probability`, with `all_probabilities` also `probability_<label>`, and `steps`.
    There is one entry for each word, that of its first token, which training gives a label; nothing for a word of
    which the tokenizer leaves no token. Of a text there is one for each token that has characters, and before these
    columns `token`, its characters, with `start` and `end` in the text.
    """

    needs_spans = True

    @property
    def types(self) -> Sequence[tuple[str, pa.DataType]]:
        spans = [] if self.of_words else [("token", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
        return [(name, pa.list_(kind)) for name, kind in [*spans, *super().types]]

    def places(self, ids: Sequence[int], text: Any, spans: Sequence) -> tuple[list[int | None], dict[str, list]]:
        if self.of_words:
            first = first_tokens(words_of_tokens(text, spans))
            return [first.get(number) for number in range(len(text))], {}
        places = [place for place, (start, end) in enumerate(spans) if end > start]
        starts, ends = ([spans[place][side] for place in places] for side in (0, 1))
        tokens = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        return places, {"token": tokens, "start": starts, "end": ends}


class MaskFiller(OfTokens):
    """The likeliest tokens for each mask of a text, by a masked language model.

    Columns of lists with an entry for each mask token of a text: `prediction`, a list of the likeliest tokens in order,
    `probability`, theirs, and `steps`, those of the mask.
    """

    kind, takes = "masked language models", ("top_k",)
    types = (
        ("prediction", pa.list_(pa.list_(pa.string()))),
        ("probability", pa.list_(pa.list_(NUMBER))),
        ("steps", pa.list_(NUMBER)),
    )

    def check(self) -> None:
        top_k, size = self.settings.top_k, self.model.config.vocab_size
        if top_k is not None and not 1 <= top_k <= size:
            raise ValueError(f"top_k is {top_k}: expected a number of tokens, from 1 to the {size:,} there are")
        if self.tokenizer.mask_token_id is None:
            raise ValueError("the checkpoint's tokenizer has no mask token: set tokenizer.mask_token and save it")

    def problem(self, ids: Sequence[int]) -> str | None:
        if ids and self.tokenizer.mask_token_id not in ids:
            mask = self.tokenizer.mask_token
            return f"its text has no {mask} among the tokens that are read, so nothing is predicted"
        return super().problem(ids)

    def places(self, ids: Sequence[int], text: Any, spans: Sequence) -> tuple[list[int | None], dict[str, list]]:
        return [place for place, token in enumerate(ids) if token == self.tokenizer.mask_token_id], {}

    def named(self, logits: torch.Tensor) -> dict[str, list]:
        best = logits.softmax(-1).topk(self.settings.top_k or TOP_K)
        names = [[self.tokenizer.decode([token]) for token in tokens] for tokens in best.indices.tolist()]
        return {"prediction": names, "probability": rounded(best.values)}


class Writer(Predictor):
    """Text that a causal language model adds to a prompt, or an encoder-decoder writes for a source, without sampling.

    Columns: `prediction`, the new text without special tokens; `steps`, the mean over its tokens, which of beams and of
    fixed depths are not known.
    """

    kind, takes = "models that write text", ("max_new_tokens", "source_prefix")

    @property
    def pads_left(self) -> bool:
        return not self.model.config.is_encoder_decoder

    @property
    def most(self) -> int | None:
        return self.settings.max_new_tokens or self.model.generation_config.max_new_tokens

    def check(self) -> None:
        if self.most is None:
            raise ValueError(
                "max_new_tokens is not given, nor in the checkpoint's generation_config: pass a number "
                "(--max_new_tokens on the command line)"
            )

    def rows(self, inputs: Inputs, texts: Sequence, spans: Sequence) -> list[Row]:
        options = {**self.settings.options, "max_new_tokens": self.most, "pad_token_id": self.tokenizer.pad_token_id}
        output = self.model.generate(**inputs, **options, do_sample=False, return_dict_in_generate=True)
        prompt = inputs["input_ids"].shape[1] if self.pads_left else 0
        written = self.tokenizer.batch_decode(output.sequences[:, prompt:], skip_special_tokens=True)
        return self.as_rows({"prediction": written}, output)


def predictor_of(model: Any, tokenizer: Any, settings: Any, of_words: bool) -> Predictor:
    """The way in which a model answers.

    Raises:
        ValueError: a setting is not for such a model, or it has no head.
    """
    if model.base_model is model:
        raise ValueError(f"{type(model).__name__} has no head: load it with the head of its task")
    if labels_tokens(model):
        chosen: type[Predictor] = TokenClassifier
    elif is_classifier(model):
        chosen = Classifier
    else:
        chosen = MaskFiller if isinstance(model, ForMaskedLM) else Writer
    for name, kind in ((name, other.kind) for other in (Classifier, MaskFiller, Writer) for name in other.takes):
        value = getattr(settings, name)
        if kind != chosen.kind and value != getattr(type(settings), name):
            raise ValueError(f"{name} is {value!r}, but it is for {kind}, not for {chosen.kind}: leave it out")
    predictor = chosen(model, tokenizer, settings, of_words)
    predictor.check()
    return predictor

"""Answers of a checkpoint to texts, as columns of a table: labels, numbers or written text, and the steps they took.

Shapes: N texts of a window, B of a batch, C labels, U halting units.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from ..data.labels import MULTI, REGRESSION, SINGLE
from ..models.common.classification import predicts_number
from .inference import mean_steps
from .text_batches import EncodedTexts


def steps_column(steps: np.ndarray) -> pa.Array:
    """Steps (N,) as a column, with nothing in it where they are NaN."""
    return pa.array(steps, pa.float32(), from_pandas=True)


class Predictor:
    """A way to answer texts.

    Attributes:
        pads_left: whether batches are padded on the left.
        offsets: whether it needs the characters of each token.
        of_words: whether a text is a list of words.
    """

    pads_left = offsets = of_words = False
    names: Sequence[str]

    def problems(self, encoded: EncodedTexts) -> dict[int, str]:
        """Reasons why there is no answer to a text, by its place."""
        return {}

    def start(self, number: int) -> dict[str, Any]:
        """Room for the answers to N texts."""

    def answer(self, rows: np.ndarray, inputs: Mapping[str, torch.Tensor], found: dict[str, Any]) -> None:
        """Put the answers to the texts `rows` (B,) into `found`; `inputs` (B, S) are theirs, on the model's device."""

    def columns(self, found: Mapping[str, Any]) -> list[pa.Array]:
        """Columns of N values by their `names`; `found` has the texts, `given`, and how they were `encoded`."""


class ClassifierPredictor(Predictor):
    """Labels or numbers by a sequence classifier.

    Columns: `prediction`, the label of the greatest probability, or of multiple labels a list of those above one half,
    or the number (a list, if there are several) of a regression; `probability` of what is predicted, not of a
    regression; with `all_probabilities` also `probability_<label>` for each label; `steps`.

    Args:
        model: a sequence classifier.
        options: of its forward pass, such as `max_depth`.
        all_probabilities: whether there are columns for the probability of each label.

    Raises:
        ValueError: `all_probabilities` of a regression.
    """

    def __init__(self, model: Any, options: Mapping[str, Any], all_probabilities: bool = False):
        self.model, self.options, self.all_probabilities = model, options, all_probabilities
        config = model.config
        self.problem = REGRESSION if predicts_number(config) else config.problem_type or SINGLE
        self.labels = [str(config.id2label[index]) for index in range(config.num_labels)]
        if all_probabilities and self.problem == REGRESSION:
            raise ValueError(
                "all_probabilities: the model predicts numbers (regression), which have none: leave it out"
            )

    @property
    def names(self) -> list[str]:
        """The columns, in order."""
        each = [f"probability_{label}" for label in self.labels] if self.all_probabilities else []
        return ["prediction", *([] if self.problem == REGRESSION else ["probability"]), *each, "steps"]

    def start(self, number: int) -> dict[str, Any]:
        return {"logits": np.zeros((number, len(self.labels)), np.float32), "steps": np.zeros(number)}

    def answer(self, rows: np.ndarray, inputs: Mapping[str, torch.Tensor], found: dict[str, Any]) -> None:
        output = self.model(**inputs, **self.options)
        found["logits"][rows] = output.logits.float().cpu().numpy()
        found["steps"][rows] = mean_steps(output.get("ponder_steps"), len(rows))

    def columns(self, found: Mapping[str, Any]) -> list[pa.Array]:
        logits = torch.from_numpy(found["logits"])
        steps = steps_column(found["steps"])
        if self.problem == REGRESSION:
            numbers = pa.array(found["logits"].reshape(-1), pa.float32())
            return [numbers if len(self.labels) == 1 else lists(numbers, np.ones(logits.shape, bool)), steps]
        several = self.problem == MULTI
        probabilities = (logits.double().sigmoid() if several else logits.double().softmax(-1)).float().numpy()
        each = [pa.array(column, pa.float32()) for column in probabilities.T] if self.all_probabilities else []
        names = pa.array(self.labels, pa.string())
        if several:
            chosen = probabilities > 0.5
            predicted = lists(names.take(pa.array(np.nonzero(chosen)[1])), chosen)
            return [predicted, lists(pa.array(probabilities[chosen], pa.float32()), chosen), *each, steps]
        classes = probabilities.argmax(-1)
        best = probabilities[np.arange(len(classes)), classes]
        return [names.take(pa.array(classes)), pa.array(best, pa.float32()), *each, steps]


def lists(values: pa.Array, chosen: np.ndarray) -> pa.Array:
    """`values`, one for each True of `chosen` (N, C) in its order, as N lists."""
    ends = np.cumsum(chosen.sum(-1))
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), values)


class TextPredictor(Predictor):
    """Text that a causal language model adds to a prompt, or an encoder-decoder writes for a source, without sampling.

    Columns: `prediction`, the new text without special tokens; `steps`, the mean over its tokens, which of beams and of
    fixed depths are not known.

    Args:
        model: a causal language model or an encoder-decoder.
        tokenizer: its tokenizer.
        options: of its forward pass, such as `max_depth`.
        max_new_tokens: the most tokens to write; None: as `generation_config` says.

    Raises:
        ValueError: nothing says how many tokens to write.
    """

    names = ("prediction", "steps")

    def __init__(self, model: Any, tokenizer: Any, options: Mapping[str, Any], max_new_tokens: int | None = None):
        self.model, self.tokenizer = model, tokenizer
        number = max_new_tokens or model.generation_config.max_new_tokens
        if number is None:
            raise ValueError(
                "max_new_tokens is not given, nor in the checkpoint's generation_config: pass a number "
                "(--max-new-tokens on the command line)"
            )
        self.options = {
            **options,
            "max_new_tokens": number,
            "do_sample": False,
            "return_dict_in_generate": True,
            "pad_token_id": tokenizer.pad_token_id,
        }
        self.pads_left = not model.config.is_encoder_decoder

    def start(self, number: int) -> dict[str, Any]:
        return {"texts": np.full(number, "", object), "steps": np.zeros(number)}

    def answer(self, rows: np.ndarray, inputs: Mapping[str, torch.Tensor], found: dict[str, Any]) -> None:
        output = self.model.generate(**inputs, **self.options)
        prompt = inputs["input_ids"].shape[1] if self.pads_left else 0
        found["texts"][rows] = self.tokenizer.batch_decode(output.sequences[:, prompt:], skip_special_tokens=True)
        found["steps"][rows] = mean_steps(output.get("ponder_steps"), len(rows))

    def columns(self, found: Mapping[str, Any]) -> list[pa.Array]:
        texts = pa.array(found["texts"].tolist(), pa.string())
        return [texts, steps_column(found["steps"])]

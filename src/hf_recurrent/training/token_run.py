"""Runs on a user's own data alone: those that label words, predict masked tokens of documents, or answer questions."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..hub import CardData
from ..metrics.entities import is_iob, scores_entities
from .card import RunFacts
from .data import Splits
from .masked_data import MaskingCollator, load_masked, load_masked_tokenizer, read_masks_in_texts
from .metrics import compute_token_metrics, tag_scores
from .question_arguments import CHOICE_ARGUMENT_TYPES, SPAN_ARGUMENT_TYPES
from .question_data import ChoiceSplit, SpanSplit
from .token_arguments import MASKED_ARGUMENT_TYPES, WORD_ARGUMENT_TYPES
from .token_card import own_card
from .token_data import load_words
from .trainer_run import TrainerRun


class OwnRun(TrainerRun):
    """A run on a user's own data, without a benchmark of its kind."""

    def check(self) -> None:
        if self.data_args.own is None:
            script = self.data_args.own_objective.script
            raise ValueError(f"train_file is not set: {script} trains on your own data, named by it or by dataset_name")
        super().check()

    def require_fast(self, tokenizer: Any) -> Any:
        """A tokenizer, if it tells which characters its tokens are of. Raises a ValueError otherwise."""
        if not tokenizer.is_fast:
            raise ValueError(
                f"tokenizer is {self.data_args.tokenizer!r}, which does not tell the words of tokens: take a fast one"
            )
        return tokenizer

    def card(self, facts: RunFacts) -> CardData:
        splits = self.splits.evaluation
        return own_card(self.model, self.tokenizer, self.data_args, self.report_args, self.evaluation, facts, splits)


class WordRun(OwnRun):
    """A run that gives each word a label, each of which counts with its own steps."""

    argument_types = WORD_ARGUMENT_TYPES

    def load_tokenizer(self) -> Any:
        return self.require_fast(super().load_tokenizer())

    def load_splits(self) -> Splits:
        splits, names = load_words(self.data_args, self.tokenizer), self.label_names
        if is_iob(names) and not scores_entities(names) and self.is_main_process:
            warnings.warn(
                "labels are of entities, whose scores need the package seqeval: pip install 'hf-recurrent[entities]'; "
                "words are scored alone",
                stacklevel=2,
            )
        return splits

    @property
    def label_names(self) -> tuple[str, ...]:
        return self.data_args.own.labels.names

    def compute_metrics(self) -> Callable[[Any], dict[str, float]]:
        return partial(compute_token_metrics, names=self.label_names)

    def scores(self) -> list[str]:
        word = np.zeros(1, np.int64)
        return list(tag_scores(word, word, word + 1, self.label_names))


class MaskedRun(OwnRun):
    """A run that predicts masked tokens, each of which counts with its own steps."""

    argument_types = MASKED_ARGUMENT_TYPES

    def text_limit(self) -> int:
        return self.data_args.block_size

    def check(self) -> None:
        super().check()
        if self.report_args.write_predictions:
            raise ValueError("write_predictions is true: masked tokens are many and drawn at random; leave it out")
        if self.args.train_sampling_strategy == "sequential":
            # masks follow from the blocks of a batch
            raise ValueError("train_sampling_strategy is 'sequential': all epochs would have the same masks")

    def load_tokenizer(self) -> Any:
        return load_masked_tokenizer(self.model_args, self.data_args)

    def load_splits(self) -> Splits:
        splits = load_masked(self.data_args, self.tokenizer)
        read_masks_in_texts(self.tokenizer)
        return splits

    def collator(self) -> MaskingCollator:
        return MaskingCollator(self.tokenizer, self.data_args.mlm_probability, self.args.seed)


class SpanRun(OwnRun):
    """A run that finds the answers to questions in texts."""

    argument_types = SPAN_ARGUMENT_TYPES
    split_type = SpanSplit

    def load_tokenizer(self) -> Any:
        return self.require_fast(super().load_tokenizer())


class ChoiceRun(OwnRun):
    """A run that chooses from several answers."""

    argument_types = CHOICE_ARGUMENT_TYPES
    split_type = ChoiceSplit

"""Runs on a user's own data alone: those that label words, or predict masked tokens of documents."""

import json
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..analysis.halting import HaltingRecord
from ..files import write_bytes
from ..hub import CardData
from ..metrics.entities import is_iob, scores_entities
from .card import RunFacts
from .data import Splits
from .evaluation import Evaluation
from .masked_data import MaskingCollator, load_masked, load_masked_tokenizer, read_masks_in_texts
from .metrics import compute_token_metrics, tag_scores
from .token_arguments import MASKED_ARGUMENT_TYPES, WORD_ARGUMENT_TYPES
from .token_card import masked_example, own_card, word_example
from .token_data import WORDS, TokenSplit, load_words
from .token_evaluation import evaluate_own_run, evaluate_tokens
from .trainer_run import TrainerRun


class OwnRun(TrainerRun):
    """A run on a user's own data, without a benchmark of its kind."""

    # what a model predicts of a split, and its table
    measure: Callable[..., tuple[HaltingRecord, dict[str, Any]]]

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

    def shown_example(self) -> dict[str, Any]:
        """The text or texts of the usage section, and their answer, as of `Example`."""
        raise NotImplementedError

    def evaluate_splits(self) -> Evaluation:
        args, writes = self.args, self.report_args.write_predictions
        evaluation = evaluate_own_run(
            *(self.model, self.tokenizer, self.splits.evaluation, self.folder, args.per_device_eval_batch_size),
            progress=not args.disable_tqdm,
            measure=self.measure,
            keep=self.write_predictions if writes else None,
        )
        evaluation.example = self.shown_example()
        return evaluation

    def write_predictions(self, record: HaltingRecord, split: Any) -> None:
        raise NotImplementedError

    def card(self, facts: RunFacts) -> CardData:
        splits = self.splits.evaluation
        return own_card(self.model, self.data_args, self.report_args, self.evaluation, facts, splits)


class WordRun(OwnRun):
    """A run that gives each word a label, each of which counts with its own steps."""

    argument_types = WORD_ARGUMENT_TYPES
    measure = staticmethod(evaluate_tokens)

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

    def shown_example(self) -> dict[str, Any]:
        return word_example(self.splits.evaluation[0].dataset)

    def write_predictions(self, record: HaltingRecord, split: TokenSplit) -> None:
        """One JSON line per example: its words, and for each that is labelled its label, prediction and steps."""
        names, lines = self.label_names, []
        kept = [name for name in ("label", "prediction", "steps") if name in record.examples]
        columns = (split.by_example(record.examples[name].to_numpy()) for name in kept)
        for words, *values in zip(split.dataset[WORDS], *columns, strict=True):
            row = dict(zip(kept, values, strict=True))
            row |= {f"{name}s": [names[i] for i in row.pop(name)] for name in ("label", "prediction")}
            lines.append(json.dumps({WORDS: words, **row}))
        path = self.folder / "predictions" / f"{split.name}.jsonl"
        write_bytes(path, ("\n".join(lines) + "\n").encode())


class MaskedRun(OwnRun):
    """A run that predicts masked tokens, each of which counts with its own steps."""

    argument_types = MASKED_ARGUMENT_TYPES
    measure = staticmethod(evaluate_tokens)

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

    def compute_metrics(self) -> Callable[[Any], dict[str, float]]:
        return self.objective.compute_metrics

    def shown_example(self) -> dict[str, Any]:
        return masked_example(self.splits.evaluation[0].dataset[0], self.tokenizer)

"""Sources and targets: their tokenizer, token ids and batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from ..benchmarks import benchmark_info
from ..benchmarks.sequence_tokenizers import sequence_tokenizer
from .arguments import BenchmarkArguments, DataArguments, ModelArguments, PairArguments
from .batches import token_counts
from .data import (
    EvaluationSplit,
    Splits,
    load_own_config,
    load_splits,
    require_known_words,
    require_train,
    some_examples,
)
from .model import load_saved_tokenizer
from .objectives import PAIR_COLUMNS

if TYPE_CHECKING:
    from datasets import Dataset

MODEL_INPUTS = ["input_ids", "attention_mask", "labels"]


@dataclass
class PairCollator(DataCollatorForSeq2Seq):
    """Pads sources, and labels with -100; adds the mask of the decoder's inputs."""

    def __call__(self, features: list[dict], return_tensors: str | None = None) -> dict[str, Any]:
        batch = super().__call__(features, return_tensors)
        # the decoder's input at a label's place is the token before it
        batch["decoder_attention_mask"] = (batch["labels"] != self.label_pad_token_id).long()
        return batch


@dataclass(frozen=True)
class PairSplit(EvaluationSplit):
    """An encoded test split of sources and targets."""

    def batches(self, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches in the order of the examples."""
        examples = self.dataset.select_columns(MODEL_INPUTS)
        return DataLoader(examples, batch_size=batch_size, collate_fn=PairCollator(tokenizer))

    @property
    def longest_target(self) -> int:
        """Tokens of the longest target, its end included."""
        return int(target_token_counts(self.dataset).max())


def text_form(data: BenchmarkArguments) -> str | None:
    """Whether texts are plain, tokenized or cut into BPE pieces; None where a benchmark has one form only."""
    defaults = benchmark_info(data.benchmark).parameters[data.benchmark_config]
    return {**defaults, **data.benchmark_params}.get("text_form")


def load_pair_tokenizer(model: ModelArguments, data: PairArguments, checkpoint: Path | None) -> Any:
    """The tokenizer of the model to fine-tune, of the checkpoint to resume, or of the benchmark.

    That of a benchmark without a fixed vocabulary is made from its training examples.
    """
    place = checkpoint if model.model_name_or_path is None else model.model_name_or_path
    if place is not None:
        return load_saved_tokenizer(str(place))
    options = {} if data.num_merges is None else {"num_merges": data.num_merges}
    if "text_form" in benchmark_info(data.benchmark).parameters[data.benchmark_config]:
        options["text_form"] = text_form(data)
    if benchmark_info(data.benchmark).vocabulary:
        return sequence_tokenizer(data.benchmark, **options)
    examples = load_own_config(data)
    require_train(examples, data)
    return sequence_tokenizer(data.benchmark, some_examples(examples["train"], data.max_train_samples), **options)


def target_token_counts(examples: "Dataset") -> np.ndarray:
    """Tokens of each example's target (N,)."""
    return token_counts(examples, "labels")


def pair_token_counts(examples: "Dataset") -> np.ndarray:
    """Tokens of the longer one of each example's source and target (N,)."""
    return np.maximum(token_counts(examples), target_token_counts(examples))


def encode_pairs(examples: "Dataset", arguments: DataArguments, tokenizer: Any) -> "Dataset":
    """Token ids of the sources, and as `labels` those of the targets, beside the texts and slice columns.

    Raises:
        ValueError: a source or target without words, or a tokenizer that does not end a text with its EOS token.
    """
    source, target = PAIR_COLUMNS

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        for column in PAIR_COLUMNS:
            empty = [place for place, text in enumerate(batch[column]) if not text.strip()]
            if empty:
                example = {name: values[empty[0]] for name, values in batch.items()}
                raise ValueError(f"an example of {arguments.benchmark} has no {column}: {example}")
        encoded = tokenizer(batch[source])
        labels = tokenizer(text_target=batch[target])["input_ids"]
        for ids in (encoded["input_ids"][0], labels[0]):
            if ids[-1] != tokenizer.eos_token_id:
                raise ValueError(
                    f"the tokenizer does not end a text with {tokenizer.eos_token!r} (id {tokenizer.eos_token_id}), "
                    "which a decoder needs to stop"
                )
        return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": labels}

    encoded = examples.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    require_known_words(encoded, tokenizer, arguments.info, "input_ids", "labels")
    return encoded


def load_pairs(arguments: DataArguments, tokenizer: Any) -> Splits:
    """Load and encode everything a run needs.

    Raises:
        ValueError: as `load_splits`, and if no target is short enough.
    """
    splits = load_splits(arguments, tokenizer, encode_pairs, PairSplit)
    if arguments.max_length is None:
        return splits
    short = np.flatnonzero(target_token_counts(splits.train) <= arguments.max_length)
    if not len(short):
        raise ValueError(
            f"every target of the training examples has more than max_length={arguments.max_length} tokens"
        )
    return Splits(splits.train.select(short), splits.validation, splits.evaluation)

"""Sources and targets: their tokenizer, token ids and splits."""

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.utils.data import DataLoader

from ..analysis.model_facts import ENCODER
from ..benchmarks import benchmark_info
from ..benchmarks.sequence_tokenizers import TRANSLATION, sequence_tokenizer
from ..files import plain
from ..text_data.source import LENGTH
from ..text_data.tokenizers import unknown_token_id
from .arguments import BenchmarkArguments, DataArguments, ModelArguments, PairArguments
from .batches import token_counts
from .collator import PairCollator
from .data import (
    EvaluationSplit,
    Measured,
    Splits,
    load_own_config,
    require_known_words,
    require_tokens,
    require_train,
    some_examples,
    warn_of_cuts,
    within,
)
from .model import load_saved_tokenizer, load_tokenizer
from .objectives import PAIR_COLUMNS
from .seq2seq_evaluation import collect_pairs, pair_table, scores
from .text_arguments import BLEU

if TYPE_CHECKING:
    from datasets import Dataset

MODEL_INPUTS = ["input_ids", "attention_mask", "labels"]
# the texts that written targets are compared with
REFERENCE = "reference"
# of targets of own data, while they are encoded
TARGET_LENGTH, KNOWN = "target_length", "known"


def text_form(data: BenchmarkArguments) -> str | None:
    """Whether texts are plain, tokenized or cut into BPE pieces; None where a benchmark has one form only."""
    defaults = benchmark_info(data.benchmark).parameters[data.benchmark_config]
    return {**defaults, **data.benchmark_params}.get("text_form")


def by_bleu(data: BenchmarkArguments) -> bool:
    """Whether what is written is measured by BLEU."""
    return data.benchmark == TRANSLATION if data.own is None else getattr(data, "metric_name", None) == BLEU


def require_scores(data: BenchmarkArguments) -> None:
    """Raise a ValueError before training if the package that measures what is written is not installed."""
    if by_bleu(data) and importlib.util.find_spec("sacrebleu") is None:
        place = f"benchmark {data.benchmark!r} is measured by BLEU" if data.own is None else "metric_name is 'bleu'"
        raise ValueError(f"{place}, which needs the package sacrebleu: pip install 'hf-recurrent[translation]'")


def load_pair_tokenizer(model: ModelArguments, data: PairArguments, checkpoint: Path | None) -> Any:
    """The tokenizer of the model to fine-tune, of the checkpoint to resume, of the benchmark, or one for own texts.

    That of a benchmark without a fixed vocabulary is made from its training examples.
    """
    if data.own is not None or model.model_name_or_path is not None:
        return load_tokenizer(model, data, frame="seq2seq")
    if checkpoint is not None:
        return load_saved_tokenizer(str(checkpoint))
    options = {} if data.num_merges is None else {"num_merges": data.num_merges}
    if "text_form" in benchmark_info(data.benchmark).parameters[data.benchmark_config]:
        options["text_form"] = text_form(data)
    if benchmark_info(data.benchmark).vocabulary:
        return sequence_tokenizer(data.benchmark, **options)
    examples = load_own_config(data)
    require_train(examples, data)
    return sequence_tokenizer(data.benchmark, some_examples(examples["train"], data.max_train_samples), **options)


def longest_target(splits: Splits) -> int:
    """Tokens of the longest target that a run trains or is evaluated on, its end included."""
    return max(int(token_counts(splits.train, "labels").max()), *(split.longest_target for split in splits.evaluation))


def pair_token_counts(examples: "Dataset") -> np.ndarray:
    """Tokens of the longer one of each example's source and target (N,)."""
    return np.maximum(token_counts(examples), token_counts(examples, "labels"))


def encode_pairs(examples: "Dataset", arguments: DataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Token ids of the sources, and as `labels` those of the targets, beside the texts and slice columns.

    Raises:
        ValueError: a source or target without words, or a tokenizer that does not end a text with its EOS token.
    """
    if arguments.own is not None:
        return encode_own_pairs(examples, arguments, tokenizer, place)
    source, target = PAIR_COLUMNS

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        for column in PAIR_COLUMNS:
            empty = [place for place, text in enumerate(batch[column]) if not text.strip()]
            if empty:
                example = {name: values[empty[0]] for name, values in batch.items()}
                raise ValueError(f"an example of {arguments.benchmark} has no {column}: {example}")
        encoded = tokenizer(batch[source])
        labels = tokenizer(text_target=batch[target])["input_ids"]
        require_end(tokenizer, encoded["input_ids"][0], labels[0])
        return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": labels}

    encoded = examples.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    require_known_words(encoded, tokenizer, arguments.info, "input_ids", "labels")
    return encoded


def require_end(tokenizer: Any, *texts: list[int]) -> None:
    """Raise a ValueError for token ids of a text that do not end with the EOS token."""
    if any(ids[-1:] != [tokenizer.eos_token_id] for ids in texts):
        raise ValueError(
            f"the tokenizer does not end a text with {tokenizer.eos_token!r} (id {tokenizer.eos_token_id}), which a "
            "decoder needs to stop"
        )


def encode_own_pairs(examples: "Dataset", arguments: DataArguments, tokenizer: Any, place: str) -> "Dataset":
    """Token ids of sources, and as `labels` those of targets, beside the texts and slice columns.

    `length` is that of the source in tokens before a cut, its end included. `reference` is what is to be written: the
    target as the tokenizer spells it or, where that is cut or has unknown words, the target itself, which no model
    writes.

    Warns if texts are cut, or targets have unknown words.

    Raises:
        ValueError: a text without tokens, or a tokenizer that does not end a text with its EOS token.
    """
    source, target = PAIR_COLUMNS
    limits = {name: getattr(arguments, f"max_{name}_length", None) for name in PAIR_COLUMNS}
    unknown = unknown_token_id(tokenizer)

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        encoded, lengths = within(tokenizer, limits[source], batch[source])
        wanted, target_lengths = within(tokenizer, limits[target], text_target=batch[target])
        labels = wanted["input_ids"]
        require_end(tokenizer, *encoded["input_ids"], *labels)
        known = [unknown not in ids for ids in labels]
        written = [
            complete and length == len(ids) for complete, length, ids in zip(known, target_lengths, labels, strict=True)
        ]
        spelled = tokenizer.batch_decode(labels, skip_special_tokens=True)
        return {
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
            "labels": labels,
            LENGTH: lengths,
            TARGET_LENGTH: target_lengths,
            KNOWN: known,
            REFERENCE: [
                (ours if can else text).strip() for ours, text, can in zip(spelled, batch[target], written, strict=True)
            ],
        }

    encoded = examples.map(tokenize, batched=True, num_proc=arguments.num_proc, desc="encoding")
    for name, column in zip(PAIR_COLUMNS, (LENGTH, TARGET_LENGTH), strict=True):
        lengths = np.asarray(encoded[column][:])
        # the end alone
        require_tokens(encoded, lengths > 1, name, place)
        warn_of_cuts(lengths, limits[name], f"max_{name}_length", f"{name}s of {place}")
    unwritable = encoded.num_rows - sum(encoded[KNOWN][:])
    if unwritable:
        warnings.warn(
            f"{unwritable:,} of {len(encoded):,} targets of {place} have words that the tokenizer does "
            "not know, and cannot be written: 'bpe' and 'bytes' know all of them",
            stacklevel=2,
        )
    return encoded.remove_columns([TARGET_LENGTH, KNOWN])


@dataclass(frozen=True)
class PairSplit(EvaluationSplit):
    """An encoded test split of sources and targets.

    `form` is that of texts which are scored by BLEU: plain, tokenized or cut into BPE pieces; None without BLEU.
    """

    encode: ClassVar = staticmethod(encode_pairs)
    token_columns: ClassVar[tuple[str, ...]] = ("input_ids", "labels")
    has_classes: ClassVar[bool] = False

    form: str | None = None

    @classmethod
    def of(cls, name: str, rows: "Dataset", arguments: DataArguments, tokenizer: Any) -> "PairSplit":
        form = "plain" if arguments.own is not None else text_form(arguments)
        return replace(super().of(name, rows, arguments, tokenizer), form=form if by_bleu(arguments) else None)

    def batches(self, tokenizer: Any, batch_size: int) -> DataLoader:
        examples = self.dataset.select_columns(MODEL_INPUTS)
        return DataLoader(examples, batch_size=batch_size, collate_fn=PairCollator(tokenizer))

    @property
    def references(self) -> list[str] | None:
        """The texts that written targets are compared with; None: those of the labels."""
        return self.dataset[REFERENCE][:] if REFERENCE in self.dataset.column_names else None

    @property
    def longest_target(self) -> int:
        """Tokens of the longest target, its end included."""
        return int(token_counts(self.dataset, "labels").max())

    def measure(self, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model writes for each source, and the table of its exact matches and steps, with `pair_table`."""
        records, metrics = collect_pairs(model, tokenizer, self, batch_size, **options)
        examples = records[ENCODER].examples
        written, true = (examples[name].tolist() for name in ("prediction", "label"))
        return examples, plain({**pair_table(records, metrics), **scores(self.form, written, true)})

    def figures(self, folder: Path, table: Mapping[str, Any], model: Any, tokenizer: Any) -> list[dict[str, Any]]:
        # matplotlib is loaded where figures are drawn alone
        from .seq2seq_plots import plot_pairs

        return plot_pairs(folder, table, prefix=self.name)

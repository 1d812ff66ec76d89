"""Documents of any length, read segment by segment with a state that is carried on: `text-generation`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset

from ..analysis.losses import PROSE, evaluate_split
from ..benchmarks import document_tokenizer, encode_document
from ..data.segments import TokenDocuments, encode_documents
from ..metrics.functional import Row
from .arguments import LongDocumentArguments
from .base import Measured, Split, some_examples
from .text_generation import Documents, prompt_of


class LongDocuments(Documents):
    """All tokens of documents that are read in segments."""

    tag = "text-generation"
    script = "training/run_clm_accelerate.py"
    auto_class = "AutoModelForCausalLM"
    model_kind, data_kind = "a causal language model", "has documents, which are read in segments"
    arguments = LongDocumentArguments
    default_tokenizer = "bytes"
    metric_name = "bits_per_byte"

    def document_splits(self) -> dict[str, Dataset]:
        """The splits, of documents, cut down to the requested numbers.

        Raises:
            ValueError: the data are not as they should be, or there is nothing to train or to test on.
        """
        data = self.data
        splits = self.documents.copies if data.is_own else self.source.splits
        if not (data.is_own or ("train" in splits and any(name.startswith("test") for name in splits))):
            raise ValueError(
                f"benchmark_config {data.benchmark_config!r} has the splits {', '.join(splits)}: train and test are "
                "needed; divide the documents into folders of these names, or by validation_share and test_share"
            )
        limits = {"train": data.max_train_samples}
        return {name: some_examples(split, limits.get(name, data.max_eval_samples)) for name, split in splits.items()}

    def benchmark_tokenizer(self, checkpoint: Path | None) -> Any:
        data = self.data
        if data.tokenizer != "bpe":
            return document_tokenizer(data.tokenizer or self.default_tokenizer)
        train = self.document_splits()["train"]
        return document_tokenizer("bpe", (document["text"] for document in train), data.vocab_size)

    def suited(self, tokenizer: Any, name: str) -> Any:
        return super().suited(tokenizer, name) if self.data.is_own else tokenizer

    def encoded(self, splits: Mapping[str, Dataset], tokenizer: Any) -> dict[str, TokenDocuments]:
        """The tokens of the documents to train and to validate on; those to test on stay texts.

        Raises:
            ValueError: no document of a split has two tokens: the first one of each is not predicted.
        """
        for name, split in splits.items():
            if not any(len(encode_document(tokenizer, document["text"])) > 1 for document in split):
                raise ValueError(
                    f"the {name} documents ({len(split):,}) have one token each at most, and nothing to predict: give "
                    "longer ones"
                )
        wanted = [name for name in splits if name in ("train", "validation")]
        return {name: encode_documents(splits[name], tokenizer, self.data.num_proc) for name in wanted}

    def evaluated(self, splits: Mapping[str, Dataset]) -> list[Split]:
        """The splits to evaluate at the end; a user's documents may have none but those to validate on."""
        names = [name for name in splits if name.startswith("test")] or [name for name in splits if name != "train"]
        return [Split(self, name, splits[name]) for name in names]

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        table = evaluate_split(
            *(model, tokenizer, split.dataset),
            segment_length=self.data.evaluated_length,
            batch_size=batch_size,
            by_words=self.data.is_own or self.data.benchmark_config in PROSE,
            **options,
        )
        return pd.DataFrame(), table

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        return {"text": prompt_of(split.dataset[0]["text"])}

    def limitations(self) -> Iterator[str]:
        if self.data.max_train_samples is not None:
            yield f"It was trained on {self.data.max_train_samples:,} of the documents only."

"""Blocks of a user's own documents, for a language model."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, IterableDataset

from ..analysis.losses import Corpus
from ..analysis.recurrence import token_bytes
from ..analysis.tables import RECURRENCE_FILE
from ..analysis.text_losses import BLOCKS, DOCUMENTS, collect_text_losses, text_table
from ..models.common.token_targets import NO_TARGET
from ..text_data.blocks import LENGTH, NUM_BYTES, by_document, document_tokens, packed
from ..text_data.documents import DocumentSource
from ..text_data.examples import SLICE_TYPES, slice_type
from ..text_data.tokenizers import PADDING_SIDES, TRAINED_KINDS, train_tokenizer, unknown_token_id, with_plain_texts
from ..text_data.tokenizers import load_tokenizer as load_foreign_tokenizer
from .arguments import DocumentArguments, LanguageDataArguments, ModelArguments
from .batches import token_counts
from .collator import PaddingCollator
from .data import PIECE, Measured, Splits
from .model import load_saved_tokenizer, require_no_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset

# characters of a stream that a tokenizer is trained on
TRAINING_CHARACTERS = 10**8
# blocks of a stream that are evaluated, unless the recipe says how many
STREAM_EVALUATION = 1000


def load_language_tokenizer(
    model: ModelArguments, data: LanguageDataArguments | DocumentArguments, default: str = "bpe"
) -> Any:
    """The tokenizer of the checkpoint to fine-tune, one of the Hub or a folder, or one trained on own documents.

    It pads on the left and puts nothing around a text. `default` is the kind that is trained if none is named.

    Raises:
        ValueError: it cannot be had or cannot pad, or a checkpoint is to take another one than its own.
    """
    name, size = model.model_name_or_path, data.vocab_size or getattr(data, "tokenizer_vocab_size", None)
    if name is not None:
        require_no_tokenizer(name, tokenizer=data.tokenizer, vocab_size=size)
        tokenizer = load_saved_tokenizer(name, **model.hub_options)
        if tokenizer.pad_token_id is None:
            raise ValueError(f"the tokenizer of {name} has no padding token: set tokenizer.pad_token and save it")
    elif data.tokenizer not in (None, *TRAINED_KINDS):
        tokenizer = load_foreign_tokenizer(data.tokenizer, frame="language", token=model.token)
        if not tokenizer.is_fast:
            raise ValueError(
                f"tokenizer is {data.tokenizer!r}, a {type(tokenizer).__name__}, which is written in Python: documents "
                "need a fast one; take another, or bytes"
            )
    else:
        return train_tokenizer(data.tokenizer or default, training_texts(data.own), size, frame="language")
    tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = PADDING_SIDES["language"]
    return with_plain_texts(tokenizer)


def require_end(tokenizer: Any, data: LanguageDataArguments) -> None:
    """Raise a ValueError for a tokenizer without an end-of-text token."""
    if tokenizer.eos_token_id is None:
        place = "the checkpoint" if data.tokenizer is None else data.tokenizer
        raise ValueError(
            f"the tokenizer of {place} has no end-of-text token, which stands after each document: set its eos_token "
            "and save it, or take another one"
        )


def training_texts(source: DocumentSource) -> Iterator[str]:
    """The texts of the training documents, in pieces; of a stream, those at its beginning."""
    characters = 0
    for document in source.documents("train"):
        for piece in document.pieces:
            yield piece
            characters += len(piece)
            if source.streaming and characters > TRAINING_CHARACTERS:
                return


@dataclass(frozen=True)
class Blocks:
    """How documents become blocks, see `LanguageDataArguments`."""

    source: DocumentSource
    tokenizer: Any
    block_size: int
    pack: bool

    def __call__(self, split: str) -> Iterator[dict[str, Any]]:
        """The blocks of a split in order."""
        tokens = document_tokens(self.source.documents(split), self.tokenizer)
        return (packed if self.pack else by_document)(tokens, self.block_size)

    def identity(self, split: str) -> list[Any]:
        """Whatever decides the blocks of a split."""
        tokenizer = [self.tokenizer.backend_tokenizer.to_str(), self.tokenizer.eos_token_id]
        return [*self.source.identity(split), *tokenizer, self.block_size, self.pack]

    def dataset(self, split: str, limit: int | None) -> "Dataset":
        """The first blocks of a split, at most `limit`, as a `Dataset`; those of a stream are in memory."""
        from datasets import Dataset, Features, List, Value
        from datasets.fingerprint import Hasher

        features = {"input_ids": List(Value("int32")), NUM_BYTES: Value("float64")}
        if not self.pack:
            features |= {LENGTH: Value("int64"), **dict.fromkeys(self.source.slice_by, Value("string"))}
        if self.source.streaming:
            found = list(islice(self(split), limit))
            return Dataset.from_dict({name: [block[name] for block in found] for name in features}, Features(features))
        found = Dataset.from_generator(
            blocks_of,
            Features(features),
            self.source.cache_dir,
            gen_kwargs={"blocks": self, "split": split},
            fingerprint=Hasher.hash(self.identity(split)),
        )
        return found if limit is None or limit >= len(found) else found.select(range(limit))


def blocks_of(blocks: Blocks, split: str) -> Iterator[dict[str, Any]]:
    return blocks(split)


class BlockStream(IterableDataset):
    """The blocks of the training documents, in order and without end: from the last document on to the first.

    Args:
        limit: most blocks of a pass.
    """

    def __init__(self, blocks: Blocks, limit: int | None):
        self.blocks, self.limit = blocks, limit

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            for block in islice(self.blocks("train"), self.limit):
                yield {"input_ids": block["input_ids"]}


class LanguageCollator:
    """Pads blocks; `labels` are all tokens, -100 at padding."""

    def __init__(self, tokenizer: Any):
        self.pad = PaddingCollator(tokenizer)

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = self.pad([{"input_ids": example["input_ids"]} for example in examples])
        # the padding token may be the end-of-text token, which is to be learned
        return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, NO_TARGET)}


@dataclass(frozen=True)
class TextSplit:
    """The blocks of a split to evaluate: whether they hold parts of several documents, and the most tokens of one."""

    statistics_file: ClassVar[str] = RECURRENCE_FILE

    name: str
    dataset: "Dataset"
    pack: bool
    block_size: int

    @property
    def slices(self) -> dict[str, list[Any]]:
        """Columns of difficulty, with a value for each block; those of files hold numbers as texts."""
        columns = {name: self.dataset[name][:] for name in self.dataset.column_names if name != "input_ids"}
        columns.pop(NUM_BYTES)
        return {name: parsed(values) for name, values in columns.items()}

    @property
    def counted(self) -> dict[str, int]:
        """How much of the split a table counts, by its keys; the first token of a text is given."""
        return {"documents": len(self.dataset), "tokens": int((token_counts(self.dataset) - 1).sum())}

    def batches(self, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches of like length, with the number of each `text`."""
        pad = LanguageCollator(tokenizer)

        def collate(numbers: list[int]) -> dict[str, torch.Tensor]:
            batch = pad([self.dataset[number] for number in numbers])
            return {name: batch[name] for name in ("input_ids", "attention_mask")} | {"text": torch.tensor(numbers)}

        order = token_counts(self.dataset).argsort(kind="stable").tolist()
        return DataLoader(order, batch_size=batch_size, collate_fn=collate)

    def measure(self, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """The confidence of a model in each block, and the table of its losses (see `text_table`).

        Args:
            options: of `collect_text_losses`.
        """
        found = collect_text_losses(model, self.batches(tokenizer, batch_size), **options)
        sizes = np.array(self.dataset[NUM_BYTES][:]), token_counts(self.dataset)
        table = text_table(
            *(model, found, Corpus(*sizes, token_bytes=token_bytes(tokenizer))),
            kind=BLOCKS if self.pack else DOCUMENTS,
            block_size=self.block_size,
            max_depth=options.get("max_depth"),
            halting_threshold=options.get("halting_threshold"),
            slices=self.slices,
        )
        confidence = found.texts["confidence"] / found.texts["tokens"]
        return pd.DataFrame({"confidence": confidence}).dropna(), table

    def judged(self, examples: pd.DataFrame) -> pd.DataFrame:
        """The inputs among measured blocks, as a calibration compares them."""
        return examples

    def figures(self, folder: Path, table: Mapping[str, Any], model: Any, tokenizer: Any) -> list[dict[str, Any]]:
        """Draw a table's figures into a folder, and list them for the card."""
        # matplotlib is loaded where figures are drawn alone
        from ..analysis.plots import save_recurrence_figures

        return save_recurrence_figures(folder, table, prefix=self.name)


def with_numbers(rows: "Dataset", columns: tuple[str, ...]) -> "Dataset":
    """Blocks whose `columns` of difficulty hold numbers, where all of their values are."""
    for name in columns:
        values = parsed(rows[name][:])
        rows = rows.remove_columns(name).add_column(name, values)
    return rows


def parsed(values: list[Any]) -> list[Any]:
    """Values as numbers, if all of them are."""
    kinds = {slice_type(value) for value in values}
    kind = next((kind for kind in SLICE_TYPES if kind in kinds), "string")
    return [SLICE_TYPES[kind](value) for value in values]


def load_blocks(data: LanguageDataArguments, tokenizer: Any) -> Splits:
    """Blocks to train on and to evaluate.

    Warns of what is left out or cut.

    Raises:
        ValueError: documents cannot be read, or are too short for a block.
    """
    source, blocks = data.own, Blocks(data.own, tokenizer, data.block_size, data.pack)
    if source.streaming:
        require_whole_block(blocks("train"), data)
        train: Any = BlockStream(blocks, data.max_train_samples)
    else:
        source.warn()
        train = blocks.dataset("train", data.max_train_samples)
        require_whole_block(iter(train), data)
    limit = STREAM_EVALUATION if source.streaming and data.max_eval_samples is None else data.max_eval_samples
    found = {split: blocks.dataset(split, limit) for split in source.all_splits if split != "train"}
    for split, rows in found.items():
        if not len(rows):
            raise ValueError(f"{source.place_name(split)} has no two tokens of text: give more, or name other data")
        warn_of_unknown_tokens(split, rows, unknown_token_id(tokenizer))
    cut = {split: rows for split, rows in {"train": train, **found}.items() if not (data.pack or source.streaming)}
    for split, rows in cut.items():
        warn_of_cuts(split, rows, data)
    role = "test" if "test" in found else "validation"
    return Splits(
        train=train,
        validation={split: rows for split, rows in found.items() if split == "validation"},
        evaluation=[TextSplit(role, found[role], data.pack, data.block_size)],
    )


def require_whole_block(blocks: Iterator[Mapping[str, Any]], data: LanguageDataArguments) -> None:
    """Raise a ValueError if there are no blocks to train on, or fewer tokens than one has."""
    tokens = len(next(blocks, {"input_ids": ()})["input_ids"])
    if not tokens or (data.pack and tokens < data.block_size):
        remedy = f"set it to {tokens} or less" if tokens > 1 else "give more text"
        raise ValueError(
            f"{data.length_name} is {data.block_size}, but {data.own.place} has {tokens} tokens to train on: {remedy}"
        )


def warn_of_unknown_tokens(split: str, rows: "Dataset", unknown: int | None) -> None:
    """Warn of text that the tokenizer does not know: it is predicted as one token, and its bytes make bits seem few."""
    import pyarrow.compute as pc

    if unknown is None:
        return
    pieces = rows.select_columns(["input_ids"]).with_format("arrow").iter(PIECE)
    found = sum(pc.sum(pc.equal(pc.list_flatten(piece["input_ids"]), unknown)).as_py() for piece in pieces)
    if found:
        warnings.warn(
            f"{split}: {found:,} of {int(token_counts(rows).sum()):,} tokens stand for words that the tokenizer does "
            "not know, so that bits per byte are too low: 'bpe' and 'bytes' know all of them",
            stacklevel=3,
        )


def warn_of_cuts(place: str, rows: "Dataset", data: LanguageDataArguments) -> None:
    """Warn of documents of which the end is not read; `place` is what the message calls where they are."""
    lengths = np.asarray(rows[LENGTH][:])
    cut = lengths > data.block_size
    if cut.any():
        lost = int((lengths[cut] - data.block_size).sum())
        warnings.warn(
            f"{place}: {int(cut.sum()):,} of {len(lengths):,} documents have more than "
            f"{data.length_name}={data.block_size} tokens, at most {lengths.max():,}, and were cut: {lost:,} of "
            f"{int(lengths.sum()):,} tokens are not read",
            stacklevel=3,
        )

"""Texts that a causal language model goes on with: `text-generation`; its own texts, or a benchmark's reads.

Shapes: B examples of a batch, S tokens, V vocabulary.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, IterableDataset

from ..analysis.answers import SHIFTED
from ..analysis.halting import TokenKinds
from ..analysis.losses import Corpus
from ..analysis.recurrence import token_bytes
from ..analysis.text_losses import BLOCKS, DOCUMENTS, collect_text_losses, text_table
from ..benchmarks import read_labels
from ..benchmarks.flip_flop.strings import INSTRUCTIONS
from ..data.arguments import DataArguments
from ..data.batches import PIECE, PaddingCollator, token_counts
from ..data.columns import LENGTH, Columns, check_slices, chosen, narrowest, require_columns
from ..data.documents import NUM_BYTES, Blocks, DocumentSource
from ..data.loading import Data, benchmark_data
from ..data.reading import Reading, folder_texts, format_of, is_folder, read_rows
from ..data.tokenizers import (
    PADDING_SIDES,
    TRAINED_KINDS,
    load_saved_tokenizer,
    load_tokenizer,
    train_tokenizer,
    unknown_token_id,
    with_plain_texts,
)
from ..metrics.functional import accuracy, last_read_accuracy
from ..models.common.token_targets import NO_TARGET
from .arguments import TextArguments
from .base import (
    MAX_EXAMPLE_TOKENS,
    Measured,
    Split,
    Splits,
    Task,
    by_length,
    require_known_words,
    require_no_tokenizer,
    short_example,
)
from .metrics import next_token_statistics, of_logits, text_metrics, with_ponder_metrics

if TYPE_CHECKING:
    from datasets import Dataset

DOCUMENT_FILE = (
    "Training documents: a text file, which is one; a folder or zip file of them; or a CSV, TSV, JSON, JSONL or "
    "Parquet file with one in each row."
)
TEXT_NAMES = ("text", "sentence")
# characters of a stream that a tokenizer is trained on, and blocks of it that are evaluated
TRAINING_CHARACTERS, STREAM_EVALUATION = 10**8, 1000
# characters of a prompt
PROMPT_LETTERS = 48


class Documents(Task):
    """A task on documents, all of whose tokens may be predicted."""

    frame = "language"
    has_labels = False

    def read_file(self, path: str, reading: Reading) -> "Dataset":
        by_line = getattr(self.data, "line_by_line", False)
        if not is_folder(path):
            whole = format_of(path) == "text" and not by_line
            return read_rows(path, reading, whole_text=whole)
        found = folder_texts(path, reading, in_folders=False, any_file=True)
        if not by_line:
            return found
        return type(found).from_list(
            [{"text": line, "name": row["name"]} for row in found for line in row["text"].split("\n")]
        )

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        usual = TEXT_NAMES if len(found) > 1 else found
        text = chosen("text_column", self.data.text_column, usual, found, place, "the texts")
        require_columns({"text_column": text}, found, place)
        return Columns({"text": text}, None, check_slices(self.data.slice_by, found, place))

    @cached_property
    def documents(self) -> DocumentSource:
        """The user's own documents."""
        return DocumentSource(self)

    @cached_property
    def source(self) -> Data:
        return self.documents.data() if self.data.is_own else benchmark_data(self.data)

    def training_texts(self) -> Iterator[str]:
        """The texts of the training documents, in pieces; of a stream, those at its beginning."""
        characters = 0
        for document in self.documents.documents("train"):
            for piece in document.pieces:
                yield piece
                characters += len(piece)
                if self.data.reading.streaming and characters > TRAINING_CHARACTERS:
                    return

    def load_tokenizer(self, model: Any, checkpoint: Path | None = None, default: str = "bpe") -> Any:
        """As of any task; it pads on the left and puts nothing around a text.

        Args:
            default: the kind that is trained if none is named.
        """
        data, name = self.data, model.model_name_or_path
        if name is not None:
            require_no_tokenizer(name, data.tokenizer, data.vocab_size)
            tokenizer = load_saved_tokenizer(name, **model.hub_options)
            if tokenizer.pad_token_id is None:
                raise ValueError(f"the tokenizer of {name} has no padding token: set tokenizer.pad_token and save it")
        elif data.tokenizer not in (None, *TRAINED_KINDS):
            tokenizer = load_tokenizer(data.tokenizer, frame="language", token=model.token)
            if not tokenizer.is_fast:
                raise ValueError(
                    f"tokenizer is {data.tokenizer!r}, a {type(tokenizer).__name__}, which is written in Python: "
                    "documents need a fast one; take another, or bytes"
                )
        else:
            return train_tokenizer(data.tokenizer or default, self.training_texts(), data.vocab_size, frame="language")
        tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = PADDING_SIDES["language"]
        return with_plain_texts(tokenizer)


class OfBlocks(Documents):
    """A task on blocks of documents."""

    @property
    def text_limit(self) -> int:
        return self.data.block_size

    def limit_length(self, most: int) -> None:
        data = self.data
        if data.block_size > most:
            warnings.warn(
                f"{data.length_name} is {data.block_size}, but the model has {most} positions: taking {most}",
                stacklevel=2,
            )
        data.block_size = min(data.block_size, most)

    def blocks(self, tokenizer: Any) -> Blocks:
        return Blocks(self.documents, tokenizer, self.data.block_size, self.data.pack)

    def require_end(self, tokenizer: Any, name: str | None = None) -> Any:
        """A tokenizer, if it has an end-of-text token. Raises a ValueError otherwise."""
        if tokenizer.eos_token_id is None:
            raise ValueError(
                f"the tokenizer of {self.data.tokenizer or name or 'the checkpoint'} has no end-of-text token, which "
                "stands after each document: set its eos_token and save it, or take another one"
            )
        return tokenizer

    @property
    def block_columns(self) -> tuple[str, ...]:
        """Columns of difficulty of blocks: those with parts of several documents have none."""
        return () if self.data.pack else (LENGTH, *self.data.slice_by)

    def load_blocks(self, tokenizer: Any) -> "tuple[Any, dict[str, Dataset]]":
        """Blocks to train on, and those of the other splits. Warns of what is left out or cut.

        Raises:
            ValueError: documents cannot be read, or are too short for a block.
        """
        source, blocks, data = self.documents, self.blocks(tokenizer), self.data
        if source.reading.streaming:
            self.require_whole_block(blocks("train"))
            train: Any = BlockStream(blocks, data.max_train_samples)
        else:
            # a first pass, so that every error comes before anything is written
            source.counts  # noqa: B018
            train = blocks.dataset("train", data.max_train_samples)
            self.require_whole_block(iter(train))
        streams = source.reading.streaming
        limit = STREAM_EVALUATION if streams and data.max_eval_samples is None else data.max_eval_samples
        found = {split: blocks.dataset(split, limit) for split in source.all_splits if split != "train"}
        for split, rows in found.items():
            if not len(rows):
                raise ValueError(f"{source.place_of(split)} has no two tokens of text: give more, or name other data")
            warn_of_unknown_tokens(split, rows, unknown_token_id(tokenizer))
        for split, rows in {} if data.pack or streams else {"train": train, **found}.items():
            self.warn_of_cut_blocks(split, rows)
        return train, found

    def require_whole_block(self, blocks: Iterator[Mapping[str, Any]]) -> None:
        """Raise a ValueError if there are no blocks to train on, or fewer tokens than one has."""
        tokens, data = len(next(blocks, {"input_ids": ()})["input_ids"]), self.data
        if not tokens or (data.pack and tokens < data.block_size):
            remedy = f"set it to {tokens} or less" if tokens > 1 else "give more text"
            raise ValueError(
                f"{data.length_name} is {data.block_size}, but {self.documents.place} has {tokens} tokens to train on: "
                f"{remedy}"
            )

    def warn_of_cut_blocks(self, place: str, rows: "Dataset") -> None:
        """Warn of documents of which the end is not read; `place` is what the message calls where they are."""
        lengths, size = np.asarray(rows[LENGTH][:]), self.data.block_size
        cut = lengths > size
        if cut.any():
            lost = int((lengths[cut] - size).sum())
            warnings.warn(
                f"{place}: {int(cut.sum()):,} of {len(lengths):,} documents have more than "
                f"{self.data.length_name}={size} tokens, at most {lengths.max():,}, and were cut: {lost:,} of "
                f"{int(lengths.sum()):,} tokens are not read",
                stacklevel=3,
            )

    def evaluated_blocks(self, tokenizer: Any, names: Sequence[str], choose: Callable) -> "dict[str, Dataset]":
        """Blocks of splits to evaluate a checkpoint on, which `choose` chooses from.

        Raises:
            ValueError: texts cannot be read, or have no two tokens.
        """
        self.documents.counts  # noqa: B018
        found = {}
        for name in names:
            rows, place = (
                choose(self.blocks(plain_reading(tokenizer)).dataset(name, None)),
                self.documents.place_of(name),
            )
            if not len(rows):
                raise ValueError(f"{place} has no two tokens of text: name another file")
            if not self.data.pack:
                self.warn_of_cut_blocks(place, rows)
            found[name] = rows
        return found


class TextGeneration(OfBlocks):
    """All tokens of a user's own texts, or the answers to the reads of a benchmark's strings."""

    tag = "text-generation"
    script = "training/run_clm.py"
    auto_class = "AutoModelForCausalLM"
    model_kind, data_kind = "a causal language model", "has no labels"
    arguments = TextArguments
    metric_name = "last_read_accuracy"
    as_trained: ClassVar = ("pack", "line_by_line", "keep_linebreaks", "max_seq_length")

    def __init__(self, data: DataArguments):
        super().__init__(data)
        # all tokens are predicted, or the answers to reads
        self.preprocess_logits = next_token_statistics if data.is_own else next_token_ids
        self.explains = not data.is_own

    def load_tokenizer(self, model: Any, checkpoint: Path | None = None, default: str = "bpe") -> Any:
        if not self.data.is_own:
            return Task.load_tokenizer(self, model)
        return self.require_end(super().load_tokenizer(model), model.model_name_or_path)

    def encode(self, examples: "Dataset", tokenizer: Any, place: str, info: Any = None) -> "Dataset":
        """Token ids of a benchmark's strings, and one label for each token: `read_labels`."""
        vocabulary = tokenizer.get_vocab()

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            encoded = dict(tokenizer(*(batch[column] for column in info.text_columns)))
            return {**encoded, "labels": [read_labels(ids, vocabulary) for ids in encoded["input_ids"]]}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        require_known_words(encoded, tokenizer, info, "input_ids")
        return encoded

    def split(self, name: str, examples: "Dataset", tokenizer: Any, data: Data) -> Split:
        kinds = flip_flop_kinds(tokenizer) if data.info.name == "flip_flop" else None
        return replace(super().split(name, examples, tokenizer, data), kinds=kinds)

    def load_splits(self, tokenizer: Any) -> Splits:
        if not self.data.is_own:
            return super().load_splits(tokenizer)
        train, found = self.load_blocks(tokenizer)
        role = "test" if "test" in found else "validation"
        validation = {split: rows for split, rows in found.items() if split == "validation"}
        return Splits(train, validation, [Split(self, role, found[role])])

    def collator(self, tokenizer: Any, examples: Any = None, seed: int = 0) -> Any:
        return LanguageCollator(tokenizer) if self.data.is_own else PaddingCollator(tokenizer, lists_of_labels=True)

    def check(self, args: Any, report: Any) -> None:
        if not self.data.is_own:
            return
        if report.write_predictions:
            raise ValueError("write_predictions is true: of documents every token is predicted; leave it out")
        if not self.data.streaming:
            return
        if args.max_steps <= 0:
            raise ValueError("streaming is true: the number of blocks is not known, so set max_steps")
        given = {name: getattr(args, name) for name in ("batch_sampling", "batch_tokens")}
        given["dataloader_num_workers"] = args.dataloader_num_workers or None
        strategy = args.train_sampling_strategy
        given["train_sampling_strategy"] = None if strategy in ("random", "sequential") else strategy
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} is {value!r} and streaming true: blocks come one after another; leave it out")
        if self.data.on_error == "skip":
            warnings.warn(
                "on_error is 'skip' and streaming true: broken rows are left out as they come, and not counted",
                stacklevel=2,
            )
        # each process reads all blocks and takes its own: those of a batch need not be equally long
        args.accelerator_config.dispatch_batches = False

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        return with_ponder_metrics(prediction, text_metrics if self.data.is_own else read_metrics)

    @property
    def scores(self) -> Sequence[str]:
        return ("nll", "perplexity", "token_accuracy") if self.data.is_own else ("accuracy", "token_accuracy")

    @property
    def metric(self) -> str:
        # bytes are the same for all tokenizers, where they are known
        return "bits_per_byte" if self.data.is_own else "last_read_accuracy"

    # ---- measuring

    def slices(self, split: Split) -> dict[str, Any]:
        if not self.data.is_own:
            return super().slices(split)
        names = [name for name in split.dataset.column_names if name not in ("input_ids", NUM_BYTES, "labels")]
        return {name: narrowest(list(map(str, split.dataset[name]))) for name in names}

    def counted(self, split: Split) -> dict[str, int]:
        if not self.data.is_own:
            return super().counted(split)
        # the first token of a text is given
        return {"documents": len(split.dataset), "tokens": int((token_counts(split.dataset) - 1).sum())}

    def batches(self, split: Split, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches; of blocks in order of length, with the number of each `text`."""
        if not self.data.is_own:
            return super().batches(split, tokenizer, batch_size)
        pad = LanguageCollator(tokenizer)

        def collate(numbers: list[int]) -> dict[str, torch.Tensor]:
            batch = pad([split.dataset[number] for number in numbers])
            return {name: batch[name] for name in ("input_ids", "attention_mask")} | {"text": torch.tensor(numbers)}

        order = token_counts(split.dataset).argsort(kind="stable").tolist()
        return DataLoader(order, batch_size=batch_size, collate_fn=collate)

    def next_token_split(self, name: str, rows: "Dataset") -> Split:
        """A split of blocks, each predicted token of which counts: its batches have `shift_labels` (B, S)."""
        labelled = rows.map(lambda row: {"labels": [*row["input_ids"][1:], NO_TARGET]}, desc="next tokens")
        return Split(NextTokens(self.data), name, by_length(labelled), self.block_columns)

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        if not self.data.is_own:
            return super().measure(split, model, tokenizer, batch_size, **options)
        found = collect_text_losses(model, split.batches(tokenizer, batch_size), **options)
        sizes = np.array(split.dataset[NUM_BYTES][:]), token_counts(split.dataset)
        table = text_table(
            *(model, found, Corpus(*sizes, token_bytes=token_bytes(tokenizer))),
            kind=BLOCKS if self.data.pack else DOCUMENTS,
            block_size=self.data.block_size,
            max_depth=options.get("max_depth"),
            halting_threshold=options.get("halting_threshold"),
            slices=split.slices,
        )
        confidence = found.texts["confidence"] / found.texts["tokens"]
        return pd.DataFrame({"confidence": confidence}).dropna(), table

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        texts = {name: split.dataset[name][:] for name in split.slice_columns}
        for number, example in enumerate(examples.to_dict("records")):
            answer = {name: tokenizer.convert_ids_to_tokens(example[name]) for name in ("label", "prediction")}
            steps = {name: example[name] for name in ("steps",) if name in example}
            yield {**{name: values[number] for name, values in texts.items()}, **answer, **steps}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        if self.data.is_own:
            return {"text": prompt_of(tokenizer.decode(split.dataset[0]["input_ids"], skip_special_tokens=True))}
        shown = short_example(split)
        words = shown[self.source.info.text_columns[0]].split()
        answered = [place for place, label in enumerate(shown["labels"]) if label >= 0]
        # the longest prompt that is still readable, or the shortest there is
        place = max((place for place in answered if place <= MAX_EXAMPLE_TOKENS), default=answered[0])
        return {"text": " ".join(words[:place]), "answer": words[place]}

    def metric_of_tables(self, tables: Mapping[str, Mapping[str, Any]]) -> str:
        return text_metric(next(iter(tables.values()))) if self.data.is_own else self.metric

    def limitations(self) -> Iterator[str]:
        data = self.data
        if not data.is_own:
            yield "It was trained on the answers to reads alone: what it generates elsewhere means nothing."
            return
        yield (
            f"It was trained and measured on at most {data.block_size:,} tokens at a time: how well it goes on after "
            "longer ones is not known."
        )
        if data.streaming:
            yield (
                "Its documents were streamed: the measured blocks are the first ones of the split, and no digest of "
                "the data is known."
            )
            if data.on_error == "skip":
                yield "Broken rows were left out of its documents, and not counted."
        elif data.max_eval_samples is not None:
            unit = "blocks" if data.pack else "documents"
            yield f"The measured {unit} are the first ones of the split: others may be easier or harder to predict."
        if self.documents.holds_out and (cuts := self.documents.cuts) is not None:
            texts = "the end of the one text" if len(cuts) == 1 else "the ends of the texts"
            yield f"It is measured on {texts} that it was trained on the rest of."


class NextTokens(TextGeneration):
    """Blocks, each predicted token of which counts by itself."""

    def batches(self, split: Split, tokenizer: Any, batch_size: int) -> DataLoader:
        pad = PaddingCollator(tokenizer, lists_of_labels=True)

        def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            batch = pad(examples)
            return {**{name: batch[name] for name in ("input_ids", "attention_mask")}, SHIFTED: batch["labels"]}

        return DataLoader(split.dataset.select_columns(["input_ids", "labels"]), batch_size, collate_fn=collate)


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


@of_logits
def next_token_ids(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logits (B, S, V) -> the token ids (B, S) they predict, aligned with the labels; nothing predicts the first."""
    return torch.nn.functional.pad(logits.argmax(-1)[:, :-1], (1, 0), value=NO_TARGET)


def read_metrics(ids: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`accuracy` of each example's last labelled token, and `token_accuracy` of all of them, of `next_token_ids`."""
    # `Trainer` pads labels and predictions alike to join batches of different lengths
    labelled = labels != NO_TARGET
    return {
        "accuracy": last_read_accuracy(ids, labels),
        "token_accuracy": accuracy(ids[labelled], labels[labelled]),
    }


def flip_flop_kinds(tokenizer: Any) -> TokenKinds:
    """Kinds of tokens of a flip-flop string: write, ignore, read, and the bits after each of them."""
    numbers = tokenizer.convert_tokens_to_ids(list(INSTRUCTIONS))

    def of(input_ids: np.ndarray) -> np.ndarray:
        kinds = np.full(input_ids.shape, -1)
        for kind, number in enumerate(numbers):
            here = input_ids == number
            kinds[here] = kind
            kinds[:, 1:][here[:, :-1]] = len(INSTRUCTIONS) + kind
        return kinds

    return TokenKinds((*INSTRUCTIONS, *(f"bit after {word}" for word in INSTRUCTIONS)), of)


def plain_reading(tokenizer: Any) -> Any:
    """A tokenizer to which the name of a token is plain text, as it was in training."""
    import copy

    found = copy.deepcopy(tokenizer)
    found.split_special_tokens = found.backend_tokenizer.encode_special_tokens = True
    return found


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


def prompt_of(text: str) -> str:
    """The beginning of a document, up to the end of a word."""
    beginning = text.lstrip()[:PROMPT_LETTERS]
    return beginning.rpartition(" ")[0].rstrip() or beginning


def text_metric(table: Mapping[str, Any]) -> str:
    """The measure of a table of texts: bytes are the same for all tokenizers, if they are known."""
    return "bits_per_byte" if table["exact_bytes"] and table["bits_per_byte"] is not None else "bits_per_token"

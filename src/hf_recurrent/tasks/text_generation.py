"""Texts that a causal language model goes on with: `text-generation`; its own texts, or a benchmark's reads.

Shapes: B examples of a batch, S tokens, V vocabulary.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, IterableDataset

from ..analysis.answers import SHIFTED
from ..analysis.halting import TokenKinds
from ..analysis.losses import BLOCKS, DOCUMENTS, Corpus, collect_text_losses, text_table, token_bytes
from ..benchmarks import read_labels
from ..benchmarks.flip_flop.strings import INSTRUCTIONS
from ..data.arguments import DataArguments
from ..data.batches import PaddingCollator, token_counts
from ..data.documents import NUM_BYTES, Blocks, DocumentSource
from ..data.loading import Data, benchmark_data
from ..data.reading import LENGTH, Reading, folder_texts, format_of, is_folder, narrowest, read_rows
from ..data.tokenizers import TRAINED_KINDS, unknown_token_id, with_plain_texts
from ..metrics.functional import Row, Scores, accuracy, last_read_accuracy, text_metrics
from ..metrics.tensors import next_token_statistics, of_logits
from ..models.ops.losses import NO_TARGET
from .arguments import TextArguments
from .base import (
    MAX_EXAMPLE_TOKENS,
    Measured,
    Split,
    Splits,
    Task,
    by_length,
    require_known_words,
    short_example,
    warn_of_cuts,
)

if TYPE_CHECKING:
    from datasets import Dataset

# characters of a stream that a tokenizer is trained on, and blocks of it that are evaluated
TRAINING_CHARACTERS, STREAM_EVALUATION = 10**8, 1000
# characters of a prompt
PROMPT_LETTERS = 48


@of_logits
def next_token_ids(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logits (B, S, V) -> the token ids (B, S) they predict, aligned with the labels; nothing predicts the first."""
    return torch.nn.functional.pad(logits.argmax(-1)[:, :-1], (1, 0), value=NO_TARGET)


def read_metrics(ids: np.ndarray, labels: np.ndarray) -> Scores:
    """`accuracy` of each example's last labelled token, and `token_accuracy` of all of them, of `next_token_ids`."""
    # `Trainer` pads labels and predictions alike to join batches of different lengths
    known = labels != NO_TARGET
    return {"accuracy": last_read_accuracy(ids, labels), "token_accuracy": accuracy(ids[known], labels[known])}


class TextGeneration(Task):
    """The answers to the reads of a benchmark's strings; of a user's own texts, all tokens (`OwnTexts`)."""

    tag = "text-generation"
    script = "training/run_clm.py"
    auto_class = "AutoModelForCausalLM"
    model_kind, data_kind = "a causal language model", "has no labels"
    arguments = TextArguments
    frame = "language"
    make_collator: Callable[[Any], Callable] = partial(PaddingCollator, lists_of_labels=True)
    preprocess_logits = staticmethod(next_token_ids)
    metrics = staticmethod(read_metrics)
    scores: Sequence[str] = ("accuracy", "token_accuracy")
    metric_name = "last_read_accuracy"
    explains = True
    as_trained = ("pack", "line_by_line", "keep_linebreaks", "max_seq_length")

    def __new__(cls, data: DataArguments | None = None) -> "TextGeneration":
        return super().__new__(cls if data is None or not data.is_own else OwnTexts)

    def encode(self, examples: "Dataset", tokenizer: Any, place: str) -> "Dataset":
        """Token ids of a benchmark's strings, and one label for each token: `read_labels`."""
        info, vocabulary = self.source.info, tokenizer.get_vocab()

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            encoded = dict(tokenizer(*(batch[column] for column in info.text_columns)))
            return {**encoded, "labels": [read_labels(ids, vocabulary) for ids in encoded["input_ids"]]}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        require_known_words(encoded, tokenizer, info, "input_ids")
        return encoded

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        kinds = flip_flop_kinds(tokenizer) if self.data.benchmark == "flip_flop" else None
        return super().measure(split, model, tokenizer, batch_size, kinds=kinds, **options)

    def readable(self, answer: Any, model: Any, tokenizer: Any) -> Any:
        return tokenizer.convert_ids_to_tokens(answer)

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        shown = short_example(split)
        words = shown[self.source.info.text_columns[0]].split()
        answered = [place for place, label in enumerate(shown["labels"]) if label >= 0]
        # the longest prompt that is still readable, or the shortest there is
        place = max((place for place in answered if place <= MAX_EXAMPLE_TOKENS), default=answered[0])
        return {"text": " ".join(words[:place]), "answer": words[place]}

    def limitations(self) -> Iterator[str]:
        yield "It was trained on the answers to reads alone: what it generates elsewhere means nothing."


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


# ---- a user's own documents


class Documents(Task):
    """A task on documents, all of whose tokens may be predicted."""

    fields = (("text", "text_column", ("text", "sentence"), "the texts"),)
    label_names = ()
    frame = "language"
    needs_offsets = True

    def read_file(self, path: str, reading: Reading) -> "Dataset":
        by_line = getattr(self.data, "line_by_line", False)
        if not is_folder(path):
            return read_rows(path, reading, whole_text=format_of(path) == "text" and not by_line)
        found = folder_texts(path, reading, in_folders=False)
        from datasets import Dataset

        lines = ({"text": line, "name": row["name"]} for row in found for line in row["text"].split("\n"))
        return Dataset.from_list(list(lines)) if by_line else found

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

    def suited(self, tokenizer: Any, name: str) -> Any:
        """As for any task, and without special tokens around a text; it needs a padding and an end-of-text token."""
        if name in TRAINED_KINDS:
            return tokenizer
        for role, use in {"pad_token": "fills batches", "eos_token": "stands after each document"}.items():
            if getattr(tokenizer, role) is None:
                raise ValueError(
                    f"the tokenizer of {name} has no {role}, which {use}: set it and save the tokenizer, or take "
                    "another one"
                )
        return with_plain_texts(super().suited(tokenizer, name))


class OfBlocks(Documents):
    """A task on blocks of documents."""

    limit_name = "block_size"

    def blocks(self, tokenizer: Any) -> Blocks:
        return Blocks(self.documents, tokenizer, self.data.block_size, self.data.pack)

    def block_split(self, name: str, rows: "Dataset") -> Split:
        """A split of blocks, sliced by columns of difficulty; those with parts of several documents have none."""
        columns = () if self.data.pack else (LENGTH, *self.data.slice_by)
        for column in columns:
            rows = rows.remove_columns(column).add_column(column, narrowest(list(map(str, rows[column]))))
        return Split(self, name, rows, columns)

    def prepared(self, rows: "Dataset", tokenizer: Any) -> "Dataset":
        """Blocks as they are evaluated."""
        return rows

    def load_splits(self, tokenizer: Any) -> Splits:
        """Blocks to train on, and those of the other splits. Warns of what is left out or cut.

        Raises:
            ValueError: documents cannot be read, or are too short for a block.
        """
        source, blocks, data = self.documents, self.blocks(tokenizer), self.data
        limit = data.max_eval_samples
        if source.reading.streaming:
            train: Any = BlockStream(blocks, data.max_train_samples)
            limit = limit or STREAM_EVALUATION
        else:
            # a first pass, so that every error comes before anything is written
            source.counts  # noqa: B018
            train = blocks.dataset("train", data.max_train_samples)
        tokens = len(next(blocks("train"), {"input_ids": ()})["input_ids"])
        if not tokens or (data.pack and tokens < data.block_size):
            remedy = f"set it to {tokens} or less" if tokens > 1 else "give more text"
            raise ValueError(
                f"{data.length_name} is {data.block_size}, but {source.place} has {tokens} tokens to train on: {remedy}"
            )
        if not source.reading.streaming:
            self.check_blocks("train", train)
        found = {}
        for split in source.all_splits[1:]:
            rows = blocks.dataset(split, limit)
            self.check_blocks(split, rows)
            warn_of_unknown_tokens(split, rows, unknown_token_id(tokenizer))
            found[split] = self.prepared(rows, tokenizer)
        role = "test" if "test" in found else "validation"
        validation = {split: rows for split, rows in found.items() if split == "validation"}
        return Splits(train, validation, [self.block_split(role, found[role])])

    def check_blocks(self, split: str, rows: "Dataset") -> None:
        """Raise a ValueError for a split without blocks, and warn of documents of which the end is not read."""
        if not len(rows):
            raise ValueError(f"{self.documents.place_of(split)} has no two tokens of text: give more, or name others")
        if not (self.data.pack or self.data.reading.streaming):
            warn_of_cuts(rows[LENGTH][:], self.data.block_size, self.data.length_name, f"documents of {split}")

    def checkpoint_splits(
        self, tokenizer: Any, names: Sequence[str], choose: Callable, **options: Any
    ) -> Iterator[Split]:
        self.documents.counts  # noqa: B018
        for name in names:
            rows = choose(self.blocks(plain_reading(tokenizer)).dataset(name, None))
            self.check_blocks(name, rows)
            yield self.block_split(name, self.prepared(rows, tokenizer))


class LanguageCollator(PaddingCollator):
    """Pads blocks; `labels` are all tokens, -100 at padding."""

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer, lists_of_labels=True)

    def __call__(self, examples: Sequence[Row]) -> dict[str, torch.Tensor]:
        return super().__call__([dict.fromkeys(("input_ids", "labels"), row["input_ids"]) for row in examples])


class OwnTexts(OfBlocks, TextGeneration):
    """All tokens of a user's own texts."""

    make_collator = LanguageCollator
    preprocess_logits = staticmethod(next_token_statistics)
    metrics = staticmethod(text_metrics)
    scores = ("nll", "perplexity", "token_accuracy")
    # bytes are the same for all tokenizers, where they are known
    metric_name = "bits_per_byte"
    explains = False

    def check(self, args: Any, report: Any) -> None:
        if report.write_predictions:
            raise ValueError("write_predictions is true: of documents every token is predicted; leave it out")
        if not self.data.streaming:
            return
        if args.max_steps <= 0:
            raise ValueError("streaming is true: the number of blocks is not known, so set max_steps")
        for name in ("batch_sampling", "batch_tokens", "dataloader_num_workers", "train_sampling_strategy"):
            value = getattr(args, name)
            if value not in (None, 0, "random", "sequential"):
                raise ValueError(f"{name} is {value!r} and streaming true: blocks come one after another; leave it out")
        if self.data.on_error == "skip":
            warnings.warn(
                "on_error is 'skip' and streaming true: broken rows are left out as they come, and not counted",
                stacklevel=2,
            )
        # each process reads all blocks and takes its own: those of a batch need not be equally long
        args.accelerator_config.dispatch_batches = False

    # ---- measuring

    def checkpoint_splits(
        self, tokenizer: Any, names: Sequence[str], choose: Callable, *, by_token: bool = False, **options: Any
    ) -> Iterator[Split]:
        """Splits of blocks; `by_token` gives them `labels`, for the answers that count by themselves."""
        for split in super().checkpoint_splits(tokenizer, names, choose):
            if by_token:
                next_tokens = [[*ids[1:], NO_TARGET] for ids in split.dataset["input_ids"]]
                split = replace(split, dataset=by_length(split.dataset.add_column("labels", next_tokens)))
            yield split

    def batches(self, split: Split, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches in order of length, with `shift_labels` (B, S) or else the number of each `text`."""
        pad = PaddingCollator(tokenizer, lists_of_labels=True)
        read = split.dataset.select_columns([n for n in ("input_ids", "labels") if n in split.dataset.column_names])

        def collate(numbers: list[int]) -> dict[str, torch.Tensor]:
            batch = pad([read[number] for number in numbers])
            labels = batch.pop("labels", None)
            return {**batch, **({"text": torch.tensor(numbers)} if labels is None else {SHIFTED: labels})}

        order = token_counts(split.dataset).argsort(kind="stable").tolist()
        return DataLoader(order, batch_size=batch_size, collate_fn=collate)

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
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

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        return {"text": prompt_of(tokenizer.decode(split.dataset[0]["input_ids"], skip_special_tokens=True))}

    def limitations(self) -> Iterator[str]:
        data = self.data
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


class BlockStream(IterableDataset):
    """The blocks of the training documents, in order and without end: from the last document on to the first.

    Args:
        limit: most blocks of a pass.
    """

    def __init__(self, blocks: Blocks, limit: int | None):
        self.blocks, self.limit = blocks, limit

    def __iter__(self) -> Iterator[Row]:
        while True:
            for block in islice(self.blocks("train"), self.limit):
                yield {"input_ids": block["input_ids"]}


def plain_reading(tokenizer: Any) -> Any:
    """A tokenizer to which the name of a token is plain text, as it was in training."""
    found = copy.deepcopy(tokenizer)
    found.split_special_tokens = found.backend_tokenizer.encode_special_tokens = True
    return found


def warn_of_unknown_tokens(split: str, rows: "Dataset", unknown: int | None) -> None:
    """Warn of text that the tokenizer does not know: it is predicted as one token, and its bytes make bits seem few."""
    if unknown is None:
        return
    found = sum(ids.count(unknown) for ids in rows["input_ids"])
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

"""The settings of a user's own data; names are those of transformers' examples where these have them."""

# HfArg makes dataclass fields
# ruff: noqa: RUF009

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from transformers.hf_argparser import HfArg

from ..hub.tasks import CLASSIFICATION as TEXTS
from ..hub.tasks import (
    FILL_MASK,
    GENERATION,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    TOKEN_CLASSIFICATION,
    TRANSLATION,
)
from ..templating import near_names
from ..text_data.tasks import OTHERS, TASKS
from . import objectives
from .recipes import require_known

# settings that choose a user's own data instead of a benchmark
CHOOSING = ("task_name", "dataset_name", "train_file")
# task -> the script for it
SCRIPTS = {
    TEXTS: objectives.CLASSIFICATION.script,
    GENERATION: objectives.LANGUAGE_MODELLING.script,
    TRANSLATION: objectives.SEQ2SEQ.script,
    TOKEN_CLASSIFICATION: objectives.TOKEN_CLASSIFICATION.script,
    FILL_MASK: objectives.MASKED_MODELLING.script,
    QUESTION_ANSWERING: objectives.QUESTION_ANSWERING.script,
    MULTIPLE_CHOICE: objectives.MULTIPLE_CHOICE.script,
}
FILES = {"train": "train_file", "validation": "validation_file", "test": "test_file"}
# instead of which training examples are held out
HELD_OUT_FOR = ("validation_file", "test_file", "validation_split", "test_split")
ON_ERROR = ("raise", "skip")
# scores of written targets
EXACT_MATCH, BLEU = "exact_match", "bleu"
PAIR_METRICS = (EXACT_MATCH, BLEU)


@dataclass
class TextArguments:
    """Own data instead of a benchmark: files, or a data set of the Hub; its columns; and the tokenizer.

    Attributes:
        shared: fields that are for benchmarks, too.
    """

    shared: ClassVar[frozenset[str]] = frozenset()

    task: str | None = HfArg(
        default=None,
        help="text-classification, text-generation, translation (of sources into targets), token-classification, "
        "fill-mask, question-answering or multiple-choice, where neither the script nor another setting says what own "
        "data are for.",
    )
    dataset_name: str | None = HfArg(default=None, help="A data set of the Hub, or a folder that datasets loads.")
    dataset_config_name: str | None = HfArg(default=None, help="Its configuration.")
    dataset_revision: str | None = HfArg(default=None, help="Its branch, tag or commit.")
    train_file: str | None = HfArg(
        default=None,
        help="Training examples: CSV, TSV, JSON, JSONL, Parquet or text; a folder or zip file with a folder of text "
        "files for each label.",
    )
    validation_file: str | None = HfArg(default=None, help="The same, for validation.")
    test_file: str | None = HfArg(default=None, help="The same, for tests.")
    train_split: str | None = HfArg(
        default=None, aliases=["--train_split_name"], help="Split of the data set to train on; train if unset."
    )
    validation_split: str | None = HfArg(
        default=None, aliases=["--validation_split_name"], help="To validate on; validation if unset."
    )
    test_split: str | None = HfArg(default=None, aliases=["--test_split_name"], help="To test on; test if unset.")
    validation_split_percentage: int | None = HfArg(
        default=None,
        help="Percentage of the training examples to evaluate on, where there is no other split; 5 if unset.",
    )
    slice_by: list[str] = HfArg(
        default_factory=list, help="Columns by which results are sliced, beside the length in tokens."
    )
    encoding: str = HfArg(default="utf-8", help="Encoding of text files.")
    on_error: str = HfArg(default="raise", help="raise, or skip: leave broken rows out, and count them.")
    tokenizer: str | None = HfArg(
        default=None,
        aliases=["--tokenizer_name"],
        help="bpe, words or bytes, trained on the training texts; or a tokenizer's name on the Hub or folder. That of "
        "the checkpoint to fine-tune if unset, or else bpe.",
    )
    vocab_size: int | None = HfArg(default=None, help="Tokens of a tokenizer that is trained.")
    max_seq_length: int | None = HfArg(default=None, help="Cut texts after so many tokens; how many were cut is said.")

    @property
    def is_own(self) -> bool:
        """Whether a user's own data were chosen, rather than a benchmark."""
        return any(getattr(self, name, None) is not None for name in CHOOSING)

    def check_own(self) -> None:
        """Raise a ValueError for settings of own data that do not go together, or are given without own data."""
        if not self.is_own:
            self.refuse_unused()
            return
        chosen = [name for name in CHOOSING if getattr(self, name, None) is not None]
        if len(chosen) > 1:
            first, second = (f"{name} is {getattr(self, name)!r}" for name in chosen[:2])
            raise ValueError(f"{first} and {second}: both choose the data, set one of them")
        for split, name in FILES.items():
            path = getattr(self, name)
            if path is None:
                continue
            if self.train_file is None:
                raise ValueError(f"{name} is {path!r} without train_file: it goes with a train_file")
            if not Path(path).exists():
                raise ValueError(f"{name} is {path!r}: there is no such file or folder{near_names(Path(path))}")
            if getattr(self, f"{split}_split") is not None:
                raise ValueError(f"{split}_split is a split of a data set, but {name} names a file: set one of them")
        others = [name for name in HELD_OUT_FOR if getattr(self, name) is not None]
        if others and self.validation_split_percentage is not None:
            raise ValueError(
                f"validation_split_percentage is {self.validation_split_percentage} and {others[0]} "
                f"{getattr(self, others[0])!r}, so that no training examples are held out: set one of them"
            )
        for name in ("dataset_config_name", "dataset_revision"):
            if self.train_file is not None and getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but train_file names a file: leave it out")
        require_known("on_error", self.on_error, list(ON_ERROR))
        if self.task is not None:
            require_known("task", self.task, list(SCRIPTS))
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise ValueError(
                f"encoding is {self.encoding!r}: expected one that Python knows, such as latin-1"
            ) from error
        if self.vocab_size is not None and self.tokenizer not in (None, "bpe", "words"):
            raise ValueError(
                f"vocab_size is {self.vocab_size} and tokenizer {self.tokenizer!r}, which has its own size: leave "
                "vocab_size out"
            )

    def refuse_unused(self) -> None:
        """Raise a ValueError for settings of own data where there is none."""
        for field in fields(self):
            if field.name not in OWN_FIELDS - self.shared:
                continue
            default = field.default_factory() if callable(field.default_factory) else field.default
            value = getattr(self, field.name)
            if value != default:
                raise ValueError(
                    f"{field.name} is {value!r}, which is for your own data: name it with train_file or dataset_name"
                )

    def source_options(self) -> dict[str, Any]:
        """The fields of a `TextSource` that every objective has."""
        files = {split: getattr(self, name) for split, name in FILES.items() if getattr(self, name) is not None}
        options = {
            "dataset_name": self.dataset_name,
            "dataset_config_name": self.dataset_config_name,
            "revision": self.dataset_revision,
            "files": files,
            "split_names": {split: getattr(self, f"{split}_split") for split in FILES},
            "slice_by": tuple(self.slice_by),
            "encoding": self.encoding,
            "on_error": self.on_error,
        }
        if self.validation_split_percentage is not None:
            options["validation_split_percentage"] = self.validation_split_percentage
        return options


@dataclass
class LabelArguments:
    """The columns of own texts with labels."""

    task_name: str | None = HfArg(default=None, help=f"A task of GLUE or SuperGLUE: {', '.join(TASKS)}.")
    text_column: list[str] = HfArg(
        default_factory=list,
        aliases=["--text_column_names"],
        help="The column of texts, or the two of pairs of texts; those with usual names if unset.",
    )
    label_column: str | None = HfArg(
        default=None,
        aliases=["--label_column_name"],
        help="The column of labels; label if unset. Lists are several labels, numbers with a fraction a regression.",
    )
    label_list: list[str] = HfArg(
        default_factory=list, help="Names of all labels in the order of their ids; else in alphabetical order."
    )
    label_delimiter: str | None = HfArg(
        default=None, help="Text between the labels of an example that has several, in files without lists."
    )
    do_regression: bool | None = HfArg(default=None, help="Whether labels are numbers to predict.")

    def check_labels(self) -> None:
        """Raise a ValueError for settings of labels that do not go together."""
        if self.task_name is not None:
            self.task_name = self.task_name.lower()
            if self.task_name in OTHERS:
                raise ValueError(
                    f"task_name is {self.task_name!r}, which {OTHERS[self.task_name]}: expected one of "
                    f"{', '.join(TASKS)}, which classify a text or a pair"
                )
            require_known("task_name", self.task_name, list(TASKS))
            fixed = ("text_column", "label_column", "label_list", "dataset_config_name", "train_split", "do_regression")
            for name in fixed:
                if getattr(self, name) not in (None, []):
                    raise ValueError(
                        f"{name} is {getattr(self, name)!r} and task_name {self.task_name!r}, which has its own: leave "
                        f"{name} out"
                    )
        if len(self.text_column) == 1:
            # transformers' examples take names with commas between them
            self.text_column = [name.strip() for name in self.text_column[0].split(",")]
        if self.label_delimiter == "":
            raise ValueError("label_delimiter is '': expected the text between labels, such as ;")
        if self.do_regression and self.label_delimiter is not None:
            raise ValueError(
                f"do_regression is true and label_delimiter {self.label_delimiter!r}: a number has no delimiter"
            )

    def label_options(self) -> dict[str, Any]:
        """The fields of a `TextSource` that texts with labels have."""
        return {
            "task_name": self.task_name,
            "text_columns": tuple(self.text_column),
            "label_column": self.label_column,
            "label_names": tuple(self.label_list),
            "label_delimiter": self.label_delimiter,
            "do_regression": self.do_regression,
        }


@dataclass
class PairColumnArguments:
    """The columns of own sources and targets, their lengths, and the score of what is written."""

    source_column: str | None = HfArg(
        default=None,
        aliases=["--text_column"],
        help="The column of own sources, such as document or translation.de; source if unset.",
    )
    target_column: str | None = HfArg(
        default=None,
        aliases=["--summary_column"],
        help="The column of own targets, such as summary or translation.en; target if unset.",
    )
    source_lang: str | None = HfArg(
        default=None, help="Key of the sources in a column translation of texts by language, such as de."
    )
    target_lang: str | None = HfArg(default=None, help="Key of the targets there, such as en.")
    source_prefix: str | None = HfArg(default=None, help="Text before every own source, white space included.")
    max_source_length: int | None = HfArg(
        default=None, help="Cut own sources after so many tokens; how many were cut is said."
    )
    max_target_length: int | None = HfArg(
        default=None, help="The same for own targets in training; written ones are compared with whole targets."
    )
    metric_name: str | None = HfArg(
        default=None, help=f"The score of own targets: {' or '.join(PAIR_METRICS)}; exact_match if unset."
    )

    def check_pairs(self) -> None:
        """Raise a ValueError for settings of sources and targets that do not go together."""
        if (self.source_lang is None) != (self.target_lang is None):
            given = "source_lang" if self.target_lang is None else "target_lang"
            raise ValueError(f"{given} is {getattr(self, given)!r}: name both languages, source_lang and target_lang")
        columns = [name for name in ("source_column", "target_column") if getattr(self, name) is not None]
        if self.source_lang is not None and columns:
            raise ValueError(
                f"source_lang is {self.source_lang!r} and {columns[0]} {getattr(self, columns[0])!r}: both name the "
                "column, set one of them"
            )
        if self.metric_name is not None:
            require_known("metric_name", self.metric_name, list(PAIR_METRICS))

    def pair_options(self) -> dict[str, Any]:
        """The fields of a `TextSource` that sources and targets have."""
        columns = (self.source_column, self.target_column)
        if self.source_lang is not None:
            columns = (f"translation.{self.source_lang}", f"translation.{self.target_lang}")
        return {"source_column": columns[0], "target_column": columns[1], "source_prefix": self.source_prefix or ""}


@dataclass
class DocumentTextArguments:
    """The text of own documents."""

    text_column: str | None = HfArg(
        default=None, aliases=["--text_column_name"], help="The column of texts; text, or the only one, if unset."
    )
    keep_linebreaks: bool = HfArg(
        default=True, help="Keep the line breaks of text files, rather than take spaces for them."
    )

    def document_options(self) -> dict[str, Any]:
        """The fields of a `DocumentSource` that own documents have."""
        columns = () if self.text_column is None else (self.text_column,)
        return {"text_columns": columns, "keep_linebreaks": self.keep_linebreaks}


@dataclass
class BlockArguments(DocumentTextArguments):
    """Own documents as blocks of tokens for a language model.

    Attributes:
        length_name: the field that the user has set the length of blocks by, for messages.
    """

    length_name: ClassVar[str] = "block_size"

    block_size: int = HfArg(
        default=512, help="Tokens of a block: what a model is trained on and evaluated on in one piece."
    )
    pack: bool | None = HfArg(
        default=None,
        help="Join documents, with an end-of-text token after each, and cut them into blocks; else a block is the "
        "beginning of one document. True if unset, but for line_by_line.",
    )
    streaming: bool = HfArg(
        default=False, help="Read and encode documents while training, without a copy of them; needs max_steps."
    )

    max_seq_length: int | None = HfArg(default=None, help="Tokens of a block; the same as block_size.")
    line_by_line: bool = HfArg(
        default=False, help="Each line of a text file is a document, and a block the beginning of one document."
    )

    def name_blocks(self) -> None:
        """Read `max_seq_length` as `block_size`.

        Raises:
            ValueError: both lengths are set.
        """
        if self.max_seq_length is not None:
            if self.block_size != type(self).block_size:
                raise ValueError(
                    f"max_seq_length is {self.max_seq_length} and block_size {self.block_size}: both are the tokens of "
                    "a block, set one of them"
                )
            self.block_size, self.max_seq_length, self.length_name = self.max_seq_length, None, "max_seq_length"

    def check_blocks(self) -> None:
        """Pack documents unless they are lines, or `pack` says what to do.

        Raises:
            ValueError: settings of blocks do not go together.
        """
        if self.pack and self.line_by_line:
            raise ValueError(
                "pack is True and line_by_line True: a line is a document, and a block the beginning of one; leave one "
                "of them out"
            )
        if self.pack is None:
            self.pack = not self.line_by_line
        if self.block_size < 2:
            raise ValueError(f"{self.length_name} is {self.block_size}: a block needs 2 tokens or more, to predict one")
        for name in ("max_seq_length", "max_length"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)}: the length of blocks is block_size")
        if self.slice_by and self.pack:
            raise ValueError(
                f"slice_by is {', '.join(self.slice_by)}: blocks hold parts of several documents; pass "
                "--line_by_line, for one document a block"
            )
        if self.num_proc is not None:
            raise ValueError(
                f"num_proc is {self.num_proc}: own documents are encoded by the tokenizer's threads; leave it out"
            )


OWN_FIELDS = frozenset(
    field.name for cls in (TextArguments, LabelArguments, PairColumnArguments, BlockArguments) for field in fields(cls)
)

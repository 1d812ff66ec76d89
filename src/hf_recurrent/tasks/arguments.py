"""The arguments of tasks' data: which columns they read, and how. Nothing slow is imported here.

Names are those of transformers' examples.
"""

# `flag` makes dataclass fields
# ruff: noqa: RUF009

from dataclasses import dataclass
from typing import ClassVar

from ..data.arguments import DataArguments, conflict, flag
from ..data.glue import TASKS as GLUE
from ..utils import require_known

LONG_DOCUMENTS = "long_documents"
EXACT_MATCH, BLEU = METRICS = ("exact_match", "bleu")


@dataclass
class ClassificationArguments(DataArguments):
    """The columns of texts and labels."""

    task_name: str | None = flag(default=None, help=f"A task of GLUE or SuperGLUE: {', '.join(GLUE)}.")
    text_column: list[str] = flag(
        default_factory=list,
        aliases=["--text_column_names"],
        help="The column of texts, or the two of pairs of texts; those with usual names if unset.",
    )
    label_column: list[str] = flag(
        default_factory=list,
        aliases=["--label_column_name"],
        help="The column of labels, label if unset; lists are several labels, numbers with a fraction a regression. "
        "Several columns hold 0 or 1 for each label.",
    )
    label_list: list[str] = flag(
        default_factory=list, help="Names of all labels in the order of their ids; else in alphabetical order."
    )
    label_delimiter: str | None = flag(
        default=None, help="Text between the labels of an example that has several, in files without lists."
    )
    do_regression: bool | None = flag(default=None, help="Whether labels are numbers to predict.")

    def __post_init__(self) -> None:
        for name in ("text_column", "label_column"):
            value = getattr(self, name) or []
            # transformers' examples take names with commas between them
            value = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
            setattr(self, name, [part.strip() for part in value[0].split(",")] if len(value) == 1 else list(value))
        if self.task_name is not None:
            self.task_name = self.task_name.lower()
            require_known("task_name", self.task_name, list(GLUE))
            fixed = ("text_column", "label_column", "label_list", "dataset_config_name", "train_split", "do_regression")
            for name in fixed:
                if getattr(self, name) not in (None, []):
                    raise ValueError(
                        f"{name} is {getattr(self, name)!r} and task_name {self.task_name!r}, which has its own: leave "
                        f"{name} out"
                    )
        if self.do_regression and self.label_delimiter is not None:
            raise ValueError(
                f"do_regression is true and label_delimiter {self.label_delimiter!r}: a number has no delimiter"
            )
        super().__post_init__()


@dataclass
class WordArguments(DataArguments):
    """The columns of words and of their labels."""

    text_column: str | None = flag(
        default=None, aliases=["--text_column_name"], help="The column of lists of words; tokens or words if unset."
    )
    label_column: str | None = flag(
        default=None,
        aliases=["--label_column_name"],
        help="The column of lists of labels, one for each word; ner_tags, tags, pos_tags, label or labels if unset.",
    )
    label_list: list[str] = flag(
        default_factory=list, help="Names of all labels in the order of their ids; else in alphabetical order."
    )
    label_all_tokens: bool = flag(
        default=False, help="Train all tokens of a word to have its label, rather than the first one alone."
    )


@dataclass
class EntityArguments(WordArguments):
    """The columns of texts and of their spans."""

    text_column: str | None = flag(default=None, help="The column of texts; text, data or content if unset.")
    label_column: str | None = flag(
        default=None,
        help="The column of lists of spans, each [start, end, label] or a mapping of these; spans, entities, label or "
        "labels if unset.",
    )


@dataclass
class DocumentArguments(DataArguments):
    """The texts of documents."""

    train_file: str | None = flag(
        default=None,
        help="Training documents: a text file, which is one; a folder or zip file of them; or a CSV, TSV, JSON, JSONL "
        "or Parquet file with one in each row.",
    )
    text_column: str | None = flag(
        default=None, aliases=["--text_column_name"], help="The column of texts; text, or the only one, if unset."
    )
    keep_linebreaks: bool = flag(
        default=True, help="Keep the line breaks of text files, rather than replace them by spaces."
    )

    def __post_init__(self) -> None:
        if isinstance(self.text_column, list):
            if len(self.text_column) > 1:
                raise ValueError(
                    f"text_column is {', '.join(self.text_column)}: name one column, for texts are no pairs"
                )
            self.text_column = next(iter(self.text_column), None)
        super().__post_init__()


@dataclass
class TextArguments(DocumentArguments):
    """Documents as blocks of tokens.

    Attributes:
        length_name: the field that the user has set the length of blocks by, for messages.
    """

    length_setting: ClassVar[str] = "block_size"
    length_name: ClassVar[str] = "block_size"
    for_benchmarks: ClassVar[frozenset[str]] = frozenset({"max_length"})

    block_size: int = flag(
        default=512, help="Tokens of a block: what a model is trained on and evaluated on in one piece."
    )
    pack: bool | None = flag(
        default=None,
        help="Join documents, with an end-of-text token after each, and cut them into blocks; else a block is the "
        "beginning of one document. True if unset, except with line_by_line.",
    )
    streaming: bool = flag(
        default=False, help="Read and encode documents while training, without a copy of them; needs max_steps."
    )
    max_seq_length: int | None = flag(default=None, help="Tokens of a block; the same as block_size.")
    line_by_line: bool = flag(
        default=False, help="Each line of a text file is a document, and a block the beginning of one document."
    )

    def __post_init__(self) -> None:
        if self.is_own and self.max_length is not None:
            raise ValueError(f"max_length is {self.max_length}: the length of texts here is block_size")
        if self.max_seq_length is not None:
            if self.block_size != type(self).block_size:
                raise conflict(self, "max_seq_length", "block_size", "are the tokens of a block")
            self.block_size, self.max_seq_length, self.length_name = self.max_seq_length, None, "max_seq_length"
        super().__post_init__()
        if self.pack and self.line_by_line:
            raise ValueError(
                "pack is True and line_by_line True: a line is a document, and a block the beginning of one; leave one "
                "of them out"
            )
        if self.pack is None:
            self.pack = not self.line_by_line
        if self.block_size < 2:
            raise ValueError(f"{self.length_name} is {self.block_size}: a block needs 2 tokens or more, to predict one")
        if self.slice_by and self.pack:
            raise ValueError(
                f"slice_by is {', '.join(self.slice_by)}: blocks hold parts of several documents; pass "
                "--line_by_line, for one document a block"
            )
        if self.is_own and self.num_proc is not None:
            raise ValueError(
                f"num_proc is {self.num_proc}: the tokenizer encodes documents with threads of its own; leave it out"
            )


@dataclass
class MaskArguments(TextArguments):
    """Documents of which some tokens are masked."""

    mlm_probability: float = flag(default=0.15, help="The share of tokens that are masked, and predicted.")

    def __post_init__(self) -> None:
        if self.streaming:
            raise ValueError(
                "streaming is true: how often tokens occur in training is counted first; leave it out, or train a "
                "causal language model"
            )
        super().__post_init__()


@dataclass
class LongDocumentArguments(DocumentArguments):
    """The documents, and the length of segments."""

    for_benchmarks: ClassVar[frozenset[str]] = frozenset(
        {"tokenizer", "vocab_size", "segment_length", "eval_segment_length", "predict_across_segments"}
    )

    benchmark: str = flag(default=LONG_DOCUMENTS, help=f"Benchmark name: {LONG_DOCUMENTS}.")
    segment_length: int = flag(
        default=4096, help="Tokens of each sequence in one step; gradients do not go further back."
    )
    eval_segment_length: int | None = flag(
        default=None,
        help="Tokens of each sequence in one step of the evaluation at the end; segment_length if unset. Only what a "
        "reset forgets depends on it.",
    )
    predict_across_segments: bool = flag(
        default=True, help="Predict the first token of the next segment too, which the authors' code leaves out."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_seq_length", "slice_by", "max_length"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} is {getattr(self, name)}: documents are read to their ends, and results are by position; "
                    "leave it out"
                )
        if not self.is_own and self.benchmark != LONG_DOCUMENTS:
            raise ValueError(
                f"benchmark {self.benchmark!r} has short examples, not documents: leave out what is for long documents"
            )
        needs_size = self.tokenizer == "bpe" and not self.is_own
        has_size = self.tokenizer in ("bpe", "words")
        if (needs_size and self.vocab_size is None) or (self.vocab_size is not None and not has_size):
            raise ValueError(
                f"tokenizer is {self.tokenizer!r} and vocab_size {self.vocab_size}: bpe needs a size, others have one"
            )

    @property
    def evaluated_length(self) -> int:
        """Tokens of each sequence in one step of the evaluation."""
        return self.segment_length if self.eval_segment_length is None else self.eval_segment_length


@dataclass
class SpanArguments(DataArguments):
    """The columns of questions, of the texts that have the answers, and of the answers."""

    length_setting: ClassVar[str] = "max_seq_length"

    question_column: str | None = flag(default=None, help="The column of questions; question if unset.")
    context_column: str | None = flag(
        default=None, help="The column of the texts that have the answers; context if unset."
    )
    answer_column: str | None = flag(
        default=None,
        help='The column of answers; answers if unset: {"text": [...], "answer_start": [...]}, as of SQuAD.',
    )
    max_seq_length: int | None = flag(
        default=384, help="Tokens of a question and its context; longer contexts are read in several windows."
    )
    doc_stride: int = flag(default=128, help="Tokens of a context that a window and the next one share.")
    max_answer_length: int = flag(default=30, help="The most tokens of an answer that is given.")
    version_2_with_negative: bool = flag(default=False, help="Some questions have no answer, which is one to learn.")
    null_score_diff_threshold: float = flag(
        default=0.0, help="No answer is given if its score is greater by more than that than an answer's."
    )

    def __post_init__(self) -> None:
        if self.max_seq_length is not None and self.doc_stride >= self.max_seq_length:
            raise ValueError(
                f"doc_stride is {self.doc_stride} and max_seq_length {self.max_seq_length}: windows share fewer tokens "
                "than they have"
            )
        if self.null_score_diff_threshold and not self.version_2_with_negative:
            raise ValueError(
                f"null_score_diff_threshold is {self.null_score_diff_threshold}, and every question has an answer: "
                "pass --version_2_with_negative, or leave it out"
            )
        super().__post_init__()


@dataclass
class ChoiceArguments(DataArguments):
    """The columns of contexts, of their endings, and of the number of the right one."""

    length_setting: ClassVar[str] = "max_seq_length"

    context_column: str | None = flag(default=None, help="The column of contexts or questions; sent1 if unset.")
    start_column: str | None = flag(
        default=None, help="The column of a text that begins every ending; sent2 if context_column is unset, too."
    )
    ending_columns: list[str] = flag(
        default_factory=list, help="The columns of what to choose from; ending0, ending1 and so on if unset."
    )
    label_column: str | None = flag(
        default=None,
        aliases=["--label_column_name"],
        help="The column with the number of the right ending, from 0; label if unset.",
    )


@dataclass
class PairArguments(DataArguments):
    """The columns of sources and targets, their lengths, and their score."""

    for_benchmarks: ClassVar[frozenset[str]] = frozenset({"num_merges"})

    source_column: str | None = flag(
        default=None,
        aliases=["--text_column"],
        help="The column of sources, such as document or translation.de; source if unset.",
    )
    target_column: str | None = flag(
        default=None,
        aliases=["--summary_column"],
        help="The column of targets, such as summary or translation.en; target if unset.",
    )
    source_lang: str | None = flag(
        default=None, help="Key of the sources in a column translation of texts by language, such as de."
    )
    target_lang: str | None = flag(default=None, help="Key of the targets there, such as en.")
    source_prefix: str | None = flag(default=None, help="Text before every source, white space included.")
    max_source_length: int | None = flag(
        default=None, help="Truncate sources to this many tokens; the number of truncated sources is reported."
    )
    max_target_length: int | None = flag(
        default=None, help="The same for targets in training; written ones are compared with whole targets."
    )
    metric_name: str | None = flag(
        default=None, help=f"The score of targets: {' or '.join(METRICS)}; exact_match if unset."
    )
    num_merges: int | None = flag(
        default=None, help="Merges of the BPE that is trained on texts of wmt14_en_de; 32,764 if unset."
    )

    def __post_init__(self) -> None:
        for kind in ("lang", "column"):
            pair = f"source_{kind}", f"target_{kind}"
            missing, given = sorted(pair, key=lambda name: getattr(self, name) is not None)
            value = getattr(self, given)
            if value is not None and getattr(self, missing) is None:
                raise ValueError(f"{given} is {value!r} and {missing} is not set: name both")
        if self.source_lang is not None and self.source_column is not None:
            raise conflict(self, "source_lang", "source_column", "name the column")
        if self.metric_name is not None:
            require_known("metric_name", self.metric_name, list(METRICS))
        if self.max_seq_length is not None:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}: set max_source_length and max_target_length, which cut "
                "sources and targets"
            )
        super().__post_init__()

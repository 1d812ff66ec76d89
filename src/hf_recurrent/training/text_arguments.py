"""The settings of a user's own data; names are those of transformers' examples where these have them."""

# HfArg makes dataclass fields

from dataclasses import dataclass
from typing import Any

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
from . import objectives

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

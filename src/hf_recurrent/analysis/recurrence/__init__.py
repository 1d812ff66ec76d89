"""What a recurrent state is for: losses of long documents with it and without it, by position, and its gates.

The figures live in `hf_recurrent.analysis.recurrence.plots`, which is imported only by those who draw.
"""

from .evaluate import collect, evaluate_documents
from .losses import DocumentLosses, merge
from .rows import PROSE, default_segment_length, evaluate_rows
from .table import Corpus, recurrence_table, write_recurrence_stats

__all__ = [
    "PROSE",
    "Corpus",
    "DocumentLosses",
    "collect",
    "default_segment_length",
    "evaluate_documents",
    "evaluate_rows",
    "merge",
    "recurrence_table",
    "write_recurrence_stats",
]

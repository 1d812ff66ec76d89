"""When and why a model stops: from model outputs to a table, figures and `halting_stats.json`.

The figures live in `hf_recurrent.analysis.halting.plots`, which is imported only by those who draw.
"""

from .collect import collect
from .heat_map import token_heat_map
from .memory import has_memory, memory_map
from .table import halting_table, write_stats
from .threshold import threshold_curve
from .tokens import TokenKinds

__all__ = [
    "TokenKinds",
    "collect",
    "halting_table",
    "has_memory",
    "memory_map",
    "threshold_curve",
    "token_heat_map",
    "write_stats",
]

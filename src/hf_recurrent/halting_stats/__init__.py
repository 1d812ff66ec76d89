"""When and why a model stops: from model outputs to a table, figures and `halting_stats.json`.

The figures live in `hf_recurrent.halting_stats.plots`, which is imported only by those who draw.
"""

from .collect import collect
from .heat_map import token_heat_map
from .table import halting_table, write_stats
from .threshold import threshold_curve

__all__ = ["collect", "halting_table", "threshold_curve", "token_heat_map", "write_stats"]

"""Which experts serve which tokens: usage by step, load balance, and the tokens that each expert goes with.

The figure lives in `hf_recurrent.analysis.experts.plots`, which is imported only by those who draw.
"""

from .collect import collect, require_experts
from .table import EXPERT_FILE, expert_table, write_expert_stats

__all__ = ["EXPERT_FILE", "collect", "expert_table", "require_experts", "write_expert_stats"]

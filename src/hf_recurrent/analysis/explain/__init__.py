"""How a recurrent-depth model routes: who reads from whom, and whose state changes, at each step of one example.

The figures live in `hf_recurrent.analysis.explain.plots`, which is imported only by those who draw.
"""

from .explanation import Explanation
from .route import explain
from .text import MAX_TOKENS

__all__ = ["MAX_TOKENS", "Explanation", "explain"]

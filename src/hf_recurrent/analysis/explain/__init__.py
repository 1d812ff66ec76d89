"""How a recurrent-depth model processes one example: attention and state changes at each step, and the readout.

Figures live in `plots` and `readout_plots`, which are imported only by those who draw.
"""

from .explanation import MAX_TOKENS, Explanation, explain

__all__ = ["MAX_TOKENS", "Explanation", "explain"]

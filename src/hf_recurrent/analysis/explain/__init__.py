"""How a recurrent-depth model processes one example: attention and state changes at each step, and the readout.

`plots` has the figures, and is imported only by those who draw.
"""

from .explanation import MAX_TOKENS, Explanation, explain

__all__ = ["MAX_TOKENS", "Explanation", "explain"]

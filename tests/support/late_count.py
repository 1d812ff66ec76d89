"""Counts of living units that arrive a step late, as those of an accelerator do."""

from hf_recurrent.models.engine import depth_loop


class LateCount(depth_loop.LiveCount):
    """Knows each count one step after it was taken, as `LiveCount` does on CUDA.

    Attributes:
        polls: how often any of them was asked.
    """

    polls = 0

    def __init__(self):
        super().__init__()
        self.arriving: int | None = None

    def poll(self, live):
        LateCount.polls += 1
        arrived, self.arriving = self.arriving, int(live.sum())
        return arrived

"""The clock of a run of transformers' `Trainer`, which its checkpoints keep."""

import time
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class TrainingClock(TrainerCallback, ExportableState):
    """Seconds of training up to the last checkpoint and since, over all resumptions.

    `epochs` holds the seconds of each epoch that has ended, evaluations after it left out; `running` those of the epoch
    that the last checkpoint was written in.
    """

    def __init__(self, seconds: float = 0.0, epochs: list[float] | None = None, running: float | None = None):
        self.before, self.running = seconds, running
        self.epochs = list(epochs or [])
        self.started = time.perf_counter()
        self.epoch_started: float | None = None

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.started

    @property
    def all_epochs(self) -> list[float]:
        """`epochs`, with the last one if the end of training was the last checkpoint."""
        return self.epochs if self.running is None else [*self.epochs, self.running]

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self.started = time.perf_counter()

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        if self.running is not None and float(state.epoch).is_integer():
            # the checkpoint was written at the end of its epoch
            self.epochs.append(self.running)
            self.running = None
        self.epoch_started = time.perf_counter() - (self.running or 0.0)
        self.running = None

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        self.epochs.append(time.perf_counter() - self.epoch_started)
        self.epoch_started = None

    def state(self) -> dict[str, Any]:
        running = None if self.epoch_started is None else time.perf_counter() - self.epoch_started
        return {"args": {"seconds": self.seconds, "epochs": self.epochs, "running": running}, "attributes": {}}

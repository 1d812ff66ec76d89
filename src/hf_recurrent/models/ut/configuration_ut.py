"""Configuration of the Universal Transformer with stick-breaking halting."""

from ..config.depth import DepthRecurrentConfig


class UTConfig(DepthRecurrentConfig):
    """Configuration of `UTModel` (Algorithm 1 of the dynamic-halt paper).

    By default the model has no halting head. Training supervises every depth step, and an `exit_criterion` that
    `hf-recurrent calibrate` chooses stops early. `UTConfig.preset("dynamic_halt")` is the paper's UT: each token learns
    to halt by its own state, and tokens attend to the halting-weighted soft states.

    Parameters by default: 2,117,120 (`UTModel`), 2,380,802 (`UTForSequenceClassification`).
    """

    model_type = "ut"
    papers = {"dynamic_halt": {"halting": "token", "depth_objective": "mixture"}}
    earlier_defaults = papers["dynamic_halt"]

    transition_aware: bool = False


__all__ = ["UTConfig"]

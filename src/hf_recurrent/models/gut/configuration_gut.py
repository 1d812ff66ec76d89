"""Configuration of the Gated Universal Transformer."""

from typing import Literal

from ..config.depth import GatedDepthConfig


class GUTConfig(GatedDepthConfig):
    """Configuration of `GUTModel` (Algorithm 3 of the dynamic-halt paper).

    By default the model has no halting head. Training supervises every depth step, and an `exit_criterion` that
    `hf-recurrent calibrate` chooses stops early. `GUTConfig.preset("dynamic_halt")` is the paper's GUT, which learns to
    halt. The paper's ablations are options: `halting="token"` is "-Global Halt", `feed_forward="plain"` is "-Gate",
    `transition_aware=False` is "-Transition", `hard_stop=False` is the timing variant "upper bound", and
    `halting="none", depth_objective="final"` is "no halt".

    Parameters by default: 3,167,232 (`GUTModel`), 3,430,914 (`GUTForSequenceClassification`).
    """

    model_type = "gut"
    papers = {"dynamic_halt": {"halting": "global", "depth_objective": "mixture"}}
    earlier_defaults = papers["dynamic_halt"]

    pooling: Literal["mean", "end", "cls"] = "end"


__all__ = ["GUTConfig"]

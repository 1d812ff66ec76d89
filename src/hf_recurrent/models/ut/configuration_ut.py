"""Configuration of the Universal Transformer with stick-breaking halting."""

from ..config.depth import DepthRecurrentConfig
from ..config.fields import checked_config
from ..config.presets import UT_PAPERS


@checked_config
class UTConfig(DepthRecurrentConfig):
    """Configuration of `UTModel` (Algorithm 1 of the dynamic-halt paper).

    By default the model has no halting head. Training supervises every depth step, and an `exit_criterion` that
    `hf-recurrent calibrate` chooses stops early. `UTConfig.preset("dynamic_halt")` is the paper's UT: tokens learn to
    halt one by one, by their own state, and attend to the halting-weighted soft states. Fields are those of
    `DepthRecurrentConfig`.

    Parameters by default: 2,117,120 (`UTModel`), 2,380,802 (`UTForSequenceClassification`).
    """

    model_type = "ut"
    papers = UT_PAPERS
    earlier_defaults = UT_PAPERS["dynamic_halt"]

    transition_aware: bool = False


__all__ = ["UTConfig"]

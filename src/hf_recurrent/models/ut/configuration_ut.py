"""Configuration of the Universal Transformer with stick-breaking halting."""

from typing import Literal

from ..common.depth_configuration import DepthRecurrentConfig
from ..common.fields import checked_config


@checked_config
class UTConfig(DepthRecurrentConfig):
    """Configuration of `UTModel` (Algorithm 1 of the dynamic-halt paper).

    Tokens halt one by one, by their own state, and attend to the halting-weighted soft states. Fields are those
    of `DepthRecurrentConfig`.

    Parameters by default: 2,380,289 (`UTModel`), 2,643,971 (`UTForSequenceClassification`).
    """

    model_type = "ut"

    halting: Literal["token", "global", "none"] = "token"
    transition_aware: bool = False


__all__ = ["UTConfig"]

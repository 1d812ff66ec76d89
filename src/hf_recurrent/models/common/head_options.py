"""Arguments of a call that heads hand on to their base model as they are."""

from .exit_criteria import EXIT_ARGUMENTS
from .unsupported import supported

RECORDS = ("output_attentions", "output_hidden_states", "output_halting", "output_gates")
DEPTH_ARGUMENTS = ("max_steps", "halting_threshold")
HEAD_OPTIONS = (*RECORDS, *DEPTH_ARGUMENTS, *EXIT_ARGUMENTS)


def checked_options(head, options: dict) -> dict:
    """The options of a call, without those of transformers that models do not take and that are None.

    Raises:
        ValueError: such an option is not None.
        TypeError: an option is neither in `HEAD_OPTIONS` nor the architecture's own.
    """
    options = supported(options, head.model.model_arguments)
    for name in options.keys() - {*HEAD_OPTIONS, *head.model.model_arguments}:
        raise TypeError(f"{type(head).__name__}.forward() got an unexpected keyword argument {name!r}")
    return options

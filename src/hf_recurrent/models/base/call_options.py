"""Arguments of a call that heads hand on to their base model as they are."""

from collections.abc import Mapping

from ..config.exit_criteria import CRITERION_SETTINGS, EXIT_ARGUMENTS
from ..ops.unsupported import supported

RECORDS = ("output_attentions", "output_hidden_states", "output_halting", "output_gates")
DEPTH_ARGUMENTS = ("max_depth", "halting_threshold")
HEAD_OPTIONS = (*RECORDS, *DEPTH_ARGUMENTS, *EXIT_ARGUMENTS)


def call_options(*places: Mapping) -> dict:
    """Options of a model's calls from several places, of which later ones come first.

    One that changes the exit criterion leaves the settings of another.
    """
    options: dict = {}
    for place in places:
        given = {name: place[name] for name in (*DEPTH_ARGUMENTS, *EXIT_ARGUMENTS) if place.get(name) is not None}
        if given.get("exit_criterion") not in (None, options.get("exit_criterion")):
            options = {name: value for name, value in options.items() if name not in CRITERION_SETTINGS}
        options |= given
    return options


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

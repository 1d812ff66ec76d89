"""Arguments of a call that heads hand on to their base model as they are."""

from .exit_criteria import EXIT_ARGUMENTS

RECORDS = ("output_attentions", "output_hidden_states", "output_halting", "output_gates")
HEAD_OPTIONS = (*RECORDS, "max_steps", "halting_threshold", *EXIT_ARGUMENTS)


def check_options(head, options: dict) -> None:
    """Raise a TypeError for an option of a call that is not in `HEAD_OPTIONS`, nor the architecture's own."""
    for name in options.keys() - {*HEAD_OPTIONS, *head.model.model_arguments}:
        raise TypeError(f"{type(head).__name__}.forward() got an unexpected keyword argument {name!r}")

"""Arguments of a call that all models take."""

from collections.abc import Mapping
from typing import TypedDict

from ..config.exit_criteria import CRITERION_SETTINGS, EXIT_ARGUMENTS
from ..config.fields import shown

# options of a call about its depth
CALL_OPTIONS = ("max_depth", "halting_threshold", *EXIT_ARGUMENTS)


class RecurrentKwargs(TypedDict, total=False):
    """Keyword arguments of models with a head that their base model reads; an architecture may take others, such as
    `position_ids`.

    Args:
        output_attentions, output_hidden_states: whether to return `attentions` and `hidden_states`, by default as the
            config says.
        output_halting, output_gates: whether to return `halting_probabilities` and `gates`.
        max_depth: largest number of depth steps, instead of `config.num_hidden_layers`.
        halting_threshold: halting mass at which tokens or sequences stop, instead of the config's.
        exit_criterion, exit_threshold, exit_patience, min_depth: early exit, instead of the config's; another criterion
            than the config's has its own defaults. In evaluation mode only.
        return_dict: False for a tuple of the outputs that are not None.
    """

    output_attentions: bool | None
    output_hidden_states: bool | None
    output_halting: bool
    output_gates: bool
    max_depth: int | None
    halting_threshold: float | None
    exit_criterion: str | None
    exit_threshold: float | None
    exit_patience: int | None
    min_depth: int | None
    return_dict: bool | None


def call_options(*places: Mapping) -> dict:
    """Options of a model's calls from several places, of which later ones come first.

    One that changes the exit criterion leaves the settings of another.
    """
    options: dict = {}
    for place in places:
        given = {name: place[name] for name in CALL_OPTIONS if place.get(name) is not None}
        if given.get("exit_criterion") not in (None, options.get("exit_criterion")):
            options = {name: value for name, value in options.items() if name not in CRITERION_SETTINGS}
        options |= given
    return options


POSITIONS = (
    "positions are counted from the first token of each sequence, by `attention_mask`; leave it out, and read several "
    "texts as several sequences"
)
HEADS = (
    "heads are not switched off in a call; leave it out, and set what the attention's output projection takes from a "
    "head to zero in a copy of the model"
)
# of each argument, why it is not taken
UNSUPPORTED = {
    "position_ids": POSITIONS,
    "decoder_position_ids": POSITIONS,
    "head_mask": HEADS,
    "decoder_head_mask": HEADS,
    "cross_attn_head_mask": HEADS,
    "cache_position": "new tokens follow those in `past_key_values`; leave it out",
}


def supported(arguments: dict, own: tuple[str, ...] = ()) -> dict:
    """The arguments without those that models do not take and that are None, as some callers pass them.

    Args:
        own: names of those that this architecture takes.

    Raises:
        ValueError: such an argument is not None.
    """
    refused = {name: reason for name, reason in UNSUPPORTED.items() if name not in own}
    for name, reason in refused.items():
        if arguments.get(name) is not None:
            raise ValueError(f"`{name}` is {shown(arguments[name])}: {reason}")
    # models without a cache are asked for none by some trainers
    wanted = {name: value for name, value in arguments.items() if name != "use_cache" or value not in (None, False)}
    return {name: value for name, value in wanted.items() if name not in refused}

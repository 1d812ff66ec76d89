"""Arguments of transformers' models that the models of this package do not take, and what to do instead."""

from ..config.fields import shown

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

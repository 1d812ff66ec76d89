"""The name of caches among transformers' arguments and outputs: `past_key_values`, and `cache` from 5.24 on."""

from dataclasses import dataclass
from typing import TypeVar

from transformers.utils import ModelOutput

Output = TypeVar("Output", bound=type)

OLD_NAME = "past_key_values"
# later versions have the old name as a property of all outputs
CACHE_NAME = "cache" if hasattr(ModelOutput, OLD_NAME) else OLD_NAME


def output_with_cache(output: Output) -> Output:
    """A dataclass whose field `past_key_values` has transformers' name; the old one reads it in either case."""
    if CACHE_NAME != OLD_NAME and OLD_NAME in output.__annotations__:
        fields = output.__annotations__
        output.__annotations__ = {CACHE_NAME if name == OLD_NAME else name: kind for name, kind in fields.items()}
        setattr(output, CACHE_NAME, getattr(output, OLD_NAME))
        delattr(output, OLD_NAME)
    return dataclass(output)


def with_cache_named(name: str, arguments: dict) -> dict:
    """Arguments of a call, where a cache under either name has this one.

    Raises:
        TypeError: there are caches under both names.
    """
    other = OLD_NAME if name == "cache" else "cache"
    if other not in arguments:
        return arguments
    arguments = dict(arguments)
    cache = arguments.pop(other)
    if cache is not None and arguments.get(name) is not None:
        raise TypeError(f"`cache` and `{OLD_NAME}` are two names of one argument: pass one of them")
    return arguments if cache is None else {**arguments, name: cache}

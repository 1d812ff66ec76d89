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
    found = [value for key in ("cache", OLD_NAME) if (value := arguments.get(key)) is not None]
    if len(found) == 2:
        raise TypeError(f"`cache` and `{OLD_NAME}` are two names of one argument: pass one of them")
    others = {key: value for key, value in arguments.items() if key not in ("cache", OLD_NAME)}
    return {**others, name: found[0]} if found else others

"""A mechanical verdict on the answer to a malformed input: clear, obscure, half, traceback or silent.

An answer is clear when it is an error of this package whose message names the argument, shows what it was and says more
than that. Values that are shown by their shape, dtype, type or extremes are shown, too. No error is silent; a
refusal that leaves something behind is half.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from huggingface_hub.errors import StrictDataclassError

import hf_recurrent
from hf_recurrent.models.common.fields import shown

Verdict = Literal["clear", "obscure", "half", "traceback", "silent"]
VERDICTS = get_args(Verdict)
PACKAGE = Path(hf_recurrent.__file__).resolve().parent
SCRIPTS = Path(__file__).resolve().parents[3] / "training"
KINDS = (ValueError, TypeError, NotImplementedError)
# what a message says besides the argument and its value
FEWEST_WORDS = 3
MAX_COMMAND_LINES = 2


class Case(NamedTuple):
    """An answered malformed input: `subject` is what was called, e.g. a command, details in brackets."""

    subject: str
    name: str
    value: object
    verdict: Verdict
    message: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.subject} {self.name}={shown(self.value)}\n  {self.message[-600:]}"


def verdict(error: BaseException | None, name: str, value: object, spelled: Iterable[str] = ()) -> Verdict:
    """The verdict on the error that a malformed argument raised; None if it raised none.

    Args:
        name: of the argument.
        value: of the argument.
        spelled: further ways to show it, such as "row 3".
    """
    if error is None:
        return "silent"
    error = own_error(error)
    ours = is_of_known_kind(error) and is_raised_by_us(error)
    return "clear" if ours and is_clear_message(str(error), name, value, spelled) else "obscure"


def command_verdict(code: int, said: str, name: str, value: object, spelled: Iterable[str] = ()) -> Verdict:
    """The verdict on a command that was given a malformed option, by its exit code and what it wrote as an error."""
    if code == 0:
        return "silent"
    if "Traceback" in said:
        return "traceback"
    short = len([line for line in said.splitlines() if line.strip()]) <= MAX_COMMAND_LINES
    return "clear" if code in (1, 2) and short and is_clear_message(said, name, value, spelled) else "obscure"


def own_error(error: BaseException) -> BaseException:
    """The error that a strict dataclass wraps in its own, or the error itself."""
    wrapped = isinstance(error, StrictDataclassError) and error.__cause__ is not None
    return own_error(error.__cause__) if wrapped else error


def is_of_known_kind(error: BaseException) -> bool:
    """Whether an error is of the kinds of this package, of which Python's own subclasses, e.g. of Unicode, are not."""
    return type(error) in KINDS or (isinstance(error, Exception) and type(error).__module__.startswith("hf_recurrent"))


def is_raised_by_us(error: BaseException) -> bool:
    """Whether the innermost frame of an error's traceback is in the package or in a training script."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None:
        return False
    file = Path(step.tb_frame.f_code.co_filename).resolve()
    return PACKAGE in file.parents or SCRIPTS in file.parents


def is_clear_message(message: str, name: str, value: object, spelled: Iterable[str] = ()) -> bool:
    found = [each for each in (*spelled, *spellings(value)) if is_shown(each, message)]
    if not found or not is_named(name, message):
        return False
    rest = message.replace(max(found, key=len), " ").replace(name, " ")
    return len(re.findall(r"[^\W\d_]{2,}", rest)) >= FEWEST_WORDS


def is_named(name: str, message: str) -> bool:
    """Whether a message names an argument; options of commands are spelled with hyphens."""
    return any(is_shown(each, message) for each in (name, name.replace("_", "-"), name.replace("-", "_")))


def is_shown(spelling: str, message: str) -> bool:
    """Whether a message holds a spelling, not just as a part of a longer word or number."""
    edges = (r"(?<!\w)" if spelling[:1].isalnum() else "", r"(?!\w)" if spelling[-1:].isalnum() else "")
    # before an expression is compiled of a long value
    return (
        bool(spelling)
        and spelling in message
        and re.search(edges[0] + re.escape(spelling) + edges[1], message) is not None
    )


def spellings(value: object) -> list[str]:
    """How a message may show a value: as it is, or by its type or, of arrays, shape, dtype, smallest and largest."""
    names = [type(value).__name__, *([str(value).lower()] if isinstance(value, bool) else [])]
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        if isinstance(value, dict) and any(hasattr(each, "shape") for each in value.values()):
            # no message shows all numbers of a model
            return names
        return [*names, *(each for each in (repr(value), str(value)) if each)]
    names += [str(tuple(value.shape)), str(value.dtype), str(value.dtype).rpartition(".")[2]]
    if 0 in value.shape or "complex" in str(value.dtype) or getattr(value, "is_meta", False):
        return names
    finite = value[is_finite(value)]
    extremes = [each.item() for each in (finite.min(), finite.max())] if len(finite.reshape(-1)) else []
    return [*names, *(f"{each:g}" if isinstance(each, float) else str(each) for each in extremes), *special(value)]


def special(array) -> list[str]:
    """The words for numbers that an array holds and that are not finite."""
    words = ["NaN", "nan"] if bool((array != array).any()) else []
    return [*words, "infinite", "inf", "-inf"] if bool(((array == array) & ~is_finite(array)).any()) else words


def is_finite(array):
    """Where a real array of numpy or torch holds finite numbers."""
    numbers = array * 1.0
    return numbers - numbers == 0

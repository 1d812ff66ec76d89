"""Errors that a user can correct, as one line with a remedy."""

import errno
import os

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explanation(error: BaseException) -> str | None:
    """The message of a command for an error that its user can correct; None for a defect of this package.

    A list of problems has a line for each of them, all else is one line.
    """
    # slow to import, and most commands fail in no way
    import torch
    from huggingface_hub.errors import HTTPError, StrictDataclassError
    from safetensors import SafetensorError

    line = " ".join(str(error).split()) or type(error).__name__
    if no_room(error):
        return f"there is no room on the disk for a file ({line}): make room, then give the same command again"
    # of a large file that did not arrive, the client names the reason as the cause
    upload = isinstance(error, RuntimeError) and isinstance(error.__cause__, HTTPError)
    if upload or isinstance(error, HTTPError | ConnectionError):
        return f"the Hub cannot be reached or refuses: {line}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return f"there is not enough memory: {line}"
    if isinstance(error, StrictDataclassError | ImportError | SafetensorError | OSError | FloatingPointError):
        return line
    return str(error) if isinstance(error, ValueError) else None


def no_room(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is that of a disk without room."""
    if error is None:
        return False
    # safetensors tells by its message alone
    full = getattr(error, "errno", None) in NO_ROOM or any(f"(os error {number})" in str(error) for number in NO_ROOM)
    return full or no_room(error.__cause__ or error.__context__)

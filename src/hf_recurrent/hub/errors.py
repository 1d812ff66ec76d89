"""Errors that a user can correct, as one line with a remedy."""

import errno
import os

REMEDIES = {
    401: "the Hub does not accept the token: run `hf auth login`, or set HF_TOKEN to a valid one",
    403: "the token may not do this: use one with write access to the namespace",
    412: "the repository has changed meanwhile: run the command again",
}
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explanation(error: BaseException) -> str | None:
    """The message of a command for an error that its user can correct; None for a defect of this package.

    A list of problems has a line for each of them, all else is one line.
    """
    # slow to import, and most commands fail in no way
    import torch
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, StrictDataclassError
    from safetensors import SafetensorError

    line = " ".join(str(error).split()) or type(error).__name__
    if no_room(error):
        return f"there is no room on the disk for a file ({line}): make room, then give the same command again"
    if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
        # the Hub's client names a file in there, or speaks of the network
        try:
            os.makedirs(constants.HF_HOME, exist_ok=True)
        except OSError as reason:
            home = f"HF_HOME is {constants.HF_HOME!r}, which cannot be made ({reason.strerror})"
            return f"{home}: set it to a folder that can be written ({line})"
    if isinstance(error, HfHubHTTPError) and (remedy := REMEDIES.get(status := error.response.status_code)):
        return f"{remedy} ({status}: {' '.join((error.server_message or line).split())})"
    if isinstance(error, HTTPError | ConnectionError):
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

"""Errors that a user can correct, as one line with a remedy; those of the Hub's client above all."""

import os

import torch
from huggingface_hub import constants
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    StrictDataclassError,
)
from safetensors import SafetensorError

from ..files import no_room

# everything that talking to the Hub can raise; connection failures of the HTTP client are HTTPErrors too
HUB_ERRORS = (HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled)
REMEDIES = {
    401: "the Hub does not accept the token: run `hf auth login`, or set HF_TOKEN to a valid one",
    403: "the token may not do this: use one with write access to the namespace",
    412: "the repository has changed meanwhile: run the command again",
}


class PublishError(RuntimeError):
    """Publishing did not happen; the message is one line and names the remedy."""


def explanation(error: Exception) -> str | None:
    """The message of a command for an error that its user can correct; None for a defect of this package.

    A list of problems has a line for each of them, all else is one line.
    """
    if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
        # the Hub's client names a file in there, or speaks of the network
        try:
            os.makedirs(constants.HF_HOME, exist_ok=True)
        except OSError as reason:
            home = f"HF_HOME is {constants.HF_HOME!r}, which cannot be made ({reason.strerror})"
            return f"{home}: set it to a folder that can be written ({_joined(error)})"
    # errors of this package name their cause
    if no_room(error) and not (isinstance(error, ValueError | PublishError) and error.__cause__):
        return (
            f"there is no room on the disk for a file ({_joined(error)}): make room, then give the same command again"
        )
    if isinstance(error, HTTPError | ConnectionError):
        return f"the Hub cannot be reached or refuses: {_joined(error)}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return f"there is not enough memory: {_joined(error)}"
    if isinstance(error, StrictDataclassError | ImportError | SafetensorError | OSError | FloatingPointError):
        return _joined(error)
    return str(error) if isinstance(error, ValueError | PublishError) else None


def explain(error: Exception, repo_id: str, endpoint: str) -> str:
    """One line for an error of `HUB_ERRORS` that was raised while working on `repo_id`."""
    if isinstance(error, LocalTokenNotFoundError):
        return f"{repo_id}: there is no token: run `hf auth login`, or set HF_TOKEN"
    if isinstance(error, OfflineModeIsEnabled):
        return f"{repo_id}: HF_HUB_OFFLINE is set: unset it to publish"
    if not isinstance(error, HfHubHTTPError):
        return f"{repo_id}: {endpoint} cannot be reached ({_joined(error)}): check the network and HF_ENDPOINT"
    status = error.response.status_code
    remedy = REMEDIES.get(status, "the Hub refuses the request" if status < 500 else "the Hub failed: run it again")
    return f"{repo_id}: {remedy} ({status}: {' '.join((error.server_message or str(error)).split())})"


def _joined(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

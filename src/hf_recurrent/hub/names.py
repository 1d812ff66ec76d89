"""Names of repositories and revisions, checked before anything is sent."""

import re

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

# what git allows in a branch or tag, less what would need escaping, other kinds of references and commit ids
REVISION = re.compile(
    r"(?!.*(\.\.|//|/\.|@\{|\.lock$|\.lock/))(?!refs/|HEAD$|[0-9a-f]{7,40}$)[A-Za-z0-9_][A-Za-z0-9_./@{}+-]*(?<![/.])"
)
MOST_LETTERS = 96


def check_repo_id(repo_id: str, argument: str = "repo_id") -> str:
    """`repo_id` if it is a legal `owner/name`; `argument` is what messages call it.

    Raises:
        ValueError: it is not.
    """
    hint = "expected owner/name, each of letters, digits, '-', '_' and '.'"
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise ValueError(f"{argument}={repo_id!r}: {hint}")
    if len(repo_id) > MOST_LETTERS or repo_id.endswith(".ipynb"):
        raise ValueError(f"{argument}={repo_id!r}: {hint} (at most {MOST_LETTERS} letters, and not ending in .ipynb)")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{argument}={repo_id!r}: {hint} ({error})") from error
    return repo_id


def check_revision(kind: str, name: str | None) -> str | None:
    """`name` if it may name a branch or tag; `kind` is the argument it was given as.

    Raises:
        ValueError: it may not.
    """
    if name is not None and not REVISION.fullmatch(name):
        raise ValueError(f"{kind}={name!r}: expected a name such as 'main' or 'v1.0'")
    return name

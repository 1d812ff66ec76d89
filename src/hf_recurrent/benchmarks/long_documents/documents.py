"""Documents: their rows, and which split each belongs to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..sampling import digest

SPLITS = ("train", "validation", "test")
_HASH_DIGITS = 13
# what the sum of two shares may be off by
_ROUNDING = 1e-9


class Document(NamedTuple):
    """A document and the files, relative to their folder or archive, that it is made of, in order."""

    name: str
    parts: tuple[str, ...]


def shares(params: Mapping[str, Any]) -> dict[str, float]:
    """The share of each split that is to have documents.

    Raises:
        ValueError: the shares of validation and test are more than everything.
    """
    validation, test = params["validation_share"], params["test_share"]
    train = 1.0 - validation - test
    if train < -_ROUNDING:
        raise ValueError(
            f"validation_share={validation} and test_share={test} add up to more than 1: give smaller shares"
        )
    found = zip(SPLITS, (train, validation, test), strict=True)
    return {split: share for split, share in found if share > _ROUNDING}


def split_of(name: str, params: Mapping[str, Any]) -> str:
    """The split of a document: a function of its name, the seed and the shares alone.

    So a document keeps its split when others are added or removed.
    """
    drawn = int(digest("long_documents", params["seed"], name)[:_HASH_DIGITS], 16) / 16**_HASH_DIGITS
    bound, wanted = 0.0, shares(params)
    for split in reversed(wanted):
        bound += wanted[split]
        if drawn < bound:
            return split
    # rounding
    return next(iter(wanted))


def divide(documents: Sequence[Document], params: Mapping[str, Any]) -> dict[str, list[Document]]:
    """The documents of each split that has a share.

    Raises:
        ValueError: a split has a share, but no document falls into it.
    """
    splits: dict[str, list[Document]] = {split: [] for split in shares(params)}
    for document in documents:
        splits[split_of(document.name, params)].append(document)
    for split, members in splits.items():
        if not members:
            raise ValueError(
                f"none of {len(documents)} documents falls into the {split} split (seed={params['seed']}, "
                f"validation_share={params['validation_share']}, test_share={params['test_share']}): give another seed "
                "or other shares (0 for a split that is not wanted), or put the files into folders named train, "
                "validation and test"
            )
    return splits


def joined(texts: Iterable[str]) -> str:
    """Texts one after the other; a newline is put between two where the first does not end with one."""
    pieces: list[str] = []
    for text in texts:
        if pieces and text and not pieces[-1].endswith("\n"):
            pieces.append("\n")
        if text:
            pieces.append(text)
    return "".join(pieces)


def make_row(name: str, source: str, text: str) -> dict[str, object]:
    """The row of a document; a word is what stands between white space."""
    return {
        "text": text,
        "name": name,
        "source": source,
        "num_bytes": len(text.encode()),
        "num_characters": len(text),
        "num_words": len(text.split()),
    }

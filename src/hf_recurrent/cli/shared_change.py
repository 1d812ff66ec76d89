"""Changes of a folder by a command that several processes carry out together."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..files import Change
from ..inference.processes import from_first, is_first


@contextmanager
def made_by_first(change: AbstractContextManager[Change], folder: str | Path) -> Iterator[Change]:
    """The `change` of a folder, which the first process makes; what the others write is thrown away."""
    if is_first():
        with change as made:
            # the others wait until it is certain that there can be a change
            from_first(lambda: None)
            yield made
        return
    from_first(lambda: None)
    with TemporaryDirectory() as scratch:
        yield Change(Path(folder), Path(scratch))

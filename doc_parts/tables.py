"""Tables of Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[str] = ()) -> str:
    """A table; columns named in `numeric` are aligned to the right."""
    rule = ["---:" if name in numeric else "---" for name in head]
    lines = [head, rule, *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())

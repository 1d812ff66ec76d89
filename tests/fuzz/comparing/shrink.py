"""The smallest case that still shows a fault: fewer and shorter rows, fewer and smaller config fields, no options."""

import dataclasses
import re
import time
from collections.abc import Iterator, Sequence

from fuzz.comparing.agreement import Bench, Verdict, judged
from fuzz.comparing.cases import Case, Row, make_config
from fuzz.comparing.configs import SMALL

# layouts that are tried of each smaller case, because where padding is changes with it
LAYOUTS = 4
# a smaller case shows at least such a difference, if the first did
LEAST_DIFFERENCE = 1e-3


def fault(case: Case, name: str) -> Verdict | None:
    """The fault that a property finds in a case; None for a case that is none."""
    try:
        make_config(case)
        bench = Bench(case)
        verdicts = judged(bench, name, lambda: Bench(case.but(precise=True)))
        return next((verdict for verdict in verdicts if verdict.is_fault), None)
    except Exception:
        return None


def shrunk(case: Case, name: str, seconds: float = 20.0) -> tuple[Case, Verdict]:
    """A case that fails in the same way and that no single change makes smaller, or the smallest found in time."""
    found = fault(case, name)
    if found is None:
        raise ValueError(f"the case shows no fault of {name!r}: pass one that does")
    end, progress = time.monotonic() + seconds, True
    while progress:
        progress = False
        for smaller in smaller_cases(case):
            if time.monotonic() > end:
                return case, found
            verdict = same_fault(smaller, name, found)
            if verdict is not None:
                (case, found), progress = verdict, True
                break
    return case, found


def same_fault(case: Case, name: str, original: Verdict) -> tuple[Case, Verdict] | None:
    for layout in range(LAYOUTS):
        arranged = case.but(layout=layout)
        found = fault(arranged, name)
        alike = found is not None and found.kind == original.kind and kind_of(found) == kind_of(original)
        if alike and found.size >= min(original.size, LEAST_DIFFERENCE):
            return arranged, found
    return None


def kind_of(verdict: Verdict) -> str:
    """The error, without its numbers; of differences any is as good."""
    return re.sub(r"[\d\W]+", " ", verdict.message)[:60] if verdict.kind == "failed" else ""


def smaller_cases(case: Case) -> Iterator[Case]:
    """Cases that are smaller by one change, the largest changes first."""
    for removed in groups(case.rows):
        if len(removed) < len(case.rows):
            yield case.but(rows=tuple(row for row in case.rows if row not in removed))
    for number, row in enumerate(case.rows):
        for shorter in shorter_rows(row, case):
            yield case.but(rows=(*case.rows[:number], shorter, *case.rows[number + 1 :]))
    for name in case.options:
        yield case.but(options={other: value for other, value in case.options.items() if other != name})
    removable = [name for name in case.fields if name not in SMALL and name != "is_encoder_decoder"]
    for removed in groups(removable):
        yield case.but(fields={name: value for name, value in case.fields.items() if name not in removed})
    for name, value in case.fields.items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            for less in sorted({1, value // 2, value - 1}):
                if less < value and not (name.endswith("_token_id") or name == "problem_type"):
                    yield case.but(fields={**case.fields, name: less})
    if not case.precise:
        yield case.but(precise=True)


def groups(items: Sequence) -> Iterator[Sequence]:
    """All items, the halves of them, and so on down to each."""
    size = len(items)
    while size:
        yield from (items[start : start + size] for start in range(0, len(items), size))
        size //= 2


def shorter_rows(row: Row, case: Case) -> Iterator[Row]:
    """The row with half of its tokens, then with one fewer, then with simpler ones."""
    length, shortest = len(row.ids), 2 if case.siamese else 1
    for kept in sorted({length // 2, length - 1}):
        if shortest <= kept < length:
            yield dataclasses.replace(
                row,
                ids=row.ids[:kept],
                second=min(row.second, kept - 1),
                labelled=row.labelled if row.target else row.labelled[:kept],
            )
    for kept in sorted({len(row.target) // 2, len(row.target) - 1}):
        if 1 <= kept < len(row.target):
            yield dataclasses.replace(row, target=row.target[:kept], labelled=row.labelled[:kept])
    for name in ("ids", "target"):
        ids = getattr(row, name)
        counted = tuple(index % 4 + 1 for index in range(len(ids)))
        if sum(ids) > sum(counted):
            yield dataclasses.replace(row, **{name: counted})
    if not all(row.labelled):
        yield dataclasses.replace(row, labelled=(True,) * len(row.labelled))

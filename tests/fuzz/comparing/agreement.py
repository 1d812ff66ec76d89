"""Whether two runs agree: in float32 by rounding, else in float64, unless the model itself is at a threshold."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

from fuzz.comparing.cases import Case, make_model, precision
from fuzz.comparing.properties import PROPERTIES, Comparison, Drawing
from fuzz.comparing.runs import Result, RowResult, Run, execute

# of the largest value of a result, or of one
TOLERANCE = {True: 1e-8, False: 1e-4}
# relative changes of parameters like those by rounding; what they change in a result may differ
NOISE = {True: 1e-13, False: 1e-6}
# of half precision, in units of its rounding: what is no difference; and how many times as large as by noise it may be
HALF_FLOOR, HALF_FACTOR = 12.8, 30.0
TRIALS = 8

Kind = Literal["same", "rounded", "undecided", "different", "failed", "empty"]


class Verdict(NamedTuple):
    """How a comparison came out.

    Attributes:
        kind: "same"; "rounded", if it differs in float32 only; "undecided", if as small a change of the parameters as
            rounding makes as large a difference, because a decision is near its threshold; "different"; "failed", with
            an error; "empty", if there was nothing to compare.
        size: of the largest difference, relative to the largest value or one.
    """

    kind: Kind
    comparison: Comparison | None = None
    message: str = ""
    size: float = math.inf

    @property
    def is_fault(self) -> bool:
        return self.kind in ("different", "failed")


class Difference(NamedTuple):
    """The largest difference in units of the tolerance, and of what."""

    size: float
    name: str


def difference(actual: Result, expected: Result, comparison: Comparison, tolerance: float) -> Difference:
    """The largest over all that is compared; infinite where whole numbers or shapes differ, -1 if nothing is."""
    found = [Difference(-1.0, "nothing")]
    for number in sorted(actual.rows.keys() & expected.rows.keys()):
        ours, theirs = actual.rows[number], expected.rows[number]
        if comparison.stopped_before is not None and not stops_before(theirs, comparison.stopped_before):
            continue
        for name, first, second in pairs(ours, theirs, number, comparison):
            found.append(Difference(distance(first, second, tolerance), f"{name} of row {number}"))
    if comparison.same_rows:
        # the scale of all gradients, because that of some is rounding alone
        scale = max([1.0, *(value.abs().max().item() for value in expected.batch.values())])
        for name in sorted(actual.batch.keys() | expected.batch.keys()):
            if name not in comparison.without:
                first, second = (result.batch.get(name) for result in (actual, expected))
                found.append(Difference(distance(first, second, tolerance, scale), name))
    return max(found, key=lambda each: each.size)


def stops_before(result: RowResult, steps: int) -> bool:
    taken = [value for part in result for name, value in part.items() if name.endswith("ponder_steps")]
    return all(bool((value < steps).all()) for value in taken)


def pairs(ours: RowResult, theirs: RowResult, number: int, comparison: Comparison):
    """The values of a row that are compared: (name, actual, expected)."""
    first = None if comparison.first_tokens is None else comparison.first_tokens.get(number)
    if comparison.first_tokens is not None and first is None:
        return
    for name in ours.tokens.keys() & theirs.tokens.keys() - set(comparison.without):
        yield name, ours.tokens[name][:first], theirs.tokens[name][:first]
    if first is None:
        for name in ours.row.keys() & theirs.row.keys() - set(comparison.without):
            yield name, ours.row[name], theirs.row[name]


def distance(actual: torch.Tensor | None, expected: torch.Tensor | None, tolerance: float, scale: float = 1.0) -> float:
    if actual is None or expected is None:
        # a parameter may have a gradient of zeros, or none
        value = expected if actual is None else actual
        return distance(value, torch.zeros_like(value), tolerance, scale)
    if actual.shape != expected.shape:
        return math.inf
    if not expected.is_floating_point():
        return 0.0 if torch.equal(actual, expected) else math.inf
    if expected.numel() == 0:
        return 0.0
    actual, expected = actual.detach().double(), expected.detach().double()
    gap = torch.where(actual == expected, 0.0, (actual - expected).abs())
    gap = torch.where(actual.isnan() & expected.isnan(), 0.0, gap).nan_to_num(math.inf, math.inf)
    scale = max(scale, expected.nan_to_num(0.0, 0.0, 0.0).abs().max().item())
    return gap.max().item() / (tolerance * scale)


class Bench:
    """A case's model and what has been computed with it."""

    def __init__(self, case: Case):
        self.case = case
        self.model = make_model(case)
        # a head may have changed it
        self.config = self.model.config
        self.results: dict[int, tuple[Run, Result]] = {}

    def result(self, run: Run) -> Result:
        """Of a run; it is run once."""
        if id(run) not in self.results:
            with precision(self.case):
                self.results[id(run)] = run, execute(self.model, self.case, run)
        return self.results[id(run)][1]

    def comparisons(self, name: str):
        drawing = Drawing(self.case, self.config, self.case.random(name))
        return PROPERTIES[name].compare(drawing) if PROPERTIES[name].holds(drawing) else iter(())


def judged(bench: Bench, name: str, in_float64: Callable[[], Bench]):
    """The verdict on each comparison of a property.

    Args:
        in_float64: the bench of the same case in float64.
    """
    for index, comparison in enumerate(bench.comparisons(name)):
        try:
            verdict = verdict_on(bench, comparison)
            if verdict.kind == "different" and not bench.case.precise and not comparison.half:
                again = list(in_float64().comparisons(name))[index]
                precise = verdict_on(in_float64(), again)
                verdict = precise if precise.kind != "same" else Verdict("rounded", again, verdict.message)
        except Exception as error:
            verdict = Verdict("failed", comparison, f"{type(error).__name__}: {error}")
        yield verdict


def verdict_on(bench: Bench, comparison: Comparison) -> Verdict:
    if comparison.half:
        return half_verdict(bench, comparison)
    actual, expected = bench.result(comparison.actual), bench.result(comparison.expected)
    if comparison.actual is comparison.expected:
        return Verdict("empty")
    precise = bench.case.precise
    found = difference(actual, expected, comparison, TOLERANCE[precise])
    if found.size <= 1.0:
        return Verdict("same" if found.size >= 0.0 else "empty")
    size = found.size * TOLERANCE[precise]
    message = f"{found.name} differs by {size:.2g}"
    if precise:
        for noisy in noisy_results(bench, comparison.expected, NOISE[precise]):
            if difference(noisy, expected, comparison, TOLERANCE[precise]).size > 1.0:
                return Verdict("undecided", comparison, message)
    return Verdict("different", comparison, message, size)


def noisy_results(bench: Bench, run: Run, noise: float):
    for trial in range(TRIALS):
        torch.manual_seed(trial)
        yield bench.result(run.but(noise=noise))


def half_verdict(bench: Bench, comparison: Comparison) -> Verdict:
    """Whether half precision changes no more than some times what rounded parameters do."""
    actual, expected = bench.result(comparison.actual), bench.result(comparison.expected)
    rounding = torch.finfo(comparison.actual.half_type).eps / 2
    found = difference(actual, expected, comparison, HALF_FLOOR * rounding)
    if found.size <= 1.0:
        return Verdict("same")
    by_noise = max(
        difference(noisy, expected, comparison, HALF_FLOOR * rounding).size
        for noisy in noisy_results(bench, comparison.expected, rounding)
    )
    if by_noise == math.inf:
        return Verdict("undecided", comparison)
    kind = "same" if found.size <= HALF_FACTOR * by_noise else "different"
    return Verdict(kind, comparison, f"{found.name} differs by {found.size * HALF_FLOOR * rounding:.2g}")

"""The campaign of invariances: random models of every architecture, random batches, and what must change no result.

    cd tests; python -m fuzz.invariances --seconds 600 --seed 0

Draws a model and a batch, tries a random choice of properties on them, and goes on to the next. Each fault is shrunk
and shown as a program; the exit status is then 1.
"""

import argparse
import collections
import dataclasses
import math
import random
import sys
import time
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers.utils import logging

from hf_recurrent import ARCHITECTURES

from .agreement import Bench, Verdict, judged
from .batches import drawn_rows
from .cases import Case
from .configs import drawn_fields, drawn_options
from .properties import FIRST_CALL, PROPERTIES
from .reproduction import reproduction
from .shrink import shrunk

HEADS = [(name, head) for name, architecture in ARCHITECTURES.items() for head in architecture.heads.values()]
# fields that a config allows together, but not with every head
EXIT_FIELDS = {"exit_criterion", "exit_threshold", "exit_patience"}
KINDS = ("same", "rounded", "undecided", "different", "failed")
MOST_FAULTS = 5


class Fault(NamedTuple):
    case: Case
    property: str
    verdict: Verdict


@dataclasses.dataclass
class Counts:
    """What a campaign has tried, and found.

    Attributes:
        verdicts: comparisons of each property, by the kind of their verdict.
        models: by architecture and head, "pairs" for classifiers of sentences that are encoded apart.
        criteria: models that stop units, by what stops them.
        depths: models that stop units at all, by whether units of a batch stopped at "one" depth or "several".
        refused: drawn config fields and call options that were not allowed, by name.
    """

    verdicts: dict[str, collections.Counter] = dataclasses.field(
        default_factory=lambda: {name: collections.Counter() for name in PROPERTIES}
    )
    models: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    criteria: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    depths: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    faults: list[Fault] = dataclasses.field(default_factory=list)

    @property
    def comparisons(self) -> int:
        return sum(counter.total() for counter in self.verdicts.values())

    def table(self) -> str:
        width = max(map(len, PROPERTIES))
        lines = [" ".join([" " * width, *(f"{kind:>9}" for kind in KINDS)])]
        for name, counter in self.verdicts.items():
            if name == FIRST_CALL and not counter:
                continue
            lines.append(" ".join([f"{name:{width}}", *(f"{counter[kind]:9}" for kind in KINDS)]))
        by_architecture, by_head = collections.Counter(), collections.Counter()
        for (architecture, head), number in self.models.items():
            by_architecture[architecture] += number
            by_head[head] += number
        return "\n".join(
            [
                *lines,
                f"models: {listed(by_architecture)}",
                f"heads: {listed(by_head)}",
                f"stopped by: {listed(self.criteria)}; at several depths in {self.depths['several']} batches, at one "
                f"in {self.depths['one']}",
                f"{self.refused.total()} drawn fields and options were refused and taken back",
                f"{self.comparisons} comparisons over {self.models.total()} models: {len(self.faults)} disagreements",
            ]
        )


def listed(counter: collections.Counter) -> str:
    return ", ".join(f"{name} {number}" for name, number in counter.items())


def drawn_case(rng: random.Random, counts: Counts, architecture: str, head: str) -> Case:
    """A random case of an architecture and a head."""
    fixed = {"is_causal": True} if head == "ForCausalLM" else {}
    if architecture == "sut":
        fixed["is_encoder_decoder"] = head == "ForConditionalGeneration" or (head == "Model" and rng.random() < 0.3)
    config_class = ARCHITECTURES[architecture].config_class
    fields = drawn_fields(config_class, rng, counts.refused, fixed)
    if head == "ForSequenceClassification":
        number = rng.randint(1, 4)
        problems = ("multi_label_classification", "single_label_classification") if number > 1 else ("regression",)
        fields |= {"num_labels": number, "problem_type": rng.choice((None, *problems))}
    config = config_class(**fields)
    return Case(
        architecture,
        head,
        fields,
        drawn_options(config, rng),
        drawn_rows(head, config, rng),
        spread=rng.choice((0.1, 0.3, 0.6)),
        precise=rng.random() < 0.5,
        seed=rng.randrange(10**6),
        layout=rng.randrange(10**6),
    )


def usable_bench(case: Case, counts: Counts) -> Bench:
    """The case's bench, without ways to stop that its model refuses."""
    bench = Bench(case)
    allowed = {**case.options, **{name: value for name, value in case.fields.items() if name in EXIT_FIELDS}}
    try:
        (comparison,) = bench.comparisons(FIRST_CALL)
        result = bench.result(comparison.actual)
    except Exception as error:
        if not isinstance(error, ValueError) or not any(name in str(error) for name in allowed):
            return bench
        counts.refused.update(allowed.keys())
        fields = {name: value for name, value in case.fields.items() if name not in EXIT_FIELDS}
        return usable_bench(case.but(options={}, fields=fields), counts)
    steps = [part["ponder_steps"] for row in result.rows.values() for part in row if "ponder_steps" in part]
    criterion = case.options.get("exit_criterion") or getattr(bench.config, "exit_criterion", "learned")
    if steps and (criterion != "learned" or bench.config.halting != "none"):
        counts.criteria[criterion] += 1
        counts.depths["several" if len(torch.cat([each.flatten() for each in steps]).unique()) > 1 else "one"] += 1
    return bench


def try_case(case: Case, counts: Counts, rng: random.Random, properties: Sequence[str]) -> None:
    """Judge the properties, each in its share of cases, up to the first with a fault."""
    counts.models[case.architecture, "pairs" if case.siamese else case.head] += 1
    bench = usable_bench(case, counts)
    precise: list[Bench] = []

    def in_float64() -> Bench:
        if not precise:
            precise.append(Bench(bench.case.but(precise=True)))
        return precise[0]

    before = len(counts.faults)
    for name in (FIRST_CALL, *properties):
        if rng.random() > PROPERTIES[name].share:
            continue
        for verdict in judged(bench, name, in_float64):
            if verdict.kind != "empty":
                counts.verdicts[name][verdict.kind] += 1
            if verdict.is_fault:
                counts.faults.append(Fault(bench.case, name, verdict))
        if len(counts.faults) > before:
            return


def campaign(
    seconds: float = math.inf,
    seed: int = 0,
    count: float = math.inf,
    heads: Sequence[tuple[str, str]] = tuple(HEADS),
    properties: Sequence[str] = tuple(PROPERTIES)[1:],
    faults: int = MOST_FAULTS,
) -> Counts:
    """Random models until the time is over, there were `count` comparisons, or so many faults.

    Args:
        heads: architectures and suffixes of classes, tried in turn.
        properties: names of those that are tried.
    """
    counts, rng, end = Counts(), random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end and counts.comparisons < count and len(counts.faults) < faults:
        architecture, head = heads[counts.models.total() % len(heads)]
        try_case(drawn_case(rng, counts, architecture, head), counts, rng, properties)
    return counts


def report(fault: Fault) -> str:
    """The fault, shrunk, as a program."""
    case, verdict = shrunk(fault.case, fault.property)
    return f"# {fault.property}\n{reproduction(case, verdict.comparison, verdict.message)}"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--count", type=float, default=math.inf, help="comparisons")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=MOST_FAULTS, help="how many to find before the end")
    flags = parser.parse_args(argv)
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    counts = campaign(flags.seconds, flags.seed, flags.count, faults=flags.faults)
    for fault in counts.faults:
        print(report(fault))
    print(counts.table())
    return int(bool(counts.faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

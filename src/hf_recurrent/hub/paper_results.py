"""What papers report, to be shown beside our results.

Flip-flop language modelling: Table 3 of "Investigating Recurrent Transformers with Dynamic Halt" (arXiv 2402.00976):
last-read accuracy of three runs trained on strings of 512 words with p_i = 0.8. Numbers are as printed. Two medians of
GUT at length 1024 seem to have changed places there, 93 at p_i = 0.1 and 100 at 0.8: three accuracies with median 93
have a mean of at most 95.3, not 99.24, and exchanged both fit their means and deviations.

Compositional table lookup, simple arithmetic and ListOps by depth: Tables 1 to 6 of "The Neural Data Router" (arXiv
2110.07732): means and sample standard deviations of five runs, as printed. Its IID column and all of Table 4 are those
of the last evaluation of a run, the others of the checkpoint that is best on deeper validation data.

Long documents: Tables 1 and 2 of "Block-Recurrent Transformers" (arXiv 2203.07852): bits per token of one run, as
printed. Its arXiv and GitHub corpora are not public, so that only its columns of PG19 are there to be compared with.
"""

from typing import NamedTuple


class PaperResult(NamedTuple):
    """Accuracies of several runs, as fractions: their median (None if not told), mean and standard deviation."""

    median: float | None
    mean: float
    std: float


LENGTHS, IGNORE_PERCENTS = (512, 1024), (10, 80, 98)
# in percent, by row of the table: medians, means and standard deviations in the order of the columns, which are p_i of
# 0.1, 0.8 and 0.98 at length 512, then at length 1024
TABLE_3 = {
    "Transformer": (
        (100, 100, 90, 100, 100, 87),
        (100, 100, 89.83, 100, 99.91, 83.88),
        (0, 0, 0.78, 0, 0.12, 4.12),
    ),
    "UT": (
        (100, 92.8, 59, 100, 92.7, 59),
        (100, 92.81, 59.1, 100, 91.65, 58.44),
        (0, 0.13, 0.20, 0, 1.54, 0.66),
    ),
    "GUT": (
        (100, 100, 82, 93, 100, 80),
        (99.15, 91.34, 73.08, 99.24, 88.48, 70.91),
        (1.19, 12.23, 13.10, 1.04, 11.67, 12.99),
    ),
    "TLB": (
        (100, 100, 94, 100, 100, 95),
        (100, 100, 93.45, 100, 100, 95.70),
        (0, 0, 1.85, 0, 0, 1.28),
    ),
    "GUTLB": (
        (100, 100, 95, 100, 100, 96),
        (83.19, 99.97, 89.07, 83.42, 99.94, 90.09),
        (23.73, 0.02, 9.63, 23.37, 0.05, 9.38),
    ),
    "TLB-FR": (
        (100, 100, 93.97, 99.99, 99.6, 92.71),
        (100, 100, 94.37, 99.99, 99.08, 92.94),
        (0, 0, 1.99, 0.01, 0.86, 1.79),
    ),
}
# the setting that the table is about: what its models are trained on, for how many optimiser steps, and their width
PAPER_DATA = {"train_length": 512, "p_ignore": 0.8, "num_train": 160_000}
PAPER_STEPS, PAPER_WIDTH = 10_000, 512


def flip_flop_result(row: str, length: int, ignore_percent: int) -> PaperResult | None:
    """The paper's cell for a model (a key of `TABLE_3`), a length in words and 100 p_i; None where it has none.

    Raises:
        ValueError: the table has no such row.
    """
    if row not in TABLE_3:
        raise ValueError(f"row is {row!r}: Table 3 has {', '.join(TABLE_3)}")
    if length not in LENGTHS or ignore_percent not in IGNORE_PERCENTS:
        return None
    column = LENGTHS.index(length) * len(IGNORE_PERCENTS) + IGNORE_PERCENTS.index(ignore_percent)
    return PaperResult(*(round(values[column] / 100, 4) for values in TABLE_3[row]))


class PaperRow(NamedTuple):
    """A row of a table: what it is about, and (mean, standard deviation) by column.

    `data` are the parameters of the benchmark that are not its defaults. `columns` maps the benchmark's configurations
    to the accuracy on rows like those of training and on deeper ones after
    `iterations` optimiser steps; `early` to the latter after `early_iterations`, where the table has that.
    """

    benchmark: str
    width: int
    iterations: int
    columns: dict[str, tuple[tuple[float, float], tuple[float, float]]]
    data: dict[str, int] = {}
    early_iterations: int | None = None
    early: dict[str, tuple[float, float]] = {}


TABLE_LOOKUP = "compositional_table_lookup"
DIRECTIONS = ("forward", "backward")
SURE = (1.0, 0.0)
# softmax attention without a gate, and its geometric counterpart, were chosen on depths 6 to 7 and tested on 8 to 10
SHALLOW_VALIDATION = {"valid_extra_depth": 2}


def _lookup(width: int, iterations: int, iid: tuple, longer: tuple, **more: dict) -> PaperRow:
    """A row of compositional table lookup, its cells given forward, then backward."""
    columns = dict(zip(DIRECTIONS, zip(iid, longer, strict=True), strict=True))
    return PaperRow(TABLE_LOOKUP, width, iterations, columns, **more)


def _act(iid: tuple, longer: tuple, early: tuple) -> PaperRow:
    by_direction = dict(zip(DIRECTIONS, early, strict=True))
    return _lookup(128, 60_000, iid, longer, early_iterations=30_000, early=by_direction)


def _deeper(
    benchmark: str, width: int, iterations: int, iid: tuple, test: tuple, early: tuple | None = None
) -> PaperRow:
    more = {} if early is None else {"early_iterations": 50_000, "early": {"original": early}}
    return PaperRow(benchmark, width, iterations, {"original": (iid, test)}, **more)


_BOTH = (SURE, SURE)
_TRANSFORMER_IID = (SURE, (0.82, 0.39))
NEURAL_DATA_ROUTER_TABLES = {
    1: {
        "LSTM": _lookup(200, 20_000, (SURE, (0.59, 0.03)), (SURE, (0.22, 0.03))),
        "Bidirectional LSTM": _lookup(200, 20_000, _BOTH, _BOTH),
        "DNC": _lookup(200, 20_000, (SURE, (0.57, 0.06)), (SURE, (0.18, 0.02))),
        "Transformer": _lookup(128, 30_000, _TRANSFORMER_IID, ((0.13, 0.01), (0.12, 0.01)), data=SHALLOW_VALIDATION),
        "+ rel": _lookup(128, 30_000, _BOTH, ((0.23, 0.05), (0.13, 0.01)), data=SHALLOW_VALIDATION),
        "+ rel + gate": _lookup(256, 30_000, _BOTH, ((0.99, 0.01), (0.19, 0.04))),
        "+ abs/rel + gate": _lookup(256, 30_000, _BOTH, ((0.98, 0.02), (0.98, 0.03))),
        "+ geom. att.": _lookup(
            128, 30_000, ((0.96, 0.04), (0.93, 0.06)), ((0.16, 0.02), (0.15, 0.02)), data=SHALLOW_VALIDATION
        ),
        "+ geom. att. + gate (NDR)": _lookup(256, 30_000, _BOTH, _BOTH),
    },
    2: {
        row: _deeper("simple_arithmetic", *cells)
        for row, cells in {
            "LSTM": (200, 200_000, (0.99, 0.0), (0.74, 0.02), (0.72, 0.01)),
            "Bidirectional LSTM": (200, 200_000, (0.98, 0.01), (0.82, 0.06), (0.80, 0.04)),
            "Transformer": (128, 200_000, (0.98, 0.01), (0.47, 0.01), (0.29, 0.01)),
            "+ rel": (128, 200_000, (1.0, 0.0), (0.77, 0.04), (0.40, 0.05)),
            "+ abs/rel + gate": (256, 100_000, (1.0, 0.01), (0.80, 0.16), (0.73, 0.15)),
            "+ geom. att. + gate (NDR)": (256, 100_000, (1.0, 0.0), (0.98, 0.01), (0.98, 0.01)),
        }.items()
    },
    3: {
        row: _deeper("listops_depth", *cells)
        for row, cells in {
            "LSTM": (512, 200_000, (0.99, 0.0), (0.71, 0.03)),
            "Bidirectional LSTM": (512, 200_000, (1.0, 0.0), (0.57, 0.04)),
            "Transformer": (256, 200_000, (0.98, 0.0), (0.74, 0.03)),
            "+ rel": (256, 200_000, (0.98, 0.01), (0.79, 0.04)),
            "+ abs/rel + gate": (512, 100_000, (1.0, 0.01), (0.90, 0.06)),
            "+ geom. att. + gate (NDR)": (512, 100_000, (1.0, 0.0), (0.99, 0.01)),
        }.items()
    },
    4: {
        f"{layers} layers": _lookup(256, 30_000, *cells)
        for layers, cells in {
            14: (_BOTH, _BOTH),
            12: (_BOTH, (SURE, (0.99, 0.02))),
            10: (_BOTH, ((0.75, 0.04), (0.62, 0.05))),
            8: (_BOTH, ((0.23, 0.02), (0.24, 0.03))),
            6: ((SURE, (0.96, 0.03)), ((0.22, 0.05), (0.15, 0.01))),
            4: (((0.96, 0.04), (0.68, 0.11)), ((0.14, 0.01), (0.13, 0.01))),
        }.items()
    },
    5: {
        "Transformer, first": _lookup(
            128, 30_000, _TRANSFORMER_IID, ((0.12, 0.01), (0.13, 0.01)), data=SHALLOW_VALIDATION
        ),
        "+ rel, first": _lookup(128, 30_000, _BOTH, ((0.12, 0.01), (0.22, 0.05)), data=SHALLOW_VALIDATION),
        "+ rel + gate, first": _lookup(256, 30_000, _BOTH, ((0.17, 0.02), SURE)),
    },
    6: {
        "Transformer, A": _act(_BOTH, ((0.12, 0.02), (0.12, 0.01)), ((0.13, 0.01), (0.13, 0.01))),
        "Transformer, U": _act(_BOTH, ((0.12, 0.01), (0.11, 0.01)), ((0.13, 0.01), (0.12, 0.01))),
        "+ rel, A": _act(_BOTH, ((0.99, 0.02), (0.13, 0.0)), ((0.84, 0.22), (0.13, 0.01))),
        "+ rel, U": _act(_BOTH, ((0.92, 0.14), (0.12, 0.02)), ((0.67, 0.41), (0.12, 0.0))),
        "+ geo, A": _act(_BOTH, ((0.97, 0.05), (0.45, 0.21)), ((0.58, 0.16), (0.30, 0.17))),
        "+ geo, U": _act(((0.96, 0.10), SURE), ((0.72, 0.35), (0.44, 0.19)), ((0.31, 0.22), (0.21, 0.07))),
    },
}


def neural_data_router_results(row: PaperRow, config: str, steps: int) -> dict[str, PaperResult]:
    """What a row says of `test` and `test_ood` of a run of so many optimiser steps; nothing if it has no such column.

    Where a table has an earlier column, that has the accuracy on deeper rows alone.
    """
    if config not in row.columns:
        return {}
    iid, deeper = row.columns[config]
    if steps >= row.iterations:
        return {"test": PaperResult(None, *iid), "test_ood": PaperResult(None, *deeper)}
    if row.early_iterations is not None and steps == row.early_iterations:
        return {"test_ood": PaperResult(None, *row.early[config])}
    return {}


class DocumentCell(NamedTuple):
    """Bits per token on the test split after optimiser `steps` of so many `tokens`, those of all replicas."""

    bits_per_token: float
    steps: int
    tokens: int


BLOCK_RECURRENT_WIDTH = 1024
_TOKENS_A_STEP = 131_072
# row of Table 1 -> bits per token of PG19 as bytes and as tokens
_TABLE_1 = {
    "XL:512": (1.01, 3.62),
    "XL:1024": (0.997, 3.59),
    "XL:2048": (0.990, 3.58),
    "Slide:12L": (0.989, 3.60),
    "Slide:13L": (0.989, 3.57),
    "Rec:lstm:dual": (0.985, 3.56),
    "Rec:lstm:single": (0.962, 3.55),
    "Rec:lstm:skip": (0.969, 3.56),
    "Rec:fixed:dual": (0.957, 3.54),
    "Rec:fixed:single": (0.966, 3.58),
    "Rec:fixed:skip": (0.952, 3.53),
    "Feedback:lstm:single": (0.977, 3.50),
    "Feedback:fixed:skip": (0.935, 3.49),
    "Memorizing Transformer 32k": (0.950, 3.50),
}
# row of Table 2 -> bits per token, with four times the replicas
_TABLE_2 = {"Slide:13L:large": 3.39, "Rec:lstm:single:large": 3.36, "Rec:fixed:skip:large": 3.32}
# (table, column, row) -> cell
BLOCK_RECURRENT_PG19 = {
    (1, column, row): DocumentCell(cells[place], 500_000, _TOKENS_A_STEP)
    for row, cells in _TABLE_1.items()
    for place, column in enumerate(("PG19 bytes", "PG19 tokens"))
} | {(2, "PG19 tokens", row): DocumentCell(bits, 200_000, 4 * _TOKENS_A_STEP) for row, bits in _TABLE_2.items()}

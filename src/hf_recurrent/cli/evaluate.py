"""`hf-recurrent evaluate`: accuracy and halting statistics of a checkpoint on a benchmark."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from . import options
from .console import out, quiet_libraries, table

NOTHING = "\u2013"


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="Folder or Hub id of a checkpoint.")],
    benchmark: Annotated[
        str,
        typer.Argument(help="A benchmark (`hf-recurrent benchmark list`), or the folder or Hub id of an exported one."),
    ],
    config: Annotated[str | None, typer.Option(help="Configuration; the benchmark's default if not given.")] = None,
    split: Annotated[list[str] | None, typer.Option(help="May be repeated; all test splits if not given.")] = None,
    set_: options.Settings = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with the authors' own files.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate this many random rows of each split.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a batch.")] = 64,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Depth limit instead of the checkpoint's.")] = None,
    halting_threshold: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Threshold instead of the checkpoint's.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the checkpoint.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:1; a GPU is used if there is one.")] = None,
    json: Annotated[Path | None, typer.Option(dir_okay=False, help="Write the tables to this file too.")] = None,
) -> None:
    """Evaluate a checkpoint: accuracy and depth steps by split and difficulty."""
    from ..benchmarks.export.settings import parse_settings
    from ..metrics.serialize import write_json
    from ..training.evaluate import Request, evaluate_checkpoint, load_checkpoint

    quiet_libraries()
    request = Request(benchmark, config, tuple(split or ()), parse_settings(set_ or ()), data_dir, limit)
    tables = evaluate_checkpoint(
        load_checkpoint(checkpoint, device, revision),
        request,
        batch_size=batch_size,
        max_steps=max_steps,
        halting_threshold=halting_threshold,
        progress=True,
    )
    for drawn in drawings(tables):
        out.print(drawn)
    out.print(LEGEND, "" if all(result["fixed_depth"] for result in tables.values()) else STEPS_LEGEND)
    if json is not None:
        write_json(json, {"splits": tables})


def drawings(tables: dict[str, dict[str, Any]]) -> list[Any]:
    """What to print: a table of the splits, and for each split how it halts and a table for each slice column."""
    drawn = [table("accuracy", COLUMNS, ([name, *cells(result)] for name, result in tables.items()))]
    for name, result in tables.items():
        drawn += [] if result["fixed_depth"] else [Text(halting(name, result))]
        for column, data in result["slices"].items():
            rows = ([row["value"], *cells(row)] for row in data["rows"])
            drawn.append(table(f"{name} by {column}", [(column, False), *COLUMNS[1:]], rows))
    return drawn


COLUMNS = [
    ("split", False),
    ("n", True),
    ("accuracy", True),
    ("majority", True),
    ("mean steps", True),
    ("p95", True),
    ("most", True),
]


LEGEND = "majority: accuracy of the most frequent answer."
STEPS_LEGEND = (
    "mean steps, p95 (95th percentile): depth steps of an example; most: of the deepest unit. A unit halts when its "
    "halting mass, summed over depth, reaches the threshold; a forced halt is one at the depth limit without that."
)


def cells(row: dict[str, Any]) -> list[str]:
    """n, accuracy, majority baseline and steps of a split or slice."""
    steps = row["steps"]
    depth = [f"{steps['mean']:.2f}", f"{steps['p95']:.2f}", f"{steps['max']:g}"] if steps else [NOTHING] * 3
    return [f"{row['n']:,}", f"{row['accuracy']:.1%}", f"{row['majority_baseline']:.1%}", *depth]


def halting(name: str, result: dict[str, Any]) -> str:
    """How a split halts, in words."""
    from ..hub.trend import trends

    related = [
        f"{item['column']} {item['spearman']:+.2f} ({item['direction']})"
        for item in trends(result)
        if item["spearman"] is not None
    ]
    return (
        f"{name}: each {result['unit']} halts at a mass of {result['threshold']:g}; "
        f"median {result['steps']['median']:g} of at most {result['max_steps']} steps, "
        f"ponder cost {result['ponder_cost']:.2f}, "
        f"forced halts {result['forced_halt_rate']:.1%}\n"
        f"rank correlation of steps with {', '.join(related) or 'no column is defined'}\n"
    )

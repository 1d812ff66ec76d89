"""`hf-recurrent experts`: which experts of a checkpoint serve which tokens."""

from typing import Annotated, Any

import typer
from rich.markup import escape

from ..utils import NOTHING
from . import options
from .console import out, quiet_libraries, show_rows, table

LEGEND = "balance: entropy of the experts' shares over its maximum, log E; information: pointwise, of expert and token"


@options.grouped
def experts(
    checkpoint: Annotated[
        str, typer.Argument(callback=options.a_place, help="Folder or Hub id of a checkpoint with experts.")
    ],
    unsliced_examples: options.Examples,
    split: options.Splits = None,
    limit: options.Limit = 1000,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 64,
    folder: options.Out = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the figure into assets/ there.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Draw it, and show all of it in the card there.")] = False,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
) -> None:
    """Count which experts serve which tokens: usage by step, load balance, and each expert's tokens."""
    from ..analysis.experts import count_experts, expert_table, require_experts
    from ..hub.results import EXPERT_FILE
    from ..tasks.checkpoints import load_checkpoint
    from ..utils import changed_files
    from .shared import encoded, place, report, write_tables

    quiet_libraries()
    target = place(checkpoint, folder, card)
    request = unsliced_examples.request(split)
    with changed_files(target) as change:
        loaded = load_checkpoint(checkpoint, device, revision)
        require_experts(loaded.model, checkpoint)
        tables = {}
        for rows in encoded(loaded, request, limit, seed):
            counts = count_experts(loaded.model, rows.batches(loaded.tokenizer, batch_size), progress=True)
            tables[rows.name] = expert_table(counts, loaded.tokenizer, len(rows.dataset))
        for name, found in tables.items():
            show(name, found)
        out.print(LEGEND)
        write_tables(change, EXPERT_FILE, tables, plot or card, "experts" if card else None)
    report(change)


def show(name: str, found: dict[str, Any]) -> None:
    """Print a table of the modules of a split, and one of the experts of each feed-forward module."""
    rows = []
    for title, module in found["modules"].items():
        balance = NOTHING if module["balance"] is None else f"{module['balance']:.3f}"
        sizes = {"experts": module["num_experts"], "of a token": module["per_token"], "used": len(module["experts"])}
        # no expert is used where texts are empty
        busiest = next((f"{expert['share']:.1%}" for expert in module["experts"]), NOTHING)
        rows.append({"module": title, **sizes, "busiest": busiest, "balance": balance})
    show_rows(f"{name}: {found['n']:,} examples", rows)
    heads = [("expert", True), ("share", True), ("most frequent", False), ("highest information", False)]
    for title, module in found["modules"].items():
        if "feed-forward" in title and module["num_experts"] > 1:
            rows = []
            for expert in module["experts"]:
                lists = (" ".join(item["token"] for item in expert[key]) for key in ("by_count", "by_information"))
                rows.append([expert["expert"], f"{expert['share']:.1%}", *map(escape, lists)])
            out.print(table(f"{name}: {title}", heads, rows))

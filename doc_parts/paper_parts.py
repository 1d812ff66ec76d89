"""Tables of the papers, row by row: the recipe's command, the paper's numbers, ours, and how far we are.

The papers' numbers are those of `src/hf_recurrent/training/paper_results.yaml`, which holds them as printed; ours are
those of the checkpoints under model_cards/.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import yaml

from hf_recurrent.hub.gallery.entries import Entry
from hf_recurrent.recipes import recipe_files
from hf_recurrent.training.recipes import papers
from hf_recurrent.utils import percent

from .checkpoint_parts import accuracies, entries, link
from .tables import table

# rows of which a checkpoint of CPU size stands under model_cards/, and the splits of it that stand for the columns
SMALL: dict[tuple[str, int, str], list[tuple[str, dict[str, str]]]] = {
    ("dynamic_halt", 1, "UT"): [("ut-listops", {})],
    ("dynamic_halt", 1, "GUT"): [("gut-listops", {})],
    ("dynamic_halt", 1, "TLB"): [("tlb-listops", {})],
    ("dynamic_halt", 2, "UT"): [("ut-logical-inference", {})],
    ("dynamic_halt", 2, "GUT"): [("gut-logical-inference", {})],
    ("neural_data_router", 1, "+ geom. att. + gate (NDR)"): [
        ("ndr-ctl-forward", {"forward/test": "test", "forward/test_ood": "test_ood"}),
        ("ndr-ctl-backward", {"backward/test": "test", "backward/test_ood": "test_ood"}),
    ],
    ("neural_data_router", 2, "+ geom. att. + gate (NDR)"): [
        ("ndr-arithmetic", {"original/test": "test", "original/test_ood": "test_ood"})
    ],
    ("neural_data_router", 3, "+ geom. att. + gate (NDR)"): [
        ("ndr-listops-depth", {"original/test": "test", "original/test_ood": "test_ood"})
    ],
    ("block_recurrent", 1, "Rec:fixed:skip"): [("block-recurrent-python-cpu", {})],
}
# the strings of the CPU-size models are 64 and 128 words long
FLIP_FLOP = {
    f"original/test_{long}_p{share}": f"test_{short}_p{share}"
    for long, short in ((512, 64), (1024, 128))
    for share in (10, 80, 98)
}
for row, name in {"UT": "ut-flip-flop-cpu", "GUT": "gut-flip-flop-cpu", "TLB": "tlb-flip-flop-cpu"}.items():
    SMALL["dynamic_halt", 3, row] = [(name, FLIP_FLOP)]
SMALL["dynamic_halt", 3, "GUTLB"] = [("gutlb-flip-flop", FLIP_FLOP)]

NOT_RUN = "not run"
CPU_SIZE = "CPU-size"
REACHED = "CPU-size, reached"
# points of accuracy below the paper's at which a small model still counts as reaching it
CLOSE = 0.5


class Command(NamedTuple):
    """The recipe of a row and the flags that lead to it."""

    recipe: str
    flags: str = ""

    def __str__(self) -> str:
        return f"`{self.recipe}{self.flags}`"


@cache
def recipes() -> dict[str, dict[str, Any]]:
    """The recipes of rows of papers, by name."""
    found = {name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in recipe_files().items()}
    return {name: recipe for name, recipe in found.items() if "paper" in recipe}


@cache
def commands() -> dict[tuple[str, int, str, str | None], Command]:
    """(paper, table, row, column) -> the command that reproduces it, for every recipe and its variants."""
    found = {}
    for name, recipe in recipes().items():
        for change, other in {"": {}, **(recipe.get("paper_variants") or {})}.items():
            if change and not other:
                continue
            place = {**recipe["paper"], **other}
            found[place["id"], place["table"], place["row"], place.get("column")] = Command(name, flags_of(change))
    return found


def flags_of(change: str) -> str:
    """A change as `paper_variants` names it, "config.pooling = cls", as flags of the command."""
    name, _, value = change.partition(" = ")
    if not name:
        return ""
    owner, _, key = name.rpartition(".")
    return f" --{owner} '{{{key}: {value}}}'" if owner else f" --{key} {value}"


def rows_of(paper: str, number: int) -> list[str]:
    """The rows of a table, in the paper's order where its numbers are transcribed, else in that of recipes."""
    facts = papers()[paper]["tables"][number]
    named = [row for (id_, table_, row, _) in commands() if (id_, table_) == (paper, number)]
    return list(facts["rows"]) if "rows" in facts else list(dict.fromkeys(named))


def columns_of(paper: str, number: int) -> list[dict[str, Any]]:
    return papers()[paper]["tables"][number].get("columns", [])


def title(column: dict[str, Any]) -> str:
    name = f"{column['config']}/{column['split']}"
    limited = (column.get("needs") or {}).get("exact_steps")
    return column.get("name") or (f"{name} after {limited:,} steps" if limited else name)


def theirs(facts: dict[str, Any], cell: Any) -> str:
    """A cell of the paper: accuracies in percent, with the deviation; BLEU; bits."""
    numbers = dict(cell) if isinstance(cell, dict) else dict(zip(facts["numbers"], cell, strict=False))
    numbers.pop("needs", None)
    if "slices" in numbers:
        values = next(iter(numbers["slices"].values()))
        return ", ".join(f"{value}: {100 * share:g}" for value, share in values.items())
    value, spread = numbers.get("mean"), numbers.get("std")
    if value is None:
        return f"{next(iter(numbers.values())):g}"
    scale = 1 if facts.get("percent") else 100
    return f"{scale * value:.4g}" + (f" ± {scale * spread:.3g}" if spread is not None else "")


def cells_of(facts: dict[str, Any], row: str) -> list[Any]:
    found = facts["rows"][row]
    return found["cells"] if isinstance(found, dict) else found


def ours(paper: str, number: int, row: str, column: dict[str, Any]) -> float | None:
    """Our accuracy in percent on what stands for a column; None without."""
    key = f"{column['config']}/{column['split']}"
    if (column.get("needs") or {}).get("exact_steps"):
        return None
    for name, splits in SMALL.get((paper, number, row), []):
        if key in splits:
            return 100 * accuracies(entries()[name])[splits[key]]
    return None


def state(paper: str, number: int, row: str) -> str:
    """How far a row is: reached by a small model on the paper's own splits, tried by one, or not run."""
    small = SMALL.get((paper, number, row))
    if small is None:
        return NOT_RUN
    facts = papers()[paper]["tables"][number]
    own_splits = all(key.partition("/")[2] == split for _, splits in small for key, split in splits.items())
    pairs = list(compared(paper, number, row)) if "rows" in facts else []
    if own_splits and pairs and all(mine >= printed - CLOSE for mine, printed in pairs):
        return REACHED
    return CPU_SIZE


def compared(paper: str, number: int, row: str) -> Iterator[tuple[float, float]]:
    """Our accuracy and the paper's mean, in percent, of every column that has both."""
    facts = papers()[paper]["tables"][number]
    for column, cell in zip(columns_of(paper, number), cells_of(facts, row), strict=True):
        numbers = dict(cell) if isinstance(cell, dict) else dict(zip(facts["numbers"], cell, strict=False))
        mine = ours(paper, number, row, column)
        if mine is not None and "mean" in numbers:
            yield mine, numbers["mean"] * (1 if facts.get("percent") else 100)


def own_words(entry: Entry) -> str:
    """The scores of a checkpoint whose splits stand for no column."""
    shown = (
        f"{split} {value:.3f} bits" if entry.of_documents else f"{split} {percent(value)[:-1]}"
        for split, value in accuracies(entry).items()
    )
    return f"{link(entry.name)}: {', '.join(shown)}"


def table_row(paper: str, number: int, row: str) -> list[str]:
    facts = papers()[paper]["tables"][number]
    columns = columns_of(paper, number)
    small = SMALL.get((paper, number, row), [])
    cells = cells_of(facts, row) if "rows" in facts else []
    shown = []
    for column, cell in zip(columns, cells, strict=True):
        mine = ours(paper, number, row, column)
        shown.append(theirs(facts, cell) + (f"; ours {percent(mine / 100)[:-1]}" if mine is not None else ""))
    placed = [name for name, splits in small if splits]
    free = [own_words(entries()[name]) for name, splits in small if not splits]
    return [row, state(paper, number, row), *shown, "; ".join([*map(link, placed), *free]), run_by(paper, number, row)]


def run_by(paper: str, number: int, row: str) -> str:
    """The commands of a row: one, or one for each column that has a recipe of its own."""
    found = [(column, command) for (*place, column), command in commands().items() if place == [paper, number, row]]
    if not found and (paper, number, row) == SAME_AS[0]:
        return run_by(*SAME_AS[1])
    single = len(found) == 1
    return "<br>".join(str(command) if single else f"{column}: {command}" for column, command in found)


# a row of the paper that is another one's once more
SAME_AS = (
    ("neural_data_router", 4, "14 layers"),
    ("neural_data_router", 1, "+ geom. att. + gate (NDR)"),
)


def table_of(paper: str, number: str) -> str:
    """A table of a paper, row by row."""
    head = ["row", "state", *map(title, columns_of(paper, int(number))), "our checkpoint", "recipe"]
    return table(head, (table_row(paper, int(number), row) for row in rows_of(paper, int(number))))


def summary() -> str:
    """How many rows of each table are reached, tried at CPU size, and not run."""
    rows = []
    for paper, facts in papers().items():
        for number in facts["tables"]:
            states = [state(paper, number, row) for row in rows_of(paper, number)]
            counts = (states.count(kind) for kind in (REACHED, CPU_SIZE, NOT_RUN))
            rows.append((facts.get("name", facts["title"]), number, len(states), *counts))
    return table(
        ["paper", "table", "rows", REACHED, CPU_SIZE, NOT_RUN],
        rows,
        ["table", "rows", REACHED, CPU_SIZE, NOT_RUN],
    )


def differences_of_recipes(paper: str) -> str:
    """What recipes of a paper do otherwise than it, in their own words; each sentence once, with its recipes."""
    found: dict[str, list[str]] = {}
    for name, recipe in recipes().items():
        if recipe["paper"]["id"] == paper:
            for sentence in recipe.get("differences", []):
                found.setdefault(sentence, []).append(name)
    return "\n".join(
        f"- {sentence} ({len(names)} recipe{'s' if len(names) > 1 else ''})" for sentence, names in found.items()
    )

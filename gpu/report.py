"""One report of all parts: `report.md` for people, `report.json` for programs, and a picture if matplotlib is there."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from perf.core import Table, as_markdown

from .catalogue import PARTS, Part
from .checks import FAILED, NOT_HERE, PASSED, read_results, results_of, write_results

HEAD = {False: "# A day on a GPU", True: "# Rehearsal on a CPU: no GPU has run any of this"}


def counts(results: dict[str, Any]) -> Counter:
    return Counter(row["outcome"] for row in results["checks"].values())


def summary(part: Part, results: dict[str, Any]) -> str:
    """A part in one line."""
    seconds = sum(row["seconds"] for row in results["checks"].values())
    found = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts(results).items())) or "nothing"
    return f"{part.name}: {found} in {seconds:.0f} s" + ("" if results["finished"] else ", not finished")


def fenced(text: str) -> str:
    return f"\n```\n{text.strip()}\n```\n"


def tables_of(results: dict[str, Any]) -> list[Table]:
    """The tables of all checks; those of the same title are one."""
    found: dict[str, Table] = {}
    for row in results["checks"].values():
        for table in (Table(**each) for each in row.get("tables", ())):
            before = found.get(table.title, Table(table.title, []))
            notes = " ".join(dict.fromkeys(filter(None, (before.note, table.note))))
            found[table.title] = Table(table.title, before.rows + table.rows, notes)
    return list(found.values())


def failures(name: str, row: dict[str, Any]) -> str:
    state = ", ".join(f"{key} {value}" for key, value in row.get("device", {}).items())
    lines = [f"**{name}**: {row['reason']}"]
    if state:
        lines.append(f"Device afterwards: {state}.")
    return "\n\n".join(lines) + "\n" + (fenced(row["traceback"]) if row.get("traceback") else "")


def section(part: Part, results: dict[str, Any]) -> str:
    checks = results["checks"]
    lines = [f"## {part.title}\n\n{summary(part, results)}\n"]
    lines += [failures(name, row) for name, row in checks.items() if row["outcome"] == FAILED]
    others = [(name, row) for name, row in checks.items() if row["outcome"] not in (PASSED, FAILED)]
    if others:
        lines.append("\n".join(f"- {name}: {row['outcome']}: {row['reason']}" for name, row in others) + "\n")
    return "\n".join([*lines, *map(as_markdown, tables_of(results))])


def write_report(folder: Path, facts: dict[str, Any], left_out: dict[str, str]) -> int:
    """Write the report of all parts of a folder -> how many checks failed."""
    found = {part: read_results(results_of(folder, part.name)) for part in PARTS}
    found = {part: results for part, results in found.items() if results["checks"] or results["finished"]}
    total: Counter = sum((counts(results) for results in found.values()), Counter())
    lines = [HEAD[facts["rehearsal"]], ", ".join(f"{key} {value}" for key, value in facts.items() if value) + "."]
    overview = [
        {
            "part": part.name,
            "kind": part.kind,
            **{outcome: counts(results)[outcome] for outcome in total},
            "seconds": round(sum(row["seconds"] for row in results["checks"].values()), 1),
            "whole": "yes" if results["finished"] else "no",
        }
        for part, results in found.items()
    ]
    lines.append(as_markdown(Table("Parts", overview)))
    if left_out:
        lines.append("\n".join(f"- left out: {name}: {reason}" for name, reason in left_out.items()))
    if facts["rehearsal"]:
        lines.append(unexecuted(found))
    lines += [section(part, results) for part, results in found.items()]
    content = {
        "facts": facts,
        "left out": left_out,
        "parts": {part.name: results for part, results in found.items()},
    }
    write_results(folder / "report.json", content)
    if draw(folder / "report.png", found):
        lines.append("![Halted passes against the ideal, and the fused kernel against eager](report.png)")
    (folder / "report.md").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return total[FAILED]


def unexecuted(found: dict[Part, dict[str, Any]]) -> str:
    """The paths that this rehearsal could not execute, as its checks say."""
    rows = [
        (part, name, row["reason"])
        for part, results in found.items()
        for name, row in results["checks"].items()
        if row["outcome"] == NOT_HERE
    ]
    lines = [f"- {part.name}, {name}: {reason}" for part, name, reason in rows]
    return "## Not executed here\n\n" + ("\n".join(lines) or "Everything was executed.")


def draw(path: Path, found: dict[Part, dict[str, Any]]) -> bool:
    """Time over the ideal by batch size, and the kernel's over eager attention by length -> whether there is any."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    by_name = {part.name: tables_of(results) for part, results in found.items()}
    panels = [
        ("halting", "batch", "over line", "time over the ideal"),
        ("lengths", "length", "kernel over eager", "kernel's time over eager"),
    ]
    panels = [panel for panel in panels if by_name.get(panel[0])]
    if not panels:
        return False
    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, x, y, label) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for table in by_name[name]:
            rows = [row for row in table.rows if row.get(x) and row.get(y)]
            axes.plot([row[x] for row in rows], [row[y] for row in rows], marker="o", label=table.title)
        axes.set(xlabel=x, ylabel=label, xscale="log")
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.legend(fontsize=6)
    figure.savefig(path, dpi=120)
    return True


def read_report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))

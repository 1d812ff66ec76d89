"""Tables of what the checkpoints under model_cards/ reach, and of stored measurements."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from hf_recurrent.hub.gallery.entries import Entry, read_gallery
from hf_recurrent.utils import percent
from perf.core import as_markdown
from perf.stored import Stored, path_of

from .tables import table

ROOT = Path(__file__).parents[1]
MODES = {"inference": "inference", "training": "a training step", "decoding": "decoding"}


@cache
def entries() -> dict[str, Entry]:
    """The checkpoints by name."""
    return {entry.name: entry for entry in read_gallery(ROOT / "model_cards")}


def link(name: str) -> str:
    return f"[{name}](../../model_cards/{name}/README.md)"


def accuracies(entry: Entry) -> dict[str, float]:
    """Split -> accuracy, as a fraction; of documents, bits."""
    return {split: row[entry.metric.key] for split, row in entry.results["splits"].items()}


def score(entry: Entry, split: str) -> str:
    value = accuracies(entry)[split]
    return f"{value:.3f} bits" if entry.of_documents else percent(value)


def constant_score(entry: Entry, split: str) -> str:
    """What the best constant answer or prediction gets."""
    found = entry.results["splits"][split]
    return f"{found['constant_bits_per_byte']:.3f} bits" if entry.of_documents else percent(found["majority_baseline"])


def of_architecture(model_type: str) -> str:
    chosen = [entry for entry in entries().values() if entry.results["model"]["type"] == model_type]
    head = ["checkpoint", "task", "parameters", "split", "score", "constant answer", "mean steps"]
    rows = (
        (
            link(entry.name),
            entry.task,
            f"{entry.results['model']['parameters']:,}",
            f"`{entry.main_split}`",
            score(entry, entry.main_split),
            constant_score(entry, entry.main_split),
            f"{entry.mean_steps:.2f} of {entry.main_table['max_depth']}",
        )
        for entry in chosen
    )
    return table(head, rows, ["parameters", "score", "constant answer"]) if chosen else NO_CHECKPOINT


NO_CHECKPOINT = "There is no committed checkpoint of it."


def of_benchmark(name: str) -> str:
    """Every split of every checkpoint that was trained on a benchmark."""
    chosen = [entry for entry in entries().values() if entry.results["data"]["name"] == name]
    if not chosen:
        return NO_CHECKPOINT
    head = ["checkpoint", "config", "split", "examples", "score", "constant answer", "mean steps"]
    return table(head, reached(chosen), ["examples", "score", "constant answer", "mean steps"])


def reached(chosen: Iterable[Entry]) -> Iterable[tuple[str, ...]]:
    for entry in chosen:
        for split, found in entry.results["splits"].items():
            steps = found.get("steps") or {}
            mean = steps.get("mean")
            yield (
                link(entry.name),
                f"`{entry.results['data']['config']}`",
                f"`{split}`",
                f"{found.get('n') or found['documents']:,}",
                score(entry, split),
                constant_score(entry, split),
                f"{mean:.2f}" if mean is not None and not found["fixed_depth"] else f"{found['max_depth']} (fixed)",
            )


def calibrated(name: str, split: str) -> dict:
    return entries()[name].results["calibration"]["tests"][split]


def steps_by_difficulty(name: str, split: str = "all tested splits") -> str:
    """Mean steps of the calibrated exit, and accuracy, by difficulty."""
    rows = calibrated(name, split)["by_difficulty"]
    (column,) = {entries()[name].trend["column"]}
    return table(
        [column, "examples", "mean steps", "accuracy", "accuracy at full depth"],
        (
            (
                row["value"],
                f"{row['n']:,}",
                f"{row['mean_depth']:.2f}",
                percent(row["accuracy"]),
                percent(row["full_accuracy"]),
            )
            for row in rows
        ),
        ["examples", "mean steps", "accuracy", "accuracy at full depth"],
    )


def exit_against_fixed_depth(name: str) -> str:
    """The calibrated exit on the calibration split, beside fixed numbers of steps there."""
    found = entries()[name].results["calibration"]
    fixed = ((f"{row['max_depth']} steps", row) for row in found["fixed_depths"])
    rows = [*fixed, ("full depth", found["full_depth"])]
    return table(
        ["stops after", "accuracy", "mean steps", "time over full depth's"],
        (
            (
                name,
                percent(row["accuracy"]),
                f"{row['mean_depth']:.2f}",
                f"{row['relative_time']:.2f}",
            )
            for name, row in rows
        ),
        ["accuracy", "mean steps", "time over full depth's"],
    )


def counted_work(*architectures: str) -> str:
    """Work of the small models of `python -m perf counted`, as stored, and of the Transformer with unshared layers."""
    found = Stored.read(path_of("counted")).table("Counted work of small models")
    rows = [row for row in found.rows if row["architecture"] in architectures]
    return table(
        ["architecture", "work of", "million products", "operator calls", "token-steps"],
        (
            (
                f"`{row['architecture']}`",
                MODES[row["mode"]],
                f"{row['products'] / 1e6:.1f}",
                f"{row['calls']:,}",
                f"{row['token-steps']:,}",
            )
            for row in rows
        ),
        ["million products", "operator calls", "token-steps"],
    )


def stored_table(script: str, title: str) -> str:
    """One table of docs/performance.md, without its heading."""
    found = next(shown for shown in Stored.read(path_of(script)).tables if shown.title.startswith(title))
    return "\n".join(as_markdown(found).split("\n")[2:]).strip()

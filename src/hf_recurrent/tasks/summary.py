"""Results in a terminal: tables of splits and slices, and sentences on how models stop."""

from collections.abc import Iterator, Mapping

from ..hub.card import METRICS
from ..metrics.functional import Row, hardly_better
from ..models.config.exit_criteria import CRITERIA
from ..utils import NOTHING, bits, percent, steps

# key of a result -> its heading, and the text of its value
COLUMNS = {
    "n": ("n", "{:,}".format),
    "documents": ("documents", "{:,}".format),
    "tokens": ("tokens", "{:,}".format),
    "accuracy": ("accuracy", percent),
    "majority_baseline": ("majority", percent),
    "all_reads": ("all reads", percent),
    "bits_per_byte": ("bits/byte", bits),
    "bits_per_token": ("bits/token", bits),
    "difference": ("more bits/token", "{:+.4f}".format),
    "standard_error": ("±", "{:.4f}".format),
    "token_accuracy": ("accuracy", percent),
    "mean": ("mean steps", steps),
    "mean_steps": ("mean steps", steps),
    "p95": ("p95", steps),
    "max": ("max", "{:g}".format),
    "constant_bits_per_token": ("constant", bits),
    "word_perplexity": ("per word", "{:,.5g}".format),
}
# carry -> what is reset from segment to segment
RESETS = {"document": "nothing", "segment": "everything", "state": "the state vectors"}
MEANINGS = {
    "exact_labels": "exact labels: examples all of whose labels are predicted, and no other.",
    "r_squared": "R²: share of the labels' variance that predictions explain.",
    "last_read_accuracy": "last read: share of strings whose last read is right; all reads: share of all reads.",
}
COUNTED = {"word_accuracy": "words", "masked_accuracy": "masked tokens"}


def titled_tables(tables: Mapping[str, Row], metric: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The results of splits, then of each split by position and by the values of its columns.

    Args:
        metric: the measure of the tables, one of `METRICS`.

    Returns:
        Titles, and rows of texts by their headings.
    """
    title = heading(metric)
    if are_of_texts(tables):
        title = "texts" if all("texts" in table for table in tables.values()) else "long documents"
    yield title, [{"split": name, **cells(table, metric)} for name, table in tables.items()]
    for name, table in tables.items():
        if len(table.get("carries", ())) > 1:
            resets = [{"reset": RESETS[row["carry"]], **cells(row, metric)} for row in table["carries"]]
            yield f"{name}, read in segments of {table['segment_length']:,} tokens", resets
        if "by_position" in table:
            yield f"{name} by position", [at_position(row, metric) for row in table["by_position"]]
        of_tokens = {} if are_of_texts(tables) else table.get("tokens") or {}
        for column, found in {**table.get("slices", {}), **table.get("by_column", {}), **of_tokens}.items():
            # a column that is the same everywhere compares nothing
            if len(found["rows"]) > 1:
                of = " of the token" if column in of_tokens else ""
                yield f"{name} by {column}{of}", [by(column, row, metric) for row in found["rows"]]


def are_of_texts(tables: Mapping[str, Row]) -> bool:
    """Whether tables are of the losses of texts or documents."""
    return all("carries" in table for table in tables.values())


def heading(metric: str) -> str:
    """The name of a measure, in lower case where it is no abbreviation."""
    label = METRICS[metric].label
    return label if label.isupper() else label.lower()


def cells(row: Row, metric: str) -> dict[str, str]:
    """The results of a split or slice that `COLUMNS` has, as texts by their headings."""
    reads = row.get("labelled_tokens")
    headings = {"accuracy": "last read" if reads else heading(metric)}
    headings |= {"majority_baseline": "mean"} if metric == "r_squared" else {}
    found = {**row, **(row.get("steps") or {}), **({"all_reads": reads["accuracy"]} if reads else {})}
    return {
        headings.get(key, usual): NOTHING if found[key] is None else text(found[key])
        for key, (usual, text) in COLUMNS.items()
        if key in found and not isinstance(found[key], Mapping)
    }


def by(column: str, row: Row, metric: str) -> dict[str, str]:
    """A row of a slice: the value of the column, which may be called as one of the results, before these."""
    shown = cells(row, metric)
    return {f"{column} (column)" if column in shown else column: row["value"], **shown}


def at_position(row: Row, metric: str) -> dict[str, str]:
    """A row of positions in texts, with the losses of all ways to carry states."""
    place = f"{row['first']:,}" + ("" if row["first"] == row["last"] else f"\u2013{row['last']:,}")
    losses = {f"bits, reset {RESETS[carry]}": bits(value) for carry, value in row["bits_per_token"].items()}
    return {"tokens before": place, **cells(row, metric), **losses}


def sentences(tables: Mapping[str, Row], metric: str) -> Iterator[str]:
    """Further scores, how models stop, what headings mean, and a warning if little was learned."""
    for name, table in tables.items():
        if scores := ", ".join(further_scores(table)):
            yield f"{name}: {scores}"
    if are_of_texts(tables):
        yield "constant: bits/token of the best prediction that knows only how frequent each token is."
        return
    yield from (stopping(name, table) for name, table in tables.items() if not table["fixed_depth"])
    counted = COUNTED.get(metric, "examples")
    yield f"n: {counted}; majority: accuracy of the most frequent answer; p95, max: percentile and maximum of steps."
    if metric in MEANINGS:
        yield MEANINGS[metric]
    found = [(table["accuracy"], table["majority_baseline"], table["n"]) for table in tables.values()]
    if metric == "accuracy" and all(hardly_better(*values) for values in found):
        yield (
            "Warning: this is hardly better than the most frequent answer (majority). More steps (--max_steps), "
            "another learning rate (--learning_rate) or more examples may help."
        )


def further_scores(table: Row) -> Iterator[str]:
    """The further scores of a table with their names; `f1` of two classes says which it is of."""
    for name, value in table.get("scores", {}).items():
        of_class = f" of {table['positive_label']}" if name == "f1" and "positive_label" in table else ""
        yield f"{name.replace('_', ' ')}{of_class} {value:.3f}"
    if "bleu" in table:
        yield f"BLEU {table['bleu']:.1f} ({table['bleu_signature']})"
    if table.get("perplexity"):
        yield f"perplexity {table['perplexity']:,.5g}"


def stopping(name: str, table: Row) -> str:
    """How a split's units stop, and how their steps follow difficulty."""
    rule, threshold = table["halting"], table["threshold"]
    at = "" if threshold is None else f" at {threshold:g}"
    way = f"by {rule}{at}" if rule in CRITERIA or threshold is None else f"at a halting mass of {threshold:g}"
    correlations = {column: found["spearman"] for column, found in table["slices"].items()}
    related = ", ".join(f"{column} {value:+.2f}" for column, value in correlations.items() if value is not None)
    reads = table.get("answer_steps")
    at_reads = f", {reads['mean']:.2f} on average at the last read" if reads else ""
    trend = f"; rank correlation of steps with {related}" if related else ""
    return (
        f"{name}: each {table['unit']} stops {way}, median {table['steps']['median']:g} of at most "
        f"{table['max_depth']} steps{at_reads}, {table['forced_halt_rate']:.1%} at the depth limit{trend}"
    )

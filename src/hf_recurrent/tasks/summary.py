"""Results in a terminal: tables of splits and slices, and sentences on how models stop."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..hub.card import METRICS
from ..metrics.functional import hardly_better
from ..models.common.exit_criteria import CRITERIA
from ..templating import NOTHING, bits, percent, steps

# rows of a table by the names of its columns, and its title
Titled = tuple[str, list[dict[str, str]]]
# carry -> what is reset from segment to segment
RESETS = {"document": "nothing", "segment": "everything", "state": "the state vectors"}
MEANINGS = {
    "exact_labels": "exact labels: examples all of whose labels are predicted, and no other.",
    "r_squared": "R²: share of the labels' variance that predictions explain.",
    "last_read_accuracy": "last read: share of strings whose last read is right; all reads: share of all reads.",
}
COUNTED = {"word_accuracy": "words", "masked_accuracy": "masked tokens"}


def titled_tables(tables: Mapping[str, Mapping[str, Any]], metric: str) -> Iterator[Titled]:
    """The results of splits, then of each split by the values of its columns and by position.

    Args:
        metric: the measure of the tables, one of `METRICS`.
    """
    if are_of_texts(tables):
        yield from text_tables(tables)
        return
    label = lower(METRICS[metric].label)
    yield label, [{"split": name, **numbers(table, metric)} for name, table in tables.items()]
    for name, table in tables.items():
        for column, found in table["slices"].items():
            # a column that is the same everywhere compares nothing
            if len(found["rows"]) > 1:
                yield f"{name} by {column}", [by(column, row, numbers(row, metric)) for row in found["rows"]]
        for column, found in (table.get("tokens") or {}).items():
            rows = [by(column, row, {"tokens": f"{row['n']:,}", **depth(row["steps"])}) for row in found["rows"]]
            yield f"{name} by {column} of the token", rows


def are_of_texts(tables: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether tables are of the losses of texts or documents."""
    return all("carries" in table for table in tables.values())


def lower(label: str) -> str:
    """A label in lower case, but for one that is a name."""
    return label if label.isupper() else label.lower()


def by(column: str, row: Mapping[str, Any], shown: Mapping[str, str]) -> dict[str, Any]:
    """A row of a slice: the value of the column, which may be called as one of the numbers, before these."""
    return {f"{column} (column)" if column in shown else column: row["value"], **shown}


def numbers(row: Mapping[str, Any], metric: str) -> dict[str, str]:
    """Accuracy, baseline and steps of a split or slice; of a language model the last read and all reads apart."""
    reads = row.get("labelled_tokens")
    label = "last read" if reads else lower(METRICS[metric].label)
    found = {"n": f"{row['n']:,}", label: percent(row["accuracy"])}
    found["mean" if metric == "r_squared" else "majority"] = percent(row["majority_baseline"])
    return {**found, **({"all reads": percent(reads["accuracy"])} if reads else {}), **depth(row["steps"])}


def depth(found: Mapping[str, float] | None) -> dict[str, str]:
    """Mean, 95th percentile and maximum of steps; nothing of a fixed depth."""
    shown = found or dict.fromkeys(("mean", "p95", "max"))
    most = shown["max"]
    return {
        "mean steps": steps(shown["mean"]),
        "p95": steps(shown["p95"]),
        "max": NOTHING if most is None else f"{most:g}",
    }


def text_tables(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[Titled]:
    """Losses of texts or documents by split, by what is reset, by position and by column."""
    rows = []
    for name, table in tables.items():
        found = {"split": name, "documents": f"{table['documents']:,}", **losses(table)}
        found["constant"] = bits(table["constant_bits_per_token"])
        if table["word_perplexity"] is not None:
            found["per word"] = f"{table['word_perplexity']:,.5g}"
        rows.append(found)
    yield "texts" if all("texts" in table for table in tables.values()) else "long documents", rows
    for name, table in tables.items():
        if len(table["carries"]) > 1:
            resets = [
                {"reset": RESETS[row["carry"]], "bits/token": bits(row["bits_per_token"]), "more bits/token": more(row)}
                for row in table["carries"]
            ]
            yield f"{name}, read in segments of {table['segment_length']:,} tokens", resets
        positions = []
        for row in table["by_position"]:
            place = f"{row['first']:,}" + ("" if row["first"] == row["last"] else f"\u2013{row['last']:,}")
            found = {"tokens before": place, "tokens": f"{row['tokens']:,}"}
            found |= {f"bits, reset {RESETS[carry]}": bits(value) for carry, value in row["bits_per_token"].items()}
            positions.append({**found, **mean_depth(row)})
        yield f"{name} by position", positions
        for column, found in table.get("by_column", {}).items():
            yield f"{name} by {column}", [by(column, row, losses(row)) for row in found["rows"]]


def losses(row: Mapping[str, Any]) -> dict[str, str]:
    """Bits, accuracy and steps of a split, or of the texts with a value of a column."""
    found = {"tokens": f"{row['tokens']:,}"}
    found |= {"bits/byte": bits(row["bits_per_byte"]), "bits/token": bits(row["bits_per_token"])}
    found |= {"accuracy": percent(row["token_accuracy"])} if "token_accuracy" in row else {}
    return {**found, **mean_depth(row)}


def mean_depth(row: Mapping[str, Any]) -> dict[str, str]:
    mean = row.get("mean_steps")
    return {} if mean is None else {"mean steps": steps(mean)}


def more(row: Mapping[str, Any]) -> str:
    """How many more bits a token a way of carrying states needs, with the standard error."""
    if row["difference"] is None:
        return NOTHING
    error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.4f}"
    return f"{row['difference']:+.4f}{error}"


def further_scores(table: Mapping[str, Any]) -> Iterator[str]:
    """The further scores of a table with their names; `f1` of two classes says which it is of."""
    for name, value in table.get("scores", {}).items():
        of_class = f" of {table['positive_label']}" if name == "f1" and "positive_label" in table else ""
        yield f"{name.replace('_', ' ')}{of_class} {value:.3f}"
    if "bleu" in table:
        yield f"BLEU {table['bleu']:.1f} ({table['bleu_signature']})"
    if table.get("perplexity"):
        yield f"perplexity {table['perplexity']:,.5g}"


def sentences(tables: Mapping[str, Mapping[str, Any]], metric: str) -> Iterator[str]:
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


def stopping(name: str, table: Mapping[str, Any]) -> str:
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

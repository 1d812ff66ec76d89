"""Results in a terminal: tables of splits and slices, and sentences on how models stop."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..hub.card import METRICS
from ..metrics.functional import hardly_better
from ..models.common.exit_criteria import CRITERIA
from ..templating import NOTHING, bits, percent

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
    if all("carries" in table for table in tables.values()):
        yield from text_tables(tables)
        return
    label = METRICS[metric].label
    yield (
        label if label.isupper() else label.lower(),
        [{"split": name, **numbers(table, metric)} for name, table in tables.items()],
    )
    for name, table in tables.items():
        for column, found in table["slices"].items():
            # a column that is the same everywhere compares nothing
            if len(found["rows"]) > 1:
                yield f"{name} by {column}", [by(column, row, numbers(row, metric)) for row in found["rows"]]
        for column, found in (table.get("tokens") or {}).items():
            rows = [by(column, row, {"tokens": f"{row['n']:,}", **depth(row["steps"])}) for row in found["rows"]]
            yield f"{name} by {column} of the token", rows


def by(column: str, row: Mapping[str, Any], shown: Mapping[str, str]) -> dict[str, Any]:
    """A row of a slice: the value of the column, which may be called as one of the numbers, before these."""
    return {f"{column} (column)" if column in shown else column: row["value"], **shown}


def numbers(row: Mapping[str, Any], metric: str) -> dict[str, str]:
    """Accuracy, baseline and steps of a split or slice; of a language model the last read and all reads apart."""
    constant = "mean" if metric == "r_squared" else "majority"
    label = "last read" if "labelled_tokens" in row else METRICS[metric].label
    found = {"n": f"{row['n']:,}", label if label.isupper() else label.lower(): percent(row["accuracy"])}
    found[constant] = percent(row["majority_baseline"])
    if "labelled_tokens" in row:
        found["all reads"] = percent(row["labelled_tokens"]["accuracy"])
    return {**found, **depth(row["steps"])}


def depth(steps: Mapping[str, float] | None) -> dict[str, str]:
    """Mean, 95th percentile and maximum of steps; nothing of a fixed depth."""
    if steps is None:
        return dict.fromkeys(("mean steps", "p95", "max"), NOTHING)
    return {"mean steps": f"{steps['mean']:.2f}", "p95": f"{steps['p95']:.2f}", "max": f"{steps['max']:g}"}


def text_tables(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[Titled]:
    """Losses of texts or documents by split, by what is reset, by position and by column."""
    rows = []
    for name, table in tables.items():
        found = {"split": name, "documents": f"{table['documents']:,}", **losses(table)}
        found |= {"constant": bits(table["constant_bits_per_token"])}
        per_word = table["word_perplexity"]
        rows.append(found if per_word is None else {**found, "per word": f"{per_word:,.5g}"})
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
    by_byte = NOTHING if row["bits_per_byte"] is None else bits(row["bits_per_byte"])
    found = {"tokens": f"{row['tokens']:,}", "bits/byte": by_byte, "bits/token": bits(row["bits_per_token"])}
    if "token_accuracy" in row:
        found["accuracy"] = percent(row["token_accuracy"])
    return {**found, **mean_depth(row)}


def mean_depth(row: Mapping[str, Any]) -> dict[str, str]:
    mean = row.get("mean_steps")
    return {} if mean is None else {"mean steps": f"{mean:.2f}"}


def more(row: Mapping[str, Any]) -> str:
    """How many more bits a token a way of carrying states needs, with the standard error."""
    if row["difference"] is None:
        return NOTHING
    error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.4f}"
    return f"{row['difference']:+.4f}{error}"


def named_scores(table: Mapping[str, Any]) -> dict[str, float]:
    """The further scores of a table by their names; `f1` of two classes says which it is of."""
    of_class = f" of {table['positive_label']}" if "positive_label" in table else ""
    named = {name: name.replace("_", " ") + of_class * (name == "f1") for name in table.get("scores", {})}
    return {named[name]: value for name, value in table.get("scores", {}).items()}


def sentences(tables: Mapping[str, Mapping[str, Any]], metric: str) -> Iterator[str]:
    """Further scores, how models stop, what headings mean, and a warning if little was learned."""
    for name, table in tables.items():
        scores = [f"{key} {value:.3f}" for key, value in named_scores(table).items()]
        scores += [f"BLEU {table['bleu']:.1f} ({table['bleu_signature']})"] if "bleu" in table else []
        if table.get("perplexity"):
            scores.append(f"perplexity {table['perplexity']:,.5g}")
        if scores:
            yield f"{name}: {', '.join(scores)}"
    if all("carries" in table for table in tables.values()):
        yield "constant: bits/token of the best prediction that knows only how frequent each token is."
        return
    for name, table in tables.items():
        if not table["fixed_depth"]:
            yield stopping(name, table)
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
    by = f"by {rule}{at}" if rule in CRITERIA else f"at a halting mass of {threshold:g}" if threshold else f"by {rule}"
    related = [
        f"{column} {found['spearman']:+.2f}"
        for column, found in table["slices"].items()
        if found["spearman"] is not None
    ]
    reads = "answer_steps" in table
    at_reads = f", {table['answer_steps']['mean']:.2f} on average at the last read" if reads else ""
    trend = f"; rank correlation of steps with {', '.join(related)}" if related else ""
    return (
        f"{name}: each {table['unit']} stops {by}, median {table['steps']['median']:g} of at most {table['max_depth']} "
        f"steps{at_reads}, {table['forced_halt_rate']:.1%} at the depth limit{trend}"
    )

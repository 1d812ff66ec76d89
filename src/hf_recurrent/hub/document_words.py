"""Losses of long documents in words: what was compared, and what a recurrent state does for a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.recurrence import DOCUMENT, SEGMENT, STATE, carry_effect
from .card_data import CardData, Compared
from .tasks import METRICS
from .words import NOTHING

RESET = {
    DOCUMENT: "nothing",
    SEGMENT: "everything, at each segment",
    STATE: "the state vectors alone, at each segment",
}
# the same as the heading of a column
RESET_HEADINGS = {DOCUMENT: "Nothing reset", SEGMENT: "Everything reset", STATE: "State vectors reset"}
# what the effect of a way of reading is called
EFFECTS = {
    "helps": "carrying {what} **helps**",
    "hurts": "carrying {what} **hurts**",
    "unclear": "whether carrying {what} helps **cannot be told**, for that is within two standard errors of nothing",
    "untested": "a single document leaves no standard error to tell whether carrying {what} helps",
}
CARRIED = {SEGMENT: "anything at all", STATE: "the state vectors"}


def bits(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def signed_bits(row: Mapping[str, Any]) -> str:
    """How many more bits a token a way of reading needs, with the standard error."""
    if row["difference"] is None:
        return NOTHING
    error = "" if row["standard_error"] is None else f" \u00b1 {row['standard_error']:.4f}"
    return f"{row['difference']:+.4f}{error}"


def effect_words(row: Mapping[str, Any], segment_length: int) -> str:
    """What comes of resetting, as a sentence without its beginning."""
    what = CARRIED[row["carry"]]
    reset = "everything" if row["carry"] == SEGMENT else "the state vectors alone"
    more = "more" if row["difference"] >= 0 else "fewer"
    error = "" if row["standard_error"] is None else f" (standard error {row['standard_error']:.4f})"
    return (
        f"resetting {reset} every {segment_length:,} tokens takes {abs(row['difference']):.4f} bits a token {more}"
        f"{error}: {EFFECTS[carry_effect(row)].format(what=what)}."
    )


def gate_words(gates: Mapping[str, Any]) -> str:
    """How far gates are open, as a sentence without its beginning."""
    low, high = gates["deciles"][0], gates["deciles"][-1]
    blocks, tokens = gates["half_life_blocks"]["median"], gates["half_life_tokens"]["median"]
    lasting = "the median unit forgets nothing"
    if blocks is not None:
        lasting = f"half of the median unit is forgotten after {blocks:,.1f} blocks ({tokens:,.0f} tokens)"
    return (
        f"an update forgets {gates['mean']:.1%} of a state unit on average; a tenth of the {gates['units']:,} units "
        f"loses less than {low:.1%} and a tenth more than {high:.1%}, and {lasting}."
    )


def comparison(card: CardData, item: Compared, split: str) -> str:
    """How this checkpoint stands to a compared model on a split, as a sentence without its beginning."""
    key = METRICS[card.metric].key
    (own,) = (result.table[key] for result in card.results if result.split == split)
    values = item.values[split]
    mean = sum(values) / len(values)
    better, runs = sum(own < value for value in values), len(values)
    of_runs = "" if runs == 1 else f", the mean of {runs} runs, {better} of which need more"
    side = "fewer" if own < mean else "more" if own > mean else "neither more nor fewer"
    size = "" if own == mean else f"{abs(own - mean):.4f} "
    unit = METRICS[card.metric].label.lower()
    return f"this checkpoint needs {size}{side} {unit} than {item.name} ({bits(mean)}{of_runs})."


def spread(values: Sequence[float]) -> str:
    """The mean of runs, with each of them where there are several."""
    mean = bits(sum(values) / len(values))
    return mean if len(values) == 1 else f"{mean} ({', '.join(map(bits, values))})"

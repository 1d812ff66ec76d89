"""Model cards: `CardData` + `card_template.md` -> README.md.

A folder's README.md is a function of its `card.json` and the template:
`render_card(read_card(folder))` gives it back byte for byte.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.halting import difficulty_key
from ..metrics.serialize import plain, write_bytes, write_json
from ..templating import template
from .card_data import (
    PICTURE,
    RECURRENCE,
    ROUTING,
    Benchmark,
    CardData,
    Compared,
    Example,
    Paper,
    Picture,
    Plot,
    Routing,
    SplitResult,
    Training,
)
from .commands import evaluation_command
from .document_words import RESET, RESET_HEADINGS, bits, comparison, effect_words, gate_words, signed_bits, spread
from .expert_section import EXPERTS
from .expert_section import FILTERS as EXPERT_FILTERS
from .lint import CARD_FILE, README_FILE, card_problems, raise_problems
from .metadata import eval_results_yaml, front_matter
from .picture_section import FILTERS as PICTURE_FILTERS
from .sweep_section import FILTERS as SWEEP_FILTERS
from .sweep_section import SWEEP
from .tasks import CLASSIFICATION, GENERATION, METRICS, TASKS, TRANSLATION
from .trend import one_valued, steps_words, trends
from .words import NOTHING, chunk_words, halting_words, paper_value, percent, reading_unit, routing_words

__all__ = [
    "Benchmark",
    "CardData",
    "Compared",
    "Example",
    "Paper",
    "Picture",
    "Plot",
    "Routing",
    "SplitResult",
    "Training",
    "read_card",
    "render_card",
    "write_card",
]

TEMPLATE = Path(__file__).with_name("card_template.md")
DOCUMENT_FILTERS = {
    "bits": bits,
    "effect_words": effect_words,
    "gate_words": gate_words,
    "signed_bits": signed_bits,
    "spread": spread,
}


def render_card(data: CardData) -> str:
    """Text of README.md. The same data always gives the same text."""
    card = data.to_dict()
    # of documents no more is known than how many steps their tokens took
    halted = [result for result in card["results"] if not (data.of_documents or result["table"]["fixed_depth"])]
    # what is the same in all rows, such as the length of a flip-flop split's strings, tells nothing of difficulty
    constant = {result["split"]: [] if data.of_documents else one_valued(result["table"]) for result in card["results"]}
    filters = {
        "percent": percent,
        "steps": steps,
        "number": number,
        "signed": _signed,
        "duration": duration,
        "cell": cell,
        "literal": _literal,
        "chunk_words": chunk_words,
        "paper_value": paper_value,
        "routing_words": routing_words,
        "reading_unit": reading_unit,
        **DOCUMENT_FILTERS,
        **SWEEP_FILTERS,
        **EXPERT_FILTERS,
        **PICTURE_FILTERS,
    }
    elsewhere = (ROUTING, PICTURE, *RECURRENCE, *SWEEP, *EXPERTS)
    return template(TEMPLATE, **filters).render(
        card=card,
        front_matter=front_matter(data),
        halting_plots=[plot for plot in card["plots"] if plot["kind"] not in elsewhere],
        sweep_plots=[plot for plot in card["plots"] if plot["kind"] in SWEEP],
        expert_plots=[plot for plot in card["plots"] if plot["kind"] in EXPERTS],
        recurrence_plots=[plot for plot in card["plots"] if plot["kind"] in RECURRENCE],
        comparisons=_comparisons(data),
        reset_names=RESET,
        reset_headings=RESET_HEADINGS,
        halted=halted,
        halting=halting_words(data),
        metric=METRICS[data.metric],
        auto_class=TASKS[data.task].auto_class,
        classifies=data.task == CLASSIFICATION,
        language=data.task == GENERATION,
        pairs=data.task == TRANSLATION,
        card_of_documents=data.of_documents,
        # chunks of other kinds move as the row grows, so that nothing can be kept from token to token
        uncached="" if data.chunks is None or data.chunks.get("chunking", "fixed") == "fixed" else ", use_cache=False",
        # where nothing is to be compared with, a classifier's card says so in each row
        beside_paper=data.task == CLASSIFICATION
        or any(paper is not None for result in data.results for paper in (result.paper_accuracy, result.paper_bleu)),
        evaluation_command=evaluation_command(data),
        trends={result["split"]: _trends(result["table"], constant[result["split"]]) for result in halted},
        constant=constant,
        judged={result["split"]: difficulty_key(result["table"]) for result in halted},
        steps_drawn=steps_words(halted[0]["table"]) if halted else "steps",
    )


def _comparisons(data: CardData) -> dict[str, list[str]]:
    """Split -> a sentence for each model that is compared on it."""
    return {
        result.split: [
            comparison(data, item, result.split)
            for item in data.compared
            if result.split in item.values and not item.same_model
        ]
        for result in data.results
    }


def _trends(table: Mapping[str, Any], left_out: Sequence[str]) -> list[dict[str, Any]]:
    return [item for item in trends(table) if item["column"] not in left_out]


def write_card(folder: str | os.PathLike, data: CardData) -> Path:
    """Write `card.json`, `README.md` and `.eval_results/<benchmark>.yaml` into `folder`.

    The card is checked first (figures must already lie in the folder): a ValueError lists what is wrong, and
    nothing is written.
    """
    folder = Path(folder)
    text = render_card(data)
    raise_problems(card_problems(text, folder), folder)
    write_json(folder / CARD_FILE, data.to_dict())
    results = eval_results_yaml(data)
    if results is not None:
        write_bytes(folder / ".eval_results" / f"{data.benchmark.name}.yaml", results.encode())
    return write_bytes(folder / README_FILE, text.encode())


def read_card(folder: str | os.PathLike) -> CardData:
    """The card data that a folder's README.md was rendered from."""
    return CardData.from_dict(json.loads((Path(folder) / CARD_FILE).read_text(encoding="utf-8")))


def steps(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def number(value: float | None, digits: int = 2) -> str:
    """At most `digits` decimals, thousands separated, without trailing zeros."""
    if value is None:
        return NOTHING
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.2f}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount) or "0 s"


def _literal(value: Any) -> str:
    """A value as JSON; for a string this is a Python literal as well."""
    return json.dumps(value, ensure_ascii=False)


def cell(value: Any) -> str:
    """Text that cannot end its table cell or break its line."""
    return str(plain(value)).replace("|", "\\|").replace("\n", " ")

"""Model cards: `CardData` + `card_template.md` -> README.md.

A folder's README.md is a function of its `card.json` and the template:
`render_card(read_card(folder))` gives it back byte for byte.
"""

import json
import os
from pathlib import Path
from typing import Any

from ..metrics.serialize import plain, write_bytes, write_json
from ..templating import template
from .card_data import Benchmark, CardData, Example, Paper, Plot, SplitResult, Training
from .commands import evaluation_command
from .lint import CARD_FILE, README_FILE, card_problems, raise_problems
from .metadata import eval_results_yaml, front_matter
from .trend import trends

__all__ = [
    "Benchmark",
    "CardData",
    "Example",
    "Paper",
    "Plot",
    "SplitResult",
    "Training",
    "read_card",
    "render_card",
    "write_card",
]

TEMPLATE = Path(__file__).with_name("card_template.md")
NOTHING = "\u2013"


def render_card(data: CardData) -> str:
    """Text of README.md. The same data always gives the same text."""
    card = data.to_dict()
    halted = [result for result in card["results"] if not result["table"]["fixed_depth"]]
    filters = {
        "percent": percent,
        "steps": steps,
        "number": number,
        "signed": _signed,
        "duration": duration,
        "cell": cell,
        "literal": _literal,
    }
    return template(TEMPLATE, **filters).render(
        card=card,
        front_matter=front_matter(data),
        halted=halted,
        evaluation_command=evaluation_command(data),
        trends={result["split"]: trends(result["table"]) for result in halted},
    )


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


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}%"


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

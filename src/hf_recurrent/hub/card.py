"""Model cards: `CardData` and `templates/card.md` -> README.md.

A folder's README.md is a function of its `card.json` and the templates:
`render_card(read_card(folder))` gives it back byte for byte.
"""

import os
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import jinja2

from ..changes import Change, changed_files, is_unfinished
from ..files import read_json, write_bytes, write_json
from ..models.common.exit_criteria import CRITERIA
from ..models.common.fields import shown
from .base_model import CONVERTED_FILE
from .card_data import (
    SECTION_PLOTS,
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
from .card_types import AbsentFieldError, located
from .commands import commands
from .converted_card import read_converted, render_converted
from .findings import (
    by_direction,
    constant_columns,
    depth_trends,
    is_calibrated,
    measured_as_trained,
    steps_name,
    trends,
)
from .lint import CARD_FILE, README_FILE, card_problems, check_rendered, raise_problems
from .metadata import eval_results_yaml, front_matter, results_path
from .phrases import render
from .stored import contradictions
from .tasks import CLASSIFICATION, GENERATION, METRICS, TASKS, TRANSLATION

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
    "lint_card",
    "read_card",
    "render_card",
    "write_card",
]

# what data of another form than a card's give rise to
RENDERING_ERRORS = (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, jinja2.TemplateError)


def render_card(data: CardData) -> str:
    """Text of README.md. The same data always gives the same text."""
    card = located(data.to_dict(), "card")
    # of documents, only the mean steps of a token are measured
    halted = [result for result in card["results"] if not (data.of_documents or result["table"]["fixed_depth"])]
    # a column with one value, such as the length of a flip-flop split's strings, is no measure of difficulty
    constant = {
        result["split"]: [] if data.of_documents else constant_columns(result["table"]) for result in card["results"]
    }
    calibrated, depth = is_calibrated(data.calibration), depth_trends(card)
    # said first, and not again
    said = None if calibrated or not depth else (depth[0]["split"], depth[0]["column"])
    related = {
        result["split"]: [
            item
            for item in trends(result["table"])
            if item["column"] not in constant[result["split"]] and (result["split"], item["column"]) != said
        ]
        for result in halted
    }
    section_of = {kind: section for section, kinds in SECTION_PLOTS.items() for kind in kinds}
    plots = {section: [] for section in ("depth", "halting", *SECTION_PLOTS)}
    for plot in card["plots"]:
        section = section_of.get(plot["kind"], "halting")
        by_difficulty = plot["kind"] in ("difficulty", "stacks") and (plot["split"], plot["column"]) == said
        plots["depth" if by_difficulty or section == "calibration" else section].append(plot)
    return render(
        "card.md",
        card=card,
        front_matter=front_matter(data),
        plots=plots,
        halted=halted,
        metric=METRICS[data.metric],
        task=TASKS[data.task],
        classifies=data.task == CLASSIFICATION,
        language=data.task == GENERATION,
        pairs=data.task == TRANSLATION,
        of_documents=data.of_documents,
        whole=data.of_whole_texts,
        caches=data.chunks is None or data.chunks.get("chunking", "fixed") == "fixed",
        beside_paper=any(
            paper is not None for result in data.results for paper in (result.paper_accuracy, result.paper_bleu)
        ),
        **commands(data),
        trends={split: by_direction(items) for split, items in related.items()},
        constant=constant,
        steps_drawn=steps_name(halted[0]["table"]) if halted else "steps",
        calibrated=calibrated,
        as_trained=measured_as_trained(data.calibration, data.halting, data.results[0].table.get("threshold")),
        exits=data.halting in CRITERIA,
        depth=depth,
    )


def write_card(folder: str | os.PathLike, data: CardData) -> Path:
    """Write `card.json`, `README.md` and `.eval_results/<benchmark>.yaml` into `folder`.

    Its front matter and figures, which must already lie in the folder, are checked first: a ValueError lists what is
    wrong, and nothing is written. A warning tells what in its texts keeps it from being published.
    """
    with changed_files(folder) as change:
        put_card(change, data)
    return Path(folder) / README_FILE


def put_card(change: Change, data: CardData, before: CardData | None = None) -> None:
    """Let the files of `write_card` be part of a change, which removes the figures that only the card `before` shows.

    Raises:
        ValueError: its front matter or figures are wrong.
    """
    text = render_card(data)
    check_rendered(text, change)
    write_json(change.new / CARD_FILE, data.to_dict())
    write_bytes(change.new / README_FILE, text.encode())
    results = eval_results_yaml(data)
    if results is not None:
        write_bytes(change.new / results_path(data), results.encode())
    if before is not None:
        change.removed |= {plot.path for plot in before.plots} - {plot.path for plot in data.plots}


def read_card(folder: str | os.PathLike) -> CardData:
    """The card data that a folder's README.md was rendered from."""
    path = Path(folder) / CARD_FILE
    data = read_json(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds {shown(data)}: expected an object; write it again by the run")
    return CardData.from_dict(data)


def read_rendered(folder: str | os.PathLike) -> tuple[CardData, str]:
    """The card data in a folder, and the text that it renders to.

    Raises:
        ValueError: it is no data of a card.
    """
    try:
        data = read_card(folder)
        return data, render_card(data)
    except ValueError as error:
        raise ValueError(f"{CARD_FILE} cannot be rendered: {' '.join(str(error).split())}") from error
    except (AbsentFieldError, jinja2.UndefinedError) as error:
        raise ValueError(f"{CARD_FILE} cannot be rendered: {error}: write it again by the run") from error
    # what is null or empty where a number is needed
    except RENDERING_ERRORS as error:
        reason = f"a field is not as expected ({type(error).__name__}: {error})"
        raise ValueError(f"{CARD_FILE} cannot be rendered: {reason}: write it again by the run") from error


def lint_card(folder: str | os.PathLike) -> None:
    """Check the card in `folder`; a ValueError lists every problem found."""
    folder = Path(folder)
    readme = folder / README_FILE
    if not readme.is_file():
        raise ValueError(f"{folder} has no {README_FILE}")
    try:
        text = readme.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{readme} is not UTF-8 text: {error}") from error
    problems = card_problems(text, folder.joinpath)
    if is_unfinished(folder):
        problems.append("a change of its files was interrupted: run the command that made it again")
    for file, rendered in ((CARD_FILE, _rendered_card), (CONVERTED_FILE, _rendered_converted)):
        if (folder / file).is_file():
            problems += _rendering_problems(text, folder, file, rendered)
    raise_problems(problems, folder)


def _rendered_card(folder: Path) -> str:
    return read_rendered(folder)[1]


def _rendered_converted(folder: Path) -> str:
    try:
        return render_converted(read_converted(folder))
    except RENDERING_ERRORS as error:
        raise ValueError(f"{CONVERTED_FILE} cannot be rendered: {error}: convert the checkpoint again") from error


def _rendering_problems(text: str, folder: Path, file: str, rendered: Callable[[Path], str]) -> list[str]:
    try:
        expected = rendered(folder)
    except ValueError as error:
        return [str(error)]
    if expected == text:
        return [f"{README_FILE} is false: {problem}" for problem in contradictions(folder, read_json(folder / file))]
    lines = zip_longest(text.splitlines(), expected.splitlines())
    place = next((place for place, (found, wanted) in enumerate(lines, 1) if found != wanted), "the end")
    return [
        f"{README_FILE} is not what {file} renders to (they differ from line {place} on): "
        f"edit {file} instead, then run `hf-recurrent card render`"
    ]

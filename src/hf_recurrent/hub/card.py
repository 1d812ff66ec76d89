"""Model cards: `CardData` and `templates/card.md` -> README.md.

A folder's README.md is a function of its `card.json` and the templates:
`render_card(read_card(folder))` gives it back byte for byte.
"""

import os
from pathlib import Path

import jinja2

from ..files import Change, changed_files, read_json, write_bytes, write_json
from ..models.common.exit_criteria import CRITERIA
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
from .lint import CARD_FILE, README_FILE, form_problems, raise_problems
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
    card = data.to_dict()
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
    wrong, and nothing is written. Examples of a user's own data are left out unless `data.examples` asks for them.
    """
    with changed_files(folder) as change:
        put_card(change, data)
    return Path(folder) / README_FILE


def put_card(change: Change, data: CardData, before: CardData | None = None) -> None:
    """Let the files of `write_card` be part of a change, which removes the figures that only the card `before` shows.

    Raises:
        ValueError: its front matter or figures are wrong.
    """
    if not data.shows_examples:
        data = data.without_examples()
    text = render_card(data)
    raise_problems(form_problems(text, change.file), change.folder)
    write_json(change.new / CARD_FILE, data.to_dict())
    write_bytes(change.new / README_FILE, text.encode())
    results = eval_results_yaml(data)
    if results is not None:
        write_bytes(change.new / results_path(data), results.encode())
    if before is not None:
        change.removed |= {plot.path for plot in before.plots} - {plot.path for plot in data.plots}


def read_card(folder: str | os.PathLike) -> CardData:
    """The card data that a folder's README.md was rendered from."""
    return CardData.from_dict(read_json(Path(folder) / CARD_FILE))


def read_rendered(folder: str | os.PathLike) -> tuple[CardData, str]:
    """The card data in a folder, and the text that it renders to.

    Raises:
        ValueError: it is no data of a card.
    """
    try:
        data = read_card(folder)
        return data, render_card(data)
    except (ValueError, *RENDERING_ERRORS) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{CARD_FILE} cannot be rendered ({type(error).__name__}: {reason}): write it again by the run"
        ) from error


def lint_card(folder: str | os.PathLike) -> None:
    """Check the card in `folder`; a ValueError lists every problem found."""
    folder = Path(folder)
    if not (folder / README_FILE).is_file():
        raise ValueError(f"{folder} has no {README_FILE}")
    text = (folder / README_FILE).read_text(encoding="utf-8")
    problems = form_problems(text, folder.joinpath)
    for file, rendered in (
        (CARD_FILE, lambda: read_rendered(folder)[1]),
        (CONVERTED_FILE, lambda: render_converted(read_converted(folder))),
    ):
        if not (folder / file).is_file():
            continue
        if rendered() != text:
            problems.append(f"{README_FILE} is not what {file} renders to: run `hf-recurrent card render`")
        else:
            problems += contradictions(folder, read_json(folder / file))
    raise_problems(problems, folder)

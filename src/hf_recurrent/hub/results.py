"""`results.json` of a checkpoint's folder: all that its card says, as a plain dictionary.

    title, name     heading of the card; repository on the Hub, or name of the folder
    task, metric    pipeline tag; measure of the splits, one of `tasks.METRICS`
    date, notice    day of the evaluation, ISO 8601; a warning above everything else
    model           type, parameters, max_depth, halting ("none": fixed depth), chunks (config fields of a model that
                    reads chunk by chunk), generation (num_beams, length_penalty, max_new_tokens), paper (title, url,
                    bibtex), license, and base: the checkpoint of others that weights come from, as `read_base_model`
    data            name, config, version, seed (None: a user's own data), parameters, further_parameters (of other
                    configs), description, dataset_id, dataset_revision, language, and arguments: the words of a
                    command that name these data, None where not everybody has them
    training        command, recipe, reproduces, seed, steps, seconds, hardware, versions, depth (in words), differences
                    from the paper, history (sentences), and weights: digest of the weights that were measured
    splits          split -> table of its evaluation, with distribution ("as in training", or how examples differ) and
                    paper: what the paper reports (accuracy, mean, std, bits, bleu, slices), if it compares
    compared        name, parameters, values (split -> one value a run) of other models, or of other runs (same_model)
    calibration     `calibration.json` without the curves; sweep and experts: split -> table
    figures         kind, path, column, split; routing, pictures: facts of examples whose figures are shown
    example         text, text_pair and answer of the usage section
    limitations     sentences that do not follow from the rest
    quotes          whether the card may quote examples of a user's own data

What a checkpoint does not have is None or empty: a converted one has no data, training and splits. The first split is
that of the headline.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from ..models.base.exit_calibration import PROBE, tensors_digest
from ..utils import (
    FRONT_MATTER,
    Change,
    Json,
    changed_files,
    parse_yaml,
    plain,
    read_json,
    read_text,
    write_bytes,
    write_json,
)
from .card import CLASSIFICATION, FILL_MASK, QUOTING, eval_results_file, render_card
from .findings import chosen

README_FILE, RESULTS_FILE = "README.md", "results.json"
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
# of statistics
SWEEP_FILE, EXPERT_FILE = "halting_sweep.json", "expert_stats.json"
CALIBRATION_FILE, INSIDE_FILE = "calibration.json", "inside.json"
# section -> kinds of its figures
SECTION_KINDS = {
    "sweep": ("trade_off", "halting_plot"),
    "experts": ("expert_usage",),
    "calibration": ("calibrated_steps",),
}
NO_EXAMPLE = {"text": "a text", "text_pair": None, "answer": None}
EMPTY: dict = {
    **dict.fromkeys(("date", "notice", "data", "training", "calibration", "sweep", "experts")),
    **{"metric": "accuracy", "splits": {}, "compared": [], "figures": [], "routing": [], "pictures": []},
    **{"example": NO_EXAMPLE, "limitations": [], "quotes": False},
}
# lists of facts about single examples
QUOTED = ("routing", "pictures", "examples")
# of the front matter of a card that somebody wrote
REQUIRED_KEYS = ("license", "library_name", "pipeline_tag", "tags")
IMAGE = re.compile(r"\bassets/[\w.-]+\.png")


def cached_file(name: str, file: str, **options: Any) -> str | None:
    """A file of a repository on the Hub in the cache, by options of the loaders; None where there is none."""
    # transformers is slow to import
    from transformers.utils import cached_file

    missing = {f"_raise_exceptions_for_{reason}": False for reason in ("missing_entries", "connection_errors")}
    return cached_file(name, file, **options, **missing)


def read_results(name: str | os.PathLike, **options: Any) -> dict | None:
    """The results of a checkpoint; None where there are none, or a file of that name is not of this package.

    Args:
        name: a folder, or a repository on the Hub.
        options: of the loaders of the checkpoint.
    """
    folder = Path(name)
    path = folder / RESULTS_FILE if folder.is_dir() else cached_file(str(name), RESULTS_FILE, **options)
    results = read_json(path) if path is not None and Path(path).is_file() else None
    return results if isinstance(results, dict) and {"task", "model", "splits"} <= results.keys() else None


def rendered(results: Json) -> dict[str, str]:
    """Path -> text of the files that follow from results: the card, and the evaluation results for the Hub."""
    return {README_FILE: render_card(results), **eval_results_file(results)}


def write_results(folder: str | os.PathLike, results: Json) -> Path:
    """Write `results.json`, `README.md` and `.eval_results/<data>.yaml` into `folder`.

    Examples of a user's own data are left out unless `results["quotes"]` is set.

    Raises:
        ValueError: they cannot be rendered; nothing is written.
    """
    with changed_files(folder) as change:
        put_results(change, results)
    return Path(folder) / README_FILE


def put_results(change: Change, results: Json, before: Json | None = None) -> None:
    """Let the files of `write_results` be part of a change, which removes the figures that only those `before` show."""
    results = plain(results)
    if not may_quote(results):
        results = without_quotes(results)
    write_json(change.new / RESULTS_FILE, results)
    for path, text in rendered(results).items():
        write_bytes(change.new / path, text.encode())
    if before is not None:
        shown, removed = ({figure["path"] for figure in each["figures"]} for each in (results, before))
        change.removed |= removed - shown


def with_section(results: Json, section: str, content: dict, drawn: Mapping[Any, Sequence[Json]]) -> dict:
    """Results with another sweep, experts or calibration.

    Args:
        drawn: split -> `kind`, `path` and `column` of its figures; None: a figure of several splits.
    """
    figures = [figure for figure in results["figures"] if figure["kind"] not in SECTION_KINDS[section]]
    figures += [{**figure, "split": split} for split, several in drawn.items() for figure in several]
    return {**results, section: content, "figures": figures}


def with_calibration(results: Json, calibration: Json, folder: Path) -> dict:
    """Results with the content of `calibration.json`, whose figure is drawn into `folder`."""
    # matplotlib is slow to import
    from ..analysis.plots import save_figures

    content = without_curves(calibration)
    return with_section(results, "calibration", content, {None: save_figures(folder, content)})


def without_curves(calibration: Json) -> dict:
    """A calibration as results hold it: of its criteria the names, `tried`."""
    shown = {name: value for name, value in calibration.items() if name != "criteria"}
    return {**shown, "tried": list(calibration["criteria"])}


def check_texts(checkpoint: str, results: Json | None, columns: Sequence[str]) -> None:
    """Raise a ValueError for columns of pairs where a classifier was trained on single texts, or vice versa."""
    if results is None or results["task"] != CLASSIFICATION or results["data"] is None:
        return
    trained = 1 if results["example"]["text_pair"] is None else 2
    if len(columns) != trained:
        kinds = {1: "single texts", 2: "pairs"}
        raise ValueError(
            f"text_column is {', '.join(columns)}, for {kinds[3 - trained]}, but {checkpoint} was trained on "
            f"{kinds[trained]}: name as many columns"
        )


def is_own(results: Json | None) -> bool:
    """Whether a checkpoint was, or may have been, trained on a user's own data."""
    return results is None or (results["data"] is not None and results["data"]["seed"] is None)


def may_quote(results: Json | None) -> bool:
    """Whether examples of the data may be published: those of a benchmark, or of a user who asked for it."""
    return not is_own(results) or bool(results and results["quotes"])


def without_quotes(data: Any) -> Any:
    """Results, or a file of statistics, without texts, tokens and answers of single examples, and figures of them."""
    if isinstance(data, list):
        shown = (item for item in data if not (isinstance(item, dict) and item.get("kind") in QUOTING))
        return [without_quotes(item) for item in shown]
    if not isinstance(data, dict):
        return data
    kept = {
        name: [] if name in QUOTED and isinstance(value, list) else without_quotes(value)
        for name, value in data.items()
    }
    if {"task", "model", "example"} <= data.keys():
        example = data["example"]
        # the usage of a model that fills masks needs one
        masks = [mask for mask in ("[MASK]", "<mask>") if data["task"] == FILL_MASK and mask in example["text"]]
        pair = example["text_pair"] and NO_EXAMPLE["text"]
        kept["example"] = NO_EXAMPLE | {"text": " ".join([NO_EXAMPLE["text"], *masks]), "text_pair": pair}
    return kept


def lint_card(folder: str | os.PathLike) -> None:
    """Check the card in `folder` as publishing does.

    Raises:
        ValueError: every problem found.
    """
    folder = Path(folder)
    if not (folder / README_FILE).is_file():
        raise ValueError(f"{folder} has no {README_FILE}: a published checkpoint needs a model card")
    text, results = read_text(folder / README_FILE), read_results(folder)
    problems: list[str] = []
    if results is None:
        metadata = front_matter(text)
        problems += [f"the front matter lacks '{key}'" for key in REQUIRED_KEYS if not metadata.get(key)]
    elif render_card(results) != text:
        problems.append(f"{README_FILE} is not what {RESULTS_FILE} renders to: run `hf-recurrent card render`")
    elif (folder / "config.json").is_file():
        problems += contradictions(folder, results)
    problems += [
        f"the image '{name}' is missing" for name in shown_images(text, results) if not (folder / name).is_file()
    ]
    if problems:
        raise ValueError(f"the card of {folder} is not publishable:\n" + "\n".join(f"- {p}" for p in problems))


def shown_images(text: str, results: Json | None) -> list[str]:
    """The paths of the pictures that a card shows, which somebody wrote if there are no results."""
    return sorted(set(IMAGE.findall(text))) if results is None else [figure["path"] for figure in results["figures"]]


def front_matter(text: str) -> dict:
    """The metadata at the top of a card; empty where there are none. Raises a ValueError if they are not YAML."""
    match = FRONT_MATTER.match(text)
    metadata = parse_yaml(match.group(1), "the front matter") if match else None
    return metadata if isinstance(metadata, dict) else {}


def contradictions(folder: Path, results: Json) -> Iterator[str]:
    """What results say otherwise than the config and the weights in their folder."""
    remedy = "run `hf-recurrent calibrate`, which stores and shows what it chooses"
    shown, stored = (
        {name: setting[name] for name in ("criterion", "threshold", "patience", "max_depth") if name in setting}
        for setting in (chosen(results), read_json(folder / "config.json").get("exit_calibration") or {})
    )
    if stored != shown:
        yield f"its calibration chose {shown or None}, and config.json has {stored or None}: {remedy}"
    measured = results["training"] and results["training"]["weights"]
    if measured is not None and stored_digest(folder) not in (None, measured):
        yield (
            "its results are of other weights than those beside it, which are of another run, were trained further or "
            f"were cast: put back the weights that were measured or, where there are exits, {remedy}"
        )


def stored_digest(folder: str | os.PathLike) -> str | None:
    """`tensors_digest` of the weights in a folder without a fitted probe; None if there are none."""
    weights: dict = {}
    for path in map(Path(folder).joinpath, weight_files(Path(folder))):
        if path.suffix == ".safetensors" and path.is_file():
            weights |= load_file(path)
    return tensors_digest((name, weights[name]) for name in sorted(weights) if PROBE not in name) if weights else None


def weight_files(folder: Path) -> list[str]:
    """The names of the files with the weights of a checkpoint: one, or those that an index names, and the index."""
    if (folder / WEIGHTS_FILE).is_file() or not (folder / INDEX_FILE).is_file():
        return [WEIGHTS_FILE]
    return [INDEX_FILE, *sorted(set(read_json(folder / INDEX_FILE)["weight_map"].values()))]

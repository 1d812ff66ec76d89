"""Cards of converted checkpoints: `ConvertedData` and `templates/converted.md` -> README.md.

No run made such a checkpoint: the card names the model that the weights come from, its licence, and the exit that was
calibrated since. README.md is a function of `converted.json`.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from ..files import Change, changed_files, plain, read_json, write_bytes, write_json
from ..models.common.saved_names import renamed
from ..registry import ARCHITECTURES
from .base_model import CONVERTED_FILE, BaseModel
from .card_data import Paper, Plot, build
from .findings import depth_trends, has_exit, is_calibrated
from .lint import README_FILE, form_problems, raise_problems
from .metadata import dumped, without_none
from .phrases import render
from .sections import with_calibration
from .tasks import METRICS, TASKS

FEATURES = "feature-extraction"


@dataclass(frozen=True)
class ConvertedData:
    """The content of `converted.json`.

    Attributes:
        base_model: the model that the weights come from.
        repo_id: the repository of this checkpoint, or the folder that it is in.
        family: our architecture.
        auto_class: of its head.
        num_parameters: of the whole model.
        max_depth: its depth steps.
        layers_per_step: layers in one of them.
        has_tokenizer: whether it has one.
        paper: of the architecture.
        plots: figures of `calibration`.
        calibration: what `hf-recurrent calibrate` found, without the curves.
    """

    base_model: BaseModel
    repo_id: str
    family: str
    auto_class: str
    num_parameters: int
    max_depth: int
    layers_per_step: int
    has_tokenizer: bool
    paper: Paper
    plots: list[Plot] = field(default_factory=list)
    calibration: dict[str, Any] | None = None

    @property
    def task(self) -> str:
        """The Hub's name of what the model does."""
        found = (name for name, task in TASKS.items() if task.auto_class == self.auto_class)
        return next(found, FEATURES)


def render_converted(data: ConvertedData) -> str:
    """Text of README.md. The same data always gives the same text."""
    card = {**plain(asdict(data)), "results": []}
    calibrated = is_calibrated(data.calibration)
    return render(
        "converted.md",
        card=card,
        front_matter=converted_front_matter(data),
        task=TASKS.get(data.task),
        metric=METRICS["accuracy"],
        calibrated=calibrated,
        depth=depth_trends(card) if calibrated else [],
        plots={"depth": card["plots"]},
        calibration_command=None,
    )


def converted_front_matter(data: ConvertedData) -> str:
    """YAML between the `---` lines of README.md: the licence of the weights, whose they are, and tags."""
    base = data.base_model
    adaptive = ["adaptive-computation"] if has_exit(data.calibration) else []
    tags = ["hf_recurrent", "custom_code", *adaptive, "recurrent-depth", data.family]
    metadata = ModelCardData(
        **base.metadata(),
        library_name="transformers",
        pipeline_tag=data.task,
        tags=tags,
        hf_recurrent={"family": data.family, "converted_from": {"name": base.name, "revision": base.revision}},
    )
    return dumped(without_none(plain(metadata.to_dict()))).strip()


def put_converted(change: Change, data: ConvertedData, before: ConvertedData | None = None) -> None:
    """Let a card be part of a change of its folder, which removes the figures that only the card `before` shows.

    Raises:
        ValueError: its front matter or figures are wrong.
    """
    text = render_converted(data)
    raise_problems(form_problems(text, change.file), change.folder)
    write_json(change.new / CONVERTED_FILE, plain(asdict(data)))
    write_bytes(change.new / README_FILE, text.encode())
    if before is not None:
        change.removed |= {plot.path for plot in before.plots} - {plot.path for plot in data.plots}


def put_calibrated(change: Change, folder: str | os.PathLike, calibration: Mapping[str, Any]) -> None:
    """Let the card of the checkpoint in a folder show a calibration, as part of a change of that folder."""
    before = read_converted(folder)
    put_converted(change, with_calibration(before, calibration, change.new), before=before)


def write_converted(folder: str | os.PathLike, data: ConvertedData) -> None:
    """Write `converted.json` and `README.md` into `folder`.

    Raises:
        ValueError: the card could not be published; nothing is written then.
    """
    with changed_files(folder) as change:
        put_converted(change, data)


def read_converted(folder: str | os.PathLike) -> ConvertedData:
    """The data of a converted checkpoint's card.

    Raises:
        ValueError: a field is missing or unknown.
    """
    found = build(ConvertedData, renamed(read_json(Path(folder) / CONVERTED_FILE)))
    if found.family not in ARCHITECTURES:
        raise ValueError(f"converted.family is {found.family!r}: expected one of {', '.join(ARCHITECTURES)}")
    return found


def is_converted(folder: str | os.PathLike) -> bool:
    """Whether the checkpoint in a folder has been converted from that of another package."""
    return (Path(folder) / CONVERTED_FILE).is_file()

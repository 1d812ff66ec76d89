"""Metrics as folders that `evaluate.load` reads: from the disk, or as Spaces on the Hub."""

import ast
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..files import new_folder, write_bytes
from ..templating import template

FOLDER = Path(__file__).parent
METRICS = tuple(
    sorted(path.stem.removeprefix("metric_") for path in FOLDER.glob("metric_*.py") if path.stem != "metric_base")
)
README_FILE = "README.md"
TAGS = ["evaluate", "metric", "hf_recurrent"]


@dataclass(frozen=True)
class MetricDescription:
    """Facts about one `evaluate` metric, from the docstring of its `script`.

    `documentation` is Markdown: a description and the sections Inputs, Outputs, Example and Limits.
    """

    name: str
    script: Path
    documentation: str

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @property
    def summary(self) -> str:
        """The first paragraph of the documentation."""
        return " ".join(self.documentation.partition("\n\n")[0].split())

    @property
    def siblings(self) -> list[str]:
        """Names of the files that the script imports; they have to lie next to it."""
        return [f"{name}.py" for name in re.findall(r"^from \.(\w+) import", self.script.read_text(), re.MULTILINE)]


def list_metrics() -> list[str]:
    """Names of the metrics that `metric_info` and `export_metric` know."""
    return list(METRICS)


def metric_info(name: str) -> MetricDescription:
    """The facts about a metric.

    Raises:
        ValueError: there is no such metric.
    """
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}: expected one of {list_metrics()}")
    script = FOLDER / f"metric_{name}.py"
    # running the script would import `evaluate`, which takes seconds
    return MetricDescription(name, script, ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))))


def export_metric(name: str, folder: str | os.PathLike, repo_id: str | None = None) -> Path:
    """Write the repository of a metric's Space into `folder`, in one step, and return its absolute path.

    The code is a copy of this package's own files and needs no installed `hf_recurrent`. The page of the Space is
    static: the documentation of the metric.

    Args:
        name: one of `list_metrics()`.
        folder: must be called `name` (the script that `evaluate.load` looks for), and must not exist or be an earlier
            export of this metric, which is replaced as a whole.
        repo_id: the Space, `owner/name`, for the README's example; None: the example loads the folder.

    Raises:
        ValueError: an unknown metric, or a folder or repository that does not fit; nothing is written.
    """
    info = metric_info(name)
    folder = Path(os.path.abspath(folder))
    if folder.name != name:
        raise ValueError(
            f"folder={str(folder)!r} must be called {name!r}: evaluate loads the script named as its folder"
        )
    if repo_id is not None and not re.fullmatch(rf"[\w.-]+/{name}", repo_id):
        raise ValueError(f"repo_id={repo_id!r} must be 'owner/{name}': evaluate loads the script of that name")
    documentation = info.documentation.replace(f'evaluate.load("{name}")', f'evaluate.load("{repo_id or name}")')
    facts = {"info": info, "documentation": documentation, "repo_id": repo_id}
    page = template(FOLDER / "space_page.html", autoescape=True).render(facts)
    readme = template(FOLDER / "space_readme.md").render(facts, front_matter=_front_matter(info))
    files = {
        f"{name}.py": info.script.read_bytes(),
        **{sibling: (FOLDER / sibling).read_bytes() for sibling in info.siblings},
        "index.html": page.encode(),
        README_FILE: readme.encode(),
    }
    with new_folder(folder, lambda place: _check_earlier_export(place, info, set(files))) as built:
        for path, content in files.items():
            write_bytes(built / path, content)
    return folder


def _front_matter(info: MetricDescription) -> str:
    # only needed here, and this package is imported by everything that counts something
    from huggingface_hub import SpaceCardData

    return SpaceCardData(
        title=info.title,
        sdk="static",
        pinned=False,
        license="apache-2.0",
        tags=TAGS,
        description=info.summary,
    ).to_yaml()


def _check_earlier_export(folder: Path, info: MetricDescription, names: set[str]) -> None:
    """Raise a ValueError unless a folder holds an export of this metric alone, so that replacing it loses nothing."""
    entries = list(folder.iterdir())
    if {entry.name for entry in entries} == names and all(
        entry.is_file() and not entry.is_symlink() for entry in entries
    ):
        front_matter = (folder / README_FILE).read_bytes().partition(b"\n---\n")[0].decode(errors="replace")
        if {f"title: {info.title}", *(f"- {tag}" for tag in TAGS)} <= set(front_matter.splitlines()):
            return
    raise ValueError(
        f"folder={str(folder)!r} exists and is not an earlier export of {info.name}: choose another place, or remove it"
    )

"""A metric as a folder that `evaluate.load` reads: from the disk, or as a Space on the Hub."""

import os
import re
from pathlib import Path

from ..templating import template
from .info import FOLDER, MetricDescription, metric_info
from .serialize import new_folder, write_bytes

README_FILE = "README.md"
TAGS = ["evaluate", "metric", "hf_recurrent"]
# the widget of evaluate 0.4.6 uses `gradio.inputs`, which Gradio 4 removed; Gradio 3 in turn needs a Hub client
# before 1.0 and numpy before 2.0, and that numpy an older pyarrow; the web libraries
# are of its own time
GRADIO = "3.50.2"
REQUIREMENTS = """datasets==4.0.0
evaluate==0.4.6
fastapi==0.103.2
huggingface_hub==0.36.0
numpy==1.26.4
pyarrow==19.0.1
pydantic==2.4.2
scipy==1.13.1
"""
# what a metric needs beyond these
FURTHER_REQUIREMENTS = {"translation_bleu": "sacrebleu==2.6.0\n"}
APP = """from pathlib import Path

import evaluate
from evaluate.utils import launch_gradio_widget

launch_gradio_widget(evaluate.load(str(Path(__file__).with_name("{script}"))))
"""


def export_metric(name: str, folder: str | os.PathLike, repo_id: str | None = None) -> Path:
    """Write the repository of a metric's Space into `folder`, in one step, and return its absolute path.

    The code is a copy of this package's own files and needs no installed `hf_recurrent`. `app.py` starts the generic
    widget of `evaluate`, which needs Gradio 3; the tests cover the metric, not that page.

    Args:
        name: one of `list_metrics()`.
        folder: must be called `name` (what `evaluate.load` looks for), and must not exist or be an earlier export of
            this metric, which is replaced as a whole.
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
    files = {
        f"{name}.py": info.script.read_bytes(),
        **{sibling: (FOLDER / sibling).read_bytes() for sibling in info.siblings},
        "app.py": APP.format(script=f"{name}.py").encode(),
        "requirements.txt": (REQUIREMENTS + FURTHER_REQUIREMENTS.get(name, "")).encode(),
        README_FILE: render_readme(info, repo_id).encode(),
    }
    with new_folder(folder, lambda place: _check_export(place, info, set(files))) as built:
        for path, content in files.items():
            write_bytes(built / path, content)
    return folder


def render_readme(info: MetricDescription, repo_id: str | None = None) -> str:
    """Text of README.md: what the metric's script says of itself, in the form that a Space needs."""
    # only needed here, and this package is imported by everything that counts something
    import yaml

    return template(FOLDER / "space_template.md").render(
        info=info,
        front_matter=yaml.safe_dump(_front_matter(info), sort_keys=False, allow_unicode=True, width=1000).strip(),
        example=info.example.replace(f'evaluate.load("{info.name}")', f'evaluate.load("{repo_id or info.name}")'),
        repo_id=repo_id,
    )


def _front_matter(info: MetricDescription) -> dict:
    return {
        "title": info.title,
        "sdk": "gradio",
        "sdk_version": GRADIO,
        "python_version": "3.10",
        "app_file": "app.py",
        "pinned": False,
        "license": "apache-2.0",
        "tags": TAGS,
        "description": info.summary,
    }


def _check_export(folder: Path, info: MetricDescription, names: set[str]) -> None:
    """Raise a ValueError unless a folder holds an export of this metric alone, so that replacing it loses nothing."""
    entries = list(folder.iterdir())
    if {entry.name for entry in entries} == names and not any(
        entry.is_symlink() or entry.is_dir() for entry in entries
    ):
        head = (folder / README_FILE).read_bytes().partition(b"\n---\n")[0].decode(errors="replace").splitlines()
        if {f"title: {info.title}", *(f"- {tag}" for tag in TAGS)} <= set(head):
            return
    raise ValueError(
        f"folder={str(folder)!r} exists and is not an earlier export of {info.name}: choose another place, or remove it"
    )

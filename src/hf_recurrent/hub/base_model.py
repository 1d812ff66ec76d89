"""The checkpoint of others that a model's weights come from, and whether its licence lets one pass them on."""

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..registry import ARCHITECTURES
from ..utils import Json, read_json, read_text, write_json
from .card import LICENCE
from .results import README_FILE, cached_file, front_matter, read_results, write_results

# of copies that have no results to name it
LINEAGE_FILE = "base_model.json"
# the Hub's identifiers of licences that let everybody pass on changed copies, some of them on conditions
PASSED_ON = re.compile(
    r"apache-2\.0|mit|isc|zlib|unlicense|wtfpl|afl-3\.0|artistic-2\.0|bsl-1\.0|ecl-2\.0|ms-pl|ncsa|pddl|odbl|odc-by"
    r"|(bsd|cc0|cc-by(-nc)?(-sa)?|[al]?gpl|mpl|eupl|epl|osl)(-\d[\w.-]*)?|cdla-(sharing|permissive)-[\d.]+"
    r"|[\w-]*openrail[\w+-]*"
)


def check_license(base: Json) -> None:
    """Raise a ValueError unless copies of the weights, and models trained from them, may be published."""
    if base["license"] is None:
        raise ValueError(
            f"the weights come from {base['name']}, whose card names no licence, so that nobody may publish them: "
            "convert it with --license if its authors say elsewhere under which it is, or keep the checkpoint"
        )
    if not PASSED_ON.fullmatch(base["license"]):
        named = f" ({base['license_name']})" if base["license_name"] else ""
        raise ValueError(
            f"the weights come from {base['name']}, whose licence is {base['license']}{named}: it is none that lets "
            "everybody publish changed copies; keep the checkpoint, or ask its authors"
        )


def read_base_model(name: str, revision: str | None = None, token: Any = None) -> dict | None:
    """The model that a checkpoint to start from is or comes from; None for a folder with a model of one's own.

    Args:
        name: a folder, or a repository on the Hub, which is asked for its card.

    Returns:
        Its `name` on the Hub or that of its folder, `license`, `license_name` and `license_link` as its card has them
        (None: it does not), and `revision`, its commit; None of a folder.
    """
    folder = Path(name)
    if not folder.is_dir():
        from transformers.utils.hub import extract_commit_hash

        readme, config = (
            cached_file(name, file, revision=revision, token=token) for file in (README_FILE, "config.json")
        )
        return {"name": name, **license_of(readme), "revision": extract_commit_hash(config, None)}
    if (results := read_results(folder)) is not None:
        return results["model"]["base"]
    if (folder / LINEAGE_FILE).is_file():
        return read_json(folder / LINEAGE_FILE)
    if read_json(folder / "config.json").get("model_type") in ARCHITECTURES:
        return None
    return {"name": folder.resolve().name, **license_of(folder / README_FILE), "revision": None}


def copy_results(origin: str, folder: Path, name: str, **options: Any) -> None:
    """Give the copy of a checkpoint in `folder` the card of the original, or the model that its weights come from.

    Args:
        name: of the copy, for its card.
        options: of the loaders of the checkpoint.
    """
    results = read_results(origin, **options)
    if results is None:
        if base := read_base_model(origin, options.get("revision"), options.get("token")):
            write_json(folder / LINEAGE_FILE, base)
        return
    figures = [figure for figure in results["figures"] if (Path(origin) / figure["path"]).is_file()]
    for figure in figures:
        (folder / figure["path"]).parent.mkdir(exist_ok=True)
        shutil.copyfile(Path(origin) / figure["path"], folder / figure["path"])
    write_results(folder, {**results, "name": name, "figures": figures})


def license_of(readme: str | Path | None) -> dict[str, str | None]:
    """The fields of a licence in a card's front matter; all None where it names none, or several."""
    metadata = {}
    if readme is not None and Path(readme).is_file():
        with suppress(ValueError):
            metadata = front_matter(read_text(readme))
    known = isinstance(metadata.get("license"), str) and metadata["license"] != "unknown"
    return {name: metadata.get(name) if known else None for name in LICENCE}

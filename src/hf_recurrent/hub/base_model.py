"""The checkpoint of others that a model's weights come from, and whether its licence lets one pass them on."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..files import FRONT_MATTER, parse_yaml, read_json, write_json
from ..registry import ARCHITECTURES
from .lint import CARD_FILE, README_FILE

# the second is of copies, which have no card to tell it
CONVERTED_FILE, LINEAGE_FILE = "converted.json", "base_model.json"
# the Hub's identifiers of licences that let everybody pass on changed copies, some of them on conditions
PASSED_ON = re.compile(
    r"apache-2\.0|mit|isc|zlib|unlicense|wtfpl|afl-3\.0|artistic-2\.0|bsl-1\.0|ecl-2\.0|ms-pl|ncsa|pddl|odbl|odc-by"
    r"|(bsd|cc0|cc-by(-nc)?(-sa)?|[al]?gpl|mpl|eupl|epl|osl)(-\d[\w.-]*)?|cdla-(sharing|permissive)-[\d.]+"
    r"|[\w-]*openrail[\w+-]*"
)


@dataclass(frozen=True)
class BaseModel:
    """A checkpoint that weights come from.

    Attributes:
        name: its repository on the Hub, or the name of its folder.
        license: its licence as the Hub identifies it; None where its card names none.
        license_name, license_link: what its card says of a licence that the Hub does not know.
        revision: its commit; None of a folder.
    """

    name: str
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    revision: str | None = None

    def check_license(self) -> None:
        """Raise a ValueError unless copies of the weights, and models trained from them, may be published."""
        if self.license is None:
            raise ValueError(
                f"the weights come from {self.name}, whose card names no licence, so that nobody may publish them: "
                "convert it with --license if its authors say elsewhere under which it is, or keep the checkpoint"
            )
        if not PASSED_ON.fullmatch(self.license):
            named = f" ({self.license_name})" if self.license_name else ""
            raise ValueError(
                f"the weights come from {self.name}, whose licence is {self.license}{named}: it is none that lets "
                "everybody publish changed copies; keep the checkpoint, or ask its authors"
            )

    def metadata(self) -> dict[str, Any]:
        """Entries of a card's front matter."""
        return {
            "license": self.license or "unknown",
            "license_name": self.license_name,
            "license_link": self.license_link,
            "base_model": self.name if "/" in self.name else None,
        }


def read_base_model(name: str, revision: str | None = None, token: Any = None) -> BaseModel | None:
    """The model that a checkpoint to start from is or comes from; None for a folder with a model of one's own.

    Args:
        name: a folder, or a repository on the Hub, which is asked for its card.
    """
    # transformers is slow to import, and commands without a checkpoint read cards, too
    from transformers.utils import cached_file
    from transformers.utils.hub import extract_commit_hash

    folder = Path(name)
    if folder.is_dir():
        for file in (CONVERTED_FILE, CARD_FILE):
            if (folder / file).is_file():
                found = read_json(folder / file).get("base_model")
                return None if found is None else BaseModel(**found)
        if (folder / LINEAGE_FILE).is_file():
            return BaseModel(**read_json(folder / LINEAGE_FILE))
        if read_json(folder / "config.json").get("model_type") in ARCHITECTURES:
            return None
        readme = folder / README_FILE
        return BaseModel(folder.resolve().name, **license_of(readme if readme.is_file() else None))
    missing = {f"_raise_exceptions_for_{reason}": False for reason in ("missing_entries", "connection_errors")}
    place = {"revision": revision, "token": token}
    readme, config = (cached_file(name, file, **place, **missing) for file in (README_FILE, "config.json"))
    return BaseModel(name, **license_of(readme), revision=extract_commit_hash(config, None))


def write_lineage(folder: Path, origin: str, revision: str | None = None) -> None:
    """Let the copy of a checkpoint know the model that its weights come from, if that is one of others."""
    found = read_base_model(origin, revision)
    if found is not None:
        write_json(folder / LINEAGE_FILE, asdict(found))


def license_of(readme: str | Path | None) -> dict[str, str]:
    """The fields of a licence in a card's front matter; of several licences none is told."""
    if readme is None:
        return {}
    match = FRONT_MATTER.match(Path(readme).read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n"))
    try:
        data = parse_yaml(match.group(1), str(readme)) if match else None
    except ValueError:
        return {}
    names = ("license", "license_name", "license_link")
    found = {name: data.get(name) for name in names} if isinstance(data, dict) else {}
    found = {name: value for name, value in found.items() if isinstance(value, str)}
    return {} if found.get("license") == "unknown" else found

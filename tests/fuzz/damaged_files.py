"""Files that commands and training scripts read, damaged: cut short, empty, binary, absent, or with other contents.

cd tests; python -m fuzz.damaged_files --seconds 600 --seed 0
"""

import functools
import json
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import datasets
import yaml

from fuzz.campaigns import Findings, main
from fuzz.malformed_commands import LISTOPS, REFERENCE
from fuzz.malformed_recipes import SCRIPTS
from fuzz.refusing.answers import Answer, command_answer, judged, script_answer
from fuzz.refusing.malformed import campaign_of
from fuzz.refusing.verdict import Case
from hf_recurrent.benchmarks.export import export_benchmark
from support.checkpoints import GUT_LISTOPS, MODEL_CARDS

GUT, NDR = GUT_LISTOPS, MODEL_CARDS / "ndr-ctl-forward"
SCRIPT = "training/run_glue_style.py"
PARQUET = "original/test-00000-of-00001.parquet"


class Reading(NamedTuple):
    """A command or script that needs a file: `folder` is copied to `name`, where `file` is damaged.

    `words` name it; a list beginning with a script is its flags.
    """

    folder: Callable[[], Path]
    name: str
    file: str
    words: list[str]
    may_lack: bool = False


def here(folder: Path) -> Callable[[], Path]:
    return lambda: folder


@functools.cache
def exported() -> Path:
    """A small benchmark as `benchmark export` writes it, kept until the process ends."""
    folder = Path(tempfile.mkdtemp()) / "listops"
    sizes = {"num_train": 8, "num_validation": 4, "num_test": 4}
    return Path(export_benchmark("listops", folder, configs=["original"], params=sizes))


@functools.cache
def begun_run() -> Path:
    """The folder of a run that has begun, kept until the process ends."""
    folder = Path(tempfile.mkdtemp()) / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"digest": "0", "settings": {"seed": 1}, "finished": False}))
    return folder


LISTED = ["CHECKPOINT", "listops", *LISTOPS]
TUNED = [SCRIPT, "--model_name_or_path", "CHECKPOINT"]
# files whose fields of other kinds are damage, too: which of them, None for all
FIELDS: dict[str, list[str] | None] = {
    **{"card.json": None, "calibration.json": None},
    **{"case.json": ["config"], "run.json": ["settings"]},
}
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
READINGS: dict[str, list[Reading]] = {
    "evaluate": [Reading(here(GUT), "root/gut", file, ["evaluate", *LISTED]) for file in (WEIGHTS, CONFIG, TOKENIZER)],
    "explain": [
        Reading(here(GUT), "root/gut", file, ["explain", "CHECKPOINT", "[MAX 2 9 ]"])
        for file in (WEIGHTS, CONFIG, TOKENIZER)
    ],
    "train": [Reading(here(GUT), "root/gut", file, TUNED) for file in (WEIGHTS, CONFIG, TOKENIZER)],
    "resume": [Reading(begun_run, "run", "run.json", [SCRIPT, "--model_type", "gut"], may_lack=True)],
    "exported": [
        Reading(exported, "data/listops", file, ["evaluate", str(GUT), "DATA"]) for file in ("README.md", PARQUET)
    ],
    "publish": [
        Reading(exported, "data/listops", file, ["benchmark", "publish", "DATA", "org/listops", "--dry-run"])
        for file in ("README.md", "eval.yaml", PARQUET)
    ],
    "convert": [
        Reading(here(REFERENCE), "reference", file, ["convert", "REFERENCE", "OUT"])
        for file in ("case.json", "weights.safetensors")
    ],
    "card": [
        Reading(here(GUT), "root/gut", "card.json", ["card", "lint", "CHECKPOINT"], may_lack=True),
        Reading(here(GUT), "root/gut", "README.md", ["card", "lint", "CHECKPOINT"]),
        Reading(here(GUT), "root/gut", "card.json", ["card", "render", "CHECKPOINT"]),
    ],
    "cards": [
        Reading(here(GUT), "root/gut", "card.json", ["cards", "check", "ROOT"]),
        Reading(here(GUT), "root/gut", "card.json", ["cards", "refresh", "ROOT"]),
        Reading(here(GUT), "root/gut", "card.json", ["cards", "build", "ROOT", "--out", "OUT"]),
        Reading(here(NDR), "root/ndr", "calibration.json", ["cards", "refresh", "ROOT"], may_lack=True),
    ],
}


# kinds of damage whose contents a message may show
SHOWN = {"a list": ["[]"], "a number": ["3"], "wrong field": ["3"]}


def damages(content: bytes, rng: random.Random) -> dict[str, bytes | None]:
    """Kinds of damage -> what is left of a file; None: it is absent."""
    return {
        # within the metadata of a card, which are at its top
        "cut short": content[: rng.randrange(1, len(content) // 10 + 2)],
        "empty": b"",
        "binary": bytes(rng.randrange(256) for _ in range(256)),
        "a list": b"[]",
        "a number": b"3",
        "nested": b"[" * 300,
        "absent": None,
    }


def with_wrong_field(file: Path, rng: random.Random) -> bytes:
    """A JSON file with a number in the place of one of its mappings or lists."""
    data = json.loads(file.read_bytes())
    able = [key for key, value in data.items() if isinstance(value, (dict, list))]
    return json.dumps({**data, rng.choice(FIELDS[file.name] or able): 3}).encode()


def damaged_file(rng: random.Random) -> Case:
    """A random damage to a random file that a command or script reads."""
    use = rng.choice(list(READINGS))
    reading = rng.choice(READINGS[use])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        target = folder / reading.name
        shutil.copytree(reading.folder(), target, ignore=shutil.ignore_patterns("*.py"))
        file = target / reading.file
        kinds = damages(file.read_bytes(), rng)
        if reading.may_lack:
            kinds.pop("absent")
        if reading.file in FIELDS:
            kinds["wrong field"] = with_wrong_field(file, rng)
        kind = rng.choice(list(kinds))
        file.unlink()
        if kinds[kind] is not None:
            file.write_bytes(kinds[kind])
        # a copy of sound examples would stand in for damaged ones
        with tempfile.TemporaryDirectory() as cache, mock.patch.object(datasets.config, "HF_DATASETS_CACHE", cache):
            given = answer_of(reading, target, folder)
        if ":\n- " in given.shown:
            # one of several problems
            given = given._replace(shown="\n".join(given.shown.splitlines()[:2]))
        name = next((part for part in (file.name, *reversed(target.parts)) if part in given.shown), file.name)
        return judged(
            f"{use}: {reading.file} ({kind}; {' '.join(reading.words[:2])})",
            name,
            str(file),
            given,
            [str(target), *target.parts[-2:], *SHOWN.get(kind, [])],
        )


def answer_of(reading: Reading, target: Path, folder: Path) -> Answer:
    """The answer of the command or script that reads a damaged file."""
    names = ("CHECKPOINT", "DATA", "REFERENCE")
    places: dict[str, Any] = {**dict.fromkeys(names, target), "ROOT": target.parent, "OUT": folder / "out"}
    words = [str(places.get(word, word)) for word in reading.words]
    if words[0] != SCRIPT:
        return command_answer(words, folder)
    recipe = {key: value for key, value in SCRIPTS[SCRIPT][1].items() if key not in ("model_type", "config")}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return script_answer(SCRIPT, [path, "--output_dir", folder / "run", *words[1:]], folder)


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Answers of commands and scripts to damaged files."""
    return campaign_of(damaged_file, seconds=seconds, count=count, seed=seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))

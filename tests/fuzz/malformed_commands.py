"""Command lines that are wrong, by rule: each option and argument of each command, with values that it may not have.

cd tests; python -m fuzz.malformed_commands --seconds 600 --seed 0
"""

import math
import random
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from fuzz.campaigns import Findings, main
from fuzz.refusing.answers import command_answer, judged
from fuzz.refusing.malformed import campaign_of
from fuzz.refusing.verdict import Case
from hf_recurrent.cli.app import app
from support.checkpoints import committed_checkpoint

REFERENCE = Path(__file__).parents[1] / "parity" / "sparse-universal-transformer" / "encdec_full"
SIZES = {"num_train": 8, "num_validation": 4, "num_test": 4}
LISTOPS = [word for name, size in SIZES.items() for word in ("--set", f"{name}={size}")]
# command -> the checkpoint that stands for CHECKPOINT, and a command line that works
LINES: dict[str, tuple[str, list[str]]] = {
    "evaluate": ("gut-listops-cpu", ["CHECKPOINT", "listops", *LISTOPS]),
    "sweep": ("gut-listops-cpu", ["CHECKPOINT", "listops", *LISTOPS]),
    "predict": ("gut-listops-cpu", ["CHECKPOINT", "--file", "ROWS", "--output", "TABLE"]),
    "explain": ("gut-listops-cpu", ["CHECKPOINT", "[MAX 2 9 ]"]),
    "serve": ("gut-listops-cpu", ["CHECKPOINT", "--port", "0"]),
    "export": ("gut-listops-cpu", ["CHECKPOINT", "--output", "OUT", "--format", "torch"]),
    "calibrate": ("ndr-ctl-forward", ["CHECKPOINT", "compositional_table_lookup", *LISTOPS]),
    "fit-probe": ("ndr-ctl-forward", ["CHECKPOINT", "compositional_table_lookup", *LISTOPS]),
    "experts": ("sut-logical-inference-cpu", ["CHECKPOINT", "logical_inference_translation", *LISTOPS]),
    "convert": ("", [str(REFERENCE), "OUT"]),
    "publish": ("gut-listops-cpu", ["CHECKPOINT", "org/name", "--dry-run"]),
    "benchmark list": ("", ["listops"]),
    "benchmark show": ("", ["listops"]),
    "benchmark export": ("", ["listops", "OUT", *LISTOPS]),
    "metric export": ("", ["accuracy_by_slice", "OUT"]),
    "metric publish": ("", ["accuracy_by_slice", "org/accuracy_by_slice", "--dry-run"]),
    "card compare": ("gut-listops-cpu", ["CHECKPOINT"]),
    "card inside": ("gut-listops-cpu", ["CHECKPOINT", "[MAX 2 9 ]"]),
    "card lint": ("gut-listops-cpu", ["CHECKPOINT"]),
    "card render": ("gut-listops-cpu", ["CHECKPOINT"]),
    "recipes list": ("", ["listops"]),
    "recipes show": ("", ["listops_gut"]),
    "recipes copy": ("", ["listops_gut", "OUT"]),
    "cards check": ("gut-listops-cpu", ["ROOT"]),
    "cards refresh": ("gut-listops-cpu", ["ROOT"]),
    "cards build": ("gut-listops-cpu", ["ROOT", "--out", "OUT"]),
}
# any text will do
FREE = {"message", "tag", "pair", "answer"}
# command and argument -> what it names
NOUNS = {
    **{(command, "name"): "benchmark" for command in ("benchmark list", "benchmark show", "benchmark export")},
    **{("metric export", "name"): "metric", ("metric publish", "source"): "metric"},
    ("calibrate", "test_split"): "split",
    **{(command, "name"): "recipe" for command in ("recipes show", "recipes copy")},
    ("recipes list", "part"): "recipe",
}
WORD = "banana"


class Option(NamedTuple):
    """An option or argument of a command: `flag` is None for an argument, at `place` of them."""

    name: str
    flag: str | None
    place: int
    kind: type
    info: Any


def commands(group: typer.Typer = app, before: str = "") -> Iterator[tuple[str, Callable]]:
    """The commands of a typer app, with their names."""
    for command in group.registered_commands:
        name = command.name or command.callback.__name__.replace("_", "-")
        yield f"{before}{name}", command.callback
    for inner in group.registered_groups:
        yield from commands(inner.typer_instance, f"{before}{inner.name} ")


def options(callback: Callable) -> Iterator[Option]:
    """The options and arguments that a command's signature declares."""
    place = 0
    for name, hint in get_type_hints(callback, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        kind, info = get_args(hint)[:2]
        while get_origin(kind) in (Union, types.UnionType, list):
            kind = get_args(kind)[0]
        if isinstance(info, ArgumentInfo):
            yield Option(name, None, place, kind, info)
            place += 1
        elif isinstance(info, OptionInfo) and kind is not bool:
            # typer takes the first one for a default until it has read the annotation
            spelled = [word for word in (info.default, *(info.param_decls or ())) if str(word).startswith("--")]
            yield Option(name, (spelled or [f"--{name.replace('_', '-')}"])[0], 0, kind, info)


def wrong_texts(command: str, option: Option, folder: Path) -> list[str]:
    """Texts that an option may not have."""
    if option.kind in (int, float):
        low, high = option.info.min, option.info.max
        texts = [WORD, "", *(["nan"] if option.kind is float else ["2.5", "1e3"])]
        texts += [] if low is None else [str(low - 1), str(-(10**30))]
        return texts + ([] if high is None else [str(high + 1)])
    file = folder / "file"
    file.write_text("x")
    if option.kind is Path:
        texts = [str(file / "inside")]
        texts += [str(file)] if option.info.file_okay is False or option.flag is None else []
        if option.info.file_okay is False:
            link = folder / "link"
            link.symlink_to("nowhere")
            texts.append(str(link))
        return texts + ([str(folder)] if option.info.dir_okay is False else [])
    if option.name in FREE or (option.name == "revision" and "publish" in command):
        return []
    nowhere = option.name in ("checkpoint", "benchmark", "source", "data_dir")
    empty = [] if option.name == "data_dir" else [""]
    return [WORD, *empty] + ([str(folder / "none"), str(file)] if nowhere else [])


def line_of(command: str, folder: Path) -> list[str]:
    """The words of a command line that works in a folder."""
    checkpoint, words = LINES[command]
    root = folder / "root"
    root.mkdir()
    if checkpoint:
        ignored = shutil.ignore_patterns("*.py")
        shutil.copytree(committed_checkpoint(checkpoint), root / checkpoint, ignore=ignored)
    places = {"CHECKPOINT": str(root / checkpoint), "ROOT": str(root), "OUT": str(folder / "out")}
    places |= {"ROWS": str(folder / "rows.csv"), "TABLE": str(folder / "predictions.csv")}
    (folder / "rows.csv").write_text("text\n[MIN 1 2 ]\n")
    return [*command.split(), *(places.get(word, word) for word in words)]


def malformed_command(rng: random.Random) -> Case:
    """A random command with a wrong value, an unknown option, or an option without its value."""
    known = dict(commands())
    command = rng.choice(list(LINES))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = line_of(command, folder)
        own = list(options(known[command]))
        option = rng.choice(own)
        texts = wrong_texts(command, option, folder)
        if option.flag is not None and (not texts or rng.random() < 0.2):
            extra = rng.choice([[option.flag], [f"{option.flag}x", "1"]])
            return judged(command, extra[0].strip("-"), extra[0], command_answer([*words, *extra], folder))
        text = rng.choice(texts or [WORD])
        if option.flag is None:
            # one that may be left out is not in the line that works
            at = len(command.split()) + option.place
            words[at : at + 1] = [text]
        else:
            words += [option.flag, text]
        if option.name == "data_dir":
            # with files, parameters of generated examples are refused first
            words = [word for word in words if word not in LISTOPS]
        own_name = option.info.metavar or option.name if option.flag is None else option.flag.strip("-")
        name = NOUNS.get((command, option.name), own_name)
        return judged(command, name, text, command_answer(words, folder), [repr(text), "no files"])


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Answers to random mistakes in the command lines of `hf-recurrent`."""
    return campaign_of(malformed_command, seconds=seconds, count=count, seed=seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))

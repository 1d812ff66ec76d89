"""Recipes and flags that are wrong, by rule: each key of each script, with each kind of value that it may not have.

cd tests; python -m fuzz.malformed_recipes --seconds 600 --seed 0
"""

import dataclasses
import json
import math
import random
import reprlib
import sys
import tempfile
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from fuzz.campaigns import Findings, main
from fuzz.refusing.answers import judged, script_answer
from fuzz.refusing.malformed import campaign_of
from fuzz.refusing.verdict import Case
from hf_recurrent.benchmarks.registry import get_benchmark
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.arguments import ARGUMENT_TYPES, DOCUMENT_ARGUMENT_TYPES, SEQ2SEQ_ARGUMENT_TYPES
from hf_recurrent.training.values import RANGES

SIZES = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 2}
SHORT = {"max_steps": 1, "save_steps": 1, "use_cpu": True, "disable_tqdm": True}
FEW = {"num_train": 8, "num_validation": 4, "num_test": 4}
# script -> its argument dataclasses, and a recipe that it would run
SCRIPTS: dict[str, tuple[tuple[type, ...], dict[str, Any]]] = {
    "training/run_glue_style.py": (
        ARGUMENT_TYPES,
        {**SHORT, "model_type": "gut", "config": SIZES, "benchmark": "listops", "benchmark_params": FEW},
    ),
    "training/run_clm.py": (
        ARGUMENT_TYPES,
        {**SHORT, "model_type": "tlb", "config": SIZES, "benchmark": "flip_flop", "benchmark_params": FEW},
    ),
    "training/run_seq2seq.py": (
        SEQ2SEQ_ARGUMENT_TYPES,
        {
            **{**SHORT, "model_type": "sut", "config": {"hidden_size": 8, "num_hidden_layers": 2}},
            **{"benchmark": "logical_inference_translation", "benchmark_params": FEW},
        },
    ),
    "training/run_clm_accelerate.py": (
        DOCUMENT_ARGUMENT_TYPES,
        {**SHORT, "model_type": "rnn", "config": {"hidden_size": 8}, "benchmark_config": "folder"},
    ),
}
WORD, FRACTION, LIST, MAPPING = "banana", 2.5, [1], {"a": 1}
NUMBERS = (-7, 0, 2.5, 10**30, math.nan, math.inf, -math.inf)
# a value of each kind, and the kinds of Python that it is of
KINDS: tuple[tuple[Any, tuple[type, ...]], ...] = (
    (WORD, (str,)),
    (3, (int, float)),
    (FRACTION, (float,)),
    (True, (bool,)),
    (LIST, (list,)),
    ([MAPPING], ()),
    (MAPPING, (dict,)),
)


def kinds_of(hint: Any) -> set[Any]:
    """The kinds of values that an annotation allows; text is none of them where it names one of several choices."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = get_args(hint)
        chosen = any(isinstance(part, type) and issubclass(part, Enum) for part in parts)
        return set().union(*(kinds_of(part) for part in parts)) - ({str} if chosen else set())
    kind = get_origin(hint) or hint
    if kind is Annotated:
        return kinds_of(get_args(hint)[0])
    if kind is Literal:
        return {type(choice) for choice in get_args(hint)} - {str}
    return {kind} if isinstance(kind, type) else {str, bool}


def wrong_values(key: str, hint: Any, choices: Any = None) -> Iterator[Any]:
    """Values of kinds that a key may not have, numbers out of its range, and a word that is none of its choices."""
    kinds = kinds_of(hint)
    mapping = dict in kinds
    for value, own in KINDS:
        # a text may be the path of a mapping's file, but is of no file here
        allowed = kinds & set(own) and not (value == WORD and (choices or mapping))
        if not allowed:
            yield value
    if kinds & {int, float}:
        yield from (
            value for value in NUMBERS if out_of_range(key, value) and (isinstance(value, int) or float in kinds)
        )
    if list in kinds and key in RANGES:
        yield from ([value] for value in NUMBERS if out_of_range(key, value))


def out_of_range(key: str, value: Any) -> bool:
    try:
        RANGES[key](value)
    except (TypeError, ValueError, OverflowError):
        return True
    return False


def malformed_keys(script: str) -> Iterator[tuple[str, Any]]:
    """Keys of a script with values that they may not have, and keys that it does not have."""
    for cls in SCRIPTS[script][0]:
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if not field.init or field.name == "output_dir":
                continue
            yield from (
                (field.name, v) for v in wrong_values(field.name, hints[field.name], field.metadata.get("choices"))
            )
            yield from ((unknown, unknown) for unknown in (f"{field.name}x", field.name[1:]))


def malformed_mappings(script: str) -> Iterator[tuple[str, str, Any]]:
    """Fields of the config and parameters of the benchmark: mapping, name, and a value that no field may have."""
    recipe = SCRIPTS[script][1]
    config = ARCHITECTURES[recipe["model_type"]].config_class
    own = {field.name: field.type for field in dataclasses.fields(config) if field.name in config.__annotations__}
    for name, hint in own.items():
        yield from (("config", name, value) for value, kinds in KINDS if not kinds_of(hint) & set(kinds))
        yield "config", f"{name}x", f"{name}x"
    if "benchmark" not in recipe:
        return
    benchmark = get_benchmark(recipe["benchmark"])
    for name in benchmark.info.parameters[benchmark.info.default_config]:
        check = benchmark.parameters[name].check
        yield from (
            ("benchmark_params", name, value) for value in (*NUMBERS, *(v for v, _ in KINDS)) if fails(check, value)
        )
        yield "benchmark_params", f"{name}x", f"{name}x"


def fails(check: Any, value: Any) -> bool:
    try:
        check(value)
    except Exception:
        return True
    return False


def wrong_key(script: str, rng: random.Random, folder: Path) -> Case:
    """A key with a wrong value or an unknown key, in the recipe or as a flag."""
    name, value = rng.choice(list(malformed_keys(script)))
    hints = {name: hint for cls in SCRIPTS[script][0] for name, hint in get_type_hints(cls).items()}
    # a flag is a text, and a list of one is its element
    takes_text = kinds_of(hints.get(name)) & {str, list} or isinstance(value, (bool, list))
    if rng.random() < 0.3 and (name not in hints or not takes_text):
        return answered(script, folder, {}, name, value, [f"--{name}={as_text(value)}"])
    return answered(script, folder, {name: value}, name, value)


def wrong_field(script: str, rng: random.Random, folder: Path) -> Case:
    """A field of the config or a parameter of the benchmark with a wrong value, or an unknown one."""
    mapping, name, value = rng.choice(list(malformed_mappings(script)))
    before = SCRIPTS[script][1].get(mapping, {})
    return answered(script, folder, {mapping: {**before, name: value}}, name, value)


def doubled_key(script: str, rng: random.Random, folder: Path) -> Case:
    """A key that is there twice, at the top or in a mapping."""
    recipe = sound_recipe(script, folder)
    key = rng.choice([key for key, value in recipe.items() if not isinstance(value, dict)])
    doubled = f"{yaml.safe_dump(recipe)}{key}: {recipe[key]}\n"
    return recipe_case(script, folder, doubled, key, "twice")


def broken_text(script: str, rng: random.Random, folder: Path) -> Case:
    """A recipe that is cut short, empty, binary, no mapping, or absent."""
    text = yaml.safe_dump(SCRIPTS[script][1]).encode()
    broken = {
        "cut": text[: rng.randrange(1, len(text))].rstrip(b"\n") + b": [",
        "empty": b"",
        "binary": bytes(rng.randrange(256) for _ in range(64)),
        "list": b"- 1\n",
        "deep": b"[" * 300,
        "date": b"title: 2024-13-45\n",
    }
    kind = rng.choice(list(broken))
    return recipe_case(script, folder, broken[kind], "recipe", str(folder / "recipe.yaml"))


def bad_place(script: str, rng: random.Random, folder: Path) -> Case:
    """An output folder or a checkpoint to fine-tune that there cannot be."""
    file = folder / "file"
    file.write_text("")
    bert = folder / "bert"
    bert.mkdir()
    (bert / "config.json").write_text('{"model_type": "bert"}')
    places = {
        "output_dir": (file, file / "run", Path("/proc/none/run"), Path("/dev/full")),
        "model_name_or_path": (file, bert, folder / "none"),
    }
    name = rng.choice(list(places))
    place = rng.choice(places[name])
    changes = {} if name == "output_dir" else {"model_type": None, "config": None, "model_name_or_path": str(place)}
    return answered(script, folder, changes, name, str(place), output=place if name == "output_dir" else None)


def sound_recipe(script: str, folder: Path) -> dict[str, Any]:
    """The recipe of a script, with documents in `folder` if it reads any."""
    recipe = SCRIPTS[script][1]
    if "benchmark" in recipe:
        return recipe
    for split in ("train", "test"):
        (folder / "texts" / split).mkdir(parents=True)
        (folder / "texts" / split / "text.txt").write_text("a few words")
    return {**recipe, "data_dir": str(folder / "texts")}


MISTAKES = {wrong_key: 8, wrong_field: 4, doubled_key: 1, broken_text: 1, bad_place: 1}


def answered(
    script: str, folder: Path, changes: dict[str, Any], name: str, value: Any, flags: list[str] = (), output: Any = None
) -> Case:
    """The answer of a script to its recipe with some changes, of which None removes a key."""
    recipe = {key: item for key, item in {**sound_recipe(script, folder), **changes}.items() if item is not None}
    return recipe_case(script, folder, yaml.safe_dump(recipe), name, value, flags, output)


def recipe_case(
    script: str, folder: Path, text: str | bytes, name: str, value: Any, flags: list[str] = (), output: Any = None
) -> Case:
    path = folder / "recipe.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    given = script_answer(script, [path, "--output_dir", output or folder / "run", *flags], folder)
    return judged(script, name, value, given, [as_text(value), reprlib.repr(value), *parts(value)])


def parts(value: Any) -> list[str]:
    """How a number is spelled after it has been read, and the elements of a list."""
    if isinstance(value, list):
        return [spelling for item in value for spelling in (reprlib.repr(item), *parts(item))]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return []
    return [repr(float(value))]


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def malformed_recipe(rng: random.Random) -> Case:
    """A random mistake in a random script's recipe or flags."""
    mistake = rng.choices(list(MISTAKES), list(MISTAKES.values()))[0]
    with tempfile.TemporaryDirectory() as folder:
        return mistake(rng.choice(list(SCRIPTS)), rng, Path(folder))


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Answers to random mistakes in recipes and flags of the training scripts."""
    return campaign_of(malformed_recipe, seconds=seconds, count=count, seed=seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))

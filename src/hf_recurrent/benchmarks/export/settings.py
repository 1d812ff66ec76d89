"""The choices of an export, and the command line that makes the same choices."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...metrics.serialize import plain
from ..benchmark import Benchmark
from ..parameters import unknown


@dataclass(frozen=True)
class ConfigChoice:
    """A config to export: `given` are the parameters it takes of those that the user gave, checked; `changed` those
    of them that differ from the default."""

    name: str
    given: dict[str, Any]
    changed: dict[str, Any]


def choose(benchmark: Benchmark, configs: Sequence[str] | None, params: Mapping[str, Any]) -> list[ConfigChoice]:
    """The configs to export, in the benchmark's order, each with the parameters that it takes; None: all that may be.

    Raises:
        ValueError: for an unknown config, one whose rows are others' to publish, a parameter that no chosen config
            takes, or an unsuitable value.
    """
    info = benchmark.info
    if isinstance(configs, str) or (configs is not None and not configs):
        raise ValueError(f"configs={configs!r}: expected None (all) or a list out of {', '.join(info.configs)}")
    ours = [config for config in info.configs if _is_ours(benchmark.member(config), config)]
    if not ours:
        raise ValueError(
            f"benchmark {info.name!r} is not exported: its texts are not made here; to keep them as files, use "
            "to_parquet of what load_benchmark gives"
        )
    wanted = list(ours) if configs is None else list(configs)
    for config in wanted:
        if config not in info.configs:
            raise unknown("config", config, info.configs, of=f" of benchmark {info.name!r}")
        if config not in ours:
            raise ValueError(
                f"configs={wanted!r}: the rows of {config!r} are not ours to publish, so they are not exported (only "
                f"{', '.join(ours)}); to keep them as files, use to_parquet of what load_benchmark gives"
            )
    chosen = [config for config in info.configs if config in wanted]
    known = dict.fromkeys(name for config in chosen for name in info.parameters[config])
    for name in params:
        if name not in known:
            raise unknown("parameter", name, known, of=f" for benchmark {info.name!r}, configs {', '.join(chosen)}")
    return [_choice(benchmark.member(config), config, params) for config in chosen]


def _is_ours(benchmark: Benchmark, config: str) -> bool:
    return benchmark.export_configs is None or config in benchmark.export_configs


def _choice(benchmark: Benchmark, config: str, params: Mapping[str, Any]) -> ConfigChoice:
    defaults = benchmark.info.parameters[config]
    # in the order of the defaults: the order in which they were given must leave no trace
    own = {name: params[name] for name in defaults if name in params}
    resolved = benchmark.checked(config, own, defaults)
    # what does not fit together should be known before the first config is generated
    if benchmark.generated:
        benchmark.split_names(config, benchmark.complete(config, dict(resolved)))
    given = {name: resolved[name] for name in own}
    return ConfigChoice(config, given, {name: value for name, value in given.items() if value != defaults[name]})


def regenerate_command(benchmark: Benchmark, choices: Iterable[ConfigChoice]) -> str:
    """The shell command that exports the same again, with nothing in it that is the default."""
    choices = list(choices)
    words = ["hf-recurrent", "benchmark", "export", benchmark.info.name, benchmark.info.name]
    if len(choices) < len(benchmark.info.configs):
        words += [word for choice in choices for word in ("--config", choice.name)]
    changed = {name: value for choice in choices for name, value in choice.changed.items()}
    for name, value in changed.items():
        words += ["--set", f"{name}={json.dumps(plain(value), separators=(',', ':'))}"]
    return shlex.join(words)


def spelled(value: Any) -> str:
    """A parameter's value as a VALUE that `parse_settings` reads back; a list has no spaces, at which a shell cuts."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, tuple | list) else str(value)


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Parameters from `NAME=VALUE` texts, as in the command above; a VALUE that is not JSON is a string.

    >>> parse_settings(["max_depth=3", "operators=MAX", "num_train=null"])
    {'max_depth': 3, 'operators': 'MAX', 'num_train': None}

    Raises ValueError for a text without a name or `=`, and for a name that is there twice.
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"setting {setting!r}: expected NAME=VALUE, such as max_depth=3")
        name = name.strip()
        if name in parsed:
            raise ValueError(f"setting {setting!r}: {name} is given twice")
        try:
            parsed[name] = json.loads(text)
        except json.JSONDecodeError:
            # what shells and YAML users write
            parsed[name] = {"none": None, "true": True, "false": False}.get(text.strip().lower(), text.strip())
    return parsed

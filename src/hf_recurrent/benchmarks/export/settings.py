"""The choices of an export, and the command line that makes the same choices."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...files import plain
from ..benchmark import Benchmark
from ..info import BenchmarkInfo
from ..parameters import unknown


def choose(benchmark: Benchmark, configs: Sequence[str] | None, params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The configs to export, in the benchmark's order, each with those of the parameters that it takes, checked.

    Args:
        configs: None: all that may be exported.

    Raises:
        ValueError: for an unknown config, one whose examples are others' to publish, a parameter that no chosen config
            takes, or an unsuitable value.
    """
    info = benchmark.info
    if isinstance(configs, str) or (configs is not None and not configs):
        raise ValueError(f"configs={configs!r}: expected None (all) or a list out of {', '.join(info.configs)}")
    allowed = {config: benchmark.member(config).export_configs for config in info.configs}
    exported = [config for config, own in allowed.items() if own is None or config in own]
    alternative = "to keep them as files, use to_parquet of the result of load_benchmark"
    if not exported:
        raise ValueError(f"benchmark {info.name!r} is not exported: its texts are not made here; {alternative}")
    chosen = exported if configs is None else [config for config in info.configs if config in configs]
    for config in chosen if configs is None else configs:
        if config not in info.configs:
            raise unknown("config", config, info.configs, of=f" of benchmark {info.name!r}")
        if config not in exported:
            raise ValueError(
                f"configs={list(configs)!r}: the examples of {config!r} are not ours to publish, so they are not "
                f"exported (only {', '.join(exported)}); {alternative}"
            )
    known = dict.fromkeys(name for config in chosen for name in info.parameters[config])
    for name in params:
        if name not in known:
            raise unknown("parameter", name, known, of=f" for benchmark {info.name!r}, configs {', '.join(chosen)}")
    choices = {}
    for config in chosen:
        member, defaults = benchmark.member(config), info.parameters[config]
        # in the order of the defaults, so that the order in which they were given changes nothing
        own = {name: params[name] for name in defaults if name in params}
        resolved = member.checked(config, own, defaults)
        # parameters that contradict each other are reported before the first config is generated
        if member.generated:
            member.split_names(config, member.complete(config, dict(resolved)))
        choices[config] = {name: resolved[name] for name in own}
    return choices


def changed(info: BenchmarkInfo, config: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given parameters of a config that differ from their defaults."""
    return {name: value for name, value in given.items() if value != info.parameters[config][name]}


def regenerate_command(info: BenchmarkInfo, choices: Mapping[str, Mapping[str, Any]]) -> str:
    """The shell command that makes the same export, without arguments that are the default."""
    arguments = ["hf-recurrent", "benchmark", "export", info.name, info.name]
    if len(choices) < len(info.configs):
        arguments += [argument for config in choices for argument in ("--config", config)]
    settings: dict[str, Any] = {}
    for config, given in choices.items():
        settings |= changed(info, config, given)
    for name, value in settings.items():
        arguments += ["--set", f"{name}={json.dumps(plain(value), separators=(',', ':'))}"]
    return shlex.join(arguments)


def format_value(value: Any) -> str:
    """A parameter as a VALUE that `parse_settings` reads back; a list has no spaces, at which a shell would cut."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, tuple | list) else str(value)


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Parameters from `NAME=VALUE` texts, as in the command above; a VALUE that is not JSON is a string.

    >>> parse_settings(["max_depth=3", "operators=MAX", "num_train=null"])
    {'max_depth': 3, 'operators': 'MAX', 'num_train': None}

    Raises ValueError for a text without a name or `=`, and for a name that is there twice.
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not name:
            raise ValueError(f"set={setting!r}: expected NAME=VALUE, such as max_depth=3")
        if name in parsed:
            raise ValueError(f"set={setting!r}: {name} is given twice")
        try:
            parsed[name] = json.loads(text)
        except json.JSONDecodeError:
            # the spellings of shells and YAML
            parsed[name] = {"none": None, "true": True, "false": False}.get(text.lower(), text)
    return parsed

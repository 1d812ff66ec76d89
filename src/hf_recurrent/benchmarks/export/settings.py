"""The choices of an export, and the command line that makes the same choices."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ...utils import plain
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
        arguments += [argument for config in choices for argument in ("--benchmark_config", config)]
    settings: dict[str, Any] = {}
    for config, given in choices.items():
        settings |= changed(info, config, given)
    if settings:
        given = ", ".join(f"{name}: {format_value(value)}" for name, value in settings.items())
        arguments += ["--benchmark_params", f"{{{given}}}"]
    return shlex.join(arguments)


def format_value(value: Any) -> str:
    """A parameter as the YAML of `--benchmark_params`."""
    return json.dumps(plain(value))

"""What the Hub demands of a card's YAML front matter: a file of rules, each naming the field at fault.

The list of licences and the wording of messages follow what the Hub's own errors say; the real schema is not public,
so a card that passes here can still be refused there.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

_LICENSES = """
apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl openmdw-1.0
openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr deepfloyd-if-license
fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 grok2-community gemma unknown
other
"""
LICENSES = tuple(_LICENSES.split())
SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B")
SIZES += ("10B<n<100B", "100B<n<1T", "n>1T")
REPOSITORY = re.compile(r"(?:[\w-][\w.-]{0,95}/)?[\w-][\w.-]{0,95}", re.ASCII)
LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*|code|multilingual")
FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:^|\n)---[ \t]*\r?(?:\n|\Z)", re.DOTALL | re.MULTILINE)
CONFIG_NAME = re.compile(r"[^<>:/\\|?*\s]+")
MISSING = object()


class _Loader(yaml.SafeLoader):
    """Safe YAML that also refuses a key given twice, which PyYAML would let win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise yaml.constructor.ConstructorError(None, None, f"duplicated mapping key {key!r}", node.start_mark)
        return super().construct_mapping(node, deep)


def front_matter(text: str) -> dict[str, Any] | None:
    """The metadata of a card, None where there is none; ValueError where it is not a mapping in safe YAML."""
    match = FRONT_MATTER.match(text)
    if match is None:
        return None
    try:
        data = yaml.load(match.group(1), Loader=_Loader)
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(f"YAML Metadata Error: {error}") from error
    if data is not None and not isinstance(data, dict):
        raise ValueError("YAML Metadata Error: the front matter must be a mapping")
    return data


def check_card(text: str, kind: str) -> tuple[list[str], list[str]]:
    """Errors and warnings of a README.md of a model or dataset."""
    try:
        data = front_matter(text)
    except ValueError as error:
        return [str(error)], []
    if not data:
        return [], ["empty or missing yaml metadata in repo card"]
    rules: dict[str, Callable[[dict], Iterator[str]]] = {"model": _model, "dataset": _dataset}
    return [*_not_finite(data, ""), *_common(data), *rules[kind](data)], []


def _common(data: dict) -> Iterator[str]:
    licenses = data.get("license", MISSING)
    yield from _strings(licenses, "license", choices=LICENSES, or_one=True)
    if "other" in (licenses if isinstance(licenses, list) else [licenses]) and "license_name" not in data:
        yield '"license_name" is required when "license" is "other"'
    yield from _strings(data.get("language", MISSING), "language", pattern=LANGUAGE, or_one=True)
    yield from _strings(data.get("tags", MISSING), "tags")
    for key in ("license_name", "license_link", "library_name", "thumbnail", "pretty_name", "title"):
        yield from _string(data.get(key, MISSING), key)


def _model(data: dict) -> Iterator[str]:
    for key in ("datasets", "base_model"):
        hint = f"If possible, use an id from https://hf.co/{'datasets' if key == 'datasets' else 'models'}."
        yield from _strings(data.get(key, MISSING), key, pattern=REPOSITORY, hint=hint, or_one=key == "base_model")
    yield from _strings(data.get("metrics", MISSING), "metrics")
    yield from _string(data.get("pipeline_tag", MISSING), "pipeline_tag")
    if "widget" in data and not isinstance(data["widget"], list):
        yield '"widget" must be an array'
    yield from _each(data, "model-index", "", _model_index, required=False)


def _model_index(entry: dict, place: str) -> Iterator[str]:
    yield from _required_string(entry, place, "name")
    yield from _each(entry, "results", place, _result)


def _result(result: dict, place: str) -> Iterator[str]:
    yield from _required_string(result.get("task"), f"{place}.task", "type")
    dataset = result.get("dataset")
    yield from _required_string(dataset, f"{place}.dataset", "name")
    if isinstance(dataset, dict):
        yield from _required_string(dataset, f"{place}.dataset", "type", REPOSITORY)
        for key in ("config", "split", "revision"):
            yield from _string(dataset.get(key, MISSING), f"{place}.dataset.{key}")
    yield from _each(result, "metrics", place, _metric)


def _metric(metric: dict, place: str) -> Iterator[str]:
    yield from _required_string(metric, place, "type")
    if metric.get("value") is None:
        yield f'"{place}.value" is required'


def _dataset(data: dict) -> Iterator[str]:
    yield from _strings(data.get("task_categories", MISSING), "task_categories")
    yield from _strings(data.get("size_categories", MISSING), "size_categories", choices=SIZES)
    yield from _each(data, "configs", "", _config, required=False)
    configs = data.get("configs")
    if (
        isinstance(configs, list)
        and sum(isinstance(item, dict) and item.get("default") is True for item in configs) > 1
    ):
        yield '"configs" must have at most one default'
    info = data.get("dataset_info", {})
    if not all(isinstance(item, dict) for item in (info if isinstance(info, list) else [info])):
        yield '"dataset_info" must be an object or an array of objects'


def _config(config: dict, place: str) -> Iterator[str]:
    yield from _required_string(config, place, "config_name", CONFIG_NAME)
    yield from _data_files(config, place)


def _data_files(config: dict, place: str) -> Iterator[str]:
    files = config.get("data_files", config.get("data_dir"))
    if isinstance(files, list) and files and all(isinstance(item, dict) for item in files):
        for position, item in enumerate(files):
            yield from _required_string(item, f"{place}.data_files[{position}]", "split")
            yield from _strings(item.get("path"), f"{place}.data_files[{position}].path", or_one=True)
    elif files is None:
        yield f'"{place}.data_files" is required'
    else:
        yield from _strings(files, f"{place}.data_files", or_one=True)


def _not_finite(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _not_finite(item, f"{place}[{position}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f'"{place}" must be a finite number, not {value}'


def _string(value: Any, place: str) -> Iterator[str]:
    if value is not MISSING and not isinstance(value, str):
        yield f'"{place}" must be a string'


def _required_string(entry: Any, place: str, key: str, pattern: re.Pattern | None = None) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f'"{place}" must be an object'
    elif entry.get(key) is None:
        yield f'"{place}.{key}" is required'
    elif not isinstance(entry[key], str):
        yield f'"{place}.{key}" must be a string'
    elif pattern and not pattern.fullmatch(entry[key]):
        yield f'"{place}.{key}" with value "{entry[key]}" fails to match the required pattern: /^{pattern.pattern}$/'


def _strings(
    value: Any,
    place: str,
    *,
    pattern: re.Pattern | None = None,
    choices: tuple[str, ...] = (),
    hint: str = "",
    or_one: bool = False,
) -> Iterator[str]:
    """An array of strings, or one string where that is allowed."""
    if value is MISSING:
        return
    if or_one and isinstance(value, str):
        named = [(place, value)]
    elif isinstance(value, list):
        named = [(f"{place}[{position}]", item) for position, item in enumerate(value)]
    else:
        yield f'"{place}" must be {"a string or " if or_one else ""}an array'
        return
    for name, item in named:
        if choices and item not in choices:
            yield f'"{name}" must be one of [{", ".join(choices)}{", array" if or_one else ""}]'
        elif not isinstance(item, str):
            yield f'"{name}" must be a string'
        elif pattern and not pattern.fullmatch(item):
            yield f'"{name}" with value "{item}" is not valid. {hint}'.strip()


def _each(
    data: dict, key: str, place: str, rule: Callable[[dict, str], Iterator[str]], *, required: bool = True
) -> Iterator[str]:
    """An array of objects, each of which follows `rule`."""
    name = f"{place}.{key}".lstrip(".")
    if key not in data:
        if required:
            yield f'"{name}" is required'
    elif not isinstance(data[key], list):
        yield f'"{name}" must be an array'
    else:
        for position, entry in enumerate(data[key]):
            if isinstance(entry, dict):
                yield from rule(entry, f"{name}[{position}]")
            else:
                yield f'"{name}[{position}]" must be an object'

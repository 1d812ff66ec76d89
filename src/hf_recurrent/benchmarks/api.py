"""The functions that users call."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .parameters import resolve, unknown
from .registry import Family, get_family

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


def load_benchmark(
    name: str,
    config_name: str | None = None,
    *,
    split: str | None = None,
    data_dir: str | os.PathLike | None = None,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    **params: Any,
) -> "DatasetDict | Dataset":
    """A benchmark as a `DatasetDict`, or one split of it as a `Dataset`.

    Rows depend on the config and on `params` alone (the seed is one of them), never on `num_proc`. Each is
    made once and then read from the cache of `datasets`.

    Args:
        name: one of `list_benchmarks()`.
        config_name: one of `benchmark_info(name).configs`; None: its `default_config`.
        split: a split, or a slice of one such as `"train[:100]"`.
        data_dir: a folder with the authors' own files, to be read and verified instead of generating rows, for
            `listops` and `logical_inference`; a folder or zip file of texts for `long_documents`; files to read instead
            of those of the Hub for `cfq` and `wmt14_en_de`; the authors' release for each config of `lra`.
        num_proc: processes that compute rows.
        cache_dir: where to keep the data, instead of the cache of `datasets`.
        **params: what `benchmark_info(name).parameters[config_name]` lists, with its default values: `seed`,
            sizes (`num_train`, `num_validation`, `num_test`) and difficulty.

    Raises:
        ValueError: for a name, config, split, parameter or file that is not as it should be.
    """
    family = get_family(name)
    config_name = family.info.default_config if config_name is None else config_name
    if config_name not in family.info.configs:
        raise unknown("config", config_name, family.info.configs, of=f" of benchmark {name!r}")
    family = get_family(name, config_name)
    if num_proc is not None and (isinstance(num_proc, bool) or not isinstance(num_proc, int) or num_proc < 1):
        raise ValueError(f"num_proc={num_proc!r}: expected None or an integer >= 1")
    resolved = resolve_params(family, config_name, params, from_files=data_dir is not None)
    files_dir = files_folder(family, config_name, resolved, data_dir)
    if files_dir is None:
        names = family.splits.split_names(config_name, resolved)
    else:
        names = list(family.files.plan(config_name, resolved, files_dir))
    for part in _split_names(split):
        if part not in names:
            raise unknown("split", part, names, of=f" of benchmark {name!r}, config {config_name!r}")
    return _load(name, config_name, resolved, files_dir, split, num_proc, cache_dir)


def resolve_params(family: Family, config_name: str, given: Mapping[str, Any], from_files: bool) -> dict[str, Any]:
    """All parameters of the config, checked; for files, only those that choose among their rows."""
    configs = family.configs
    context = f"benchmark {family.info.name!r}, config {config_name!r}"
    defaults = dict(configs.DEFAULTS[config_name])
    if from_files:
        if family.files is None:
            raise ValueError(f"data_dir: benchmark {family.info.name!r} reads no files; leave data_dir out")
        if config_name not in family.file_configs:
            works = f"it works for {', '.join(family.file_configs)}" if family.file_configs else "leave data_dir out"
            raise ValueError(f"data_dir: {context} has no files; {works}")
        defaults = {key: value for key, value in defaults.items() if key in family.file_parameters}
        context += " with data_dir (files are read as they are)"
    resolved = resolve(configs.PARAMETERS, defaults, given, context)
    return resolved if from_files else configs.complete(config_name, resolved)


def files_folder(
    family: Family, config_name: str, params: dict[str, Any], data_dir: str | os.PathLike | None
) -> Path | None:
    """Where the rows are read from; None where they are generated."""
    if data_dir is None:
        return None if family.splits is not None else family.files.root(config_name, params)
    files_dir = Path(data_dir)
    if not family.files.plan(config_name, params, files_dir):
        raise ValueError(f"data_dir={str(files_dir)!r}: none of the expected files is there ({family.file_names})")
    return files_dir.resolve()


def _load(
    name: str,
    config_name: str,
    params: dict[str, Any],
    files_dir: Path | None,
    split: str | None,
    num_proc: int | None,
    cache_dir: str | os.PathLike | None,
) -> "DatasetDict | Dataset":
    from datasets import DatasetDict
    from datasets.exceptions import DatasetGenerationError

    from .builders import make_builder

    builder = make_builder(name, config_name, params, files_dir, None if cache_dir is None else str(cache_dir))
    try:
        builder.download_and_prepare(num_proc=num_proc)
    except DatasetGenerationError as error:
        # a malformed file is the user's to mend: its message must not hide behind a generic one
        if isinstance(error.__cause__, ValueError):
            raise ValueError(str(error.__cause__)) from error
        raise
    # files can leave a split without rows, which `datasets` cannot read back
    filled = [name for name, facts in builder.info.splits.items() if facts.num_examples]
    if split is None and filled:
        return DatasetDict({name: builder.as_dataset(split=name) for name in filled})
    parts = _split_names(split)
    if not filled or not set(parts) <= set(filled):
        empty = ", ".join(part for part in parts if part not in filled) or "every split"
        raise ValueError(f"data_dir={str(files_dir)!r}: {empty} has no rows")
    return builder.as_dataset(split=split)


def _split_names(split: str | None) -> list[str]:
    """The splits in an instruction such as `"train[:10]+test"`."""
    return [] if split is None else [re.match(r"[^\[]*", part.strip()).group() for part in split.split("+")]


def normalize_expression(text: str, name: str = "listops") -> str:
    """A benchmark's own spelling of an expression with loose spacing or in the authors' bracketed form.

    >>> normalize_expression("[MAX 2 9[MIN 4 7]0]")
    '[MAX 2 9 [MIN 4 7 ] 0 ]'

    Raises ValueError when the text is not a well-formed expression of the benchmark.
    """
    family = get_family(name)
    if not isinstance(text, str):
        raise ValueError(f"text={text!r}: expected a string")
    return family.normalize(text)

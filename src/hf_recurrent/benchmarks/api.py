"""The functions that users call."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .benchmark import Benchmark
from .parameters import unknown
from .registry import get_benchmark
from .sequence_tokenizers import sequence_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from transformers import PreTrainedTokenizerFast


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

    Examples depend on the config and on `params` alone (the seed is one of them), never on `num_proc`. Each is
    made once and then read from the cache of `datasets`.

    Args:
        name: one of `list_benchmarks()`.
        config_name: one of `benchmark_info(name).configs`; None: its `default_config`.
        split: a split, or a slice of one such as `"train[:100]"`.
        data_dir: a folder with the authors' own files, to be read and verified instead of generating examples, for
            `listops` and `logical_inference`; a folder or zip file of texts for `long_documents`; files to read instead
            of those of the Hub for `cfq` and `wmt14_en_de`; the authors' release for each config of `lra`.
        num_proc: processes that compute examples.
        cache_dir: where to keep the data, instead of the cache of `datasets`.
        **params: those of `benchmark_info(name).parameters[config_name]`, which has their default values: `seed`,
            sizes (`num_train`, `num_validation`, `num_test`) and difficulty.

    Raises:
        ValueError: for a name, config, split, parameter or file that is not as it should be.
    """
    from datasets import DatasetDict
    from datasets.exceptions import DatasetGenerationError

    from .builder import make_builder

    config_name = config_name or get_benchmark(name).info.default_config
    benchmark = get_benchmark(name, config_name)
    resolved = benchmark.resolve(config_name, params, from_files=data_dir is not None)
    files_dir = files_folder(benchmark, config_name, resolved, data_dir)
    if files_dir is None:
        names = benchmark.split_names(config_name, resolved)
    else:
        names = list(benchmark.plan_files(config_name, resolved, files_dir))
    # the splits in an instruction such as "train[:10]+test"
    wanted = [] if split is None else [re.match(r"[^\[]*", part.strip()).group() for part in split.split("+")]
    for part in wanted:
        if part not in names:
            raise unknown("split", part, names, of=f" of benchmark {name!r}, config {config_name!r}")
    builder = make_builder(name, config_name, resolved, files_dir, None if cache_dir is None else str(cache_dir))
    try:
        builder.download_and_prepare(num_proc=num_proc)
    except DatasetGenerationError as error:
        # a malformed file is the user's to mend: its message must not hide behind a generic one
        if isinstance(error.__cause__, (ValueError, OSError)):
            raise error.__cause__ from None
        raise
    # files can leave a split without examples, which `datasets` cannot read back
    filled = [name for name, facts in builder.info.splits.items() if facts.num_examples]
    if not filled or not set(wanted) <= set(filled):
        empty = ", ".join(name for name in wanted if name not in filled) or "every split"
        raise ValueError(f"data_dir={str(files_dir)!r}: {empty} has no examples")
    if split is None:
        return DatasetDict({name: builder.as_dataset(split=name) for name in filled})
    return builder.as_dataset(split=split)


def files_folder(
    benchmark: Benchmark, config_name: str, params: dict[str, Any], data_dir: str | os.PathLike | None
) -> Path | None:
    """The folder that examples are read from; None where they are generated."""
    if data_dir is None:
        return None if benchmark.generated else benchmark.default_folder(config_name, params)
    files_dir = Path(data_dir)
    if not benchmark.plan_files(config_name, params, files_dir):
        raise ValueError(f"data_dir={str(files_dir)!r}: none of the expected files is there ({benchmark.file_names})")
    return files_dir.resolve()


def normalize_expression(text: str, name: str = "listops") -> str:
    """A benchmark's own spelling of an expression with loose spacing or in the authors' bracketed form.

    >>> normalize_expression("[MAX 2 9[MIN 4 7]0]")
    '[MAX 2 9 [MIN 4 7 ] 0 ]'

    Raises ValueError when the text is not a well-formed expression of the benchmark.
    """
    return get_benchmark(name).normalize(text)


def build_tokenizer(name: str, config_name: str | None = None) -> "PreTrainedTokenizerFast":
    """The tokenizer of a benchmark, with `[PAD]` as token 0.

    That of `long_documents` is at byte level, and reads any text as it is (`document_tokenizer` has others). Those of
    benchmarks of sources and targets are `sequence_tokenizer`'s. For the other benchmarks:

    Loose spacing is understood, and for ListOps the authors' parentheses are dropped; an unknown symbol becomes
    `[UNK]`. `normalize_expression` is the strict form that reports mistakes instead. Padding is on the right; of
    `flip_flop` and `long_documents`, whose models generate, on the left.

    `config_name` matters where configs have different vocabularies, as in `lra`, whose texts are bytes and whose images
    are numbers, the pixels; None: the default config.
    """
    benchmark = get_benchmark(name, config_name)
    return sequence_tokenizer(name) if benchmark.info.target_column else benchmark.build_tokenizer()

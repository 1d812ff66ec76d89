"""The base class of benchmarks: what they are, and how their examples are made, read and rendered."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .info import BenchmarkInfo
from .parameters import Parameter, resolve, unknown
from .sampling import GENERATOR_VERSION, Shard, non_empty
from .tokenizers import framed_byte_tokenizer, symbol_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Plan = dict[str, list[Shard]]


class Config(NamedTuple):
    """A config of a benchmark: one line on what it is, and the parameters it takes with their default values."""

    description: str
    defaults: Mapping[str, Any]


class Benchmark:
    """A benchmark. Instances have no state; the registry makes one of each class.

    A subclass sets `info` and `parameters`, and overrides `plan` if its examples are generated, `plan_files` if they
    can be read from files, or both. Everything else has a default.

    Attributes:
        info: facts about the benchmark, see `make_info`.
        parameters: what `load_benchmark` takes, by name.
        generated: whether examples are generated when no files are given; if not, `default_folder` has them.
        file_configs, file_parameters: the configs that files can be given for, and the parameters that then count.
        file_names: the files that are expected, for messages.
        export_configs: the configs whose examples may be published; None: all.
        members: the benchmark of each config, where configs differ in their facts. The whole behaves as the member of
            its default config.
        token_pattern: regular expression of a token in text without spaces; None: tokens stand between spaces.
        ignored_pattern: regular expression of what the tokenizer skips.
        read_text, draw_text: functions that do `normalize` and `render` of benchmarks of one text; None: as it is, or
            no parse.
        answer: `describe_answer` of a label, with `{}` for its name.
        framed: whether the tokenizer puts [BOS] and [EOS] around each text and distinguishes pairs by token types.
        writer_batch_size: examples that are held in memory while they are written; None: the default of `datasets`.
    """

    info: BenchmarkInfo
    parameters: Mapping[str, Parameter]
    generated: bool = True
    file_configs: tuple[str, ...] = ()
    file_parameters: tuple[str, ...] = ()
    file_names: str = ""
    export_configs: tuple[str, ...] | None = None
    members: "Mapping[str, Benchmark]" = MappingProxyType({})
    token_pattern: str | None = None
    ignored_pattern: str | None = None
    read_text: Callable[[str], str] | None = None
    draw_text: Callable[[str, int], str] | None = None
    answer: str = ""
    framed: bool = True
    writer_batch_size: int | None = None

    def member(self, config_name: str | None) -> "Benchmark":
        """The benchmark of a config; None: the whole. Raises ValueError for a config that does not exist."""
        if config_name is not None and config_name not in self.info.configs:
            raise unknown("config", config_name, self.info.configs, of=f" of benchmark {self.info.name!r}")
        return self.members.get(config_name, self)

    # parameters

    def checked(self, config_name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """`defaults`, overridden by the checked values of `given`; each parameter is checked by itself."""
        return resolve(self.parameters, defaults, given, f"benchmark {self.info.name!r}, config {config_name!r}")

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that depend on several parameters, and defaults that follow from others."""
        return params

    def resolve(self, config_name: str, given: Mapping[str, Any], from_files: bool = False) -> dict[str, Any]:
        """All parameters of a config, checked; for files, only those that count for them.

        Raises:
            ValueError: files are given to a config that reads none, or a parameter is unknown or has a bad value.
        """
        defaults = self.info.parameters[config_name]
        if not from_files:
            return self.complete(config_name, self.checked(config_name, given, defaults))
        context = f"benchmark {self.info.name!r}, config {config_name!r}"
        if config_name not in self.file_configs:
            works = f"it works for {', '.join(self.file_configs)}" if self.file_configs else "leave data_dir out"
            raise ValueError(f"data_dir: {context} has no files; {works}")
        defaults = {name: value for name, value in defaults.items() if name in self.file_parameters}
        return resolve(self.parameters, defaults, given, f"{context} with data_dir (files are read as they are)")

    # examples

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        """The generated splits that have examples, train and validation first.

        Raises ValueError where no split has any.
        """
        return list(non_empty({split: params[f"num_{split}"] for split in ("train", "validation", "test")}))

    def shift(self, config_name: str, params: Mapping[str, Any], split: str) -> str:
        """How the examples of a split differ from those of training on a config; empty if they do not.

        Args:
            config_name: the config of training.
            params: its parameters.
            split: a split of it, or "config/split" of another one.
        """
        return "deeper than training" if split.endswith("_ood") else ""

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        """The shards of every generated split that has examples."""
        raise NotImplementedError

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        """The folder that examples are read from where the user gives none; what is missing is downloaded.

        Raises ValueError where there is no such folder, or it cannot be downloaded.
        """
        raise NotImplementedError

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """The shards of every split whose files are in `folder`."""
        raise NotImplementedError

    # text

    def normalize(self, text: str) -> str:
        """The benchmark's own spelling of a text. Raises ValueError for one that is malformed."""
        return text if self.read_text is None else self.read_text(text)

    def render(self, texts: Mapping[str, str], max_lines: int) -> str:
        """The parse or picture of an example, given its text columns, in at most `max_lines` lines."""
        return self.draw_text(texts["text"], max_lines)

    def describe_answer(self, example: Mapping[str, Any]) -> str:
        """The label of an example, or the answer that a model must find, as a clause; empty if there is none."""
        return self.answer.format(self.info.label_names[example["label"]]) if self.answer else ""

    def build_tokenizer(self) -> "PreTrainedTokenizerFast":
        """The tokenizer of texts, or of pairs of texts, with `[PAD]` as token 0."""
        if self.info.modality == "bytes":
            return framed_byte_tokenizer()
        return symbol_tokenizer(self.info.vocabulary, self.token_pattern, self.ignored_pattern, self.framed)


def make_info(
    parameters: Mapping[str, Parameter],
    configs: Mapping[str, Config],
    *,
    column_meanings: Mapping[str, str],
    default_config: str = "original",
    license: str = "Apache-2.0 (generated data)",
    **facts: Any,
) -> BenchmarkInfo:
    """The facts about a benchmark with these parameters and configs; `facts` are the other fields."""
    return BenchmarkInfo(
        version=GENERATOR_VERSION,
        configs=MappingProxyType({name: config.description for name, config in configs.items()}),
        default_config=default_config,
        parameters=MappingProxyType({name: MappingProxyType(dict(c.defaults)) for name, c in configs.items()}),
        parameter_meanings=MappingProxyType({name: known.meaning for name, known in parameters.items()}),
        license=license,
        column_meanings=MappingProxyType(dict(column_meanings)),
        **facts,
    )

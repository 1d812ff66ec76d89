"""The facts about a benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BenchmarkInfo:
    """Facts about one benchmark; `load_benchmark(info.name, config, **parameters)` makes the data.

    `label_names` is empty for a benchmark of language modelling, whose examples have no label; `label_meanings`
    explains each of them where these need it. `vocabulary` lists the tokens of the benchmark in the order of their ids;
    the tokenizer puts its special tokens before them. `slice_columns` measure how difficult an example is;
    `column_meanings` explains every column but the label, with its unit, and `parse_meaning` the output of
    `render_example`. `parameters` maps each config to the parameters it takes and their default values,
    `parameter_meanings` explains each parameter. `limits` are sentences on what a reader could take for granted
    wrongly. `filter_column` is the slice column by which the card's example chooses rows; None: the first.

    A benchmark that is not `synthetic` has texts that people wrote: `name_columns` identify the text of an example and
    its source, and there is no parse (`parse_meaning` is empty). `license` is the SPDX id of the examples' licence,
    with an explanation; `license_link` leads to its text where the Hub does not know it. `text_type` and `slice_type`
    are the types of the columns as `datasets` calls them.

    `target_column` is the text column that a sequence-to-sequence model has to write when it is given the other one,
    the source; it is empty for other benchmarks.

    `modality` is the kind of a token of a text: one of its "words" (symbols), one of its "bytes", or one of its
    "pixels", which are written as numbers. `provenance` are sentences, for the card, on the origin of examples that are
    neither drawn at random nor whole documents. `packages` are those whose version the examples may depend on.
    `languages` are those of texts that people wrote, as ISO 639 codes.
    """

    name: str
    title: str
    version: str
    configs: Mapping[str, str]
    default_config: str
    text_columns: tuple[str, ...]
    slice_columns: tuple[str, ...]
    description: str = ""
    label_names: tuple[str, ...] = ()
    column_meanings: Mapping[str, str] = field(default_factory=dict)
    parse_meaning: str = ""
    vocabulary: tuple[str, ...] = ()
    paper: str = ""
    citation: str = ""
    bibtex: str = ""
    license: str = ""
    limits: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    parameter_meanings: Mapping[str, str] = field(default_factory=dict)
    label_meanings: tuple[str, ...] | None = None
    filter_column: str | None = None
    synthetic: bool = True
    name_columns: tuple[str, ...] = ()
    license_link: str = ""
    text_type: str = "string"
    slice_type: str = "int32"
    target_column: str = ""
    modality: str = "words"
    provenance: str = ""
    packages: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()

    @property
    def view(self) -> str:
        """The kind of output of `render_example`."""
        return "picture" if self.modality == "pixels" else "parse"

"""The data of a model card: the content of `card.json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from ..files import plain
from ..models.common.saved_names import renamed
from ..registry import ARCHITECTURES
from .base_model import BaseModel
from .tasks import CLASSIFICATION, FILL_MASK, METRICS, TASKS

# section of the card -> kinds of its plots; all others are about halting
SECTION_PLOTS = {
    "recurrence": ("loss_position", "gate_openness"),
    "routing": ("routing",),
    "pictures": ("picture",),
    "sweep": ("trade_off", "halting_plot"),
    "experts": ("expert_usage",),
    "calibration": ("calibrated_steps",),
}

# kinds of plots that show the tokens of an example
QUOTING_PLOTS = ("heat_map", "depth", "memory", "routing", "picture", "halting_plot")
# in the place of an example that is not shown
NO_EXAMPLE = "a text"

# results on several splits, as earlier versions called them
TESTS_ONCE = {"all test splits": "all tested splits"}


@dataclass(frozen=True)
class Paper:
    """The paper whose model this is. `bibtex` is the full entry; `url` its page."""

    title: str
    url: str
    bibtex: str


@dataclass(frozen=True)
class Benchmark:
    """The data. `dataset_id` is its repository on the Hub (None: not published); `seed` None: nothing was drawn.

    `further_parameters` maps other configurations, of which the card has results, too, to what is not their default.
    """

    name: str
    config: str
    version: str
    seed: int | None
    parameters: dict[str, Any] = field(default_factory=dict)
    dataset_id: str | None = None
    dataset_revision: str | None = None
    description: str | None = None
    further_parameters: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether these are a user's own data, of which nothing was drawn at random, rather than a benchmark."""
        return self.seed is None


@dataclass(frozen=True)
class Training:
    """The training run. `wall_time` in seconds; `versions` maps packages to versions.

    `weights` is the digest of the weights that results were measured with (None: of a card of before there was one).
    """

    command: str
    recipe: str
    paper_table: str
    seed: int
    wall_time: float
    hardware: str
    num_parameters: int
    versions: dict[str, str]
    steps: int | None = None
    differences_from_paper: list[str] = field(default_factory=list)
    weights: str | None = None


@dataclass(frozen=True)
class SplitResult:
    """One evaluated split. `table` comes from `halting_table`; accuracies are fractions.

    `paper_accuracy` is the paper's value for the split: where it reports several runs their median, with their
    `paper_mean` and standard deviation `paper_std`. `paper_slices` maps slice columns to bucket labels to the
    paper's accuracy. Of documents, `table` comes from `recurrence_table`, and `paper_bits` are the paper's bits per
    token. `paper_bleu` is the paper's BLEU.
    """

    split: str
    table: dict[str, Any]
    paper_accuracy: float | None = None
    paper_slices: dict[str, dict[str, float]] = field(default_factory=dict)
    paper_mean: float | None = None
    paper_std: float | None = None
    paper_bits: float | None = None
    paper_bleu: float | None = None


@dataclass(frozen=True)
class Plot:
    """One figure: `kind` as `plots.plot_all` names it, `path` relative to the card."""

    kind: str
    path: str
    column: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Routing:
    """Attention and gates of one test example, as `explain.card.draw_routing` returns them; tokens are counted from 0.

    `path` is that of a plot of the kind "routing". `readout` is the token read out (None: no single one), `stops` the
    number of steps of each token (None: a fixed depth). Each of `steps` has the mean `gate`, the token with the maximum
    gate (`open`) and that gate (`open_gate`; None without gates), and the token `read` that gets the maximum attention
    `weight` of the token `reader`.
    """

    path: str
    tokens: list[str]
    prediction: str
    probability: float | None
    answer: str
    readout: int | None
    heads: int
    stops: list[int] | None
    steps: list[dict[str, Any]]


@dataclass(frozen=True)
class Picture:
    """Steps and attention of one test example of pixels or bytes, as `explain.card.draw_picture` returns them.

    `path` is that of a plot of the kind "picture"; `kind` "pixels" or "bytes"; `sizes` their number in each text.
    `unit` ("token", "chunk", "sentence", "row"; None: a fixed depth) halts after `least` to `most` steps. Each of
    `steps` has, by text, the share of tokens `taking` it and the `halting` probability (None where tokens or chunks
    halt by themselves). `reads` has the attention of the `reader` (None: not known) in each stage, a `stage` being a
    step or layer: the `text`, `place` and `value` that get most, counted from 0, the attention `relative` to an even
    share, and that to `bright` pixels on average (None of bytes). `place` is -1 where the readout takes no such step.
    """

    path: str
    kind: str
    sizes: list[int]
    prediction: str
    probability: float | None
    answer: str
    unit: str | None
    least: int | None
    mean: float | None
    most: int | None
    steps: list[dict[str, Any]]
    stage: str
    reader: str | None
    reads: list[dict[str, Any]]


@dataclass(frozen=True)
class Compared:
    """Another model, evaluated on the same examples or documents: its `name` for readers, and its parameters.

    `values` maps each split to the card's metric, once for each run. With `same_model` these are further runs of the
    model of this card, such as with other seeds.
    """

    name: str
    num_parameters: int
    values: dict[str, list[float]]
    same_model: bool = False


@dataclass(frozen=True)
class Example:
    """An input to show in the usage section: a text or a pair, or a prompt with the `answer` that should follow it."""

    text: str
    text_pair: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class CardData:
    """All data of a card; `README.md` is a function of them and the templates alone.

    Fields:
        model_name: title, such as "GUT on ListOps".
        repo_id: what the usage section loads: a repository on the Hub, `owner/name`, or the name of the folder.
        family: `config.model_type`.
        claim: one sentence: the task of the model, and how well it does it.
        notice: a warning before everything else, such as a training run smaller than the paper's.
        task: the pipeline tag of the model, one of `tasks.TASKS`.
        metric: the measure of the tables, one of `tasks.METRICS`.
        max_depth, halting: the depth configuration, in steps, and the halting strategy.
        decoding: settings of generation: `num_beams`, `length_penalty` and `max_new_tokens`; None without generation.
        chunks: config fields of a model that reads chunk by chunk or in windows; None: it reads whole sequences.
        routing: examples whose routing is shown, each with its plot.
        pictures: examples of pixels or bytes with their steps and attention, each with its plot.
        compared: other models, evaluated on the same examples or documents.
        threshold_curve: rows of `threshold_curve`; empty for a fixed depth.
        threshold_rows: number of random examples of the first split on which the curve was measured; None: all.
        date: day of the evaluation, ISO 8601.
        sweep: split -> its `sweep_thresholds`, without pictures; None: none was made.
        experts: split -> its `expert_table`; None: none was made.
        calibration: what `hf-recurrent calibrate` stored, but for the curves of its criteria, see
            `sections.without_curves`; None: it was not calibrated.
        base_model: the checkpoint that was fine-tuned; None: it was one's own, or none.
        examples: whether a card of a user's own data quotes examples of them; those of benchmarks always do.
        license: the licence of weights without a base_model, as the Hub identifies it; None: apache-2.0 of
            a benchmark's, and unknown of one's own data.
    """

    model_name: str
    repo_id: str
    family: str
    claim: str
    max_depth: int
    halting: str
    paper: Paper
    benchmark: Benchmark
    training: Training
    results: list[SplitResult]
    example: Example
    limitations: list[str]
    task: str = CLASSIFICATION
    metric: str = "accuracy"
    decoding: dict[str, Any] | None = None
    chunks: dict[str, Any] | None = None
    plots: list[Plot] = field(default_factory=list)
    routing: list[Routing] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    threshold_curve: list[dict[str, float]] = field(default_factory=list)
    threshold_rows: int | None = None
    notice: str | None = None
    date: str | None = None
    sweep: dict[str, dict[str, Any]] | None = None
    experts: dict[str, dict[str, Any]] | None = None
    calibration: dict[str, Any] | None = None
    base_model: BaseModel | None = None
    license: str | None = None
    examples: bool = False

    def __post_init__(self) -> None:
        if not self.results:
            raise ValueError("a card needs the results of at least one split")
        choices = (("task", self.task, TASKS), ("metric", self.metric, METRICS), ("family", self.family, ARCHITECTURES))
        for name, value, known in choices:
            if value not in known:
                raise ValueError(f"{name} is {value!r}: expected one of {', '.join(known)}")

    @property
    def of_documents(self) -> bool:
        """Whether its numbers are losses of documents."""
        return METRICS[self.metric].in_bits

    @property
    def of_whole_texts(self) -> bool:
        """Whether these are of texts that were read in one piece each, rather than in segments with what is carried."""
        return self.of_documents and "texts" in self.results[0].table

    @property
    def shows_examples(self) -> bool:
        """Whether the card may quote examples of its data."""
        return self.examples or not self.benchmark.is_own

    def without_examples(self) -> "CardData":
        """The card without texts, tokens and answers of single examples, and without figures of them."""
        mask = next((mask for mask in ("[MASK]", "<mask>") if mask in self.example.text), "")
        text = f"{NO_EXAMPLE} {mask}" if self.task == FILL_MASK and mask else NO_EXAMPLE
        pair = None if self.example.text_pair is None else NO_EXAMPLE
        return replace(
            self,
            example=Example(text, pair),
            routing=[],
            pictures=[],
            plots=[plot for plot in self.plots if plot.kind not in QUOTING_PLOTS],
            calibration=None if self.calibration is None else without_quotes(self.calibration),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-able data; `from_dict` reads it back."""
        data = plain(asdict(self))
        return data if self.examples else {name: value for name, value in data.items() if name != "examples"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CardData":
        """Card data from parsed JSON.

        Raises:
            ValueError: a key is missing or unknown.
        """
        data = renamed(data)
        calibration = data.get("calibration")
        if calibration:
            tests = {TESTS_ONCE.get(split, split): found for split, found in calibration["tests"].items()}
            data = {**data, "calibration": {**calibration, "tests": tests}}
        return build(cls, data)


def without_quotes(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file of statistics without texts and tokens of single examples."""
    found = dict(statistics)
    if "tests" in found:
        found["tests"] = {split: {**test, "examples": []} for split, test in found["tests"].items()}
    if "splits" in found:
        found["splits"] = {
            split: {name: value for name, value in table.items() if name != "pictures"}
            for split, table in found["splits"].items()
        }
    return found


def build(kind: Any, value: Any) -> Any:
    """Parsed JSON as an instance of the dataclass `kind`, with the dataclasses in it.

    Raises:
        ValueError: a field is missing or unknown.
    """
    if value is None or isinstance(value, list):
        return value and [build(kind, item) for item in value]
    hints = get_type_hints(kind)
    try:
        fields = {name: hints[name] for name in value}
        nested = {name: next(filter(is_dataclass, (hint, *get_args(hint))), None) for name, hint in fields.items()}
        return kind(**{name: build(nested[name], item) if nested[name] else item for name, item in value.items()})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{kind.__name__} is not as this package writes it: {error!r}") from error

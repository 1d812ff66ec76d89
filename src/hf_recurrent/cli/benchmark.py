"""`hf-recurrent benchmark`: list, show, export and publish the benchmarks."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from . import options
from .console import out, table, wrote
from .publish import publish_command

if TYPE_CHECKING:
    from ..benchmarks import BenchmarkInfo, Description

# characters of a text of an example
MOST_SHOWN = 600
app = typer.Typer(no_args_is_help=True, help="Benchmarks: what they are, and as datasets for everyone.")
Name = Annotated[str, typer.Argument(help="A benchmark (see `hf-recurrent benchmark list`).")]
NumProc = Annotated[int | None, typer.Option(min=1, help="Processes that generate examples; the result is the same.")]


@app.command(name="list")
def list_(
    name: Annotated[str | None, typer.Argument(help="A benchmark, whose parameters to list; all if not given.")] = None,
) -> None:
    """List the benchmarks and their configurations, or the parameters of one benchmark."""
    from ..benchmarks import benchmark_info, list_benchmarks

    if name is not None:
        _list_parameters(benchmark_info(name))
        return
    rows = []
    for benchmark in list_benchmarks():
        for config, meaning in benchmark_info(benchmark).configs.items():
            rows.append((benchmark, config, meaning))
    listed = table(None, [("benchmark", False), ("config", False), ("meaning", False)], rows)
    # names are to be typed: they stay whole in a narrow terminal
    for column in listed.columns[:2]:
        column.no_wrap = True
    out.print(listed)
    out.print("`benchmark list NAME` lists the parameters of a benchmark.")


def _list_parameters(info: "BenchmarkInfo") -> None:
    """A table of each config: its parameters, their defaults as YAML, and what they set."""
    from ..benchmarks.export.settings import format_value

    out.print(Text.assemble((info.name, "bold"), f": {info.description}"))
    for config, meaning in info.configs.items():
        rows = (
            (parameter, escape(format_value(value)), escape(info.parameter_meanings[parameter]))
            for parameter, value in info.parameters[config].items()
        )
        default = " (default)" if config == info.default_config else ""
        out.print()
        out.print(Text.assemble((config, "bold"), f"{default}: {meaning}"))
        out.print(table(None, [("parameter", False), ("default", False), ("meaning", False)], rows))
    out.print()
    given = info.parameters[info.default_config].items()
    # a list is harder to spell than a number
    name, value = max(given, key=lambda item: isinstance(item[1], tuple | list))
    example = shlex.join(["--benchmark_params", f"{{{name}: {format_value(value)}}}"])
    out.print(escape(f"`show`, `export`, `evaluate` and `train` change them by a YAML mapping: `{example}`."))


@app.command()
def show(
    name: Name,
    benchmark_config: Annotated[str | None, typer.Option(help="Configuration; the default one if not given.")] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many examples.")] = 3,
    benchmark_params: options.BenchmarkParams = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with files to read examples from.")] = None,
) -> None:
    """Show a few examples, from easy to hard, with their parse and label or answers."""
    from ..benchmarks import benchmark_info
    from ..benchmarks.show import describe_example, examples

    info = benchmark_info(name, benchmark_config)
    config = benchmark_config or info.default_config
    chosen = examples(name, config, number, data_dir=data_dir, **benchmark_params)
    out.print(Text.assemble((info.name, "bold"), f" {config}: {info.description}"))
    without = "none, a target is to be written" if info.target_column else "none, for language models"
    out.print(f"labels: {' '.join(info.label_names) or without}", markup=False)
    out.print(_glossary(info))
    for example in chosen:
        described = describe_example(name, example.row, config_name=config)
        difficulty = ", ".join(f"{column} {value}" for column, value in described.difficulty.items())
        out.print()
        out.print(Text.assemble((example.split, "bold"), f"  {difficulty}"))
        out.print(_drawing(described, info.view))


def _glossary(info: "BenchmarkInfo") -> Table:
    """Meanings of the labels, difficulty columns and parses of the examples."""
    labels = zip(info.label_names, info.label_meanings or (), strict=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", style="dim", min_width=9)
    grid.add_column()
    columns = ((column, info.column_meanings[column]) for column in info.slice_columns)
    parse = [(info.view, info.parse_meaning)] if info.parse_meaning else []
    for name, meaning in (*labels, *columns, *parse):
        grid.add_row(Text(name), Text(meaning))
    return grid


def _drawing(described: "Description", view: str) -> Table:
    """An example's texts, label and parse or picture, each beside its name."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", style="dim", min_width=9)
    grid.add_column(overflow="ellipsis")
    for column, text in {**described.names, **described.texts}.items():
        if len(text) > MOST_SHOWN:
            text = f"{text[:MOST_SHOWN]} ... ({len(text):,} characters)"
        grid.add_row(column, Text(text, overflow="fold"))
    if described.label:
        grid.add_row("label", Text.assemble((described.label, "bold"), f"  {described.answer}"))
    elif described.answer:
        grid.add_row("answer", Text(described.answer))
    if described.tree:
        grid.add_row(view, Text(described.tree, no_wrap=True, overflow="ellipsis"))
    return grid


@app.command()
def export(
    name: Name,
    folder: Annotated[
        Path,
        typer.Argument(callback=options.in_a_folder, help="New folder, or an earlier export of the same benchmark."),
    ],
    benchmark_config: Annotated[
        list[str] | None, typer.Option(help="May be repeated; all configurations if not given.")
    ] = None,
    benchmark_params: options.BenchmarkParams = None,
    num_proc: NumProc = None,
) -> None:
    """Write a benchmark as a dataset repository: Parquet files, card and eval.yaml.

    The same command gives the same bytes.
    """
    from ..benchmarks.export import export_benchmark

    wrote(export_benchmark(name, folder, configs=benchmark_config, num_proc=num_proc, params=benchmark_params))


app.command()(
    publish_command(
        "publish_benchmark",
        options.Folder,
        "Publish an exported benchmark as a dataset repository, by one commit.",
    )
)

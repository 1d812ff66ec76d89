"""`hf-recurrent benchmark`: list, show, export and publish the benchmarks."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from . import options
from .console import out, table, wrote
from .publish import publish_command

# characters of a text of an example
MOST_SHOWN = 600
app = typer.Typer(no_args_is_help=True, help="Benchmarks: what they are, and as datasets for everyone.")
Name = Annotated[str, typer.Argument(help="A benchmark (see `hf-recurrent benchmark list`).")]


@app.command(name="list")
def list_(
    name: Annotated[str | None, typer.Argument(help="A benchmark, whose parameters to list; all if not given.")] = None,
) -> None:
    """List the benchmarks and their configurations, or the parameters of one benchmark."""
    from ..benchmarks import benchmark_info, list_benchmarks
    from ..benchmarks.export.settings import format_value

    if name is None:
        configs = [(each, benchmark_info(each).configs) for each in list_benchmarks()]
        rows = [(each, config, meaning) for each, found in configs for config, meaning in found.items()]
        # names are to be typed: they stay whole in a narrow terminal
        columns = [("benchmark", False), ("config", False), ("meaning", False)]
        listed = table(None, columns, rows)
        for column in listed.columns[:2]:
            column.no_wrap = True
        out.print(listed, "`benchmark list NAME` lists the parameters of a benchmark.")
        return
    info = benchmark_info(name)
    out.print(f"[bold]{info.name}[/]: {escape(info.description)}")
    for config, meaning in info.configs.items():
        rows = [
            (parameter, escape(format_value(value)), escape(info.parameter_meanings[parameter]))
            for parameter, value in info.parameters[config].items()
        ]
        default = " (default)" if config == info.default_config else ""
        out.print(f"\n[bold]{config}[/]{default}: {escape(meaning)}")
        out.print(table(None, [("parameter", False), ("default", False), ("meaning", False)], rows))
    # a list is harder to spell than a number
    values = info.parameters[info.default_config].items()
    parameter, value = max(values, key=lambda item: isinstance(item[1], tuple | list))
    example = shlex.join(["--benchmark_params", f"{{{parameter}: {format_value(value)}}}"])
    out.print(escape(f"\n`show`, `export`, `evaluate` and `train` change them by a YAML mapping: `{example}`."))


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
    without = "none, a target is to be written" if info.target_column else "none, for language models"
    out.print(f"[bold]{info.name}[/] {config}: {escape(info.description)}")
    out.print(f"labels: {' '.join(info.label_names) or without}", markup=False)
    meanings = [*zip(info.label_names, info.label_meanings or (), strict=False)]
    meanings += [(column, info.column_meanings[column]) for column in info.slice_columns]
    out.print(grid([*meanings, (info.view, info.parse_meaning)]))
    for example in chosen:
        described = describe_example(name, example.row, config_name=config)
        difficulty = ", ".join(f"{column} {value}" for column, value in described.difficulty.items())
        texts = [
            (column, text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ... ({len(text):,} characters)")
            for column, text in {**described.names, **described.texts}.items()
        ]
        label = ("label", f"{described.label}  {described.answer}") if described.label else ("answer", described.answer)
        tree = Text(described.tree, no_wrap=True, overflow="ellipsis") if described.tree else None
        out.print(f"\n[bold]{example.split}[/]  {difficulty}")
        out.print(grid([*texts, label, (info.view, tree)]))


def grid(rows: Iterable[tuple[str, Any]]) -> Table:
    """Texts with their names before them; names without a text are left out."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(justify="right", style="dim", min_width=9)
    drawn.add_column(overflow="ellipsis")
    for name, text in rows:
        if text:
            drawn.add_row(name, Text(text, overflow="fold") if isinstance(text, str) else text)
    return drawn


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
    num_proc: Annotated[
        int | None, typer.Option(min=1, help="Processes that generate examples; the result is the same.")
    ] = None,
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

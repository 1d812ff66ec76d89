"""`hf-recurrent card`: the card of one checkpoint; `hf-recurrent cards`: a folder of them, such as model_cards/."""

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options
from .console import err, out, quiet_libraries, wrote

card = typer.Typer(no_args_is_help=True, help="The card of one checkpoint.")
cards = typer.Typer(no_args_is_help=True, help="A folder of checkpoint folders: index, checks, browsable page.")
Folder = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="A checkpoint folder with results.json.")]
Runs = Annotated[
    list[Path] | None,
    typer.Argument(exists=True, file_okay=False, help="Output folders of finished runs; none removes those shown."),
]
Root = Annotated[
    Path, typer.Argument(exists=True, file_okay=False, help="The folder that holds the checkpoint folders.")
]
Page = Annotated[
    Path, typer.Option("--output", dir_okay=False, callback=options.in_a_folder, help="The file to write.")
]


@card.command()
def lint(folder: Folder) -> None:
    """Check a card as publishing does: metadata, figures, local paths, and that it is what its data render to."""
    from ..hub.results import lint_card

    lint_card(folder)
    out.print(f"{folder}: the card can be published", markup=False)


@card.command()
def render(folder: Folder) -> None:
    """Render README.md and the evaluation results again from results.json."""
    from ..hub.results import write_results

    wrote(write_results(folder, results_in(folder)))


@card.command()
def compare(folder: Folder, runs: Runs = None) -> None:
    """Set other runs beside a card's results: with other seeds, or other models on the same examples."""
    from ..hub.comparison import compared
    from ..hub.results import write_results

    results = results_in(folder)
    wrote(write_results(folder, {**results, "compared": compared(results, runs or ())}))


def results_in(folder: Path) -> dict[str, Any]:
    """The results in a folder; a ValueError where there are none."""
    from ..hub.results import RESULTS_FILE, read_results

    results = read_results(folder)
    if results is None:
        raise ValueError(f"{folder} has no {RESULTS_FILE}: `hf-recurrent train` and `convert` write it")
    return results


@card.command()
def inside(
    folder: Folder,
    text: Annotated[list[str] | None, typer.Argument(help="Inputs; those that are there, if not given.")] = None,
    pair: Annotated[
        list[str] | None, typer.Option(help="The second text of each input, of a model that compares two.")
    ] = None,
    answer: Annotated[list[str] | None, typer.Option(help="The right answer to each input.")] = None,
) -> None:
    """Store a few inputs in inside.json that the browsable page can look into, step by step, or compute them again."""
    from ..hub.inside import EXAMPLE, read_inside, shown_examples, write_inside
    from ..tasks.checkpoints import load_checkpoint

    examples, texts = read_inside(folder), text or []
    if not texts and not examples:
        raise ValueError(f"{folder} has no stored inputs: pass a few short texts")
    for option, given in (("--pair", pair), ("--answer", answer)):
        if given and len(given) != len(texts):
            raise ValueError(f"{option} is there {len(given)} times: pass it once for each of {len(texts)} texts")
    if texts:
        none = [None] * len(texts)
        rows = zip(texts, pair or none, answer or none, strict=True)
        examples = [dict(zip(EXAMPLE, row, strict=True)) for row in rows]
    quiet_libraries()
    loaded = load_checkpoint(str(folder), "cpu")
    wrote(write_inside(folder, shown_examples(loaded.model, loaded.tokenizer, examples)))


@cards.command()
def build(
    root: Root = Path("model_cards"),
    page: Page = Path("build/model_cards.html"),
) -> None:
    """Build one self-contained HTML page: a sortable table of checkpoints with plots, slices and usage."""
    from ..hub.gallery import build_page

    wrote(build_page(root, page))


@cards.command()
def refresh(root: Root = Path("model_cards")) -> None:
    """Render every card and the index again."""
    from ..hub.gallery import refresh

    changed = refresh(root)
    for path in changed:
        out.print(path, markup=False, soft_wrap=True)
    out.print(f"{len(changed)} files changed")


@cards.command()
def check(root: Root = Path("model_cards")) -> None:
    """Fail if a card or the index differs from its rendering, or a folder cannot be published."""
    from ..hub.gallery import gallery_problems

    problems = gallery_problems(root)
    for problem in problems:
        err.print(problem, markup=False)
    if problems:
        raise typer.Exit(1)
    out.print(f"{root}: every folder can be published as it is", markup=False, soft_wrap=True)

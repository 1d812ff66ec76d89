"""`hf-recurrent card`: the card of one checkpoint; `hf-recurrent cards`: a folder of them, such as model_cards/."""

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options
from .console import err, out, quiet_libraries, wrote

card = typer.Typer(no_args_is_help=True, help="The card of one checkpoint.")
cards = typer.Typer(no_args_is_help=True, help="A folder of checkpoint folders: index, checks, browsable page.")


def a_folder(text: str) -> Any:
    """The typer argument of a folder that exists."""
    return typer.Argument(exists=True, file_okay=False, help=text)


Folder = Annotated[Path, a_folder("A checkpoint folder with results.json.")]
Runs = Annotated[list[Path] | None, a_folder("Output folders of finished runs; none removes those shown.")]
Root = Annotated[Path, a_folder("The folder that holds the checkpoint folders.")]
Page = Annotated[
    Path, typer.Option("--output", dir_okay=False, callback=options.in_a_folder, help="The file to write.")
]
MODEL_CARDS = Path("model_cards")


@card.command()
def lint(folder: Folder) -> None:
    """Check a card as publishing does: metadata, figures, local paths, and that it is what its data render to."""
    from ..hub.results import lint_card

    lint_card(folder)
    out.print(f"{folder}: the card can be published", markup=False)


@card.command()
def render(folder: Folder) -> None:
    """Render README.md and the evaluation results again from results.json."""
    rewrite(folder)


@card.command()
def compare(folder: Folder, runs: Runs = None) -> None:
    """Set other runs beside a card's results: with other seeds, or other models on the same examples."""
    from ..hub.comparison import compared

    rewrite(folder, lambda results: {**results, "compared": compared(results, runs or ())})


def rewrite(folder: Path, change: Any = dict) -> None:
    """Write the card of changed results; a ValueError where there are none."""
    from ..hub.results import RESULTS_FILE, read_results, write_results

    results = read_results(folder)
    if results is None:
        raise ValueError(f"{folder} has no {RESULTS_FILE}: `hf-recurrent train` and `convert` write it")
    wrote(write_results(folder, change(results)))


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

    texts = text or []
    for option, given in (("--pair", pair), ("--answer", answer)):
        if given and len(given) != len(texts):
            raise ValueError(f"{option} is there {len(given)} times: pass it once for each of {len(texts)} texts")
    none = [None] * len(texts)
    rows = zip(texts, pair or none, answer or none, strict=True)
    examples = [dict(zip(EXAMPLE, row, strict=True)) for row in rows] or read_inside(folder)
    if not examples:
        raise ValueError(f"{folder} has no stored inputs: pass a few short texts")
    quiet_libraries()
    loaded = load_checkpoint(str(folder), "cpu")
    wrote(write_inside(folder, shown_examples(loaded.model, loaded.tokenizer, examples)))


@cards.command()
def build(root: Root = MODEL_CARDS, page: Page = Path("build/model_cards.html")) -> None:
    """Build one self-contained HTML page: a sortable table of checkpoints with plots, slices and usage."""
    from ..hub.gallery import build_page

    wrote(build_page(root, page))


@cards.command()
def refresh(root: Root = MODEL_CARDS) -> None:
    """Render every card and the index again."""
    from ..hub.gallery import refresh

    changed = refresh(root)
    for path in changed:
        out.print(path, markup=False, soft_wrap=True)
    out.print(f"{len(changed)} files changed")


@cards.command()
def check(root: Root = MODEL_CARDS) -> None:
    """Fail if a card or the index differs from its rendering, or a folder cannot be published."""
    from ..hub.gallery import gallery_problems

    problems = gallery_problems(root)
    for problem in problems:
        err.print(problem, markup=False)
    if problems:
        raise typer.Exit(1)
    out.print(f"{root}: every folder can be published as it is", markup=False, soft_wrap=True)

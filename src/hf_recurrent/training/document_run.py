"""From a recipe to a folder that can be published: what `run_clm_accelerate.py` does."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import set_seed

from ..analysis.recurrence import PROSE, evaluate_split
from ..analysis.tables import RECURRENCE_FILE, write_tables
from ..documents import TokenDocuments
from ..hub import check_access
from ..hub.card import Plot
from ..hub.checkpoint import save_checkpoint
from ..metrics.serialize import write_json
from .arguments import ModelArguments
from .card import RunFacts
from .changes import changes_by_flags, defaults_of
from .compared import compared_runs, require_runs
from .document_arguments import DOCUMENT_ARGUMENT_TYPES, DocumentArguments, DocumentTrainingArguments
from .document_card import document_card, prompt_of
from .document_data import encode_splits, load_document_rows, load_document_tokenizer
from .document_loop import Session, make_accelerator, make_session, train
from .document_step import check_segment_length, require_constant_state
from .ending import finish, publish, publishing
from .model import load_trained, make_config, make_model
from .objectives import LANGUAGE_MODELLING
from .recipes import parse, read_recipe
from .run_folder import claim, released_if_refused

if TYPE_CHECKING:
    from datasets import Dataset

LOG_FILE = "training_log.json"
# whose product, over all processes, is the rows of an optimiser step
ROWS = ("per_device_train_batch_size", "gradient_accumulation_steps")
# what is not carried from segment to segment
RESET = {"document": "nothing", "segment": "all", "state": "states"}


def run(argv: Sequence[str]) -> str | None:
    """Train, evaluate and, if asked to, publish; or go on with what an earlier call left in `output_dir`.

    Returns:
        What to tell the user; None on every process but the main one.

    Raises:
        FileNotFoundError, ValueError: the recipe, a flag, the data or the folder is not as it should be.
        DivergedError: a loss or weight is no longer a finite number.
        PublishError: publishing failed.
    """
    # 1. the recipe, checked before anything is loaded
    (model_args, data, report, args), settings = parse(argv, DOCUMENT_ARGUMENT_TYPES)
    folder, accelerator = Path(args.output_dir), make_accelerator(args)
    changes = changes_of(argv, settings, accelerator.num_processes)

    # 2. the output folder: another run's is refused, our own is gone on with
    with accelerator.main_process_first():
        finished = claim(folder, settings)
    publish_at_end = args.push_to_hub and accelerator.is_main_process
    if finished:
        told = [f"{folder} holds this very run, finished: nothing to train"]
        return "\n".join([*told, publish(folder, args)] if publish_at_end else told)
    if publish_at_end:
        # what would stop it should be known before the hours of training
        check_access(**publishing(args))

    # 3. model and documents, and where the last checkpoint left them if there is one
    with released_if_refused(folder):
        with accelerator.main_process_first():
            splits, tokenizer, documents = prepare_documents(model_args, data)
        model = prepare_model(model_args, data, tokenizer, args.seed)
        set_seed(args.seed, device_specific=True)
        session = make_session(accelerator, args, data, model, documents)

    # 4. training
    train(session)
    if not accelerator.is_main_process:
        return None

    # 5. the checkpoint, and the evaluation of what a reader of it gets
    save_checkpoint(accelerator.unwrap_model(session.model, keep_fp32_wrapper=False), folder, tokenizer)
    write_json(folder / LOG_FILE, session.progress.log)
    model = load_trained(folder, accelerator.device, LANGUAGE_MODELLING)
    tests = {name: rows for name, rows in splits.items() if name.startswith("test")}
    tables = evaluate_tests(model, tokenizer, tests, data, args)
    write_tables(folder, RECURRENCE_FILE, tables)

    # 6. card and recipe, then the mark that the run is complete
    card = document_card(
        *(model, data, report, tables, run_facts(argv, session, changes)),
        rows=session.reader.batch_size * accelerator.num_processes,
        prompt=prompt_of(next(iter(tests.values()))[0]["text"]),
        plots=draw(folder, tables),
        compared=lambda metric: compared_runs(data.compare_with, settings, tables, metric),
    )
    finish(folder, settings, card, report)
    told = [publish(folder, args)] if publish_at_end else []
    return "\n".join([*told, summary(tables)])


def changes_of(argv: Sequence[str], settings: dict[str, Any], processes: int) -> list[str]:
    """`changes_by_flags`, without how the rows of a step are shared out where there are as many as in the recipe."""
    changes = changes_by_flags(argv, settings, DOCUMENT_ARGUMENT_TYPES)
    if not argv or argv[0].startswith("-"):
        return changes
    defaults = defaults_of(DOCUMENT_ARGUMENT_TYPES)
    recipe = read_recipe(Path(argv[0]), defaults)
    before, now = (math.prod(given.get(name, defaults[name]) for name in ROWS) for given in (recipe, settings))
    shared = [f"{name} = " for name in ROWS] if processes * now == before else []
    return [change for change in changes if not change.startswith(tuple(shared))]


def prepare_documents(
    arguments: ModelArguments, data: DocumentArguments
) -> tuple[dict[str, "Dataset"], Any, dict[str, TokenDocuments]]:
    """The splits, the tokenizer, and the splits as its tokens.

    Raises:
        ValueError: they cannot be had, or a run to compare with has not begun.
    """
    require_runs(data.compare_with)
    splits = load_document_rows(data)
    tokenizer = load_document_tokenizer(arguments, data, splits["train"])
    return splits, tokenizer, encode_splits(splits, tokenizer, data)


def prepare_model(arguments: ModelArguments, data: DocumentArguments, tokenizer: Any, seed: int) -> Any:
    """The model of a recipe, which can read documents of any length in such segments.

    Raises:
        ValueError: it cannot.
    """
    config = make_config(arguments, data.benchmark, tokenizer)
    check_segment_length(config, data.segment_length)
    set_seed(seed)
    model = make_model(arguments, config, LANGUAGE_MODELLING)
    require_constant_state(model)
    return model


def evaluate_tests(
    model: Any,
    tokenizer: Any,
    tests: dict[str, "Dataset"],
    data: DocumentArguments,
    args: DocumentTrainingArguments,
) -> dict[str, dict[str, Any]]:
    """Test split -> its `recurrence_table`."""
    return {
        name: evaluate_split(
            *(model, tokenizer, rows),
            segment_length=data.segment_length,
            batch_size=args.per_device_eval_batch_size,
            by_words=data.benchmark_config in PROSE,
            progress=not args.disable_tqdm,
        )
        for name, rows in tests.items()
    }


def draw(folder: Path, tables: dict[str, dict[str, Any]]) -> list[Plot]:
    """The figures of every split, in `folder`."""
    from ..analysis.plots import save_recurrence_figures

    return [
        Plot(**plot, split=name)
        for name, table in tables.items()
        for plot in save_recurrence_figures(folder, table, prefix=name)
    ]


def run_facts(argv: Sequence[str], session: Session, changes: Sequence[str]) -> RunFacts:
    args, accelerator = session.args, session.accelerator
    return RunFacts(
        *(argv, Path(args.output_dir).name, args.hub_model_id, args.seed),
        *(session.progress.seconds, session.progress.steps, accelerator.num_processes, accelerator.device),
        changes=changes,
    )


def summary(tables: dict[str, dict[str, Any]]) -> str:
    """Plain-text table: a line for each way of reading each split."""
    lines = [f"{'split':<12} {'reset':<8} {'tokens':>12} {'bits/token':>11} {'bits/byte':>10}"]
    for name, table in tables.items():
        for row in table["carries"]:
            bits = f"{row['bits_per_token']:>11.4f} {row['bits_per_byte']:>10.4f}"
            lines.append(f"{name:<12} {RESET[row['carry']]:<8} {table['tokens']:>12,} {bits}")
    return "\n".join(lines)

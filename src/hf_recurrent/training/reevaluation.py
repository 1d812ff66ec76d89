"""The results of a card again, from its checkpoint as it stops now: a calibration changes what users measure."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.configuration_utils import PreTrainedConfig

from ..analysis.tables import RECURRENCE_FILE, write_tables
from ..analysis.text_losses import BLOCKS
from ..benchmarks import benchmark_info
from ..hub import CardData
from ..hub.card import Picture, Plot, Routing, read_card
from ..hub.card_data import SECTION_PLOTS, SplitResult
from ..hub.commands import LIMIT
from ..hub.stored import stored_digest
from ..models.common.depth_objectives import depth_bounds
from ..models.common.exit_criteria import CRITERIA
from ..text_data.source import LENGTH
from .arguments import DataArguments, LanguageDataArguments
from .card import headline, limitations
from .data import (
    EvaluationSplit,
    by_length,
    encode,
    further_splits,
    kinds_of,
    load_own_config,
    some_examples,
    split_place,
)
from .evaluate import OF_QUESTIONS, Checkpoint, Request, reads_texts
from .evaluation import Evaluation, evaluate_run
from .language_card import headline as texts_headline
from .language_data import TextSplit
from .objectives import MASKED_MODELLING, SEQ2SEQ, TOKEN_CLASSIFICATION
from .own_examples import OF_BLOCKS, own_arguments
from .report_arguments import RunArguments
from .text_examples import chosen_blocks, evaluate_texts
from .token_arguments import WordDataArguments
from .token_card import words_headline
from .token_data import CONTEXT_FREE, TokenSplit
from .token_evaluation import evaluate_own_run
from .token_examples import word_splits

if TYPE_CHECKING:
    from datasets import Dataset

KEPT_OF_TASK = "results of this task are measured by a training run alone"
KEPT_OF_HELD_OUT = "they are of {splits}, which was held out of the file of training"
KEPT_OF_TEXTS = "they are of {splits}, whose texts have no file here (name those of a split `test` with --test-file)"
# by which results of all own data are sliced
OF_ALL_DATA = (LENGTH, "label", CONTEXT_FREE)
# sections whose figures show something else than an evaluation
KEPT = ("sweep", "experts", "calibration")


@dataclass(frozen=True)
class Reevaluation:
    """A card with the splits that its results are of, found before anything is measured, and their arguments.

    `kept` is the reason why the card keeps the results that it has, None if it does not.
    """

    card: CardData
    splits: list[EvaluationSplit] | list[TextSplit]
    arguments: DataArguments | None = None
    kept: str | None = None

    def evaluated(self, checkpoint: Checkpoint, folder: Path, batch_size: int = 64, progress: bool = False) -> CardData:
        """The card with the results of `checkpoint` on the splits; figures and statistics are written into `folder`."""
        measured = replace(self.card.training, weights=stored_digest(checkpoint.name))
        card = replace(self.card, training=measured)
        if isinstance(self.arguments, LanguageDataArguments):
            tables = predicted_texts(checkpoint, self.arguments, self.splits, batch_size, progress)
            write_tables(folder, RECURRENCE_FILE, tables)
            return with_text_results(card, checkpoint, tables, folder)
        place = (checkpoint.model, checkpoint.tokenizer, self.splits, folder)
        if checkpoint.objective is TOKEN_CLASSIFICATION:
            evaluation = evaluate_own_run(*place, batch_size, progress=progress)
        else:
            evaluation = evaluate_run(*place, RunArguments(thresholds=[]), batch_size, progress=progress)
        return with_results(card, checkpoint, evaluation, self.arguments, self.splits[0])


def prepare_reevaluation(folder: str | os.PathLike, checkpoint: Checkpoint, request: Request) -> Reevaluation:
    """The splits of a card's results, encoded; a card of sequence pairs, masks or questions keeps its results.

    Args:
        request: where a user's own examples are, or the authors' own files, if the results were measured on those.

    Raises:
        ValueError: the card's examples are not those that its benchmark gives now, or lie in files that are not given.
    """
    card = read_card(folder)
    if checkpoint.objective in (SEQ2SEQ, MASKED_MODELLING, *OF_QUESTIONS):
        return Reevaluation(card, [], kept=KEPT_OF_TASK)
    if held_out(card):
        return Reevaluation(card, [], kept=KEPT_OF_HELD_OUT.format(splits=quoted(held_out(card))))
    if reads_texts(checkpoint, request):
        return prepare_texts(card, checkpoint, request)
    if card.benchmark.is_own:
        arguments = own_card_arguments(card, checkpoint, request)
    else:
        arguments = data_arguments(card, request.data_dir)
    if checkpoint.objective is TOKEN_CLASSIFICATION:
        return Reevaluation(card, card_words(card, checkpoint, arguments, request), arguments)
    labels = None if arguments.own is None else arguments.own.labels
    columns, kinds = arguments.info.slice_columns, kinds_of(arguments.benchmark, checkpoint.tokenizer)
    examples = {**load_own_config(arguments), **dict(further_splits(arguments))}
    place = f"{arguments.benchmark} ({arguments.benchmark_config})" if labels is None else arguments.benchmark
    splits = []
    for result in card.results:
        found = some_examples(examples.get(result.split, ()), arguments.max_eval_samples)
        require_as_many(result, len(found), place)
        encoded = by_length(encode(found, arguments, checkpoint.tokenizer, split_place(result.split, arguments)))
        splits.append(EvaluationSplit(result.split, encoded, columns, kinds, labels))
    return Reevaluation(card, splits, arguments)


def prepare_texts(card: CardData, checkpoint: Checkpoint, request: Request) -> Reevaluation:
    """The splits of a card's results on own texts, as blocks; the results are kept where a split's texts are not given.

    Raises:
        ValueError: they are others than those of the card.
    """
    splits, facts = [result.split for result in card.results], card.benchmark.parameters
    if not card.benchmark.is_own or facts.get("streaming") or not all(split in request.own.files for split in splits):
        return Reevaluation(card, [], kept=KEPT_OF_TEXTS.format(splits=quoted(splits)))
    # as in training, whatever the exit was chosen on
    settings = {name: value for name, value in request.own.settings.items() if name not in OF_BLOCKS}
    own = replace(request.own, settings={**settings, "slice_by": sliced_by(card, settings)}, title=card.benchmark.name)
    arguments = own_arguments(own, checkpoint, splits)
    choose = partial(first_rows, limit=facts.get(LIMIT))
    blocks = list(chosen_blocks(arguments, checkpoint.tokenizer, dict.fromkeys(splits, choose)))
    for result, (_, rows) in zip(card.results, blocks, strict=True):
        place = request.own.files[result.split]
        require_as_many(result, len(rows), place, result.table["texts"])
        # the first one of a text is given
        require_as_many(result, sum(len(ids) - 1 for ids in rows["input_ids"]), place, "tokens")
    return Reevaluation(card, [TextSplit(name, rows, arguments.pack) for name, rows in blocks], arguments)


def quoted(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def held_out(card: CardData) -> list[str]:
    """Splits of a card's results that were held out of the file of training, so that no file has them."""
    files = card.benchmark.parameters.get("files") if card.benchmark.is_own else None
    return [result.split for result in card.results if files and result.split not in files]


def sliced_by(card: CardData, settings: Mapping[str, Any]) -> list[str]:
    """The columns of own data that a card's first results are sliced by, and those of `settings`."""
    table = card.results[0].table
    shown = table.get("slices") or table.get("by_column") or {}
    return list(
        dict.fromkeys([*(settings.get("slice_by") or ()), *(name for name in shown if name not in OF_ALL_DATA)])
    )


def first_rows(rows: "Dataset", limit: int | None) -> "Dataset":
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def require_as_many(result: SplitResult, found: int, place: str, counted: str = "examples") -> None:
    """Raise a ValueError unless a place gives as many examples now as a card has results of."""
    known = result.table[counted if counted in ("documents", "tokens") else "documents" if counted == BLOCKS else "n"]
    if found != known:
        raise ValueError(
            f"--card: the card has results of {known:,} {counted} of {result.split}, of which {place} "
            f"gives {found:,} now: leave --card out"
        )


def card_words(
    card: CardData, checkpoint: Checkpoint, arguments: WordDataArguments, request: Request
) -> list[TokenSplit]:
    """The splits of words of a card's results.

    Raises:
        ValueError: they are others, or what training tells of them is not known.
    """
    if request.own.train_file is None:
        raise ValueError(
            "--card: the card compares words with what training tells of them alone: name its file by --train-file, or "
            "leave --card out"
        )
    examples, limit = arguments.own.splits, arguments.max_eval_samples
    chosen = {result.split: some_examples(examples[result.split], limit) for result in card.results}
    splits = list(word_splits(arguments, checkpoint.tokenizer, chosen, request.own.train_file))
    for result, split in zip(card.results, splits, strict=True):
        require_as_many(result, int(split.counts.sum()), arguments.benchmark, "words")
    return splits


def own_card_arguments(card: CardData, checkpoint: Checkpoint, request: Request) -> DataArguments:
    """A user's own data of a card's results, of the files or the data set that a request names.

    Raises:
        ValueError: it names none, or lacks the file of a split.
    """
    facts, own = card.benchmark.parameters, request.own
    if own is None:
        raise ValueError(
            f"--card: the card's results are of own data, {card.benchmark.name}: name its files instead of "
            f"{request.benchmark}, or leave --card out"
        )
    splits = [result.split for result in card.results]
    missing = [split for split in splits if own.files and split not in own.files]
    if missing:
        raise ValueError(
            f"--card: the card's results are of the splits {', '.join(splits)}, and {', '.join(missing)} has no file: "
            "name it with --split and --test-file, or leave --card out"
        )
    kept = {name: facts[name] for name in ("max_seq_length",) if name in facts}
    own = replace(own, settings={**own.settings, "slice_by": sliced_by(card, own.settings)})
    arguments = own_arguments(replace(own.with_settings(kept), title=card.benchmark.name), checkpoint, splits)
    arguments.max_eval_samples = facts.get(LIMIT)
    return arguments


def data_arguments(card: CardData, data_dir: str | None) -> DataArguments:
    """The data of a card's results; those of the authors' own files lie in `data_dir`."""
    own = card.benchmark
    known = benchmark_info(own.name).parameters[own.config]
    from_files = "rows" in own.parameters
    if from_files and data_dir is None:
        raise ValueError("--card: the card's results are of the authors' own files: name their folder by --data-dir")
    given = own.parameters if from_files else {"seed": own.seed, **own.parameters}
    return DataArguments(
        benchmark=own.name,
        benchmark_config=own.config,
        benchmark_params={name: value for name, value in given.items() if name in known},
        data_dir=data_dir if from_files else None,
        evaluate_on=[result.split for result in card.results if "/" in result.split],
        evaluate_params=own.further_parameters,
        max_eval_samples=own.parameters.get(LIMIT),
    )


def with_results(
    card: CardData, checkpoint: Checkpoint, evaluation: Evaluation, data: DataArguments, first: EvaluationSplit
) -> CardData:
    """A card with another evaluation's results on its data, and with sentences and figures that tell of them.

    Args:
        first: the split of the headline.
    """
    tables = evaluation.tables
    split, table = next(iter(tables.items()))
    if checkpoint.objective is TOKEN_CLASSIFICATION:
        claim = words_headline(card.model_name, first, table)
    else:
        claim = headline(card.model_name, split, table, checkpoint.objective, card.metric)
    before = {result.split: result.table for result in card.results}
    said = limitations(data, before, checkpoint.objective)
    history = [line for line in card.limitations if line not in said]
    sections = [kind for name in KEPT for kind in SECTION_PLOTS[name]]
    return replace(
        card,
        claim=claim,
        max_steps=table["max_steps"],
        halting=table["halting"],
        results=[replace(result, table=tables[result.split]) for result in card.results],
        limitations=[
            *limitations(data, tables, checkpoint.objective),
            *history,
            *training_history(card, checkpoint, table),
        ],
        plots=[
            *(Plot(**plot, split=split) for plot in evaluation.plots),
            *(plot for plot in card.plots if plot.kind in sections),
        ],
        routing=[Routing(**example) for example in evaluation.routing],
        pictures=[Picture(**example) for example in evaluation.pictures],
        threshold_curve=[],
        threshold_rows=None,
    )


def predicted_texts(
    checkpoint: Checkpoint, arguments: LanguageDataArguments, splits: list[TextSplit], batch_size: int, progress: bool
) -> dict[str, dict[str, Any]]:
    """Split -> losses of a causal language model on own texts, see `text_table`."""
    place, size = (checkpoint.model, checkpoint.tokenizer), arguments.block_size
    return {split.name: evaluate_texts(*place, split, size, batch_size, progress=progress)[1] for split in splits}


def with_text_results(
    card: CardData, checkpoint: Checkpoint, tables: dict[str, dict[str, Any]], folder: Path
) -> CardData:
    """A card with other losses on its texts, a sentence that tells of them, and figures, drawn into `folder`."""
    # matplotlib is slow to import, and only here texts are drawn
    from ..analysis.plots import save_recurrence_figures

    split, table = next(iter(tables.items()))
    drawn = save_recurrence_figures(folder, table, prefix=split)
    kept = [kind for name in KEPT for kind in SECTION_PLOTS[name]]
    return replace(
        card,
        claim=texts_headline(card.model_name, split, table, card.metric),
        max_steps=table["max_steps"],
        halting=table["halting"],
        results=[replace(result, table=tables[result.split]) for result in card.results],
        limitations=[*card.limitations, *training_history(card, checkpoint, table)],
        plots=[*(Plot(**plot, split=split) for plot in drawn), *(plot for plot in card.plots if plot.kind in kept)],
    )


def training_history(card: CardData, checkpoint: Checkpoint, table: dict[str, Any]) -> list[str]:
    """A sentence on how a model was trained that stops otherwise by its new results; none where it was told before."""
    # an exit criterion is no way of training: another one was chosen before, and is told of already
    if card.halting in CRITERIA or (card.halting, card.max_steps) == (table["halting"], table["max_steps"]):
        return []
    return [f"It was trained {trained_depth(checkpoint.model.config, card)}; how it stops was chosen afterwards."]


def trained_depth(config: PreTrainedConfig, card: CardData) -> str:
    """How many depth steps a card's model took in training, and what stopped it, as the end of a sentence."""
    way = "without halting" if card.halting == "none" else f"with {card.halting} halting"
    if getattr(config, "depth_sampling", "fixed") == "fixed":
        return f"{way}, in {card.max_steps} depth steps"
    low, high = depth_bounds(config, card.max_steps)
    return f"{way}, in a number of depth steps drawn from {low}{f' to {high}' if high else ' on'} for each batch"

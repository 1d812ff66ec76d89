"""The results of a card again, from its checkpoint as it stops now: a calibration changes what users measure."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.configuration_utils import PreTrainedConfig

from ..benchmarks import benchmark_info
from ..hub import CardData
from ..hub.card import Picture, Plot, Routing, read_card
from ..hub.card_data import SECTION_PLOTS, SplitResult
from ..hub.commands import LIMIT
from ..hub.stored import stored_digest
from ..models.common.depth_objectives import depth_bounds
from ..models.common.exit_criteria import CRITERIA
from ..text_data.source import LENGTH
from .arguments import DataArguments
from .card import headline, limitations
from .data import EvaluationSplit, further_splits, load_own_config, some_examples
from .document_card import headline as texts_headline
from .evaluate import OF_QUESTIONS, Checkpoint, Request, evaluation_splits, reads_texts
from .evaluation import Evaluation, evaluate_run
from .language_data import TextSplit
from .objectives import MASKED_MODELLING, SEQ2SEQ, TOKEN_CLASSIFICATION
from .own_examples import OF_BLOCKS, own_arguments
from .report_arguments import RunArguments
from .token_card import words_headline
from .token_data import CONTEXT_FREE

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
    splits: Sequence[EvaluationSplit | TextSplit] = ()
    arguments: DataArguments | None = None
    kept: str | None = None

    def evaluated(self, checkpoint: Checkpoint, folder: Path, batch_size: int = 64, progress: bool = False) -> CardData:
        """The card with the results of `checkpoint` on the splits; figures and statistics are written into `folder`."""
        place = (checkpoint.model, checkpoint.tokenizer, self.splits, folder)
        evaluation = evaluate_run(*place, RunArguments(thresholds=[]), batch_size, progress=progress)
        measured = replace(self.card.training, weights=stored_digest(checkpoint.name))
        card = replace(self.card, training=measured)
        return with_results(card, checkpoint, evaluation, self.arguments, self.splits[0])


def prepare_reevaluation(folder: str | os.PathLike, checkpoint: Checkpoint, request: Request) -> Reevaluation:
    """The splits of a card's results, encoded; a card of sequence pairs, masks or questions keeps its results.

    Args:
        request: where a user's own examples are, or the authors' own files, if the results were measured on those.

    Raises:
        ValueError: the card's examples are not those that its benchmark gives now, or lie in files that are not given.
    """
    card = read_card(folder)
    names, facts = [result.split for result in card.results], card.benchmark.parameters
    own, texts = card.benchmark.is_own, reads_texts(checkpoint, request)
    if checkpoint.objective in (SEQ2SEQ, MASKED_MODELLING, *OF_QUESTIONS):
        return Reevaluation(card, kept=KEPT_OF_TASK)
    # no file has splits that were held out of the file of training
    held_out = [name for name in names if own and facts.get("files") and name not in facts["files"]]
    if held_out:
        return Reevaluation(card, kept=KEPT_OF_HELD_OUT.format(splits=quoted(held_out)))
    if texts and (not own or facts.get("streaming") or not all(name in request.own.files for name in names)):
        return Reevaluation(card, kept=KEPT_OF_TEXTS.format(splits=quoted(names)))
    choose = partial(first_rows if texts else some_examples, limit=facts.get(LIMIT))
    if own:
        request = own_request(card, checkpoint, request)
        arguments = own_arguments(request.own, checkpoint, names)
        splits = list(evaluation_splits(checkpoint, request, arguments, choose))
        for result, split in zip(card.results, splits, strict=True):
            require_same(result, split.counted, request.own.files.get(result.split, arguments.benchmark))
        return Reevaluation(card, splits, arguments)
    arguments, splits = data_arguments(card, request.data_dir), []
    examples = {**load_own_config(arguments), **dict(further_splits(arguments))}
    for result in card.results:
        rows = choose(examples[result.split]) if result.split in examples else []
        require_same(result, {"n": len(rows)}, f"{arguments.benchmark} ({arguments.benchmark_config})")
        splits.append(EvaluationSplit.of(result.split, rows, arguments, checkpoint.tokenizer))
    return Reevaluation(card, splits, arguments)


def quoted(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def first_rows(rows: "Dataset", limit: int | None) -> "Dataset":
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def require_same(result: SplitResult, counted: Mapping[str, int], place: str) -> None:
    """Raise a ValueError unless a place gives as many examples now as a card has results of."""
    for key, found in counted.items():
        if found != result.table[key]:
            raise ValueError(
                f"--card: the card has results of {result.table[key]:,} {'examples' if key == 'n' else key} of "
                f"{result.split}, of which {place} gives {found:,} now: leave --card out"
            )


def own_request(card: CardData, checkpoint: Checkpoint, request: Request) -> Request:
    """The request for a user's own data of a card's results, of the files or the data set that another one names.

    Raises:
        ValueError: it names none, or lacks the file of a split or of training.
    """
    own, names = request.own, [result.split for result in card.results]
    if own is None:
        raise ValueError(
            f"--card: the card's results are of own data, {card.benchmark.name}: name its files instead of "
            f"{request.benchmark}, or leave --card out"
        )
    missing = [name for name in names if own.files and name not in own.files]
    if missing:
        raise ValueError(
            f"--card: the card's results are of the splits {', '.join(names)}, and {', '.join(missing)} has no file: "
            "name it with --split and --test-file, or leave --card out"
        )
    if checkpoint.objective is TOKEN_CLASSIFICATION and own.train_file is None:
        raise ValueError(
            "--card: the card compares words with what training tells of them alone: name its file by --train-file, or "
            "leave --card out"
        )
    # blocks are as in training, whatever the exit was chosen on
    unset = OF_BLOCKS if reads_texts(checkpoint, request) else ()
    settings = {name: value for name, value in own.settings.items() if name not in unset and value is not None}
    if not unset and (limit := card.benchmark.parameters.get("max_seq_length")) is not None:
        settings.setdefault("max_seq_length", limit)
    table = card.results[0].table
    sliced = [name for name in table.get("slices") or table.get("by_column") or {} if name not in OF_ALL_DATA]
    settings["slice_by"] = list(dict.fromkeys([*settings.get("slice_by", ()), *sliced]))
    return replace(request, own=replace(own, settings=settings, title=card.benchmark.name), splits=names, limit=None)


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
    card: CardData,
    checkpoint: Checkpoint,
    evaluation: Evaluation,
    data: DataArguments,
    first: EvaluationSplit | TextSplit,
) -> CardData:
    """A card with another evaluation's results on its data, and with sentences and figures that tell of them.

    Args:
        first: the split of the headline.
    """
    tables, objective = evaluation.tables, checkpoint.objective
    split, table = next(iter(tables.items()))
    said, says = [], []
    if isinstance(first, TextSplit):
        claim = texts_headline(card.model_name, split, table, card.metric)
    else:
        said = limitations(data, {result.split: result.table for result in card.results}, objective)
        says = limitations(data, tables, objective)
        of_words = objective is TOKEN_CLASSIFICATION
        told = (first, table) if of_words else (split, table, objective, card.metric)
        claim = (words_headline if of_words else headline)(card.model_name, *told)
    history = [line for line in card.limitations if line not in said]
    kept = [kind for name in KEPT for kind in SECTION_PLOTS[name]]
    return replace(
        card,
        claim=claim,
        max_depth=table["max_depth"],
        halting=table["halting"],
        results=[replace(result, table=tables[result.split]) for result in card.results],
        limitations=[*says, *history, *training_history(card, checkpoint, table)],
        plots=[
            *(Plot(**plot, split=split) for plot in evaluation.plots),
            *(plot for plot in card.plots if plot.kind in kept),
        ],
        routing=[Routing(**example) for example in evaluation.routing],
        pictures=[Picture(**example) for example in evaluation.pictures],
        threshold_curve=[],
        threshold_rows=None,
    )


def training_history(card: CardData, checkpoint: Checkpoint, table: dict[str, Any]) -> list[str]:
    """A sentence on how a model was trained that stops otherwise by its new results; none where it was told before."""
    # an exit criterion is no way of training: another one was chosen before, and is told of already
    if card.halting in CRITERIA or (card.halting, card.max_depth) == (table["halting"], table["max_depth"]):
        return []
    return [f"It was trained {trained_depth(checkpoint.model.config, card)}; how it stops was chosen afterwards."]


def trained_depth(config: PreTrainedConfig, card: CardData) -> str:
    """How many depth steps a card's model took in training, and what stopped it, as the end of a sentence."""
    way = "without halting" if card.halting == "none" else f"with {card.halting} halting"
    if getattr(config, "depth_sampling", "fixed") == "fixed":
        return f"{way}, in {card.max_depth} depth steps"
    low, high = depth_bounds(config, card.max_depth)
    return f"{way}, in a number of depth steps drawn from {low}{f' to {high}' if high else ' on'} for each batch"

"""The card of a finished run that labels words or predicts masked tokens."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hub import CardData
from ..hub.card import Compared, Example, Plot
from ..hub.tasks import task_for
from ..templating import percent
from .arguments import DataArguments
from .card import (
    EXAMPLE_CHARACTERS,
    RunFacts,
    chunk_settings,
    common_fields,
    history,
    in_steps,
    limitations,
    split_results,
)
from .evaluation import Evaluation
from .metrics import IGNORED
from .objectives import TOKEN_CLASSIFICATION, objective_on
from .report_arguments import TimedReportArguments
from .token_data import WORDS, TokenSplit

if TYPE_CHECKING:
    from datasets import Dataset

# tokens before and after the mask of an example
CONTEXT = 12
USUAL_LABEL = "the most frequent label of each word in training"


def word_example(examples: "Dataset") -> dict[str, Any]:
    """The text of the longest example that is short enough to show, or of the first one, cut."""
    texts = (" ".join(words) for words in examples[WORDS])
    fitting = [text for text in texts if len(text) <= EXAMPLE_CHARACTERS]
    return {"text": max(fitting, key=len, default=" ".join(examples[0][WORDS])[:EXAMPLE_CHARACTERS])}


def masked_example(example: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """A text with the mask token in one place, and what stands there."""
    ids, labels = list(example["input_ids"]), example["labels"]
    places = [place for place, label in enumerate(labels) if label != IGNORED]
    place = min(places, key=lambda place: abs(place - CONTEXT), default=0)
    # other masks are what they hide
    ids = [old if label == IGNORED else label for old, label in zip(ids, labels, strict=True)]
    answer, ids[place] = ids[place], tokenizer.mask_token_id
    shown = ids[max(place - CONTEXT, 0) : place + CONTEXT]
    return {"text": tokenizer.decode(shown), "answer": tokenizer.decode([answer])}


def token_card(
    model: Any,
    data: DataArguments,
    report: TimedReportArguments,
    evaluation: Evaluation,
    facts: RunFacts,
    splits: Sequence[TokenSplit],
) -> CardData:
    """The card of a run, from its recipe and its evaluation."""
    config, objective, tables = model.config, objective_on(data), evaluation.tables
    split, table = next(iter(tables.items()))
    fields = common_fields(model, data, report, facts, table, objective.script)
    labels_words = objective is TOKEN_CLASSIFICATION
    headline = words_headline if labels_words else masks_headline
    return CardData(
        **fields,
        claim=headline(fields["model_name"], splits[0], table),
        task=task_for(objective.auto_class),
        metric=objective.metric,
        chunks=chunk_settings(config),
        results=split_results(tables, report, data, config, facts.steps, changes=facts.changes),
        example=Example(evaluation.example["text"], answer=evaluation.example.get("answer")),
        limitations=[*limitations(data, tables, objective), *history(facts, config)],
        plots=[Plot(**plot, split=split) for plot in evaluation.plots],
        compared=[usual_labels(splits)] if labels_words else [],
    )


def usual_labels(splits: Sequence[TokenSplit]) -> Compared:
    """The labels that words usually have, as a model with a parameter for each word."""
    values = {split.name: [split.baseline["accuracy"]] for split in splits}
    return Compared(USUAL_LABEL, int(splits[0].baseline["size"]), values)


def words_headline(title: str, split: TokenSplit, table: Mapping[str, Any]) -> str:
    """How well the model labels words, in one sentence."""
    return (
        f"{title}: {percent(table['accuracy'])} of {table['n']:,} words of the `{split.name}` split labelled right, "
        f"where {USUAL_LABEL} gives {percent(split.baseline['accuracy'])}{in_steps(table)}"
    )


def masks_headline(title: str, split: TokenSplit, table: Mapping[str, Any]) -> str:
    """How well the model predicts masked tokens, in one sentence."""
    scores = table["scores"]
    return (
        f"{title}: perplexity {scores['perplexity']:.1f} of {table['n']:,} masked tokens of the `{split.name}` split, "
        f"where their frequencies in training give {scores['perplexity_of_frequencies']:.1f}, and "
        f"{percent(table['accuracy'])} of them predicted{in_steps(table)}"
    )

"""The card of a finished run on a user's own words, masked tokens, or questions."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hub import CardData
from ..hub.card import Compared, Example, Plot
from ..hub.tasks import task_for
from ..models.common.token_targets import NO_TARGET
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
from .data import EvaluationSplit
from .evaluation import Evaluation
from .objectives import (
    MASKED_MODELLING,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    TOKEN_CLASSIFICATION,
    Objective,
    objective_on,
)
from .question_data import ANSWERS, CHOICES, CONTEXT, QUESTION
from .report_arguments import TimedReportArguments
from .token_data import WORDS, TokenSplit

if TYPE_CHECKING:
    from datasets import Dataset

# tokens before and after the mask of an example
AROUND = 12
USUAL_LABEL = "the most frequent label of each word in training"


def word_example(examples: "Dataset") -> dict[str, Any]:
    """The text of the longest example that is short enough to show, or of the first one, cut."""
    texts = (" ".join(words) for words in examples[WORDS])
    fitting = [text for text in texts if len(text) <= EXAMPLE_CHARACTERS]
    return {"text": max(fitting, key=len, default=" ".join(examples[0][WORDS])[:EXAMPLE_CHARACTERS])}


def masked_example(example: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """A text with the mask token in one place, and what stands there."""
    ids, labels = list(example["input_ids"]), example["labels"]
    places = [place for place, label in enumerate(labels) if label != NO_TARGET]
    place = min(places, key=lambda place: abs(place - AROUND), default=0)
    # other masks are what they hide
    ids = [old if label == NO_TARGET else label for old, label in zip(ids, labels, strict=True)]
    answer, ids[place] = ids[place], tokenizer.mask_token_id
    shown = ids[max(place - AROUND, 0) : place + AROUND]
    return {"text": tokenizer.decode(shown), "answer": tokenizer.decode([answer])}


def span_example(questions: "Dataset") -> dict[str, Any]:
    """The question, context and answer of the shortest one; of a long context what stands around the answer."""
    sizes = [len(row[QUESTION]) + len(row[CONTEXT]) for row in questions]
    row = questions[sizes.index(min(sizes))]
    context, answers = row[CONTEXT], row[ANSWERS]
    place = answers["answer_start"][0] if answers["text"] else 0
    before = max(place - EXAMPLE_CHARACTERS // 2, 0) if len(context) > EXAMPLE_CHARACTERS else 0
    shown = context[before : before + EXAMPLE_CHARACTERS]
    return {"text": row[QUESTION], "text_pair": shown, "answer": next(iter(answers["text"]), None)}


def choice_example(questions: "Dataset") -> dict[str, Any]:
    """A context with one of its choices, the right one."""
    row = questions[0]
    texts = (row[CONTEXT], row[CHOICES][row["labels"]])
    return dict(zip(("text", "text_pair"), (text[:EXAMPLE_CHARACTERS] for text in texts), strict=True))


def own_card(
    model: Any,
    data: DataArguments,
    report: TimedReportArguments,
    evaluation: Evaluation,
    facts: RunFacts,
    splits: Sequence[EvaluationSplit],
) -> CardData:
    """The card of a run, from its recipe and its evaluation."""
    config, objective, tables = model.config, objective_on(data), evaluation.tables
    split, table = next(iter(tables.items()))
    fields = common_fields(model, data, report, facts, table, objective.script)
    compared = []
    if objective is TOKEN_CLASSIFICATION:
        # labels that words usually have, as a model with a parameter for each word
        values = {split.name: [split.baseline["accuracy"]] for split in splits}
        compared.append(Compared(USUAL_LABEL, int(splits[0].baseline["size"]), values))
    return CardData(
        **fields,
        claim=HEADLINES[objective](fields["model_name"], splits[0], table),
        task=task_for(objective.auto_class),
        metric=objective.metric,
        chunks=chunk_settings(config),
        results=split_results(tables, report, data, config, facts.steps, changes=facts.changes),
        example=Example(**evaluation.example),
        limitations=[*limitations(data, tables, objective), *history(facts, config)],
        plots=[Plot(**plot, split=split) for plot in evaluation.plots],
        compared=compared,
    )


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


def spans_headline(title: str, split: EvaluationSplit, table: Mapping[str, Any]) -> str:
    """How well the model finds answers, in one sentence."""
    return (
        f"{title}: {percent(table['accuracy'])} of {table['n']:,} questions of the `{split.name}` split answered with "
        f"the very words of a true answer, with an F1 of {percent(table['scores']['f1'])}{in_steps(table)}"
    )


def choices_headline(title: str, split: EvaluationSplit, table: Mapping[str, Any]) -> str:
    """How often the model chooses right, in one sentence."""
    return (
        f"{title}: {percent(table['accuracy'])} of {table['n']:,} questions of the `{split.name}` split answered with "
        f"the right choice, where the most frequent one gives {percent(table['majority_baseline'])}{in_steps(table)}"
    )


HEADLINES: dict[Objective, Callable[[str, Any, Mapping[str, Any]], str]] = {
    TOKEN_CLASSIFICATION: words_headline,
    MASKED_MODELLING: masks_headline,
    QUESTION_ANSWERING: spans_headline,
    MULTIPLE_CHOICE: choices_headline,
}

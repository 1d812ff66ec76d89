"""The card of a finished run on a user's own words, masked tokens, or questions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..hub import CardData
from ..hub.card import Compared, Example
from ..models.common.token_targets import NO_TARGET
from ..templating import percent
from .arguments import DataArguments
from .card import EXAMPLE_CHARACTERS, RunFacts, in_steps, limitations, run_card
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
from .question_data import CHOICES, SpanSplit
from .question_evaluation import ANSWERS, CONTEXT, QUESTION
from .report_arguments import TimedReportArguments
from .token_data import WORDS, TokenSplit

# tokens before and after the mask of an example
AROUND = 12
USUAL_LABEL = "the most frequent label of each word in training"


def word_example(split: TokenSplit, tokenizer: Any) -> dict[str, Any]:
    """The text of the longest example that is short enough to show, or of the first one, cut."""
    texts = [" ".join(words) for words in split.dataset[WORDS]]
    fitting = [text for text in texts if len(text) <= EXAMPLE_CHARACTERS]
    return {"text": max(fitting, key=len, default=texts[0][:EXAMPLE_CHARACTERS])}


def masked_example(split: TokenSplit, tokenizer: Any) -> dict[str, Any]:
    """A text with the mask token in one place, and what stands there."""
    example = split.dataset[0]
    ids, labels = list(example["input_ids"]), example["labels"]
    places = [place for place, label in enumerate(labels) if label != NO_TARGET]
    place = min(places, key=lambda place: abs(place - AROUND), default=0)
    # other masks are what they hide
    ids = [old if label == NO_TARGET else label for old, label in zip(ids, labels, strict=True)]
    answer, ids[place] = ids[place], tokenizer.mask_token_id
    shown = ids[max(place - AROUND, 0) : place + AROUND]
    return {"text": tokenizer.decode(shown), "answer": tokenizer.decode([answer])}


def span_example(split: SpanSplit, tokenizer: Any) -> dict[str, Any]:
    """The question, context and answer of the shortest one; of a long context what stands around the answer."""
    sizes = [len(row[QUESTION]) + len(row[CONTEXT]) for row in split.questions]
    row = split.questions[sizes.index(min(sizes))]
    context, answers = row[CONTEXT], row[ANSWERS]
    place = answers["answer_start"][0] if answers["text"] else 0
    before = max(place - EXAMPLE_CHARACTERS // 2, 0) if len(context) > EXAMPLE_CHARACTERS else 0
    shown = context[before : before + EXAMPLE_CHARACTERS]
    return {"text": row[QUESTION], "text_pair": shown, "answer": next(iter(answers["text"]), None)}


def choice_example(split: EvaluationSplit, tokenizer: Any) -> dict[str, Any]:
    """A context with one of its choices, the right one."""
    row = split.dataset[0]
    texts = (row[CONTEXT], row[CHOICES][row["labels"]])
    return dict(zip(("text", "text_pair"), (text[:EXAMPLE_CHARACTERS] for text in texts), strict=True))


def own_card(
    model: Any,
    tokenizer: Any,
    data: DataArguments,
    report: TimedReportArguments,
    evaluation: Evaluation,
    facts: RunFacts,
    splits: Sequence[EvaluationSplit],
) -> CardData:
    """The card of a run, from its recipe and its evaluation."""
    objective, tables = objective_on(data), evaluation.tables
    first, compared = splits[0], []
    headline, example = SHOWN[objective]
    if objective is TOKEN_CLASSIFICATION:
        # labels that words usually have, as a model with a parameter for each word
        values = {split.name: [split.baseline["accuracy"]] for split in splits}
        compared.append(Compared(USUAL_LABEL, int(first.baseline["size"]), values))
    return run_card(
        *(model, data, report, facts, tables, evaluation.plots),
        claim=lambda title, split, table: headline(title, first, table),
        example=Example(**example(first, tokenizer)),
        limitations=limitations(data, tables, objective),
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


# the sentence on how well a model does, and the example of the usage section, as fields of `Example`
SHOWN: dict[Objective, tuple[Callable[..., str], Callable[..., dict[str, Any]]]] = {
    TOKEN_CLASSIFICATION: (words_headline, word_example),
    MASKED_MODELLING: (masks_headline, masked_example),
    QUESTION_ANSWERING: (spans_headline, span_example),
    MULTIPLE_CHOICE: (choices_headline, choice_example),
}

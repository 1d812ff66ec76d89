"""The bag of words: a logistic regression on how often each word occurs, which knows nothing of their order."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..hub.card_data import CardData, Compared
from ..hub.commands import LIMIT
from .arguments import ARGUMENT_TYPES, DataArguments
from .data import further_splits, load_own_config, some_examples
from .recipes import parse
from .reevaluation import data_arguments

if TYPE_CHECKING:
    from datasets import Dataset
    from scipy.sparse import csr_matrix

NAME = "bag of words (logistic regression)"
# every run of letters or digits, and every other sign
WORD = r"\w+|[^\w\s]"
# inverse strengths of the penalty, of which that with the best validation accuracy is taken
STRENGTHS = (0.01, 0.1, 1.0, 10.0)
MOST_ITERATIONS = 1000


def bag_of_words(card: CardData, data_dir: str | None = None, recipe: str | None = None) -> Compared:
    """The accuracy of a bag of words on the splits of a card, trained on the training examples of the run.

    Args:
        data_dir: folder of the authors' own files, if the card's results are of those.
        recipe: path of the run's recipe, if the results are of a user's own data: it says where these are.

    Raises:
        ValueError: the card is not of a classifier, the examples are not those of its results, or `data_dir` or
            `recipe` names examples of the other kind.
        ImportError: scikit-learn is not installed.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise ImportError(
            "a bag of words is trained by scikit-learn, which is not installed: pip install 'hf-recurrent[digits]'"
        )
    if card.metric != "accuracy":
        raise ValueError(
            f"{card.model_name} is measured in {card.metric} on {card.benchmark.name}: a bag of words is trained for "
            "classifiers alone, leave it out"
        )
    if recipe is not None and not card.benchmark.is_own:
        raise ValueError(
            f"--recipe {recipe}: {card.benchmark.name} is a benchmark, whose examples need none; leave it out"
        )
    if data_dir is not None and card.benchmark.is_own:
        raise ValueError(
            f"--data-dir {data_dir}: {card.benchmark.name} is own data, which --recipe names; leave it out"
        )
    arguments = own_data(card, recipe) if card.benchmark.is_own else data_arguments(card, data_dir)
    own = load_own_config(arguments)
    columns, facts = arguments.info.text_columns, card.benchmark.parameters
    train = some_examples(own["train"], facts.get("max_train_samples"))
    tests = {**own, **dict(further_splits(arguments))}
    splits = {result.split: some_examples(tests.get(result.split, ()), facts.get(LIMIT)) for result in card.results}
    for result in card.results:
        if len(splits[result.split]) != result.table["n"]:
            raise ValueError(
                f"the card has results of {result.table['n']:,} examples of {result.split}, of which "
                f"{arguments.benchmark} gives {len(splits[result.split]):,} now: make its data anew"
            )
    count = fitted_counts(train, columns)
    regression = fitted_regression(count, train, own.get("validation"))
    values = {split: [accuracy(regression, count(rows), rows["label"][:])] for split, rows in splits.items()}
    return Compared(NAME, int(regression.coef_.size + regression.intercept_.size), values)


def own_data(card: CardData, recipe: str | None) -> DataArguments:
    """The user's own data that the recipe of a card's run names."""
    if recipe is None:
        raise ValueError(
            f"{card.model_name} was trained on own data, {card.benchmark.name}: name the run's recipe by --recipe"
        )
    # a recipe needs a folder for its run, and this is none
    (_, arguments, *_), _ = parse([recipe, "--output_dir", "."], ARGUMENT_TYPES)
    if arguments.own is None:
        raise ValueError(f"--recipe {recipe} trains on {arguments.benchmark}, the card on {card.benchmark.name}")
    return arguments


def fitted_counts(train: "Dataset", columns: Sequence[str]) -> "Callable[[Dataset], csr_matrix]":
    """The counts (N, words) of the words of each text in examples, scaled to at most 1 in training."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import MaxAbsScaler

    vectorizers = [CountVectorizer(token_pattern=WORD).fit(train[column][:]) for column in columns]

    def counts(rows: "Dataset") -> "csr_matrix":
        return hstack([own.transform(rows[column][:]) for own, column in zip(vectorizers, columns, strict=True)])

    scaler = MaxAbsScaler().fit(counts(train))
    return lambda rows: scaler.transform(counts(rows))


def fitted_regression(count: "Callable[[Dataset], csr_matrix]", train: "Dataset", validation: "Dataset | None") -> Any:
    """The logistic regression with the best accuracy in validation; without validation examples that of strength 1."""
    from sklearn.linear_model import LogisticRegression

    inputs, labels = count(train), train["label"][:]
    strengths = STRENGTHS if validation is not None and len(validation) else (1.0,)
    found = [LogisticRegression(C=strength, max_iter=MOST_ITERATIONS).fit(inputs, labels) for strength in strengths]
    if len(found) == 1:
        return found[0]
    checked, answers = count(validation), validation["label"][:]
    return max(found, key=lambda regression: accuracy(regression, checked, answers))


def accuracy(regression: Any, inputs: "csr_matrix", labels: Sequence[int]) -> float:
    """Fraction of examples answered right."""
    return float(np.mean(regression.predict(inputs) == np.asarray(labels)))

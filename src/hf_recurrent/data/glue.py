"""Tasks of the GLUE and SuperGLUE benchmarks that classify a text or a pair of texts, by their names on the Hub.

Wang et al. 2018, "GLUE" (arXiv 1804.07461); Wang et al. 2019, "SuperGLUE" (arXiv 1905.00537). Labels of their test
splits are not public.
"""

from typing import NamedTuple

GLUE, SUPER_GLUE = "nyu-mll/glue", "aps/super_glue"


class Task(NamedTuple):
    """A task: the columns of its texts, its data set on the Hub, the splits that it is validated on, and its scores.

    `scores` are those that the benchmark's table shows.
    """

    texts: tuple[str, ...]
    dataset: str = GLUE
    validation: tuple[str, ...] = ("validation",)
    scores: tuple[str, ...] = ("accuracy",)


SENTENCES = ("sentence1", "sentence2")
PREMISE = ("premise", "hypothesis")
TASKS = {
    "cola": Task(("sentence",), scores=("matthews_correlation",)),
    "mnli": Task(PREMISE, validation=("validation_matched", "validation_mismatched")),
    "mrpc": Task(SENTENCES, scores=("accuracy", "f1")),
    "qnli": Task(("question", "sentence")),
    "qqp": Task(("question1", "question2"), scores=("accuracy", "f1")),
    "rte": Task(SENTENCES),
    "sst2": Task(("sentence",)),
    "stsb": Task(SENTENCES, scores=("pearson", "spearman")),
    "wnli": Task(SENTENCES),
    "boolq": Task(("question", "passage"), dataset=SUPER_GLUE),
    "cb": Task(PREMISE, dataset=SUPER_GLUE, scores=("accuracy", "macro_f1")),
    "wic": Task(SENTENCES, dataset=SUPER_GLUE),
}

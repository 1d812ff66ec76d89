"""The names by which results on a benchmark refer to its parts."""


def task_id(config: str, split: str) -> str:
    """The task id of a split, in `eval.yaml` of the data set and in the evaluation results of model cards.

    >>> task_id("original", "test")
    'original/test'
    """
    return f"{config}/{split}"

"""Common parts of the metric scripts; a copy lies next to each published script.

Scripts and this file import no sibling that is not published with them, and one module a line: the loader of
`evaluate` copies only the siblings that a script itself imports, and reads its imports line by line.
"""

from typing import Any

import datasets
import evaluate

CITATION = r"""@software{hf_recurrent,
  title = {hf\_recurrent: recurrent-depth, dynamic-halting and chunk-recurrent Transformers},
  author = {{The hf\_recurrent authors}}
}"""

# every number is stored as float64: as integers, 0.7 would silently become 0
NUMBER = datasets.Value("float64")
NUMBERS = datasets.Sequence(NUMBER)
STRING = datasets.Value("string")


def describe(documentation: str, features: list[datasets.Features]) -> evaluate.MetricInfo:
    """The metric's description, from its script's docstring; columns have one of `features`."""
    description, heading, rest = documentation.partition("\n## Inputs\n")
    return evaluate.MetricInfo(
        description=description.strip(),
        citation=CITATION,
        inputs_description=heading + rest,
        features=features,
        license="apache-2.0",
    )


class Columns:
    """Optional columns for an `evaluate` metric, whose method `scores` gets None for a column that was left out.

    This class has to come before `evaluate.Metric`, and must not be one: the loader takes the first metric class of
    a script.
    """

    optional_columns: tuple[str, ...] = ()

    def add_batch(self, **columns: Any) -> None:
        """Keep a batch of examples for `compute`.

        Raises:
            ValueError: a column is unknown or missing, or columns differ in length or hold nothing.
        """
        columns = {name: values for name, values in columns.items() if values is not None}
        required = [name for name in self._feature_names() if name not in self.optional_columns]
        missing = [name for name in required if name not in columns]
        if missing:
            raise ValueError(f"{self.name} lacks the columns {missing}: it needs {required}")
        lengths = {name: len(values) for name, values in columns.items()}
        size = lengths[required[0]]
        if size == 0 or set(lengths.values()) != {size}:
            raise ValueError(f"the columns of a batch must be equally long and not empty, got the lengths {lengths}")
        super().add_batch(**{name: [None] * size for name in self.optional_columns} | columns)

    def add(self, *, prediction: Any = None, reference: Any = None, **columns: Any) -> None:
        """Keep one example for `compute`; errors are those of `add_batch`."""
        columns |= {"predictions": prediction, "references": reference}
        self.add_batch(**{name: [value] for name, value in columns.items() if value is not None})

    def compute(self, **columns: Any) -> dict | None:
        """Compute the metric from columns given here, or in batches before."""
        # beside predictions and references, `evaluate` takes a column that is left out for one that was forgotten
        return super().compute(**dict.fromkeys(self.optional_columns) | columns)

    def _compute(self, **columns: Any) -> dict:
        for name in self.optional_columns:
            absent = sum(value is None for value in columns[name])
            if absent == len(columns[name]):
                columns[name] = None
            elif absent:
                raise ValueError(
                    f"{name} is missing for {absent} of {len(columns[name])} examples: give it for all or for none"
                )
        slices = columns.get("slices")
        # numbers were stored as floats: 3.0 was given as 3
        if slices and all(isinstance(value, float) and value.is_integer() for value in slices):
            columns["slices"] = [int(value) for value in slices]
        return self.scores(**columns)

"""What the metric scripts share; a copy lies next to each published script.

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
    """The metric's own description of itself, from its script's docstring; columns have one of `features`."""
    description, inputs, rest = documentation.partition("\nInputs:\n")
    return evaluate.MetricInfo(
        description=description.strip(),
        citation=CITATION,
        inputs_description=f"\n{inputs.strip()}\n{rest}",
        features=features,
        license="apache-2.0",
    )


class Columns:
    """Makes columns of an `evaluate` metric optional, and says clearly what is wrong with a batch.

    It has to come before `evaluate.Metric`, and must not be one: the loader takes the first metric class it finds.
    """

    optional_columns: tuple[str, ...] = ()

    def add_batch(self, *, predictions: Any = None, references: Any = None, **columns: Any) -> None:
        """Keep a batch of examples for `compute`.

        Raises:
            ValueError: a column is unknown or missing, columns differ in length or hold nothing, or an earlier batch
                had other columns.
        """
        columns |= {"predictions": predictions, "references": references}
        columns = {name: values for name, values in columns.items() if values is not None}
        names = self._feature_names()
        required = [name for name in names if name not in self.optional_columns]
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise ValueError(f"{self.name} has no columns {unknown}: it takes {names}")
        missing = [name for name in required if name not in columns]
        if missing:
            raise ValueError(f"{self.name} lacks the columns {missing}: it needs {required}")
        lengths = {name: len(values) for name, values in columns.items()}
        number = lengths[required[0]]
        if number == 0 or set(lengths.values()) != {number}:
            raise ValueError(f"the columns of a batch must be equally long and not empty, got the lengths {lengths}")
        # a writer is there from the first batch until `compute`
        if self.writer is None:
            self._columns_given = set(columns)
        elif self._columns_given != set(columns):
            earlier, now = sorted(self._columns_given), sorted(columns)
            raise ValueError(f"earlier batches had the columns {earlier}, this one has {now}: give all the same")
        super().add_batch(**{name: columns.get(name, [None] * number) for name in names})

    def add(self, *, prediction: Any = None, reference: Any = None, **columns: Any) -> None:
        """Keep one example for `compute`; errors are those of `add_batch`."""
        columns |= {"predictions": prediction, "references": reference}
        self.add_batch(**{name: [value] for name, value in columns.items() if value is not None})


def given(name: str, values: list) -> list | None:
    """An optional column, or None where it was left out.

    Raises:
        ValueError: some of its values are missing.
    """
    absent = sum(value is None for value in values)
    if absent == len(values):
        return None
    if absent:
        raise ValueError(f"{name} is missing for {absent} of {len(values)} examples: give it for all or for none")
    return values


def shortened(values: list) -> list:
    """A column of groups as it was before it was stored: 3 rather than 3.0, if all are whole numbers."""
    if all(isinstance(value, float) and value.is_integer() for value in values):
        return [int(value) for value in values]
    return values

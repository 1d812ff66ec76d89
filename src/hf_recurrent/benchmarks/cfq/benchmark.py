r"""Compositional Freebase Questions: its configs, its parameters, its files and its examples.

- `mcd1`, `mcd2`, `mcd3`: train and test have much the same atoms (entities, predicates, rules) and, as far as that
  allows, different compounds of them: maximum compound divergence.
- `random_split`: the same questions divided at random.

They are read from one of two places:

- The authors' archive (cfq1.1.tar.gz, unpacked): `dataset.json`, a list of all questions, and `splits/<config>.json`,
  whose `trainIdxs`, `devIdxs` and `testIdxs` are places in it. Examples are in the order of `dataset.json`.
- The data set on the Hub: `<config>/<split>-*.parquet` with the columns `question` and `query`. It leaves out the
  authors' validation questions.

An example:

    source            Did M0 ' s director direct M1
    target            SELECT count ( * ) WHERE { ?x0 film.director.film M0 M1 }
    num_triples       2
"""

import os
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...utils import read_json
from ..benchmark import Benchmark, Config, Plan, make_info
from ..files import check_pair, parquet_rows, split_tables, split_tables_folder
from ..json_array import read_items
from ..parameters import Parameter, boolean, text
from ..sampling import Shard
from . import sparql

DATASET = "google-research-datasets/cfq"

PARAMETERS = {
    "dataset": Parameter(text, "data set on the Hub, where no data_dir is given"),
    "revision": Parameter(text, "branch, tag or commit of that data set"),
    "group_triples": Parameter(
        boolean, "whether triples that differ in their subject, predicate or object alone are written as one"
    ),
    "normalize_inverses": Parameter(
        boolean, "whether ten predicates are replaced by their inverses, with subject and object exchanged"
    ),
}
# the parameters that count for files of one's own
FILE_PARAMETERS = ("group_triples", "normalize_inverses")


def _defaults(normalize_inverses: bool) -> Mapping[str, Any]:
    return MappingProxyType(
        {"dataset": DATASET, "revision": "main", "group_triples": True, "normalize_inverses": normalize_inverses}
    )


# as in the pre-processing that the paper took over: inverses are a bias of the second and third division
CONFIGS = {
    "mcd1": Config(
        "maximum compound divergence, first division: 95,743 train, 11,968 validation, 11,968 test questions",
        _defaults(normalize_inverses=False),
    ),
    "mcd2": Config("the same, second division", _defaults(normalize_inverses=True)),
    "mcd3": Config("the same, third division", _defaults(normalize_inverses=True)),
    "random_split": Config(
        "the same sizes, but for one question, divided at random", _defaults(normalize_inverses=False)
    ),
}

QUESTION, QUERY = "questionPatternModEntities", "sparqlPatternModEntities"
_INDICES = {"train": "trainIdxs", "validation": "devIdxs", "test": "testIdxs"}
_COLUMNS = ("question", "query")


def table_examples(path: str, params: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """The examples of a table of the Hub.

    Raises:
        ValueError: the table is damaged, lacks a column, or holds a question or query that cannot be read.
    """
    for number, row in enumerate(parquet_rows(path, _COLUMNS), start=1):
        yield _example(row, _COLUMNS, params, f"{path}, row {number}")


def listed_examples(
    dataset: str, split_file: str, split: str, params: Mapping[str, Any]
) -> Iterator[dict[str, object]]:
    """The examples of the authors' data set that a split lists.

    Raises:
        ValueError: a file is damaged, lacks something, or holds a question or query that cannot be read.
    """
    name = _INDICES[split]
    content = read_json(split_file)
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, list) or not all(type(index) is int and index >= 0 for index in found):
        raise ValueError(f"{split_file}: expected {name}, a list of whole numbers, places in dataset.json")
    wanted, last = set(found), -1
    with open(dataset, encoding="utf-8") as file:
        for last, item in enumerate(read_items(file, dataset)):
            if last in wanted:
                yield _example(item, (QUESTION, QUERY), params, f"{dataset}, item {last}")
    if wanted and max(wanted) > last:
        raise ValueError(
            f"{split_file}: {name} names item {max(wanted)}, but {dataset} has "
            f"{last + 1}: are both from the same archive?"
        )


def _example(item: Any, names: tuple[str, str], params: Mapping[str, Any], place: str) -> dict[str, object]:
    found = [item.get(name) if isinstance(item, dict) else None for name in names]
    for name, value in zip(names, found, strict=True):
        if not isinstance(value, str):
            raise ValueError(f"{place}: expected text in {name}, got {value!r:.80}")
    return make_example(*found, params["group_triples"], params["normalize_inverses"], place)


def spaced_question(question: str) -> str:
    """A question with single spaces between its words, each sign of punctuation one of them.

    >>> spaced_question("Who influenced M1's producer?")
    "Who influenced M1 ' s producer ?"
    """
    return " ".join("".join(f" {sign} " if sign in string.punctuation else sign for sign in question).split())


def make_example(
    question: str, query: str, group_triples: bool, normalize_inverses: bool, place: str
) -> dict[str, object]:
    """The example of a question and its query, as the data set has them.

    Raises ValueError, with the `place`, for an empty text and a query that cannot be read.
    """
    check_pair(question, query, place)
    try:
        parsed = sparql.parse(sparql.spaced(query))
    except ValueError as error:
        raise ValueError(f"{place}: not a query of the data set: {error}") from error
    if normalize_inverses:
        parsed = sparql.normalize_inverses(parsed)
    source = spaced_question(question)
    target = sparql.grouped(parsed) if group_triples else sparql.plain(parsed)
    return {
        "source": source,
        "target": target,
        "num_triples": len(parsed.triples),
        "length": len(source.split()),
        "target_length": len(target.split()),
    }


class CompositionalFreebaseQuestions(Benchmark):
    """From questions to SPARQL queries (Keysers et al., 2020)."""

    parameters = PARAMETERS
    generated = False
    file_configs = tuple(CONFIGS)
    file_parameters = FILE_PARAMETERS
    file_names = "dataset.json and splits/<config>.json of the authors' archive, or <config>/<split>-*.parquet"
    export_configs = ()
    info = make_info(
        PARAMETERS,
        CONFIGS,
        default_config="mcd1",
        name="cfq",
        title="Compositional Freebase Questions",
        description="Questions in English with their SPARQL queries, divided so that test questions combine what train "
        "questions have in ways that these do not.",
        languages=("en",),
        text_columns=("source", "target"),
        target_column="target",
        slice_columns=("num_triples", "length", "target_length"),
        column_meanings={
            "source": "the question, entities replaced by M0, M1, ...; words and signs of punctuation are "
            "separated by single spaces",
            "target": "the query, with `_` instead of the dot of `m.`, and without the prefix `ns:` of words; "
            "its triples are grouped if `group_triples` is True",
            "num_triples": "triples of the query before they are grouped, without filters",
            "length": "words of the source",
            "target_length": "words of the target",
        },
        synthetic=False,
        paper="https://arxiv.org/abs/1912.09713",
        citation="Daniel Keysers, Nathanael Schärli, Nathan Scales, Hylke Buisman, Daniel Furrer, Sergii Kashubin, "
        "Nikola Momchev, Danila Sinopalnikov, Lukasz Stafiniak, Tibor Tihon, Dmitry Tsarkov, Xiao Wang, Marc van Zee "
        "and Olivier Bousquet. Measuring Compositional Generalization: A Comprehensive Method on Realistic Data. ICLR, "
        "2020.",
        bibtex="""@inproceedings{keysers2020measuring,
  title = {Measuring Compositional Generalization: A Comprehensive Method on Realistic Data},
  author = {Keysers, Daniel and Sch{\\"a}rli, Nathanael and Scales, Nathan and Buisman, Hylke and Furrer, Daniel and
            Kashubin, Sergii and Momchev, Nikola and Sinopalnikov, Danila and Stafiniak, Lukasz and Tihon, Tibor and
            Tsarkov, Dmitry and Wang, Xiao and van Zee, Marc and Bousquet, Olivier},
  booktitle = {International Conference on Learning Representations},
  year = {2020},
  url = {https://arxiv.org/abs/1912.09713}
}""",
        license="CC-BY-4.0 (questions and queries, copyright of their authors)",
        limits=(
            "Exact match compares targets as texts. Of equal queries with another order of triples only one is right; "
            "grouped targets are sorted, so that the order is not left to chance.",
            "Grouping depends on the order of a query's triples where subjects share the same objects in another "
            "order.",
            "The validation questions are in the authors' archive only; the data set on the Hub leaves them out.",
            "They have the distribution of the test questions: a model that is chosen by them has seen what it is to "
            "generalize to. The authors of the data advise to choose by a part of train instead.",
            "The source is cut into words. The pre-processing that the queries are from encodes it with the BPE of "
            "GPT-2 instead.",
        ),
    )

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        return split_tables_folder(params, config_name)

    def shift(self, config_name: str, params: Mapping[str, Any], split: str) -> str:
        return "other compounds than training" if config_name.startswith("mcd") else ""

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """One shard for each table, or one for all of the authors' examples of a split."""
        paths = str(folder / "dataset.json"), str(folder / "splits" / f"{config_name}.json")
        if all(map(os.path.isfile, paths)):
            return {split: [Shard(listed_examples, (*paths, split, params), paths)] for split in _INDICES}
        return {
            split: [Shard(table_examples, (path, params), (path,)) for path in tables]
            for split, tables in split_tables(folder / config_name).items()
        }

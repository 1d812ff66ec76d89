"""WMT14 English-German: its config, its parameters, and its files.

- Files: `train.en` and `train.de`, `valid.en` and `valid.de`, `test.en` and `test.de`; line n of one is the
  translation of line n of the other.
- The data set on the Hub: `de-en/<split>-*.parquet` with the column `translation`, which holds `en` and `de`.

Of train pairs, those are left out in which a text is too short or too long. Every pair of the other splits is kept.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..benchmark import Benchmark, Config, Plan, make_info
from ..files import check_pair, parquet_rows, split_tables, split_tables_folder
from ..parameters import Parameter, choice, integer, text
from ..sampling import Shard
from .text_forms import TEXT_FORMS, count_words

DATASET = "wmt/wmt14"

PARAMETERS = {
    "dataset": Parameter(text, "data set on the Hub, where no data_dir is given"),
    "revision": Parameter(text, "branch, tag or commit of that data set"),
    "text_form": Parameter(
        choice(TEXT_FORMS),
        "form of the texts in data_dir: as people write them, tokenized as by Moses, or cut into BPE pieces",
    ),
    "min_length": Parameter(integer(1), "train pairs in which a text has fewer words are left out"),
    "max_length": Parameter(integer(1), "train pairs in which a text has more words are left out"),
}
# the parameters that count for files of one's own
FILE_PARAMETERS = ("text_form", "min_length", "max_length")

CONFIGS = {
    "original": Config(
        "train: the parallel texts of WMT14; validation: newstest2013; test: newstest2014",
        {"dataset": DATASET, "revision": "main", "text_form": "plain", "min_length": 1, "max_length": 80},
    )
}

SOURCE, TARGET = "en", "de"
FOLDER = "de-en"
_STEMS = {"train": ("train",), "validation": ("valid", "validation"), "test": ("test",)}


def pair_examples(paths: tuple[str, ...], split: str, params: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """The examples of two text files, or of a table.

    Raises:
        ValueError: files are damaged or have different numbers of lines, or a pair of validation or test is not whole.
    """
    form, min_length, max_length = (params[name] for name in FILE_PARAMETERS)
    for source, target, place in _texts(paths):
        source, target = source.strip(), target.strip()
        lengths = count_words(source, form), count_words(target, form)
        if split != "train":
            check_pair(source, target, place)
        elif not all(min_length <= length <= max_length for length in lengths):
            continue
        yield {"source": source, "target": target, "length": lengths[0], "target_length": lengths[1]}


def _texts(files: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """The two texts of each pair, and their place for messages."""
    if len(files) == 2:
        yield from _lines(*files)
        return
    for number, row in enumerate(parquet_rows(files[0], ("translation",)), start=1):
        place, found = f"{files[0]}, row {number}", row["translation"]
        texts = [found.get(name) if isinstance(found, dict) else None for name in (SOURCE, TARGET)]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{place}: expected texts in {SOURCE} and {TARGET} of 'translation', got {found!r:.80}")
        yield *texts, place


def _lines(source: str, target: str) -> Iterator[tuple[str, str, str]]:
    try:
        # other line ends than this one are characters of crawled texts
        with (
            open(source, encoding="utf-8", newline="\n") as first,
            open(target, encoding="utf-8", newline="\n") as second,
        ):
            for number, (left, right) in enumerate(zip_longest(first, second), start=1):
                if left is None or right is None:
                    longer, shorter = (source, target) if right is None else (target, source)
                    raise ValueError(f"{longer} has more lines than {shorter}, which ends after {number - 1}")
                yield left, right, f"{source}:{number}"
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}, {target}: expected UTF-8 text ({error})") from error


class WMT14EnglishGerman(Benchmark):
    """The English-German translation task of WMT 2014."""

    parameters = PARAMETERS
    generated = False
    file_configs = tuple(CONFIGS)
    file_parameters = FILE_PARAMETERS
    file_names = "train.en and train.de, valid.en and valid.de, test.en and test.de, or de-en/<split>-*.parquet"
    export_configs = ()
    info = make_info(
        PARAMETERS,
        CONFIGS,
        name="wmt14_en_de",
        title="WMT14 English-German",
        description="Sentences in English and their translations into German: debates of the European Parliament, web "
        "pages and news to train on, news to test on.",
        languages=("en", "de"),
        text_columns=("source", "target"),
        target_column="target",
        slice_columns=("length", "target_length"),
        column_meanings={
            "source": "the text in English, in the form `text_form`",
            "target": "its translation into German",
            "length": "words of the source: what stands between white space once BPE pieces are joined",
            "target_length": "words of the target",
        },
        synthetic=False,
        paper="https://aclanthology.org/W14-3302",
        citation="Ondřej Bojar, Christian Buck, Christian Federmann, Barry Haddow, Philipp Koehn, Johannes Leveling, "
        "Christof Monz, Pavel Pecina, Matt Post, Herve Saint-Amand, Radu Soricut, Lucia Specia and Aleš Tamchyna. "
        "Findings of the 2014 Workshop on Statistical Machine Translation. WMT, 2014.",
        bibtex="""@inproceedings{bojar2014findings,
  title = {Findings of the 2014 Workshop on Statistical Machine Translation},
  author = {Bojar, Ond{\\v{r}}ej and Buck, Christian and Federmann, Christian and Haddow, Barry and Koehn, Philipp and
            Leveling, Johannes and Monz, Christof and Pecina, Pavel and Post, Matt and Saint-Amand, Herve and
            Soricut, Radu and Specia, Lucia and Tamchyna, Ale{\\v{s}}},
  booktitle = {Ninth Workshop on Statistical Machine Translation},
  year = {2014},
  url = {https://aclanthology.org/W14-3302}
}""",
        license="unknown (each corpus has terms of its own: Europarl, Common Crawl, News Commentary, newstest)",
        limits=(
            "The data set on the Hub has News Commentary v9 and plain texts. The paper's training texts have v12, and "
            "are tokenized by Moses with -a: to have these give data_dir.",
            "Plain texts get a byte-level BPE, which spells any text; the paper's BPE merges characters of tokenized "
            "texts.",
            "Lengths are counted in words of the text form: of plain texts they are smaller than of tokenized ones.",
            "Most papers give BLEU of tokenized words with compounds split. It is not comparable with BLEU of plain "
            "texts.",
        ),
    )

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that depend on where the texts are from.

        Raises:
            ValueError: `text_form` is given for the texts of the Hub, which are plain.
        """
        if params["text_form"] != "plain":
            raise ValueError(
                f"text_form={params['text_form']!r}: the texts on the Hub are 'plain'; to read others give data_dir"
            )
        return params

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        return split_tables_folder(params, FOLDER)

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """One shard for two texts, or one for each table.

        Raises:
            ValueError: a text is there without its translation, or no pair can have the lengths that are asked for.
        """
        if params["min_length"] > params["max_length"]:
            raise ValueError(
                f"min_length={params['min_length']}, max_length={params['max_length']}: no pair of texts is between "
                "them"
            )
        files: dict[str, list[tuple[str, ...]]] = {}
        for split, stems in _STEMS.items():
            for stem in stems:
                pair = [folder / f"{stem}.{language}" for language in (SOURCE, TARGET)]
                there = [path for path in pair if path.is_file()]
                if len(there) == 1:
                    (missing,) = set(pair) - set(there)
                    raise ValueError(f"data_dir={str(folder)!r}: {there[0].name} is there, but {missing.name} is not")
                if there and split not in files:
                    files[split] = [tuple(map(str, pair))]
        if not files:
            files = {split: [(path,) for path in paths] for split, paths in split_tables(folder / FOLDER).items()}
        return {
            split: [Shard(pair_examples, (paths, split, params), paths) for paths in parts]
            for split, parts in files.items()
        }

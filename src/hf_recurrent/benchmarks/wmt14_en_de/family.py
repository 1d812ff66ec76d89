"""The facts about WMT14 English-German."""

from types import MappingProxyType

from ..family import Family, family_info
from . import configs, files


def _unchanged(text: str) -> str:
    return text


WMT14_EN_DE = Family(
    info=family_info(
        configs,
        name="wmt14_en_de",
        title="WMT14 English-German",
        description="Sentences in English and their translations into German: debates of the European Parliament, web "
        "pages and news to train on, news to test on.",
        label_names=(),
        text_columns=("source", "target"),
        target_column="target",
        slice_columns=("length", "target_length"),
        column_meanings=MappingProxyType(
            {
                "source": "the text in English, in the form that `text_form` says",
                "target": "its translation into German",
                "length": "words of the source: what stands between white space once BPE pieces are joined",
                "target_length": "words of the target",
            }
        ),
        parse_meaning="",
        vocabulary=(),
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
    ),
    configs=configs,
    splits=None,
    files=files,
    trees=None,
    normalize=_unchanged,
    file_parameters=configs.FILE_PARAMETERS,
    file_configs=tuple(configs.CONFIGS),
    file_names="train.en and train.de, valid.en and valid.de, test.en and test.de, or de-en/<split>-*.parquet",
    export_configs=(),
)

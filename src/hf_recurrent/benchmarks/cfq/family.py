"""The facts about Compositional Freebase Questions."""

from types import MappingProxyType

from ..family import Family, family_info
from . import configs, files


def _unchanged(text: str) -> str:
    return text


CFQ = Family(
    info=family_info(
        configs,
        default_config="mcd1",
        name="cfq",
        title="Compositional Freebase Questions",
        description="Questions in English with their SPARQL queries, divided so that test questions combine what train "
        "questions have in ways that these do not.",
        label_names=(),
        text_columns=("source", "target"),
        target_column="target",
        slice_columns=("num_triples", "length", "target_length"),
        column_meanings=MappingProxyType(
            {
                "source": "the question, entities replaced by M0, M1, ...; words and signs of punctuation are "
                "separated by single spaces",
                "target": "the query, with `_` instead of the dot of `m.`, and without the prefix `ns:` of words; "
                "its triples are grouped where `group_triples` says so",
                "num_triples": "triples of the query before they are grouped, without filters",
                "length": "words of the source",
                "target_length": "words of the target",
            }
        ),
        parse_meaning="",
        vocabulary=(),
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
            "order; `expanded` gives the triples back. Inverse predicates that were replaced stay so.",
            "The validation questions are in the authors' archive only; the data set on the Hub leaves them out.",
            "They have the distribution of the test questions: a model that is chosen by them has seen what it is to "
            "generalize to. The authors of the data advise to choose by a part of train instead.",
            "The source is cut into words. The pre-processing that the queries are from encodes it with the BPE of "
            "GPT-2 instead.",
        ),
    ),
    configs=configs,
    splits=None,
    files=files,
    trees=None,
    normalize=_unchanged,
    file_parameters=configs.FILE_PARAMETERS,
    file_configs=tuple(configs.CONFIGS),
    file_names="dataset.json and splits/<config>.json of the authors' archive, or <config>/<split>-*.parquet",
    export_configs=(),
)

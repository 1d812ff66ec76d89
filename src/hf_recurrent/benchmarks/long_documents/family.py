"""The facts about long documents."""

from types import MappingProxyType

from ..family import Family, family_info
from . import configs, files

# bytes as the byte-level tokenizers of `tokenizers` spell them: those that are printed stand for themselves
_PRINTED = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
_OTHER = [byte for byte in range(256) if byte not in _PRINTED]
BYTES = tuple(chr(byte) if byte in _PRINTED else chr(256 + _OTHER.index(byte)) for byte in range(256))


def _unchanged(text: str) -> str:
    return text


LONG_DOCUMENTS = Family(
    info=family_info(
        configs,
        default_config="python",
        name="long_documents",
        title="Long Documents",
        description="Whole books, papers, repositories and packages, one a row, for language models that carry what "
        "they have read beyond their window.",
        label_names=(),
        text_columns=("text",),
        name_columns=("name", "source"),
        slice_columns=("num_bytes", "num_characters", "num_words"),
        text_type="large_string",
        slice_type="int64",
        column_meanings=MappingProxyType(
            {
                "text": "the whole document, with its line ends as they are; no two documents share a file",
                "name": "the package, module or group of modules, book, paper, repository or file that it is",
                "source": "where it is from: the version of Python, the data set and its commit, or the folder",
                "num_bytes": "bytes of the text in UTF-8",
                "num_characters": "characters (Unicode code points) of the text",
                "num_words": "words of the text: what stands between white space",
            }
        ),
        parse_meaning="",
        vocabulary=BYTES,
        synthetic=False,
        paper="https://arxiv.org/abs/2203.07852",
        citation="DeLesley Hutchins, Imanol Schlag, Yuhuai Wu, Ethan Dyer and Behnam Neyshabur. Block-Recurrent "
        "Transformers. NeurIPS, 2022.",
        bibtex="""@inproceedings{hutchins2022block,
  title = {Block-Recurrent Transformers},
  author = {Hutchins, DeLesley and Schlag, Imanol and Wu, Yuhuai and Dyer, Ethan and Neyshabur, Behnam},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2022},
  url = {https://arxiv.org/abs/2203.07852}
}""",
        license="PSF-2.0 (the texts of config `python`, copyright of the Python Software Foundation; those of other "
        "configs have licences of their own)",
        license_link="https://docs.python.org/3/license.html",
        limits=(
            "The texts of config `python` are those of the interpreter that makes them: another version of Python, or "
            "an installation that leaves modules out, gives others.",
            "Splits are by document, but a package may hold a copy of what is a module elsewhere.",
            "It is not the paper's GitHub corpus, which is not public: one language, one project, 12 MB.",
        ),
    ),
    configs=configs,
    splits=None,
    files=files,
    trees=None,
    normalize=_unchanged,
    file_parameters=configs.FILE_PARAMETERS,
    file_configs=("pg19", "arxiv_math", "github", "folder"),
    export_configs=("python",),
)

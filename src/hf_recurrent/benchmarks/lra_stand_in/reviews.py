"""Texts in two folders, `neg/*.txt` and `pos/*.txt`: reviews, or whatever people have sorted into two kinds.

Both lie in the folder or zip file that is given, or in one folder there. A hash of a text's name decides its split, so
that it stays there when others are added. Bytes that are no UTF-8 are data (`byte_text`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..benchmark import Benchmark, Plan
from ..byte_text import BYTES
from ..files import Archive, Folder, open_files
from ..long_documents.documents import shares, split_of
from ..lra.text import FOLDERS, PATTERN, Reviews, Text, labelled, text_shards
from .common import CONFIGS, NO_ARENA, PARAMETERS, toy_info


def _texts(files: Folder | Archive, data_dir: Path) -> tuple[str, list[Text]]:
    """The folder of the folders, empty or with a slash at its end, and the texts."""
    beside = {name.split("/")[0] for name in files.files if name.split("/")[1:2] in [[folder] for folder in FOLDERS]}
    bases = ["", *(f"{folder}/" for folder in sorted(beside - set(FOLDERS)))]
    found = {base: folders for base in bases if any((folders := labelled(files, base)).values())}
    if len(found) > 1:
        raise ValueError(
            f"data_dir={str(data_dir)!r} has folders {' and '.join(FOLDERS)} in several places "
            f"({', '.join(base or 'itself' for base in found)}): give one of them"
        )
    base, folders = next(iter(found.items())) if found else ("", labelled(files, ""))
    missing = [folder for folder, texts in folders.items() if not texts]
    if missing:
        raise ValueError(
            f"data_dir={str(data_dir)!r} has no {', '.join(f'{folder}/{PATTERN}' for folder in missing)}: expected "
            f"texts in {' and '.join(FOLDERS)}, there or in one folder there"
        )
    return base, [text for texts in folders.values() for text in texts]


class ToyReviews(Benchmark):
    """Texts in two folders, in place of film reviews."""

    generated = False
    export_configs = ()
    parameters = PARAMETERS
    file_configs = ("reviews",)
    file_parameters = tuple(CONFIGS["reviews"].defaults)
    file_names = "pos/*.txt and neg/*.txt"
    info = toy_info(
        title="Toy data for Long Range Arena: reviews",
        description="Texts in two folders, read byte by byte; the label is the folder.",
        label_names=Reviews.info.label_names,
        text_columns=Reviews.info.text_columns,
        slice_columns=Reviews.info.slice_columns,
        column_meanings={
            **Reviews.info.column_meanings,
            "text": "the text as it is in its file, cut to `max_bytes`; a byte b that is no part of UTF-8 text "
            "stands there as U+10FF00 + b",
            "full_length": "bytes of the whole file",
        },
        vocabulary=BYTES,
        modality="bytes",
        paper=Reviews.info.paper,
        citation=Reviews.info.citation,
        bibtex=Reviews.info.bibtex,
        license="other (that of the texts that are given)",
        limits=(NO_ARENA,),
    )

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        """Raises ValueError with the files to give: there is no other source."""
        raise ValueError(
            f"config {config_name!r} reads your own texts: give data_dir, a folder or zip file with "
            f"{' and '.join(f'{folder}/{PATTERN}' for folder in FOLDERS)}"
        )

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """The shards of every split that has a share.

        Raises:
            ValueError: a folder is missing, or a split gets no texts.
        """
        splits: dict[str, list[Text]] = {split: [] for split in shares(params)}
        with open_files(folder) as files:
            base, texts = _texts(files, folder)
        for text in texts:
            splits[split_of(text[0].removeprefix(base), params)].append(text)
        for split, members in splits.items():
            if not members:
                raise ValueError(
                    f"data_dir={str(folder)!r}: none of {len(texts)} texts falls into the {split} split "
                    f"(seed={params['seed']}, validation_share={params['validation_share']}, "
                    f"test_share={params['test_share']}): give another seed or other shares (0 for no such split)"
                )
        return {split: text_shards(folder, members, params["max_bytes"]) for split, members in splits.items()}

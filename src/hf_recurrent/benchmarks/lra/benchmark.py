"""Long Range Arena: a benchmark for each of its tasks."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..benchmark import Plan
from ..listops.benchmark import FILES, ListOps
from .common import PARAMETERS, WINDOWS, find, task_info
from .image import Photographs
from .pathfinder.benchmark import Pathfinder
from .retrieval import Retrieval
from .text import Reviews

_LISTOPS_FOLDERS = ("listops-1000",)


class LongListOps(ListOps):
    """The config `lra` of ListOps, whose files are read wherever the release has them."""

    parameters = PARAMETERS
    file_configs = ("listops",)
    file_parameters = ()
    file_names = "basic_{train,val,test}.tsv"
    info = task_info(
        "listops",
        parse_meaning=ListOps.info.parse_meaning,
        title="Long Range Arena: ListOps",
        description="Nested lists of MIN, MAX, MED, SM (sum modulo 10) over digits, of 501 to 1999 tokens; the label "
        "is the value.",
        **{
            name: getattr(ListOps.info, name)
            for name in ("label_names", "text_columns", "slice_columns", "column_meanings", "vocabulary")
        },
        limits=(
            "The authors draw a set of trees and divide it in the order of a Python set, with no seed: their split "
            "cannot be made again. Here each split is drawn by itself, from the same distribution.",
            "The first operator alone allows 36% of the answers to be guessed.",
        ),
    )

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """One shard per split. Raises ValueError where files are missing; all of them are named."""
        return super().plan_files("lra", params, find(folder, _LISTOPS_FOLDERS, tuple(FILES["lra"].values())))


class LongRangeArena(LongListOps):
    """Long lists, texts, pairs of texts, photographs and drawings (Tay et al., 2021)."""

    info = replace(
        LongListOps.info,
        description="Five tasks whose inputs are long: nested lists, film reviews and pairs of papers as bytes, "
        "photographs and drawings as pixels.",
    )
    members = MappingProxyType(
        {
            "listops": LongListOps(),
            "text": Reviews(),
            "retrieval": Retrieval(),
            "image": Photographs(),
            **{config: Pathfinder(config) for config in WINDOWS},
        }
    )

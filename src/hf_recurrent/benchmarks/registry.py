"""The one table of benchmark families: what they are, what they take, how their rows are made."""

from collections.abc import Mapping
from types import MappingProxyType

from .cfq.family import CFQ
from .compositional_table_lookup.family import COMPOSITIONAL_TABLE_LOOKUP
from .family import Family
from .flip_flop.family import FLIP_FLOP
from .info import BenchmarkInfo
from .listops.family import LISTOPS
from .listops_depth.family import LISTOPS_DEPTH
from .logical_inference.family import LOGICAL_INFERENCE
from .logical_inference_translation.family import LOGICAL_INFERENCE_TRANSLATION
from .long_documents.family import LONG_DOCUMENTS
from .lra.family import LRA
from .lra_stand_in.family import LRA_STAND_IN
from .parameters import unknown
from .simple_arithmetic.family import SIMPLE_ARITHMETIC
from .wmt14_en_de.family import WMT14_EN_DE

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.info.name: family
        for family in (
            LISTOPS,
            LOGICAL_INFERENCE,
            FLIP_FLOP,
            COMPOSITIONAL_TABLE_LOOKUP,
            SIMPLE_ARITHMETIC,
            LISTOPS_DEPTH,
            LONG_DOCUMENTS,
            LOGICAL_INFERENCE_TRANSLATION,
            CFQ,
            WMT14_EN_DE,
            LRA,
            LRA_STAND_IN,
        )
    }
)


def get_family(name: str, config_name: str | None = None) -> Family:
    if name not in FAMILIES:
        raise unknown("benchmark", name, FAMILIES)
    return FAMILIES[name].member(config_name)


def list_benchmarks() -> list[str]:
    """The names that `load_benchmark` knows."""
    return list(FAMILIES)


def benchmark_info(name: str, config_name: str | None = None) -> BenchmarkInfo:
    """What a benchmark is: its configs, labels, columns, words, parameters and paper.

    `config_name` matters where these differ by config, as in `lra`; None: those of the default config.
    """
    return get_family(name, config_name).info

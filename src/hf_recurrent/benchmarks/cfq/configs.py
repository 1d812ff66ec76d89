"""The configs of Compositional Freebase Questions and their parameters.

- `mcd1`, `mcd2`, `mcd3`: train and test have much the same atoms (entities, predicates, rules) and, as far as that
  allows, different compounds of them: maximum compound divergence.
- `random_split`: the same questions divided at random.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..parameters import Parameter, boolean, text

CONFIGS = {
    "mcd1": "maximum compound divergence, first division: 95,743 train, 11,968 validation, 11,968 test questions",
    "mcd2": "the same, second division",
    "mcd3": "the same, third division",
    "random_split": "the same sizes, but for one question, divided at random",
}
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
# those that have a meaning for files of one's own
FILE_PARAMETERS = ("group_triples", "normalize_inverses")


def _defaults(normalize_inverses: bool) -> Mapping[str, Any]:
    return MappingProxyType(
        {"dataset": DATASET, "revision": "main", "group_triples": True, "normalize_inverses": normalize_inverses}
    )


# as in the pre-processing that the paper took over: inverses are a bias of the second and third division
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {config: _defaults(config in ("mcd2", "mcd3")) for config in CONFIGS}
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """No parameter depends on another here."""
    return params

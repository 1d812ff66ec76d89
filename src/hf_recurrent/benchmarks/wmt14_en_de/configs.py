"""The config of WMT14 English-German and its parameters."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..parameters import Parameter, choice, integer, text
from .words import TEXT_FORMS

CONFIGS = {"original": "train: the parallel texts of WMT14; validation: newstest2013; test: newstest2014"}
DATASET = "wmt/wmt14"

PARAMETERS = {
    "dataset": Parameter(text, "data set on the Hub, where no data_dir is given"),
    "revision": Parameter(text, "branch, tag or commit of that data set"),
    "text_form": Parameter(
        choice(TEXT_FORMS),
        "what the texts in data_dir are: as people write them, tokenized as by Moses, or cut into BPE pieces",
    ),
    "min_length": Parameter(integer(1), "train pairs in which a text has fewer words are left out"),
    "max_length": Parameter(integer(1), "train pairs in which a text has more words are left out"),
}
# those that have a meaning for files of one's own
FILE_PARAMETERS = ("text_form", "min_length", "max_length")

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "original": MappingProxyType(
            {"dataset": DATASET, "revision": "main", "text_form": "plain", "min_length": 1, "max_length": 80}
        )
    }
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks that depend on where the texts are from.

    Raises:
        ValueError: the texts of the Hub are said to be in another form than they are.
    """
    if params["text_form"] != "plain":
        raise ValueError(
            f"text_form={params['text_form']!r}: the texts on the Hub are 'plain'; to read others give data_dir"
        )
    return params

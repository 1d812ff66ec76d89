"""What "Sparse Universal Transformer" (arXiv 2310.07096) reports, to be shown beside our results.

Tables 1, 2, 4 and 5, as printed: tokenised BLEU with compounds split on newstest2014, and exact match (in Table 4 means
and deviations of five runs). The paper's appendix is not available, so that the widths and the training of Tables 4 and
5 are not known.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class SparseRow(NamedTuple):
    """A row of a table of "Sparse Universal Transformer".

    `sizes` are the fields of the model's config that the paper tells. `bleu` is on newstest2014, `accuracy` maps
    configurations of the benchmark to mean and deviation of exact match (None if not told) on the test split, and
    `slices` slice columns to accuracy by bucket there.
    """

    benchmark: str
    sizes: Mapping[str, Any]
    bleu: float | None = None
    accuracy: Mapping[str, tuple[float, float | None]] = {}
    slices: Mapping[str, Mapping[str, float]] = {}


_FOUR = {"attention_experts_per_token": 4, "feed_forward_experts_per_token": 4}
_BASE = {"attention_experts": 24, "feed_forward_experts": 24, "num_attention_heads": 4, "hidden_size": 512, **_FOUR}
_BIG = {**_BASE, "attention_experts": 48, "feed_forward_experts": 48}
_DENSE = {"attention_experts": 1, "feed_forward_experts": 1, "hidden_size": 512, "halting": "token"}
_LOGIC = {"attention_experts": 12, "feed_forward_experts": 12, "num_attention_heads": 2, "head_dim": 32, **_FOUR}
_QUESTIONS = {"attention_experts": 1, "num_attention_heads": 8, "head_dim": 64, "intermediate_size": 1024}
_TRANSLATION = "wmt14_en_de"


def _questions(sizes: Mapping[str, Any], *cells: tuple[float, float]) -> SparseRow:
    configs = ("mcd1", "mcd2", "mcd3")
    return SparseRow("cfq", {**_QUESTIONS, **sizes}, accuracy=dict(zip(configs, cells, strict=True)))


SPARSE_UNIVERSAL_TABLES = {
    1: {
        "UT base + SB halting": SparseRow(_TRANSLATION, _DENSE, 29.3),
        "SUT base": SparseRow(_TRANSLATION, _BASE, 29.2),
        "UT big + SB halting": SparseRow(_TRANSLATION, _DENSE, 29.6),
        "SUT big": SparseRow(_TRANSLATION, _BIG, 29.4),
    },
    2: {
        "- MIM loss": SparseRow(_TRANSLATION, {**_BASE, "router_loss": "switch"}, 28.9),
        "- MoMHA": SparseRow(_TRANSLATION, {"num_attention_heads": 1, "hidden_size": 512}, 28.7),
        "- ACT loss": SparseRow(_TRANSLATION, {**_BASE, "ponder_loss_weight": 0.0}, 29.0),
        "- halting": SparseRow(_TRANSLATION, {**_BASE, "halting": "none"}, 29.1),
    },
    4: {
        "T5-based UT (ours)": _questions(
            {"relative_positions": "t5", "layer_norm": "pre"}, (0.683, 0.029), (0.431, 0.015), (0.457, 0.018)
        ),
        "UT w/o halting": _questions({"halting": "none"}, (0.710, 0.035), (0.486, 0.023), (0.513, 0.002)),
        "UT with halting": _questions({"halting": "token"}, (0.724, 0.035), (0.511, 0.018), (0.517, 0.023)),
    },
    5: {
        "SUT": SparseRow(
            "logical_inference_translation",
            {**_LOGIC, "intermediate_size": 128, "num_hidden_layers": 12, "relative_window": 1, "halting": "token"},
            accuracy={"split_a": (0.97, None), "split_b": (0.94, None), "split_c": (0.52, None)},
            slices={"num_operators": {"7": 0.98, "8": 0.97, "9": 0.94, "10": 0.90, "11": 0.88, "12": 0.81}},
        ),
    },
}

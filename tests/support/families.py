"""One row per family and variant, as tiny models whose halting is live: units stop at every kind of depth."""

import copy
import functools
from dataclasses import dataclass, field

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import hf_recurrent  # noqa: F401  registers the families

STEPS = 6
VOCAB_SIZE = 24
LABELS = 3
TINY = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "num_hidden_layers": STEPS,
    "num_labels": LABELS,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "initializer_range": 1.0,
}
HALTING = {"halting_threshold": 0.95, "halting_bias_init": -1.0}
# a decision closer to its threshold than this could fall either way by rounding
DECISION_MARGIN = 1e-4


@dataclass(frozen=True)
class Variant:
    name: str
    family: str
    fields: dict = field(default_factory=dict, hash=False)

    @property
    def siamese(self) -> bool:
        return self.fields.get("pair_encoding") == "siamese"

    @property
    def halting(self) -> str:
        if self.family == "xpos_transformer":
            return "none"
        return self.fields.get("halting", "token" if self.family == "ut" else "global")

    @property
    def halts(self) -> bool:
        return self.halting != "none"


SIAMESE = {"pair_encoding": "siamese"}
VARIANTS = (
    Variant("xpos_transformer", "xpos_transformer"),
    Variant("ut", "ut"),
    Variant("ut_global", "ut", {"halting": "global", "pooling": "cls"}),
    Variant("gut", "gut"),
    Variant("gut_token", "gut", {"halting": "token"}),
    Variant("gut_no_gate", "gut", {"feed_forward": "plain"}),
    Variant("gut_no_transition", "gut", {"transition_aware": False}),
    Variant("gut_upper_bound", "gut", {"hard_stop": False}),
    Variant("gut_no_halt", "gut", {"halting": "none"}),
    Variant("gut_length_cap", "gut", {"cap_depth_by_length": True, "pooling": "mean"}),
    Variant("xpos_transformer_siamese", "xpos_transformer", SIAMESE),
    Variant("ut_siamese", "ut", SIAMESE),
    Variant("gut_siamese", "gut", SIAMESE),
)
BY_NAME = {variant.name: variant for variant in VARIANTS}
HALTING_VARIANTS = tuple(variant for variant in VARIANTS if variant.halts)


def make_config(variant: Variant, **changes):
    halting = HALTING if variant.halts else {}
    return AutoConfig.for_model(variant.family, **{**TINY, **halting, **variant.fields, **changes})


def make_batch(variant: Variant, rows: int = 10, length: int = 9, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rows of different lengths, padded on the right with other tokens' ids, which must not matter."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, length + 1, (rows, 1), generator=generator)
    lengths[0] = length
    mask = (torch.arange(length) < lengths).long()
    batch = {
        "input_ids": torch.randint(4, VOCAB_SIZE, (rows, length), generator=generator),
        "attention_mask": mask,
        "labels": torch.arange(rows) % LABELS,
    }
    if variant.siamese:
        batch["token_type_ids"] = (torch.arange(length) >= (lengths + 1) // 2).long() * mask
    return batch


def is_live(model, batch: dict[str, torch.Tensor]) -> bool:
    """Whether units accept no step, all steps and several numbers between, and no decision is a near tie."""
    with torch.no_grad():
        output = model(**batch, output_halting=True)
    depths = set(output.ponder_steps[output.ponder_steps >= 0].tolist())
    if not {0, STEPS} < depths or len(depths) < 4:
        return False
    if model.config.cap_depth_by_length and not bool(
        (output.ponder_steps == batch["attention_mask"].sum(-1) + 1).any()
    ):
        return False
    remaining = (1.0 - output.halting_probabilities).cumprod(-1)
    decided = output.halting_probabilities > 0
    return bool(((remaining - (1.0 - model.config.halting_threshold)).abs()[decided] > DECISION_MARGIN).all())


@functools.cache
def _prototype(variant: Variant):
    for seed in range(200):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(make_config(variant)).eval()
        if not variant.halts:
            return model
        torch.nn.init.normal_(model.model.halting_head.down_proj.weight, std=3.0)
        if is_live(model, make_batch(variant)):
            return model
    raise AssertionError(f"no seed makes {variant.name} halt at different depths")


def make_model(variant: Variant, **changes):
    """A classifier in evaluation mode; `changes` are config fields that leave its weights as they are."""
    model = copy.deepcopy(_prototype(variant))
    for name, value in changes.items():
        setattr(model.config, name, value)
    return model

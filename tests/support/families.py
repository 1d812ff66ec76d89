"""One row per family and variant, as tiny models whose halting is live: units stop at every kind of depth."""

import copy
import functools
from dataclasses import dataclass, field

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

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
# a row of nine tokens is read in three chunks, the last one shorter
CHUNKS = {"chunk_size": 4, "num_chunks": 3, "num_memory_slots": 3, "num_memory_layers": 2}
# fields that make one chunk of any row
ONE_CHUNK = {"chunk_size": 99, "num_chunks": 1}
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
        by_default = {"xpos_transformer": "none", "tlb": "none", "ndr": "none", "rnn": "none", "ut": "token"}
        return self.fields.get("halting", by_default.get(self.family, "global"))

    @property
    def act(self) -> bool:
        """Whether tokens halt by adaptive computation time, which has no step 0 to stop at."""
        return self.halting.startswith("act")

    @property
    def token_units(self) -> bool:
        return self.halting == "token" or self.act

    @property
    def fixed_layers(self) -> bool:
        return self.family in ("xpos_transformer", "tlb", "rnn")

    @property
    def attends(self) -> bool:
        return self.family != "rnn"

    @property
    def records_reads(self) -> bool:
        """Whether `output_attentions` is accepted: a DNC has none, but tells what it reads of its memory."""
        return self.attends or self.fields.get("cell") == "dnc"

    @property
    def chunked(self) -> bool:
        return self.family in ("tlb", "gutlb")

    @property
    def constant_cache(self) -> bool:
        """Whether what is kept of a row does not grow with it, so that a row can begin anew."""
        return self.chunked or self.family == "rnn"

    @property
    def one_length_graphs(self) -> bool:
        """Whether a traced graph has as many chunks, or unrolled steps, as the rows it was traced with."""
        return self.chunked or not self.attends

    @property
    def chunking(self) -> str | None:
        return self.fields.get("chunking", "fixed") if self.chunked else None

    @property
    def gated(self) -> bool:
        if self.family == "ndr":
            return self.fields.get("copy_gate", True)
        return self.family in ("gut", "gutlb") and self.fields.get("feed_forward") != "plain"

    @property
    def implementations(self) -> tuple[str, ...]:
        """Of attention, those that run here, the default first."""
        special = self.family == "ndr" and self.fields.get("attention") != "absolute"
        return ("eager",) if special or not self.attends else ("sdpa", "eager")

    @property
    def halts(self) -> bool:
        return self.halting != "none"


SIAMESE = {"pair_encoding": "siamese"}
ACT = {"halting": "act", "copy_gate": False}
RNN = {"embedding_size": 32}
DNC = RNN | {"cell": "dnc", "num_memory_cells": 5, "memory_cell_size": 8, "num_read_heads": 2}
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
    Variant("tlb", "tlb"),
    Variant("tlb_balanced", "tlb", {"chunking": "balanced", "pooling": "last"}),
    Variant("gutlb", "gutlb"),
    Variant("gutlb_token", "gutlb", {"halting": "token", "pooling": "last"}),
    Variant("gutlb_count", "gutlb", {"chunking": "count", "transition_aware": False}),
    Variant("gutlb_siamese", "gutlb", SIAMESE),
    Variant("ndr", "ndr"),
    Variant("ndr_relative", "ndr", {"attention": "relative", "pooling": "cls"}),
    Variant("ndr_absolute_relative", "ndr", {"attention": "absolute_relative", "pooling": "mean"}),
    Variant("ndr_act", "ndr", ACT | {"attention": "absolute"}),
    Variant("ndr_act_universal", "ndr", ACT | {"halting": "act_universal", "normalize_attention": True}),
    Variant("ndr_siamese", "ndr", ACT | SIAMESE | {"attention": "relative"}),
    Variant("rnn_lstm", "rnn", RNN),
    Variant("rnn_bilstm", "rnn", RNN | {"cell": "bilstm"}),
    Variant("rnn_dnc", "rnn", DNC),
    Variant("rnn_siamese", "rnn", RNN | SIAMESE | {"cell": "bilstm"}),
)
MLP, TIED = {"lm_head": "mlp"}, {"tie_word_embeddings": True}
# causal language models
LANGUAGE_VARIANTS = (
    Variant("xpos_transformer", "xpos_transformer"),
    Variant("ut", "ut", MLP),
    Variant("gut", "gut"),
    Variant("gut_token", "gut", {"halting": "token", **TIED}),
    Variant("gut_no_transition", "gut", {"transition_aware": False}),
    Variant("gut_no_gate", "gut", {"feed_forward": "plain"}),
    Variant("gut_no_halt", "gut", {"halting": "none"}),
    Variant("gut_halted_candidates", "gut", {"halted_candidates": True}),
    Variant("tlb", "tlb", MLP | TIED),
    Variant("tlb_count", "tlb", {"chunking": "count"}),
    Variant("gutlb", "gutlb"),
    Variant("gutlb_token", "gutlb", {"halting": "token", "transition_aware": False, **TIED}),
    Variant("gutlb_no_halt", "gutlb", {"halting": "none"}),
    Variant("ndr", "ndr"),
    Variant("ndr_absolute_relative", "ndr", {"attention": "absolute_relative", "pooling": "mean"}),
    Variant("ndr_act", "ndr", ACT | {"attention": "absolute", **TIED}),
    Variant("ndr_act_universal", "ndr", ACT | {"halting": "act_universal", "attention": "relative"}),
    Variant("rnn_lstm", "rnn", RNN),
    Variant("rnn_dnc", "rnn", DNC | TIED),
)
BY_NAME = {variant.name: variant for variant in VARIANTS}
LANGUAGE_BY_NAME = {variant.name: variant for variant in LANGUAGE_VARIANTS}
HALTING_VARIANTS = tuple(variant for variant in VARIANTS if variant.halts)
# those that can be read in pieces
CACHED_VARIANTS = tuple(variant for variant in LANGUAGE_VARIANTS if variant.chunking != "count")


def make_config(variant: Variant, **changes):
    halting = HALTING if variant.halts else {}
    further = {"chunks": CHUNKS, "ndr": {"gate_dropout": 0.0, "position_dropout": 0.0}}
    further = further.get("chunks" if variant.chunked else variant.family, {})
    return AutoConfig.for_model(variant.family, **{**TINY, **halting, **further, **variant.fields, **changes})


def chunk_numbers(variant: Variant, mask: torch.Tensor) -> torch.Tensor:
    """Which chunk each token of (B, S) belongs to, -1 at padding."""
    lengths, width = mask.sum(-1, keepdim=True), mask.shape[1]
    size = {
        "fixed": CHUNKS["chunk_size"],
        "count": -(-lengths // CHUNKS["num_chunks"]),
        "balanced": -(-width // -(-width // CHUNKS["chunk_size"])),
    }[variant.chunking]
    return torch.where(mask.bool(), (mask.cumsum(-1) - 1) // size, -1)


def per_token(variant: Variant, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """What a classifier says of rows, their chunks or their tokens, for each token: (...) -> (B, S)."""
    if variant.token_units:
        return values
    if not variant.chunked:
        return values[:, None].expand_as(mask)
    return torch.where(mask.bool(), values.gather(1, chunk_numbers(variant, mask).clamp_min(0)), -1)


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
    config = model.config
    act = config.halting.startswith("act")
    if not {int(act), STEPS} < depths or len(depths) < 4:
        return False
    if getattr(config, "cap_depth_by_length", False) and not bool(
        (output.ponder_steps == batch["attention_mask"].sum(-1) + 1).any()
    ):
        return False
    probabilities = output.halting_probabilities
    mass = probabilities.cumsum(-1) if act else 1.0 - (1.0 - probabilities).cumprod(-1)
    return bool(((mass - config.halting_threshold).abs()[probabilities > 0] > DECISION_MARGIN).all())


def enliven(model) -> None:
    """Spread out what starts alike: halting probabilities, memory slots, and what six LSTMs make of tokens."""
    head = getattr(model.model, "halting_head", None)
    if head is not None:
        last, spread = (head.proj, 0.5) if hasattr(head, "proj") else (head.down_proj, 3.0)
        torch.nn.init.normal_(last.weight, std=spread)
    if hasattr(model.model, "memory"):
        torch.nn.init.normal_(model.model.memory.weight)
    if model.config.model_type == "rnn":
        for name, parameter in model.model.named_parameters():
            if name.startswith("layers."):
                parameter.data.mul_(3.0)


def leaves_early(model, variant: Variant, batch: dict[str, torch.Tensor]) -> bool:
    """Whether a model that reads chunks also halts at several depths where each row is one chunk."""
    if not variant.chunked:
        return True
    whole = copy.deepcopy(model)
    for name, value in ONE_CHUNK.items():
        setattr(whole.config, name, value)
    with torch.no_grad():
        steps = whole(**batch).ponder_steps
    return len(set(steps[steps >= 0].tolist())) > 3


@functools.cache
def _prototype(variant: Variant, auto_class: type):
    classifies = auto_class is AutoModelForSequenceClassification
    batch = make_batch(variant) if classifies else make_text(variant)
    for seed in range(200):
        torch.manual_seed(seed)
        model = auto_class.from_config(make_config(variant)).eval()
        enliven(model)
        if not classifies:
            # rows must not end while they are generated
            model.generation_config.eos_token_id = None
            # states of an LSTM are small as they are
            if variant.attends and model.config.lm_head == "linear" and not model.config.tie_word_embeddings:
                model.lm_head.weight.data.mul_(0.05)
        if not variant.halts or (is_live(model, batch) and (not classifies or leaves_early(model, variant, batch))):
            return model
    raise AssertionError(f"no seed makes {variant.name} halt at different depths")


def make_model(variant: Variant, auto_class: type = AutoModelForSequenceClassification, **changes):
    """A classifier in evaluation mode; `changes` are config fields that leave its weights as they are."""
    model = copy.deepcopy(_prototype(variant, auto_class))
    for name, value in changes.items():
        setattr(model.config, name, value)
    return model


def make_language_model(variant: Variant, **changes):
    return make_model(variant, AutoModelForCausalLM, **changes)


def make_text(variant: Variant, length: int = 14, seed: int = 0) -> dict[str, torch.Tensor]:
    """Four rows of different lengths, padded on the left with other tokens' ids, and labels for some tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([[length], [length - 4], [3], [length // 2]])
    mask = (torch.arange(length) >= length - lengths).long()
    ids = torch.randint(4, VOCAB_SIZE, mask.shape, generator=generator)
    unlabelled = (mask == 0) | (torch.rand(mask.shape, generator=generator) < 0.2)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(unlabelled, -100)}

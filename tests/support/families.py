"""Tiny models of every architecture and variant, whose halting is live: units stop at every kind of depth."""

import copy
import functools
from collections import OrderedDict
from dataclasses import dataclass, field

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

import hf_recurrent  # noqa: F401  registers the architectures
from hf_recurrent.models.depth import layouts

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
# the papers', which variants have unless their fields say otherwise
PAPERS_HALTING = {"gut": "global", "gutlb": "global", "ut": "token", "sut": "token", "ouro_recurrent": "token"}
# a row of nine tokens is read in three chunks, the last one shorter
CHUNKS = {"chunk_size": 4, "num_chunks": 3, "num_memory_slots": 3, "num_memory_layers": 2}
# fields that make one chunk of any row
ONE_CHUNK = {"chunk_size": 99, "num_chunks": 1}
# the same row ends one token into its third block; position biases have a bucket for each distance, and one for none
BLOCKS = {
    "window_size": CHUNKS["chunk_size"],
    "num_state_vectors": 3,
    "relative_attention_num_buckets": 4,
    "relative_attention_max_distance": 4,
}
# without losses that a batch makes as a whole, so that rows can be compared one by one; those have their own tests
EXPERTS = {
    "head_dim": 16,
    "attention_experts": 4,
    "attention_experts_per_token": 2,
    "feed_forward_experts": 4,
    "feed_forward_experts_per_token": 2,
    "relative_window": 3,
    "scale_embeddings": False,
    "activation_dropout": 0.0,
    "router_dropout": 0.0,
    "router_loss": "none",
    "ponder_loss_weight": 0.1,
}
# whose linear maps start with the deviation of its embeddings
ALBERT = {
    "embedding_size": 32,
    "classifier_dropout": 0.0,
    "initializer_range": 0.2,
    "boundary_initializer_range": 1.0,
}
# no two successive states of its blocks differ in scale, so that its gate decides
OURO = {
    "layers_per_step": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,
    "boundary_initializer_range": 1.0,
    "skipped_steps": "last",
    "depth_objective": "mixture",
    "ponder_loss_weight": 0.1,
}
# from the same states whenever it is called
HUGINN = {
    "layers_per_step": 2,
    "prelude_layers": 1,
    "coda_layers": 1,
    "initial_state": "zero",
    "initializer_range": 0.2,
    "boundary_initializer_range": 1.0,
    "skipped_steps": "last",
    "depth_sampling": "fixed",
    "backprop_steps": None,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


def papers_halting(architecture: str) -> dict:
    """The field of the halting of an architecture's paper, if it has any."""
    return {"halting": PAPERS_HALTING[architecture]} if architecture in PAPERS_HALTING else {}


@dataclass(frozen=True)
class Variant:
    """A tiny model, and the facts that tests must know of it.

    Attributes:
        name: what tests and their ids call it.
        architecture: transformers' `model_type`.
        fields: config fields that differ from the tests' defaults.
        core: whether `make test` runs what is tested for every variant on it, too. The others show the same of
            further combinations of options, in `make test-all`.
    """

    name: str
    architecture: str
    fields: dict = field(default_factory=dict, hash=False)
    core: bool = False

    @property
    def siamese(self) -> bool:
        return self.fields.get("pair_encoding") == "siamese"

    @property
    def typed(self) -> bool:
        """Whether models embed the types of tokens."""
        return self.fields.get("type_vocab_size", 0) > 0

    @property
    def halting(self) -> str:
        return self.fields.get("halting", PAPERS_HALTING.get(self.architecture, "none"))

    @property
    def act(self) -> bool:
        """Whether tokens halt by adaptive computation time."""
        return self.halting.startswith("act")

    @property
    def first_stop(self) -> int:
        """The fewest steps that a unit can stop at: some halt by what a step made of them."""
        expected = self.fields.get("depth_objective") == "expected"
        return int(self.act or self.routed or self.stacked or expected)

    @property
    def stacked(self) -> bool:
        """Whether a depth step is a stack of layers over tokens that see those before them alone."""
        return self.architecture in ("ouro_recurrent", "huginn_recurrent")

    @property
    def layers_per_step(self) -> int:
        return OURO["layers_per_step"] if self.stacked else 1

    @property
    def always_causal(self) -> bool:
        return self.stacked or self.windowed

    @property
    def routed(self) -> bool:
        """Whether tokens are sent to experts, and ask with the heads of several."""
        return self.architecture == "sut"

    @property
    def experts_per_token(self) -> int:
        """Whose heads a token asks with; 0 where there are none."""
        return self.fields.get("attention_experts_per_token", EXPERTS["attention_experts_per_token"]) * self.routed

    @property
    def token_units(self) -> bool:
        return self.halting == "token" or self.act

    @property
    def fixed_layers(self) -> bool:
        return self.architecture in ("xpos_transformer", "tlb", "rnn", "block_recurrent")

    @property
    def attends(self) -> bool:
        return self.architecture != "rnn"

    @property
    def records_reads(self) -> bool:
        """Whether `output_attentions` is accepted: a DNC has none, but tells what it reads of its memory."""
        return self.attends or self.fields.get("cell") == "dnc"

    @property
    def chunked(self) -> bool:
        return self.architecture in ("tlb", "gutlb")

    @property
    def windowed(self) -> bool:
        """Whether a token attends to the places of the window before it, and blocks begin wherever sequences do."""
        return self.architecture == "block_recurrent"

    @property
    def maps_rows(self) -> bool:
        """Whether attention is a map from the tokens of a sequence to one another."""
        return self.attends and not self.windowed

    @property
    def state_vectors(self) -> bool:
        """Whether state vectors are carried from block to block."""
        return self.windowed and self.fields.get("recurrent_layers") != []

    @property
    def constant_cache(self) -> bool:
        """Whether the cache of a sequence does not grow with it, so that a new document can begin in its place."""
        return self.chunked or self.windowed or self.architecture == "rnn"

    @property
    def one_length_graphs(self) -> bool:
        """Whether a traced graph has as many chunks, blocks or unrolled steps as the sequences it was traced with."""
        return self.chunked or self.windowed or not self.attends

    @property
    def chunking(self) -> str | None:
        return self.fields.get("chunking", "fixed") if self.chunked else None

    @property
    def gated(self) -> bool:
        """Whether gates weigh each token's next state against the last."""
        if self.architecture == "ndr":
            return self.fields.get("copy_gate", True)
        return self.architecture in ("gut", "gutlb") and self.fields.get("feed_forward") != "plain"

    @property
    def implementations(self) -> tuple[str, ...]:
        """Of attention, those that run here, the default first."""
        special = self.architecture == "ndr" and self.fields.get("attention") != "absolute"
        return ("eager",) if special or not self.attends else ("sdpa", "eager")

    @property
    def flash_attention(self) -> bool:
        """Whether its scores are such as FlashAttention-2 takes: without learned position biases."""
        return "sdpa" in self.implementations and not self.windowed and not self.routed

    @property
    def halts(self) -> bool:
        return self.halting != "none"


SIAMESE = {"pair_encoding": "siamese"}
# embeddings of tokens and types together are as large as those of tokens in other variants
TYPES = {"type_vocab_size": 2, "initializer_range": 0.7}
ACT = {"halting": "act", "copy_gate": False}
RNN = {"embedding_size": 32}
FEEDBACK = {"feedback": True, "state_gate": "lstm"}
DNC = RNN | {"cell": "dnc", "num_memory_cells": 5, "memory_cell_size": 8, "num_read_heads": 2}
ONE_EXPERT = {f"{kind}_experts{each}": 1 for kind in ("attention", "feed_forward") for each in ("", "_per_token")}
# the T5-based Universal Transformer of the SUT paper
DENSE = ONE_EXPERT | {"layer_norm": "pre", "relative_positions": "t5", "halting": "none"}
VARIANTS = (
    Variant("xpos_transformer", "xpos_transformer", core=True),
    Variant("ut", "ut", core=True),
    Variant("ut_global", "ut", {"halting": "global", "pooling": "cls"}),
    Variant("gut", "gut", core=True),
    Variant("gut_token", "gut", {"halting": "token"}),
    Variant("gut_no_gate", "gut", {"feed_forward": "plain"}),
    Variant("gut_no_transition", "gut", {"transition_aware": False}),
    Variant("gut_upper_bound", "gut", {"hard_stop": False}),
    Variant("gut_no_halt", "gut", {"halting": "none"}),
    Variant("gut_length_cap", "gut", {"cap_depth_by_length": True, "pooling": "mean"}),
    Variant("gut_every_step", "gut", {"depth_objective": "every_step", "halting": "none"}),
    Variant("xpos_transformer_siamese", "xpos_transformer", SIAMESE),
    Variant("ut_siamese", "ut", SIAMESE),
    Variant("gut_siamese", "gut", SIAMESE, core=True),
    Variant("gut_types", "gut", TYPES),
    Variant("tlb", "tlb", core=True),
    Variant("tlb_balanced", "tlb", {"chunking": "balanced", "pooling": "last"}),
    Variant("gutlb", "gutlb", core=True),
    Variant("gutlb_token", "gutlb", {"halting": "token", "pooling": "last"}),
    Variant("gutlb_count", "gutlb", {"chunking": "count", "transition_aware": False}),
    Variant("gutlb_siamese", "gutlb", SIAMESE),
    Variant("gutlb_types", "gutlb", TYPES),
    Variant("ndr", "ndr", core=True),
    Variant("ndr_relative", "ndr", {"attention": "relative", "pooling": "cls"}),
    Variant("ndr_absolute_relative", "ndr", {"attention": "absolute_relative", "pooling": "mean"}),
    Variant("ndr_act", "ndr", ACT | {"attention": "absolute"}),
    Variant("ndr_act_universal", "ndr", ACT | {"halting": "act_universal", "normalize_attention": True}),
    Variant("ndr_siamese", "ndr", ACT | SIAMESE | {"attention": "relative"}),
    Variant("rnn_lstm", "rnn", RNN, core=True),
    Variant("rnn_bilstm", "rnn", RNN | {"cell": "bilstm"}),
    Variant("rnn_dnc", "rnn", DNC),
    Variant("rnn_types", "rnn", TYPES | RNN),
    Variant("block_recurrent", "block_recurrent", core=True),
    Variant("block_recurrent_feedback", "block_recurrent", FEEDBACK | SIAMESE | {"state_update": "single"}),
    Variant("sut", "sut", core=True),
    Variant("sut_siamese", "sut", SIAMESE | {"relative_positions": "none", "pooling": "end"}),
    Variant("sut_dense", "sut", DENSE),
    Variant("sut_types", "sut", TYPES),
    Variant("albert_recurrent", "albert_recurrent", {"type_vocab_size": 2}, core=True),
    Variant("ouro_recurrent", "ouro_recurrent"),
    Variant("huginn_recurrent", "huginn_recurrent"),
)
# those that answer from the state in which they stop, instead of from a mixture of states
EXPECTED = {"depth_objective": "expected"}
MLP, TIED = {"lm_head": "mlp"}, {"tie_word_embeddings": True}
# causal language models
LANGUAGE_VARIANTS = (
    Variant("xpos_transformer", "xpos_transformer", core=True),
    Variant("ut", "ut", MLP, core=True),
    Variant("gut", "gut", core=True),
    Variant("gut_token", "gut", {"halting": "token", **TIED}),
    Variant("gut_types", "gut", TYPES | TIED),
    Variant("gut_no_transition", "gut", {"transition_aware": False}),
    Variant("gut_no_gate", "gut", {"feed_forward": "plain"}),
    Variant("gut_no_halt", "gut", {"halting": "none"}),
    Variant("gut_halted_candidates", "gut", {"halted_candidates": True}),
    Variant("tlb", "tlb", MLP | TIED, core=True),
    Variant("tlb_count", "tlb", {"chunking": "count"}),
    Variant("gutlb", "gutlb", core=True),
    Variant("gutlb_token", "gutlb", {"halting": "token", "transition_aware": False, **TIED}),
    Variant("gutlb_no_halt", "gutlb", {"halting": "none"}),
    Variant("ndr", "ndr", core=True),
    Variant("ndr_act", "ndr", ACT | {"attention": "absolute", **TIED}),
    Variant("ndr_act_universal", "ndr", ACT | {"halting": "act_universal", "attention": "relative"}),
    Variant("rnn_lstm", "rnn", RNN, core=True),
    Variant("rnn_dnc", "rnn", DNC | TIED),
    Variant("block_recurrent", "block_recurrent", core=True),
    Variant(
        "block_recurrent_feedback",
        "block_recurrent",
        FEEDBACK | {"state_update": "dual", "recurrent_layers": [1, 4], "tie_word_embeddings": False},
    ),
    Variant("block_recurrent_types", "block_recurrent", TYPES),
    Variant("sut", "sut", core=True),
    Variant("ouro_recurrent", "ouro_recurrent", core=True),
    Variant("ouro_computed", "ouro_recurrent", TIED | {"skipped_steps": "computed", "depth_objective": "expected"}),
    Variant("huginn_recurrent", "huginn_recurrent", core=True),
    Variant("gut_expected", "gut", EXPECTED),
    Variant("gutlb_expected", "gutlb", EXPECTED),
)
EXPECTED_VARIANTS = (
    Variant("gut_expected", "gut", EXPECTED, core=True),
    Variant("ut_expected", "ut", EXPECTED),
    Variant("ndr_expected", "ndr", EXPECTED | {"halting": "act"}),
    Variant("sut_expected", "sut", EXPECTED),
)
BY_NAME = {variant.name: variant for variant in (*VARIANTS, *EXPECTED_VARIANTS)}
LANGUAGE_BY_NAME = {variant.name: variant for variant in LANGUAGE_VARIANTS}
HALTING_VARIANTS = tuple(variant for variant in VARIANTS if variant.halts)
# those that can be read in pieces
CACHED_VARIANTS = tuple(variant for variant in LANGUAGE_VARIANTS if variant.chunking != "count")


# models this small would not be worth packing, but are to show what large ones do
USUAL_PRODUCTS_TO_PACK = layouts.MIN_PRODUCTS_TO_PACK
layouts.MIN_PRODUCTS_TO_PACK = 0
USUAL_PRODUCTS_ON_ACCELERATOR = layouts.MIN_PRODUCTS_ON_ACCELERATOR
layouts.MIN_PRODUCTS_ON_ACCELERATOR = 0


def tiered(variants: tuple[Variant, ...]) -> list:
    """Parameters of a test: those of variants outside the core are marked slow."""
    return [
        pytest.param(variant, id=variant.name, marks=() if variant.core else pytest.mark.slow) for variant in variants
    ]


def slow(*values):
    """A parameter of a test that `make test` leaves to `make test-all`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def nightly(*values):
    """A parameter of a test that only `make nightly` has."""
    return pytest.param(*values, marks=pytest.mark.nightly)


# a decision closer to its threshold than this could fall either way by rounding
DECISION_MARGIN = 1e-4


def make_config(variant: Variant, **changes):
    halting = HALTING if variant.halts else {}
    if variant.architecture in (*PAPERS_HALTING, "albert_recurrent"):
        halting = {**halting, "halting": variant.halting, "depth_objective": "mixture"}
    without_dropout = {"gate_dropout": 0.0, "position_dropout": 0.0}
    further = {
        "tlb": CHUNKS,
        "gutlb": CHUNKS,
        "ndr": without_dropout,
        "block_recurrent": BLOCKS,
        "sut": EXPERTS,
        "albert_recurrent": ALBERT,
        "ouro_recurrent": OURO,
        "huginn_recurrent": HUGINN,
    }.get(variant.architecture, {})
    return AutoConfig.for_model(variant.architecture, **{**TINY, **halting, **further, **variant.fields, **changes})


def chunk_numbers(variant: Variant, mask: torch.Tensor) -> torch.Tensor:
    """Which chunk, or block, each token of (B, S) belongs to, -1 at padding."""
    lengths, width = mask.sum(-1, keepdim=True), mask.shape[1]
    size = {
        "fixed": CHUNKS["chunk_size"],
        "count": -(-lengths // CHUNKS["num_chunks"]),
        "balanced": -(-width // -(-width // CHUNKS["chunk_size"])),
    }[variant.chunking or "fixed"]
    return torch.where(mask.bool(), (mask.cumsum(-1) - 1) // size, -1)


def window_places(mask: torch.Tensor) -> torch.Tensor:
    """Which of the 2W places of the block before and its own each token of (B, S) sees: (B, S, 2W) bool."""
    size = BLOCKS["window_size"]
    place = ((mask.cumsum(-1) - 1) % size)[..., None]
    column = torch.arange(2 * size)
    return (column >= place) & (column < place + size) & mask.bool()[..., None]


def per_token(variant: Variant, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Outputs of a classifier for sequences, their chunks or their tokens, for each token: (...) -> (B, S)."""
    if variant.token_units:
        return values
    if not variant.chunked:
        return values[:, None].expand_as(mask)
    return torch.where(mask.bool(), values.gather(1, chunk_numbers(variant, mask).clamp_min(0)), -1)


def make_batch(variant: Variant, rows: int = 10, length: int = 9, seed: int = 0) -> dict[str, torch.Tensor]:
    """Sequences of different lengths, padded on the right with other tokens' ids, which must not matter."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, length + 1, (rows, 1), generator=generator)
    lengths[0] = length
    mask = (torch.arange(length) < lengths).long()
    batch = {
        "input_ids": torch.randint(4, VOCAB_SIZE, (rows, length), generator=generator),
        "attention_mask": mask,
        "labels": torch.arange(rows) % LABELS,
    }
    if variant.siamese or variant.typed:
        batch["token_type_ids"] = (torch.arange(length) >= (lengths + 1) // 2).long() * mask
    return batch


def is_live(model, variant: Variant, batch: dict[str, torch.Tensor]) -> bool:
    """Whether units accept few, all and several numbers of steps between, and no decision is a near tie."""
    with torch.no_grad():
        output = model(**batch, output_halting=True)
    depths = set(output.ponder_steps[output.ponder_steps >= 0].tolist())
    config = model.config
    if not {variant.first_stop, STEPS} < depths or len(depths) < 4:
        return False
    if getattr(config, "cap_depth_by_length", False) and not bool(
        (output.ponder_steps == batch["attention_mask"].sum(-1) + 1).any()
    ):
        return False
    probabilities = output.halting_probabilities
    mass = probabilities.cumsum(-1) if variant.act else 1.0 - (1.0 - probabilities).cumprod(-1)
    return bool(((mass - config.halting_threshold).abs()[probabilities > 0] > DECISION_MARGIN).all())


def enliven(model) -> None:
    """Spread out what starts alike: halting, memory slots, what LSTMs and experts make of tokens, routing, scales."""
    head = getattr(model.model, "halting_head", None)
    if head is not None:
        last, spread = (head.proj, 0.5) if hasattr(head, "proj") else (head.down_proj, 3.0)
        torch.nn.init.normal_(last.weight, std=spread)
    memory = getattr(model.model, "memory", None)
    if isinstance(memory, torch.nn.Module):
        torch.nn.init.normal_(memory.weight)
    for name, parameter in model.model.named_parameters():
        if name.endswith(("scales.weight", "share.weight")):
            torch.nn.init.uniform_(parameter, -4.0, 4.0)
    if model.config.model_type == "sut":
        factors = {"_proj": 8.0, "map.weight": 6.0, "router.output.weight": 4.0}
        for name, parameter in model.model.named_parameters():
            if name.endswith("position_bias.table.weight"):
                torch.nn.init.normal_(parameter)
            parameter.data.mul_(next((factor for end, factor in factors.items() if name.endswith(end)), 1.0))
    if model.config.model_type == "rnn":
        for name, parameter in model.model.named_parameters():
            if name.startswith("layers."):
                parameter.data.mul_(3.0)


def leaves_early(model, variant: Variant, batch: dict[str, torch.Tensor]) -> bool:
    """Whether a model that reads chunks also halts at several depths where each sequence is one chunk."""
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
        if not variant.halts or (
            is_live(model, variant, batch) and (not classifies or leaves_early(model, variant, batch))
        ):
            return model
    raise AssertionError(f"no seed makes {variant.name} halt at different depths")


def copy_model(model: torch.nn.Module) -> torch.nn.Module:
    """What `copy.deepcopy` gives, which spends half of its time on the tables of hooks that a module has."""
    tables = (table for module in model.modules() for table in vars(module).values() if type(table) is OrderedDict)
    return copy.deepcopy(model, {id(table): OrderedDict() for table in tables if not table})


def make_model(variant: Variant, auto_class: type = AutoModelForSequenceClassification, **changes):
    """A classifier in evaluation mode; `changes` are config fields that leave its weights as they are."""
    model = copy_model(_prototype(variant, auto_class))
    for name, value in changes.items():
        setattr(model.config, name, value)
    return model


def make_language_model(variant: Variant, **changes):
    return make_model(variant, AutoModelForCausalLM, **changes)


def make_text(variant: Variant, length: int = 14, seed: int = 0) -> dict[str, torch.Tensor]:
    """Four sequences of different lengths, padded on the left with other tokens' ids, and labels for some tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([[length], [length - 4], [3], [length // 2]])
    mask = (torch.arange(length) >= length - lengths).long()
    ids = torch.randint(4, VOCAB_SIZE, mask.shape, generator=generator)
    unlabelled = (mask == 0) | (torch.rand(mask.shape, generator=generator) < 0.2)
    text = {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(unlabelled, -100)}
    if variant.typed:
        text["token_type_ids"] = (torch.arange(length) >= length - lengths // 2).long()
    return text

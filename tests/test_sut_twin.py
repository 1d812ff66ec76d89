"""Sparse Universal Transformers against their naive twin: outputs, losses and gradients in double precision."""

import functools

import pytest
import torch

from hf_recurrent.models.sut import experts
from reference.sut import Stack, auxiliary_losses, cross_entropy
from support.families import slow
from support.sut_models import CLASSES, KINDS, make_rows, make_sut, padded

pytestmark = pytest.mark.architecture("sut")

TOLERANCE = 1e-9
SOURCES, TARGETS = make_rows([5, 1, 3]), make_rows([2, 4, 1], seed=1)
LABELS = [2, 0, 1]


def mean(values):
    return sum(values) / len(values)


def shown(rows, prefix: str = "") -> dict[str, torch.Tensor]:
    """Outputs of a stack for its tokens, one sequence after the other."""
    halts = {
        f"{prefix}ponder_steps": torch.tensor([steps for row in rows for steps in row.steps]),
        f"{prefix}ponder_cost": torch.stack([mean(row.costs) for row in rows]),
        f"{prefix}halting_probabilities": torch.cat([row.probabilities for row in rows]),
    }
    names = ["attention", *["cross_attention"] * (len(rows[0].experts) == 3), "feed_forward"]
    experts = torch.cat([row.experts for row in rows], dim=1)
    return halts | {f"{prefix}{name}_experts": ids for name, ids in zip(names, experts, strict=True)}


def classify(model, options):
    stack = Stack(model.model)
    rows = [stack.read(ids, **options) for ids in SOURCES]
    weights = model.classifier
    logits = [weights.weight @ row.states[-1] + weights.bias for row in rows]
    task = mean([cross_entropy(*pair) for pair in zip(logits, LABELS, strict=True)])
    aux = auxiliary_losses(model.config, [stack], mean([mean(row.costs) for row in rows]), len(rows))
    return {"logits": torch.stack(logits), "loss": task, **aux, **shown(rows)}


def predict(model, options):
    stack = Stack(model.model)
    rows = [stack.read(ids, **options) for ids in SOURCES]
    logits = [row.states @ model.lm_head.weight.T for row in rows]
    targets = [(scores, ids[1:]) for scores, ids in zip(logits, SOURCES, strict=True)]
    terms = [cross_entropy(scores[place], label) for scores, ids in targets for place, label in enumerate(ids)]
    aux = auxiliary_losses(model.config, [stack], mean([mean(row.costs) for row in rows]), len(terms))
    return {"logits": torch.cat(logits), "loss": mean(terms), **aux, **shown(rows)}


def translate(model, options):
    config, base = model.config, model.model
    encoder, decoder = Stack(base, "encoder."), Stack(base, "decoder.")
    sources = [encoder.read(ids, **options) for ids in SOURCES]
    targets = [
        decoder.read([config.eos_token_id, *ids[:-1]], row.states.unbind(), **options)
        for ids, row in zip(TARGETS, sources, strict=True)
    ]
    logits = torch.cat([row.states @ model.lm_head.weight.T for row in targets])
    labels = [label for ids in TARGETS for label in ids]
    terms = [cross_entropy(*pair, config.label_smoothing) for pair in zip(logits, labels, strict=True)]
    # of each stack the mean over all tokens of the batch
    ponder = sum(mean([cost for row in rows for cost in row.costs]) for rows in (sources, targets))
    aux = auxiliary_losses(config, [encoder, decoder], ponder, len(terms))
    found = {
        "logits": logits,
        "loss": mean(terms),
        **aux,
        **shown(targets),
        **shown(sources, "encoder_"),
    }
    return found | {"encoder_last_hidden_state": torch.cat([row.states for row in sources])}


TWINS = {"classifier": classify, "language_model": predict, "both": translate}
# both stacks are of every kind; a single one is an encoder of half of them and a decoder of the others
PAIRS = [("both", kind) for kind in KINDS]
PAIRS += [slow("classifier", kind) for kind in ("plain", "pre_released", "one_expert")]
PAIRS += [slow("language_model", kind) for kind in ("t5", "released", "never_halts")]


def gradients(model, loss) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


@functools.cache
def expected(head: str, kind: str, **options) -> dict[str, torch.Tensor]:
    model = make_sut(kind, CLASSES[head])
    values = TWINS[head](model, options)
    values |= {
        f"gradient of {name}": value for name, value in gradients(model, values["loss"] + values["aux_loss"]).items()
    }
    values = {name: torch.as_tensor(value).detach() for name, value in values.items()}
    if model.config.halting == "none":
        values = {name: value for name, value in values.items() if "cost" not in name and "probabilities" not in name}
    return values


def make_batch(head: str, sides: str) -> dict[str, torch.Tensor]:
    ids, mask = padded(SOURCES, sides)
    batch = {"input_ids": ids, "attention_mask": mask}
    if head == "classifier":
        return batch | {"labels": torch.tensor(LABELS)}
    if head == "language_model":
        return batch | {"labels": ids.masked_fill(mask == 0, -100)}
    # a tokenizer's collator pads targets on the right
    ids, mask = padded(TARGETS)
    return batch | {"labels": ids.masked_fill(mask == 0, -100)}


def computed(head: str, model, sides: str, **options) -> dict[str, torch.Tensor]:
    """The same of the model, of tokens only."""
    batch = make_batch(head, sides)
    output = model(**batch, output_halting=True, output_experts=True, **options)
    source = batch["attention_mask"].bool()
    target = batch["labels"] != -100 if head == "both" else source
    values = {}
    for name, value in output.items():
        if name.endswith(("hidden_states", "attentions")) or name == "past_key_values":
            continue
        mask = source if name.startswith("encoder") else target
        values[name] = value[mask] if value.dim() > 1 and value.shape[:2] == mask.shape else value
        if name.endswith("ponder_steps"):
            assert (value[~mask] == -1).all()
    # in training the loss is the sum that is minimised, in evaluation the task's
    total = output.loss if model.training else output.loss + output.aux_loss
    values["loss"] = total - output.aux_loss
    grads = gradients(model, total)
    return values | {f"gradient of {name}": value for name, value in grads.items()}


def assert_same(actual: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], tolerance: float = TOLERANCE) -> None:
    assert actual.keys() == wanted.keys()
    for name, value in actual.items():
        scale = max(1.0, wanted[name].abs().max().item())
        difference = (value.double() - wanted[name].double()).abs().max().item()
        assert value.shape == wanted[name].shape, name
        assert difference <= tolerance * scale, (name, difference)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize(("head", "kind"), PAIRS)
def test_it_is_its_naive_twin(head, kind, monkeypatch):
    """Wherever padding stands; compacted or not; recorded or not; recomputed or not; all experts at once or in turn."""
    monkeypatch.setattr(experts, "MAX_SPARE_PRODUCTS", -1)
    model = make_sut(kind, CLASSES[head])
    wanted = expected(head, kind)
    assert model.config.halting == "none" or len(wanted["ponder_steps"].unique()) > 1
    assert_same(computed(head, model, "r"), wanted)
    assert_same(computed(head, model, "l", output_hidden_states=True), wanted)
    assert_same(computed(head, set_fields(model, compaction=False), "lr"), wanted)
    monkeypatch.undo()
    assert_same(computed(head, set_fields(model, hard_stop=False), "rl"), wanted)
    model.set_experts_implementation("batched_mm")
    model.train().gradient_checkpointing_enable()
    assert_same(computed(head, set_fields(model, compaction=True, hard_stop=True), "rl"), wanted)


def set_fields(model, **fields):
    """Of both stacks too, whose configs are copies."""
    for module in model.modules():
        for name, value in fields.items():
            if hasattr(module, "config"):
                setattr(module.config, name, value)
    return model


@pytest.mark.parametrize("options", [{"max_depth": 2}, {"max_depth": 4, "threshold": 0.95}, {"threshold": 0.2}])
def test_depth_of_a_call(options):
    model = make_sut("plain", CLASSES["both"])
    named = {{"threshold": "halting_threshold"}.get(name, name): value for name, value in options.items()}
    assert_same(computed("both", model, "rl", **named), expected("both", "plain", **options))


@pytest.mark.parametrize("spare", [-1, 1 << 30], ids=["sorted", "all experts"])
@pytest.mark.parametrize("implementation", ["grouped_mm", "eager", "batched_mm"])
def test_experts_in_single_precision(implementation, spare, monkeypatch):
    monkeypatch.setattr(experts, "MAX_SPARE_PRODUCTS", spare)
    model = make_sut("plain", CLASSES["both"]).float()
    model.set_experts_implementation(implementation)
    assert model.model.decoder.config._experts_implementation == implementation
    values = computed("both", model, "l")
    assert values["logits"].dtype is torch.float32
    assert_same(values, expected("both", "plain"), tolerance=2e-5)


def test_eager_attention_is_sdpa():
    """Within what a softmax in float32 can tell."""
    model = make_sut("plain", CLASSES["both"])
    model.set_attn_implementation("eager")
    wanted = expected("both", "plain")
    assert_same(computed("both", model, "lr", output_attentions=True), wanted, tolerance=2e-6)

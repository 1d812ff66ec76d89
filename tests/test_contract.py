"""Requirements of transformers on every architecture: saving, loading, Auto classes, configs, outputs, precisions."""

import copy
import json

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.depth.layouts import masked_mean
from hf_recurrent.models.sut.routing import Router
from support.compare import assert_close, assert_finite_gradients, assert_same, comparable, compute, gradients
from support.families import BY_NAME, STEPS, VOCAB_SIZE, make_batch, make_config, make_model


def load(folder, auto_class=AutoModelForSequenceClassification, **options):
    model, info = auto_class.from_pretrained(folder, output_loading_info=True, **options)
    return model, {name: problems for name, problems in info.items() if problems}


@pytest.mark.parametrize("max_shard_size", ["1GB", "10KB"])
def test_saved_model_computes_the_same(model, variant, batch, tmp_path, max_shard_size):
    model.save_pretrained(tmp_path, max_shard_size=max_shard_size)
    loaded, problems = load(tmp_path)
    assert problems == {}
    assert type(loaded) is type(model)
    assert not loaded.training
    assert_close(compute(loaded, variant, batch), compute(model, variant, batch))


def test_state_is_parameters_only(model):
    assert list(model.buffers()) == []
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()


def last_layer(classifier):
    return getattr(classifier, "output", classifier)


def test_base_and_head_load_each_other(model, batch, tmp_path):
    model.save_pretrained(tmp_path / "head")
    base, problems = load(tmp_path / "head", AutoModel)
    assert set(problems) <= {"unexpected_keys"}
    assert all(name.startswith("classifier.") for name in problems["unexpected_keys"])
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    with torch.no_grad():
        expected = model.model(**inputs)
        assert_close(base(**inputs).last_hidden_state, expected.last_hidden_state)

    base.save_pretrained(tmp_path / "base")
    head, problems = load(tmp_path / "base")
    assert set(problems) == {"missing_keys"}
    assert all(name.startswith("classifier.") for name in problems["missing_keys"])
    with torch.no_grad():
        assert_close(head.model(**inputs).last_hidden_state, expected.last_hidden_state)
    output = last_layer(head.classifier)
    assert 0 < output.weight.abs().max() <= output.in_features**-0.5


def test_missing_halting_head_starts_as_in_training(tmp_path):
    make_model(BY_NAME["gut_no_halt"]).save_pretrained(tmp_path)
    model, problems = load(tmp_path, halting="global", halting_bias_init=-3.0)
    assert set(problems) == {"missing_keys"}
    assert model.model.halting_head.down_proj.bias.item() == -3.0
    assert model.model.halting_head.down_proj.weight.abs().max() <= 32**-0.5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_auto_classes_know_the_architecture(architecture):
    config = AutoConfig.for_model(architecture, num_labels=2, hidden_size=32, num_attention_heads=2)
    assert type(config) is ARCHITECTURES[architecture].config_class
    heads = {
        AutoModel: "Model",
        AutoModelForSequenceClassification: "ForSequenceClassification",
        AutoModelForCausalLM: "ForCausalLM",
        AutoModelForTokenClassification: "ForTokenClassification",
        AutoModelForMaskedLM: "ForMaskedLM",
        AutoModelForQuestionAnswering: "ForQuestionAnswering",
        AutoModelForMultipleChoice: "ForMultipleChoice",
    }
    for auto_class, head in heads.items():
        if auto_class is AutoModelForCausalLM and architecture == "albert_recurrent":
            with pytest.raises(ValueError, match="AutoModelForCausalLM has no model for albert_recurrent"):
                auto_class.from_config(config)
            continue
        if auto_class is AutoModelForMaskedLM and architecture in (
            "rnn",
            "block_recurrent",
            "ouro_recurrent",
            "huginn_recurrent",
        ):
            # an LSTM, and what is always causal
            message = "from both sides" if architecture == "rnn" else "AutoModelForMaskedLM has no model for"
            with pytest.raises(ValueError, match=message):
                auto_class.from_config(config)
            continue
        model = auto_class.from_config(config)
        assert type(model) is ARCHITECTURES[architecture].model_class(auto_class.__name__)
        assert type(model).__name__ == ARCHITECTURES[architecture].prefix + head
        assert type(model).config_class is type(config)


def test_initialisation_is_finite_and_seeded(variant):
    models = []
    for _ in range(2):
        torch.manual_seed(7)
        models.append(AutoModelForSequenceClassification.from_config(make_config(variant)))
    for name, parameter in models[0].named_parameters():
        assert parameter.isfinite().all(), name
        assert torch.equal(parameter, models[1].get_parameter(name)), name
    table = models[0].get_input_embeddings().weight
    assert table[models[0].config.bos_token_id].std() > 0.5


def test_config_round_trip(variant, tmp_path):
    config = make_config(variant)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is type(config)
    assert loaded.to_diff_dict() == config.to_diff_dict()
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["model_type"] == variant.architecture
    assert all(stored[name] == value for name, value in variant.fields.items())


def test_copies_are_independent(model, variant, batch):
    expected = compute(model, variant, batch)
    twin = copy.deepcopy(model)
    torch.nn.init.zeros_(last_layer(twin.classifier).weight)
    assert_close(compute(model, variant, batch), expected)


@pytest.mark.parametrize("training", [False, True])
def test_forward_stores_nothing_on_modules(model, batch, training):
    model.train(training)

    def contents():
        return {
            name: {
                key: value if isinstance(value, (int, float, str)) else id(value) for key, value in vars(module).items()
            }
            for name, module in model.named_modules()
        }

    before = contents()
    model(**batch, output_halting=True)
    assert contents() == before


def test_tuple_output_is_the_same_values(model, batch):
    with torch.no_grad():
        expected = model(**batch, output_halting=True).to_tuple()
        values = model(**batch, output_halting=True, return_dict=False)
    assert isinstance(values, tuple)
    assert_close(values, expected)


def test_outputs_without_labels_have_a_row_each(model, batch):
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    with torch.no_grad():
        output = model(**inputs, output_halting=True)
    assert output.loss is None
    assert output.aux_loss is None
    assert all(value.shape[0] == len(batch["labels"]) for value in output.values())


def test_embeddings_instead_of_ids(model, variant, batch):
    embedded = {name: value for name, value in batch.items() if name != "input_ids"}
    embedded["inputs_embeds"] = model.get_input_embeddings()(batch["input_ids"]).detach()
    assert_same(compute(model, variant, embedded), compute(model, variant, batch))


def test_resized_vocabulary(model, variant, batch, tmp_path):
    expected = compute(model, variant, batch)
    model.resize_token_embeddings(VOCAB_SIZE + 3)
    assert model.config.vocab_size == VOCAB_SIZE + 3
    assert_close(compute(model, variant, batch), expected)
    batch["input_ids"][0, 0] = VOCAB_SIZE + 2
    model.save_pretrained(tmp_path)
    loaded, problems = load(tmp_path)
    assert problems == {}
    assert_close(compute(loaded, variant, batch), compute(model, variant, batch))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 0.15), pytest.param(torch.float16, 0.03, marks=pytest.mark.slow)]
)
def test_half_precision_is_near(model, variant, batch, tmp_path, monkeypatch, dtype, tolerance):
    model.save_pretrained(tmp_path)
    half, problems = load(tmp_path, dtype=dtype)
    assert problems == {}
    assert half.get_input_embeddings().weight.dtype is dtype
    if variant.halts:
        assert {parameter.dtype for parameter in half.model.halting_head.parameters()} == {torch.float32}
        assert half(**batch).logits.isfinite().all()
        # at this threshold nothing halts, so that rounding cannot move a unit by a whole step
        halt_nothing(model, variant)
        halt_nothing(half, variant)
    # nor send a token to another expert
    experts, choose = [], Router.choose
    monkeypatch.setattr(Router, "choose", lambda *inputs: experts.append(choose(*inputs)) or experts[-1])
    expected = compute(model, variant, batch)
    monkeypatch.setattr(Router, "choose", lambda *_: experts.pop(0))
    actual = compute(half, variant, batch)
    monkeypatch.undo()
    assert experts == []
    assert actual["logits"].dtype is dtype
    scale = expected["logits"].abs().max()
    assert ((actual["logits"] - expected["logits"]).abs().max() / scale).item() < tolerance
    assert all(gradient.isfinite().all() for gradient in gradients(half.train(), batch).values())


def test_means_of_large_half_precision_states_are_finite():
    states, mask = torch.full((2, 5_000, 4), 16.0, dtype=torch.float16), torch.ones(2, 5_000, dtype=torch.bool)
    mask[1, 3:] = False
    assert torch.equal(masked_mean(states, mask), torch.full((2, 4), 16.0, dtype=torch.float16))
    assert torch.equal(masked_mean(states, torch.zeros_like(mask)), torch.zeros(2, 4, dtype=torch.float16))
    with torch.autocast("cpu", torch.float16):
        assert_close(masked_mean(states.float(), mask).float(), torch.full((2, 4), 16.0), 1e-3)


def test_means_of_doubles_are_as_precise():
    states = torch.rand(2, 7, 4, dtype=torch.float64)
    assert_close(masked_mean(states, torch.ones(2, 7, dtype=torch.bool)), states.mean(1), 1e-12)


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification"])
def test_training_records_what_labels_are(kind):
    variant = BY_NAME["gut"]
    model, batch = make_model(variant), make_batch(variant)
    if kind.startswith("multi"):
        batch["labels"] = torch.zeros(len(batch["input_ids"]), model.config.num_labels)
    model.config.problem_type = None
    model.eval()(**batch)
    assert model.config.problem_type is None
    model.train()(**batch)
    assert model.config.problem_type == kind


def test_no_cache_may_be_asked_of_heads_without_one():
    variant = BY_NAME["gut"]
    model, batch = make_model(variant), make_batch(variant)
    assert torch.equal(model(**batch, use_cache=False).logits, model(**batch).logits)
    with pytest.raises(TypeError, match="use_cache"):
        model(**batch, use_cache=True)


def test_trainer_knows_whose_labels_it_has_to_shift():
    for architecture in ARCHITECTURES.values():
        name = architecture.heads.get("AutoModelForCausalLM")
        found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(architecture.model_type)
        assert found == (None if name is None else architecture.model_class("AutoModelForCausalLM").__name__)


def test_trainer_knows_it_of_derived_classes():
    """FSDP2 derives one, too."""
    derived = type("Derived", (ARCHITECTURES["gut"].model_class("AutoModelForCausalLM"),), {})
    assert derived.__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


def halt_nothing(model, variant):
    if variant.halts:
        model.config.halting_threshold = 1.0
    if variant.act:
        # probabilities add up, so that they pass any threshold unless they are small
        torch.nn.init.constant_(model.model.halting_head.proj.bias, -9.0)
        torch.nn.init.zeros_(model.model.halting_head.proj.weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_near(model, variant, batch, dtype):
    halt_nothing(model, variant)
    expected = compute(model, variant, batch)
    with torch.autocast("cpu", dtype):
        actual = compute(model, variant, batch)
        loss = model(**batch).loss
    loss.backward()
    scale = expected["logits"].abs().max()
    assert ((actual["logits"] - expected["logits"]).abs().max() / scale).item() < 0.15
    assert_finite_gradients(model)


def test_double_precision_is_near(variant, batch):
    model = make_model(variant)
    double = make_model(variant).double()
    actual = {
        name: value.float() if value.is_floating_point() else value
        for name, value in compute(double, variant, batch).items()
    }
    assert double(**batch).logits.dtype is torch.float64
    assert_same(actual, compute(model, variant, batch), tolerance=1e-4)


def test_training_moves_every_parameter(variant):
    """No parameter is left out of the gradient once anything halts later than at once."""
    model = make_model(variant)
    unused = {name for name, gradient in gradients(model, make_batch(variant)).items() if not gradient.any()}
    # an embedding row of padding is all zeros, the table is not; a router has nothing to say about a single expert
    alone = variant.experts_per_token == 1
    assert unused == {name for name, _ in model.named_parameters() if alone and "router." in name}


def test_comparable_covers_what_halting_returns(model, variant, batch):
    names = comparable(model(**batch, output_halting=True), variant, batch["attention_mask"].bool()).keys()
    assert ("ponder_steps" in names) == variant.halts
    if variant.halting == "none" and not variant.fixed_layers:
        steps = model(**batch).ponder_steps
        assert (steps[steps >= 0] == STEPS).all()

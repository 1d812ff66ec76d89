"""Huginn's recorded cases, reproduced; stopped tokens in every layout; and checkpoints, there and back."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file

from hf_recurrent import HuginnRecurrentConfig, HuginnRecurrentForCausalLM, from_pretrained_recurrent
from hf_recurrent.convert import save_original
from hf_recurrent.convert.huginn import HUGINN, OWN_FORM
from hf_recurrent.models.depth.exit_criteria import relative_change
from hf_recurrent.models.ops.exit_probe import ExitProbe
from parity import huginn
from parity.reference import load_reference
from support.compare import assert_close
from support.families import LANGUAGE_BY_NAME, make_language_model, make_text, slow
from support.golden import TOLERANCE, assert_reproduced, load_case
from support.stacks import assert_same_in_every_layout

pytestmark = pytest.mark.architecture("huginn_recurrent")

CASES = Path(__file__).parent / "parity" / "pretrained" / "huginn"
NAMES = sorted(path.parent.name for path in CASES.glob("*/case.json"))
# those of two layers in the core take less time
CORE = ("explicit_positions", "left_pad", "untied_adapter_bias")
VARIANT = LANGUAGE_BY_NAME["huginn_recurrent"]
CRITERIA = {
    "convergence": {"exit_threshold": 0.5},
    "agreement": {"exit_threshold": 0.05},
    "stability": {"exit_patience": 1},
    "confidence": {"exit_threshold": 0.35},
    "probe": {"exit_threshold": 0.5},
}
SMALL = {"hidden_size": 32, "num_attention_heads": 2, "layers_per_step": 2, "vocab_size": 8, "num_hidden_layers": 3}


@pytest.mark.parametrize("name", [name if name in CORE else slow(name) for name in NAMES])
def test_case_is_reproduced(name):
    io, gradients = load_case(CASES / name)
    case = json.loads((CASES / name / "case.json").read_text())
    mask = io["attention_mask"].bool()

    def select(key: str, values: torch.Tensor) -> torch.Tensor:
        return values[mask] if key.startswith("unpadded_logits") else values

    reference = load_reference(CASES / name)
    # in float64, because steps amplify what float32 rounds, on some processors more than on others
    reference.model.double()
    inputs = {key: values.double() if values.is_floating_point() else values for key, values in io.items()}
    found = reference.run(inputs, gradients=True)
    found = {key: values.to(io[key].dtype) if key in io else values for key, values in found.items()}
    assert_reproduced(found, io, case["outputs"], gradients, select)


def test_padding_is_not_attended_to():
    """As it is by the authors' code, which never reads the mask."""
    io, _ = load_case(CASES / "left_pad")
    model, mask = load_reference(CASES / "left_pad").model, io["attention_mask"].bool()
    with torch.no_grad():
        found = model(io["input_ids"], io["attention_mask"], initial_states=io["input_states"]).logits
    assert_close(found[mask], io["unpadded_logits.8"][mask], tolerance=TOLERANCE)
    assert (io["logits.8"] - io["unpadded_logits.8"])[mask].abs().max() > 1


@pytest.fixture(params=["computed", "last"])
def skipped_steps(request) -> str:
    return request.param


def telling_model(**fields) -> HuginnRecurrentForCausalLM:
    """A model by which each criterion stops tokens at different steps."""
    model = make_language_model(VARIANT, exit_probe_size=4, **fields)
    model.exit_probe = ExitProbe(model.config.hidden_size, 4)
    # predictions that differ from step to step
    model.lm_head.weight.data.mul_(20.0)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if name.endswith("qk_bias.weight") or name.startswith("exit_probe."):
            torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("criterion", CRITERIA)
def test_stopped_tokens_are_the_same_in_every_layout(criterion, skipped_steps):
    """In batches with padding as alone, with and without compaction, refilled, with records, and read in pieces."""
    model = telling_model(skipped_steps=skipped_steps)
    for field, value in ({"exit_criterion": criterion} | CRITERIA[criterion]).items():
        setattr(model.config, field, value)
    text = {key: value for key, value in make_text(VARIANT).items() if key != "labels"}
    assert_same_in_every_layout(model, text, TOLERANCE)


def test_tokens_that_stop_are_read_as_one_by_one(monkeypatch):
    """Whole batches with `skipped_steps="last"` are the authors' loop over tokens with lookups `latest-m4`."""
    io, _ = load_case(CASES / "hub_layout")
    model, threshold = load_reference(CASES / "hub_layout").model, 0.9
    monkeypatch.setitem(huginn.ON_STATES, "convergence", lambda before, after: relative_change(before, after).mean())
    model.config.skipped_steps = "last"
    ids, states = io["input_ids"], io["input_states"]
    model.to(states.dtype)
    with torch.no_grad():
        found = model(ids, initial_states=states, exit_criterion="convergence", exit_threshold=threshold)
        assert len(found.ponder_steps.unique()) > 2
        for row in range(len(ids)):
            loop = huginn.AdaptiveLoop(model, "latest-m4")
            pairs = zip(ids[row].split(1), states[row].split(1), strict=True)
            read = [loop.read(*pair, "convergence", threshold) for pair in pairs]
            assert found.ponder_steps[row].tolist() == [len(each.values) for each in read]
            assert_close(found.logits[row], torch.cat([each.logits for each in read]), tolerance=TOLERANCE)


def test_criteria_see_what_a_text_of_one_token_would_predict():
    model = make_language_model(VARIANT).model
    with torch.no_grad():
        output = model(torch.arange(4, 9)[:, None], output_hidden_states=True)
        states = output.hidden_states[-1]
        found = model.readout(torch.cat((states, torch.zeros_like(states)), dim=-1))
    assert_close(found, output.last_hidden_state, tolerance=TOLERANCE)


def test_initial_states():
    model = make_language_model(VARIANT, initial_state="random_in_training")
    ids = make_text(VARIANT)["input_ids"]

    def logits(mode: str, **options) -> torch.Tensor:
        model.config.initial_state = mode
        with torch.no_grad():
            return model(ids, **options).logits

    expected = logits("random_in_training")
    assert torch.equal(expected, logits("zero"))
    zeros = torch.zeros(*ids.shape, model.config.hidden_size)
    assert torch.equal(expected, logits("random", initial_states=zeros))
    torch.manual_seed(3)
    drawn = logits("random")
    assert not torch.allclose(drawn, expected, atol=1e-3)
    assert not torch.allclose(drawn, logits("random"), atol=1e-3)
    torch.manual_seed(3)
    assert_close(logits("random"), drawn)
    model.train()
    torch.manual_seed(3)
    assert_close(logits("random_in_training"), drawn)
    assert_close(logits("zero"), expected)
    model.config.initial_state_scale = 0.0
    assert_close(logits("random"), expected)


def test_prompts_begin_with_given_states_and_new_tokens_as_the_config_says():
    model = make_language_model(VARIANT)
    ids, options = make_text(VARIANT)["input_ids"][:, :5], {"max_new_tokens": 6, "eos_token_id": None}
    states = torch.randn(*ids.shape, model.config.hidden_size, generator=torch.Generator().manual_seed(3))
    text, read, cache = ids, {"input_ids": ids, "initial_states": states}, model.model.new_cache()
    for _ in range(6):
        with torch.no_grad():
            new = model(**read, past_key_values=cache).logits[:, -1].argmax(-1, keepdim=True)
        text, read = torch.cat((text, new), dim=1), {"input_ids": new}
    assert torch.equal(model.generate(ids, initial_states=states, **options), text)
    assert not torch.equal(model.generate(ids, **options), text)
    assert torch.equal(
        model.generate(ids, initial_states=torch.zeros_like(states), **options), model.generate(ids, **options)
    )
    beams = model.generate(ids, initial_states=states, num_beams=3, **options)
    alone = [
        model.generate(ids[row, None], initial_states=states[row, None], num_beams=3, **options)
        for row in range(len(ids))
    ]
    assert torch.equal(beams, torch.cat(alone))


@pytest.mark.parametrize(
    "option",
    [{"prompt_lookup_num_tokens": 2}, {"assistant_early_exit": 2}, {"prefill_chunk_size": 2}, {"use_cache": False}],
)
def test_given_states_go_with_one_call_for_the_prompt(option):
    model, ids = make_language_model(VARIANT), torch.tensor([[4, 5, 6]])
    with pytest.raises(ValueError, match=f"`initial_states` is given and {next(iter(option))} is"):
        model.generate(ids, initial_states=torch.zeros(1, 3, model.config.hidden_size), max_new_tokens=4, **option)


@pytest.mark.parametrize("option", [{}, {"num_beams": 2}, {"prompt_lookup_num_tokens": 2}])
def test_each_generated_token_draws_a_state_of_its_own(option):
    """From torch's generator, so that the same seed gives the same text."""
    model, ids = make_language_model(VARIANT, initial_state="random"), torch.tensor([[4, 5, 6, 4, 5]])
    drawn, steps = [], model.config.num_hidden_layers
    model.model.block.register_forward_pre_hook(lambda block, inputs: drawn.append(inputs[0].chunk(2, dim=-1)[0]))

    def generated(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A text, and the states (n, E) that its tokens began with."""
        drawn.clear()
        torch.manual_seed(seed)
        text = model.generate(ids, max_new_tokens=8, eos_token_id=None, **option)
        return text, torch.cat([states.flatten(0, -2) for states in drawn[::steps]])

    (text, states), (again, same), (other, others) = (generated(seed) for seed in (1, 1, 2))
    assert torch.equal(text, again)
    assert_close(states, same)
    assert not torch.equal(text, other)
    assert not torch.isin(states, others).all(dim=-1).any()
    assert len(states) >= ids.shape[1] + 7
    assert len(states.unique(dim=0)) == len(states)


def test_noise_is_the_authors():
    """Of the deviation that they give it, whatever the width, and cut at three deviations."""
    model = make_language_model(VARIANT, initial_state="random")
    noise = model.model.initial_states(torch.empty(100, 1000), None)
    std = math.sqrt(2 / 5)
    assert noise.abs().max() <= 3 * std
    assert noise.abs().max() > 2.9 * std
    # that of a normal distribution cut there
    assert noise.std().item() == pytest.approx(0.98658 * std, rel=0.01)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
def test_the_embedded_input_is_trained_by_the_last_steps_alone():
    """The gradient of a call is that of its last steps, from the state that the steps before them reach."""
    model = make_language_model(VARIANT, backprop_steps=2, depth_sampling="poisson_lognormal").train()
    text = make_text(VARIANT)
    ids, labels = text["input_ids"][:, :6], text["input_ids"][:, :6]
    with torch.no_grad():
        reached = model(ids, max_depth=3, output_hidden_states=True).hidden_states[-1]

    def gradients(**options) -> dict[str, torch.Tensor]:
        model.zero_grad()
        model(ids, labels=labels, **options).loss.backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    found, expected = gradients(max_depth=5), gradients(max_depth=2, initial_states=reached)
    assert found["model.prelude.0.feed_forward.up_proj.weight"].abs().max() > 0
    assert_close(found, expected, tolerance=TOLERANCE)
    model.gradient_checkpointing_enable()
    assert_close(gradients(max_depth=5), expected, tolerance=TOLERANCE)


def test_training_draws_the_number_of_steps():
    model = make_language_model(VARIANT, depth_sampling="poisson_lognormal", backprop_steps=2).train()
    ids = torch.tensor([[4, 5, 6]])
    torch.manual_seed(0)
    drawn = {model(ids).ponder_steps[0, 0].item() for _ in range(12)}
    assert len(drawn) > 3
    assert model.eval()(ids).ponder_steps.unique().tolist() == [model.config.num_hidden_layers]


def test_every_step_is_trained_through_the_coda():
    model = make_language_model(VARIANT, depth_objective="every_step")
    text = make_text(VARIANT)
    with torch.no_grad():
        losses = torch.stack([model(**text, max_depth=steps).loss for steps in range(1, 7)])
        weights = torch.arange(1.0, 7.0)
        assert_close(model.train()(**text).loss, (weights * losses).sum() / weights.sum(), tolerance=TOLERANCE)


def their_folder(name: str, folder: Path, **fields) -> Path:
    """A checkpoint as the authors' code saves it."""
    folder.mkdir()
    case = json.loads((CASES / name / "case.json").read_text())
    config = case["config"] | {"model_type": "huginn_raven", "architectures": ["RavenForCausalLM"]} | fields
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(CASES / name / "weights.safetensors", folder / "model.safetensors")
    return folder


def change_weights(folder: Path, change) -> dict[str, torch.Tensor]:
    """Replace the weights of a checkpoint by what `change` makes of them."""
    weights = change(load_file(folder / "model.safetensors"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return weights


@pytest.mark.parametrize("name", ["hub_layout", "no_qk_bias_rope_1e4", "untied_adapter_bias"])
def test_a_checkpoint_is_loaded_and_saved_with_the_same_weights(name, tmp_path):
    io, _ = load_case(CASES / name)
    folder = their_folder(name, tmp_path / "theirs")
    ours, report = from_pretrained_recurrent(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert type(ours) is HuginnRecurrentForCausalLM
    inputs = {"input_ids": io["input_ids"], "initial_states": io["input_states"].double()}
    with torch.no_grad():
        assert_close(ours.double()(**inputs).logits, io["logits.8"].double(), tolerance=TOLERANCE)
    # none of its weights has been rounded
    ours.float().save_pretrained(tmp_path / "ours")
    again, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    save_original(again, tmp_path / "back")
    first, last = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    table = last.pop("freqs_cis")
    if "freqs_cis" in first:
        assert_close(table, first.pop("freqs_cis"), tolerance=1e-5)
    assert first.keys() == last.keys()
    assert all(torch.equal(first[name], last[name]) for name in first)
    theirs, back = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "back"))
    # which nothing reads
    theirs.pop("padding_multiple")
    assert {key: back[key] for key in theirs} == theirs


def test_a_checkpoint_in_half_precision_may_hold_the_tied_embedding_twice(tmp_path):
    folder = their_folder("hub_layout", tmp_path / "theirs", dtype="bfloat16")

    def doubled(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        both = weights | {"lm_head.weight": weights["transformer.wte.weight"].clone()}
        return {name: each.bfloat16() for name, each in both.items()}

    weights = change_weights(folder, doubled)
    model, report = from_pretrained_recurrent(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight is model.model.embed_tokens.weight
    save_original(model, tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == weights.keys() - {"lm_head.weight"}
    assert all(torch.equal(back[name], weights[name]) for name in back if name != "freqs_cis")
    change_weights(folder, lambda weights: weights | {"lm_head.weight": weights["lm_head.weight"] + 1})
    with pytest.raises(ValueError, match="ties the map to token ids to the embedding, but its weights hold both"):
        from_pretrained_recurrent(folder)
    model = from_pretrained_recurrent(folder, tie_word_embeddings=False)
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


def test_the_config_of_huginn_0125_is_taken():
    derived = {"num_key_value_heads": 55, "head_dim": 96, "init_values": {"embed_scale": 72.6636084983398}}
    fields = {"n_embd": 5280, "n_heads": 55, **derived, **OWN_FORM}
    assert HuginnRecurrentConfig(**HUGINN.our_fields(fields)).num_attention_heads == 55


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        # retrofitted models keep the names of Huginn's parts, and do not scale embeddings
        ("init_values", {"embed_scale": 1.0}, "embed_scale"),
        ("head_dim", 8, "head_dim"),
        ("initial_state_mode", "embed-init", "initial_state_mode"),
    ],
)
def test_retrofitted_models_with_the_names_of_huginn_are_refused(field, value, named, tmp_path):
    folder = their_folder("hub_layout", tmp_path / "theirs", **{field: value})
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=f"config field `{named}` is .* in a Huginn: this package does not"):
        from_pretrained_recurrent(folder)


def test_refused(tmp_path):
    folder = their_folder("zero_state", tmp_path / "noise", test_time_noise=0.1)
    with pytest.raises(ValueError, match=r"`test_time_noise` is 0\.1, but 0 in a Huginn"):
        from_pretrained_recurrent(folder)
    with pytest.raises(StrictDataclassError, match="halting` is 'token': it must be 'none'"):
        HuginnRecurrentConfig(**SMALL, halting="token")
    model = HuginnRecurrentForCausalLM(HuginnRecurrentConfig(**SMALL)).eval()
    ids, states = torch.tensor([[4, 5]]), torch.zeros(1, 2, 32)
    with pytest.raises(ValueError, match=r"`initial_states` has shape \(1, 1, 32\): the inputs have \(1, 2\) tokens"):
        model(ids, initial_states=states[:, :1])
    cache = model(ids, use_cache=True).past_key_values
    other = HuginnRecurrentForCausalLM(HuginnRecurrentConfig(**SMALL, coda_layers=1)).eval()
    with pytest.raises(ValueError, match=r"2 before them and 2 after.* but this model is .*2 before them and 1 after"):
        other(ids, past_key_values=cache)
    with pytest.raises(ValueError, match="takes 2 steps but `past_key_values` was made for 3"):
        model(ids, past_key_values=cache, max_depth=2)
    wide = HuginnRecurrentForCausalLM(HuginnRecurrentConfig(**SMALL, head_dim=8))
    with pytest.raises(ValueError, match="head_dim` is 8: 2 heads of Huginn divide hidden_size"):
        save_original(wide, tmp_path / "wide")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block_class_name", "TransformerPreNormBlock"),
        ("injection_type", "add"),
    ],
)
def test_models_that_were_retrofitted_with_its_recurrence_are_refused_by_name(field, value, tmp_path, monkeypatch):
    folder = their_folder("hub_layout", tmp_path / "theirs", **{field: value})
    monkeypatch.setattr(HuginnRecurrentForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("it loads"))
    with pytest.raises(ValueError, match=f"config field `{field}` is {value!r}"):
        from_pretrained_recurrent(folder)


def test_a_missing_or_unexpected_weight_is_an_error(tmp_path):
    folder = their_folder("hub_layout", tmp_path / "theirs")
    name = "transformer.core_block.0.norm_3.weight"
    weights = change_weights(folder, lambda each: {key: value for key, value in each.items() if key != name})
    for auto_class in (None, "AutoModel"):
        with pytest.raises(ValueError, match=r"lacks model\.block\.layers\.0\.feed_forward_norm\.weight"):
            from_pretrained_recurrent(folder, auto_class)
    extra, added = weights["transformer.core_block.0.norm_1.weight"], "transformer.core_block.0.attn.q_norm.weight"
    change_weights(folder, lambda _: {**weights, name: extra + 1, added: extra + 2})
    with pytest.raises(ValueError, match=r"has model\.block\.layers\.0\.attn.*q_norm\.weight, which no huginn_raven"):
        from_pretrained_recurrent(folder)


def test_saved_weights_can_be_read_by_whom_the_umask_lets(tmp_path):
    model = make_language_model(VARIANT)
    before = os.umask(0o027)
    try:
        model.save_pretrained(tmp_path / "ours")
        save_original(model, tmp_path / "theirs")
    finally:
        os.umask(before)
    for file in tmp_path.glob("*/*.safetensors"):
        assert file.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 2

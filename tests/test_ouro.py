"""Ouro's recorded cases, reproduced; stopped tokens in every layout; and checkpoints, there and back."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import save_torch_state_dict
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_recurrent import OuroRecurrentConfig, OuroRecurrentForCausalLM, from_pretrained_recurrent
from hf_recurrent.cli.app import app
from hf_recurrent.convert import save_original
from hf_recurrent.models.depth.objectives import continuation_targets
from parity.reference import load_reference
from support import flash_attention
from support.compare import assert_close
from support.families import LANGUAGE_BY_NAME, make_config, make_language_model, make_text
from support.golden import TOLERANCE, assert_reproduced, load_case
from support.stacks import assert_same_in_every_layout
from support.tokenizer import make_tokenizer

pytestmark = pytest.mark.architecture("ouro_recurrent")

CASES = Path(__file__).parent / "parity" / "pretrained" / "ouro"
NAMES = sorted(path.parent.name for path in CASES.glob("*/case.json"))
# of whole batches, and of the columns of new tokens
WITHOUT_MASK = ("loss", "stage1_", "stage2_", "generated", "step_token_losses")
# the dimension of sequences, where it is not the first; that of their tokens comes next
BATCH_DIMENSION = {"layer_hidden_states": 1, "step_hidden_states": 1, "gate_logits": 1, "step_logits": 1}
CRITERIA = {
    "learned": {},
    "convergence": {"exit_threshold": 0.5},
    "agreement": {"exit_threshold": 0.05},
    "stability": {"exit_patience": 1},
    "confidence": {"exit_threshold": 0.35},
}


def at_tokens(name: str, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Values of tokens; what is recorded of padding means nothing."""
    if name.startswith(WITHOUT_MASK):
        return values
    if name in ("cache_keys", "cache_values"):
        return values.transpose(2, 3)[:, mask]
    return values[(slice(None),) * BATCH_DIMENSION.get(name, 0) + (mask,)]


@pytest.mark.parametrize("name", NAMES)
def test_case_is_reproduced(name):
    io, gradients = load_case(CASES / name)
    case = json.loads((CASES / name / "case.json").read_text())
    mask = io["attention_mask"].bool()
    found = load_reference(CASES / name).run(io, gradients=True)
    # by the recorded losses, which are compared as well: a target rises so steeply with what a step takes off the loss
    # that it magnifies the rounding of both losses twelve times, in the authors' code as in ours
    found["stage2_continue_targets"] = continuation_targets(io["step_token_losses"]).movedim(-1, 0)
    assert_reproduced(found, io, case["outputs"], gradients, lambda key, values: at_tokens(key, values, mask))


def test_attention_written_out_computes_in_float64():
    """Also where a row sees nothing but padding."""
    io, _ = load_case(CASES / "gqa_left_pad")
    model, inputs = load_reference(CASES / "gqa_left_pad").model.double(), (io["input_ids"], io["attention_mask"])
    logits = []
    for name in ("eager", "sdpa"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            logits.append(model(*inputs).logits[io["attention_mask"].bool()])
    assert_close(*logits, tolerance=1e-12)


@pytest.fixture(params=["computed", "last"])
def skipped_steps(request) -> str:
    return request.param


@pytest.mark.parametrize("sliding", [False, True], ids=["all_keys", "windows"])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_stopped_tokens_are_the_same_in_every_layout(criterion, sliding, skipped_steps):
    """In batches with padding as alone, with and without compaction, with records, and read in pieces."""
    fields = {"sliding_layers": [1], "sliding_window": 4} if sliding else {}
    model = make_language_model(LANGUAGE_BY_NAME["ouro_recurrent"], skipped_steps=skipped_steps)
    model.model.block.layers[1].attention.window = fields.get("sliding_window")
    # predictions that differ from step to step
    model.lm_head.weight.data.mul_(20.0)
    for field, value in (fields | {"exit_criterion": criterion} | CRITERIA[criterion]).items():
        setattr(model.config, field, value)
    text = {key: value for key, value in make_text(LANGUAGE_BY_NAME["ouro_recurrent"]).items() if key != "labels"}
    assert_same_in_every_layout(model, text, TOLERANCE)


@pytest.mark.parametrize("name", ["ouro_recurrent", "huginn_recurrent"])
def test_one_layer_a_step_is_read_in_pieces(name, skipped_steps):
    config = make_config(LANGUAGE_BY_NAME[name], layers_per_step=1, skipped_steps=skipped_steps)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    options = {"exit_criterion": "convergence", "exit_threshold": 0.5}
    ids, cache = torch.tensor([[4, 9, 5, 7, 6]]), model.model.new_cache()
    with torch.no_grad():
        expected = model(ids, **options)
        pieces = [model(piece, past_key_values=cache, **options) for piece in ids.split((2, 1, 2), dim=1)]
    assert cache.depth == config.num_hidden_layers
    assert torch.equal(torch.cat([piece.ponder_steps for piece in pieces], dim=1), expected.ponder_steps)
    assert_close(torch.cat([piece.logits for piece in pieces], dim=1), expected.logits, tolerance=TOLERANCE)


def test_a_token_that_skips_steps_leaves_the_keys_of_its_last_one():
    model = make_language_model(LANGUAGE_BY_NAME["ouro_recurrent"])
    text = make_text(LANGUAGE_BY_NAME["ouro_recurrent"])
    cache = model.model.new_cache()
    with torch.no_grad():
        steps = model(text["input_ids"], text["attention_mask"], past_key_values=cache).ponder_steps
    number = model.config.layers_per_step
    keys = torch.stack([layer.tensors["keys"] for layer in cache.layers]).unflatten(0, (-1, number))
    row, column = (steps == 2).nonzero()[0].tolist()
    last, others = keys[1, :, row, :, column], keys[2:, :, row, :, column]
    assert torch.equal(others, last.expand_as(others))
    assert not torch.allclose(keys[0, :, row, :, column], last)


def sliding(window: int) -> OuroRecurrentForCausalLM:
    torch.manual_seed(0)
    fields = {"sliding_layers": [1], "sliding_window": window, "initializer_range": 0.2}
    return OuroRecurrentForCausalLM(make_config(LANGUAGE_BY_NAME["ouro_recurrent"], **fields)).eval()


@pytest.mark.parametrize("padded", [True, False])
def test_windows_are_those_of_flash_attention(padded):
    text = make_text(LANGUAGE_BY_NAME["ouro_recurrent"])
    ids, mask = text["input_ids"], text["attention_mask"] if padded else torch.ones_like(text["attention_mask"])
    tokens = mask.bool()
    with flash_attention.installed(), torch.no_grad():
        flash = sliding(window=4)
        flash.set_attn_implementation("flash_attention_2")
        expected = sliding(window=4)(ids, mask).logits
        assert (sliding(window=100)(ids, mask).logits - expected).abs().max() > 1e-3
        assert_close(flash(ids, mask).logits[tokens], expected[tokens], tolerance=TOLERANCE)
        cache = flash(ids[:, :9], mask[:, :9], use_cache=True).past_key_values
        last = flash(ids[:, 9:], mask, past_key_values=cache).logits
        assert_close(last[tokens[:, 9:]], expected[:, 9:][tokens[:, 9:]], tolerance=TOLERANCE)


@pytest.mark.parametrize("head", ["AutoModelForSequenceClassification", "AutoModelForQuestionAnswering"])
def test_the_second_stage_is_of_models_that_predict_tokens(head):
    config = make_config(LANGUAGE_BY_NAME["ouro_recurrent"], depth_objective="gate")
    model = getattr(transformers, head).from_config(config).train()
    labels = {"labels": torch.tensor([0])} if "Sequence" in head else {"start_positions": torch.tensor([0])}
    labels |= {"end_positions": torch.tensor([0])} if "Question" in head else {}
    with pytest.raises(ValueError, match=r"config\.depth_objective is 'gate', which trains the exit gate alone"):
        model(torch.tensor([[4, 5]]), **labels)


def test_the_second_stage_trains_the_gate_alone():
    case = CASES / "mha_right_pad"
    io, _ = load_case(case)
    model = load_reference(case).model.train()
    # which stops no token while it trains
    model.config.depth_objective, model.config.halting_threshold = "gate", 0.3
    output = model(io["input_ids"], io["attention_mask"], labels=io["labels"])
    assert_close(output.loss, io["stage2_loss"], tolerance=TOLERANCE)
    output.loss.backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert trained == {"model.halting_head.proj.weight", "model.halting_head.proj.bias"}


def test_the_first_stage_differs_from_theirs_by_a_constant():
    """The divergence from a uniform prior is what the entropy lacks of that of the prior."""
    case = CASES / "sliding_window"
    io, _ = load_case(case)
    model = load_reference(case).model.train()
    labels = io["input_ids"]
    loss = model(io["input_ids"], labels=labels).loss
    steps = model.config.num_hidden_layers
    with torch.no_grad():
        model.eval()
        output = model(io["input_ids"], halting_threshold=1.0, output_hidden_states=True, output_halting=True)
    stop = torch.cat((output.halting_probabilities[..., 1:], torch.ones(*labels.shape, 1)), dim=-1)
    pdf = stop * torch.cat((torch.ones(*labels.shape, 1), (1 - stop[..., :-1]).cumprod(-1)), dim=-1)
    logits = model.predict(torch.stack(output.hidden_states[1:]))[:, :, :-1]
    losses = -logits.log_softmax(-1).gather(-1, labels[:, 1:].expand(steps, -1, -1)[..., None]).squeeze(-1)
    expected = torch.einsum("bst,tbs->bs", pdf[:, :-1], losses).mean()
    assert_close(output.ponder_cost, (pdf @ torch.arange(1.0, steps + 1)).mean(-1), tolerance=TOLERANCE)
    entropy = -(pdf * pdf.log()).sum(-1).mean()
    constant = torch.tensor(float(steps)).log()
    assert_close(loss, expected + model.config.depth_prior_weight * (constant - entropy), tolerance=TOLERANCE)


def their_folder(name: str, folder: Path, **fields) -> Path:
    """A checkpoint as the authors' code saves it."""
    folder.mkdir()
    case = json.loads((CASES / name / "case.json").read_text())
    config = case["config"] | {"model_type": "ouro", "architectures": ["OuroForCausalLM"]} | fields
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(CASES / name / "weights.safetensors", folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", ["gqa_left_pad", "rope_linear", "sliding_window", "tied_head_dim"])
def test_a_checkpoint_is_loaded_and_saved_with_the_same_weights(name, tmp_path):
    io, _ = load_case(CASES / name)
    folder = their_folder(name, tmp_path / "theirs")
    ours, report = from_pretrained_recurrent(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert type(ours) is OuroRecurrentForCausalLM
    inputs, mask = (io["input_ids"], io["attention_mask"]), io["attention_mask"].bool()
    with torch.no_grad():
        assert_close(ours(*inputs).logits[mask], io["logits"][mask], tolerance=TOLERANCE)
    ours.save_pretrained(tmp_path / "ours")
    again, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    save_original(again, tmp_path / "back")
    first, last = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert first.keys() == last.keys()
    assert all(torch.equal(first[name], last[name]) for name in first)
    once_more = from_pretrained_recurrent(tmp_path / "back")
    first, last = (model.config.to_dict() for model in (again, once_more))
    assert {key for key in first if first[key] != last.get(key)} <= {"_name_or_path", "architectures", "auto_map"}
    with torch.no_grad():
        assert_close(once_more(*inputs).logits[mask], io["logits"][mask], tolerance=TOLERANCE)


def test_a_chat_model_in_shards_is_converted_with_all_it_needs_to_answer(tmp_path):
    theirs = their_folder("mha_right_pad", tmp_path / "theirs")
    weights = load_file(theirs / "model.safetensors")
    (theirs / "model.safetensors").unlink()
    save_torch_state_dict(weights, theirs, max_shard_size="10KB")
    assert len(list(theirs.glob("model-*.safetensors"))) > 2
    (theirs / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5], "max_new_tokens": 7}))
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} w4 {% endfor %}"
    tokenizer.save_pretrained(theirs)
    for source, target, words in (("theirs", "ours", ()), ("ours", "back", ("--to", "original"))):
        app(["convert", str(tmp_path / source), str(tmp_path / target), *words], standalone_mode=False)
        assert json.loads((tmp_path / target / "generation_config.json").read_text())["eos_token_id"] == [2, 5]
    messages = [{"role": "user", "content": "w6 w7"}]
    folder = tmp_path / "ours"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True)
    assert tokenizer.decode(prompt["input_ids"][0]) == "w6 w7 w4"
    answer = model.generate(**prompt)[0, 3:]
    assert 1 <= len(answer) <= 7
    # a pipeline samples unless told otherwise
    found = transformers.pipeline("text-generation", model=str(folder), device="cpu")(messages, do_sample=False)
    assert found[0]["generated_text"][-1]["content"] == tokenizer.decode(answer, skip_special_tokens=True)
    expected = from_pretrained_recurrent(tmp_path / "back").generate(**prompt)[0, 3:]
    assert answer.tolist() == expected.tolist()


def test_a_checkpoint_in_half_precision_comes_back_as_it_was(tmp_path):
    """The gate decides in float32 here."""
    folder = their_folder("mha_right_pad", tmp_path / "theirs", dtype="bfloat16")
    weights = {name: each.bfloat16() for name, each in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model = from_pretrained_recurrent(folder)
    assert model.dtype == torch.bfloat16
    assert from_pretrained_recurrent(folder, dtype="auto").dtype == torch.bfloat16
    assert from_pretrained_recurrent(folder, dtype=torch.float32).dtype == torch.float32
    assert model.model.halting_head.proj.weight.dtype == torch.float32
    save_original(model, tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) and back[name].dtype == weights[name].dtype for name in weights)


def test_a_gate_may_stay_behind_and_types_of_tokens_be_new(tmp_path):
    model, report = from_pretrained_recurrent(
        their_folder("mha_right_pad", tmp_path / "theirs"),
        halting="none",
        type_vocab_size=2,
        output_loading_info=True,
    )
    assert set(report["missing_keys"]) == {"model.embed_token_types.weight"}
    assert len(report["unexpected_keys"]) == 2
    assert (model.config.halting, model.config.depth_objective) == ("none", "every_step")
    assert (OuroRecurrentConfig().halting, OuroRecurrentConfig().depth_objective) == ("token", "expected")


@pytest.mark.slow
def test_exported_models_take_positions_of_any_number_of_tokens():
    config = OuroRecurrentConfig(hidden_size=16, num_attention_heads=2, layers_per_step=1, vocab_size=8)
    model = OuroRecurrentForCausalLM(config).eval()

    class Logits(torch.nn.Module):
        def forward(self, ids, positions):
            return model(ids, position_ids=positions, max_depth=2, use_cache=False).logits

    inputs = torch.tensor([[4, 5, 6, 7]]), torch.arange(4)[None]
    tokens = {1: torch.export.Dim("tokens", min=2, max=64)}
    with torch.no_grad():
        program = torch.export.export(Logits(), inputs, dynamic_shapes=(tokens, tokens), strict=False).module()
        for length in (2, 4):
            batch = [values[:, :length] for values in inputs]
            assert_close(program(*batch), Logits()(*batch))


def test_refused(tmp_path):
    folder = their_folder("mha_right_pad", tmp_path / "step", early_exit_step=2)
    with pytest.raises(ValueError, match="`early_exit_step` is 2: pass max_depth in a call"):
        from_pretrained_recurrent(folder)
    folder = their_folder("mha_right_pad", tmp_path / "scaling", rope_scaling={"rope_type": "yarn", "factor": 2.0})
    with pytest.raises(ValueError, match=r"rotary_scaling` is .*'yarn'.*: pass a rope_type of 'linear'"):
        from_pretrained_recurrent(folder)
    small = {"hidden_size": 32, "num_attention_heads": 2, "layers_per_step": 2}
    with pytest.raises(StrictDataclassError, match=r"sliding_layers` is \[2\]: pass numbers of layers, from 0 to 1"):
        OuroRecurrentConfig(**small, sliding_layers=[2], sliding_window=4)
    model = OuroRecurrentForCausalLM(OuroRecurrentConfig(**small, vocab_size=8)).eval()
    ids = torch.tensor([[4, 5]])
    with pytest.raises(ValueError, match=r"`position_ids` has shape \(1, 3\): the inputs have \(1, 2\)"):
        model(ids, position_ids=torch.tensor([[0, 1, 2]]))
    # the second row is padded on the left
    rows, mask = torch.full((2, 4), 4), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    model(rows, attention_mask=mask, position_ids=torch.tensor([[0, 1, 2, 3], [1, 1, 0, 1]]))
    with pytest.raises(ValueError, match=r"`position_ids` row 0 holds 0 after 1, as where texts are packed .* own"):
        model(rows, attention_mask=mask, position_ids=torch.tensor([[0, 1, 0, 1]]))
    cache = model(ids, use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"takes 2 steps but `past_key_values` was made for 4: .*pass max_depth=4"):
        model(ids, past_key_values=cache, max_depth=2)

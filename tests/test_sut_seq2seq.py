"""`SUTForConditionalGeneration` in use: decoding with caches, saving, training, tracing, precisions."""

import functools

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
)

from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.compare import assert_close, gradients
from support.sut_models import SMALL, make_rows, make_sut, padded

pytestmark = pytest.mark.architecture("sut")

TOLERANCE = 1e-9
make = functools.partial(make_sut, model_class=SUTForConditionalGeneration)
# those whose caches differ: with and without halting, norms in front, states that go on
CACHED = ["plain", "t5", "released", "never_halts"]


def source(sides: str = "l") -> dict[str, torch.Tensor]:
    ids, mask = padded(make_rows([6, 2, 4]), sides)
    return {"input_ids": ids, "attention_mask": mask}


def batch(sides: str = "l") -> dict[str, torch.Tensor]:
    ids, mask = padded(make_rows([3, 5, 1], seed=1))
    return {**source(sides), "labels": ids.masked_fill(mask == 0, -100)}


def generate(model, inputs, new_tokens: int = 7, **options):
    options = {"do_sample": False, "min_new_tokens": new_tokens, **options}
    return model.generate(
        **inputs, max_new_tokens=new_tokens, return_dict_in_generate=True, output_logits=True, **options
    )


def whole(model, inputs, sequences, **options):
    """Outputs of one forward pass over finished sequences."""
    repeats = len(sequences) // len(inputs["input_ids"])
    inputs = {name: value.repeat_interleave(repeats, dim=0) for name, value in inputs.items()}
    with torch.no_grad():
        return model(**inputs, decoder_input_ids=sequences[:, :-1], **options)


def assert_near(actual, wanted, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(actual.double(), wanted.double(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", CACHED)
def test_decoding_with_a_cache_is_decoding_at_once(kind):
    model, inputs = make(kind, halting_threshold=0.5), source()
    steps = []
    hook = model.model.decoder.register_forward_hook(lambda _, __, output: steps.append(output.ponder_steps))
    # drawn, so that all kinds of tokens are read
    generated = generate(model, inputs, do_sample=True, temperature=4.0)
    hook.remove()
    at_once = whole(model, inputs, generated.sequences)
    assert generated.sequences.shape == (3, 8)
    # generate() keeps logits in float32
    assert_near(torch.stack(generated.logits, dim=1), at_once.logits, 1e-6)
    assert torch.equal(torch.cat(steps, dim=1), at_once.ponder_steps)
    assert (len(at_once.ponder_steps.unique()) > 1) == (kind != "never_halts")


def test_greedy_decoding():
    """With a cache and without, however sources are padded, and one by one."""
    model, inputs = make("plain"), source()
    sequences = generate(model, inputs).sequences
    assert torch.equal(sequences[:, 1:], whole(model, inputs, sequences).logits.argmax(-1))
    assert torch.equal(generate(model, source("r")).sequences, sequences)
    assert torch.equal(generate(model, inputs, use_cache=False).sequences, sequences)
    for row, ids in enumerate(make_rows([6, 2, 4])):
        assert torch.equal(generate(model, {"input_ids": torch.tensor([ids])}).sequences, sequences[row : row + 1])


def test_tokens_to_come_read_what_halted_early():
    """Calls that nobody took have keys all the same: those of the final soft states."""
    model = make("plain", halting_threshold=0.4)
    # a loop ends when no token of any row goes on: there is one row only
    inputs = {"input_ids": torch.tensor(make_rows([4]))}
    generated = generate(model, inputs, 12, do_sample=True, temperature=4.0)
    at_once = whole(model, inputs, generated.sequences)
    depths = at_once.ponder_steps[0].tolist()
    # after one call soft states are the running ones; after two they differ
    assert 3 in depths[depths.index(2) :]
    assert_near(torch.stack(generated.logits, dim=1), at_once.logits, 1e-6)


def test_gaps_between_labels_are_read():
    """-100 within a target is not predicted, and what it stands for is padding to nobody but the loss."""
    model, inputs = make("plain", router_loss="none", ponder_loss_weight=0.0, label_smoothing=0.0), batch()
    labels = inputs["labels"].clone()
    labels[1, 2] = -100
    read = model.prepare_decoder_input_ids_from_labels(labels)
    assert read[1].tolist() == [3, *inputs["labels"][1, :2].tolist(), 0, int(inputs["labels"][1, 3])]
    output = model(**{**inputs, "labels": labels})
    alone = model(inputs["input_ids"][1:2], inputs["attention_mask"][1:2], decoder_input_ids=read[1:2])
    assert_near(output.logits[1], alone.logits[0])
    shares = output.logits.log_softmax(-1).gather(2, labels.clamp_min(0)[..., None])[..., 0]
    assert_near(output.loss, -shares[labels != -100].mean())
    assert_near(model(**{**inputs, "labels": labels.int()}).loss, output.loss)


def test_the_source_is_projected_once():
    """One cross-attention cache serves all calls and tokens, and stays whole when target tokens are forgotten."""
    model, inputs = make("plain"), source()
    calls = []
    attention = model.model.decoder.block.cross_attention
    attention.k_proj.register_forward_hook(lambda *_: calls.append(1))
    cache = generate(model, inputs).past_key_values
    assert len(calls) == 1
    assert len(cache.layers) == SMALL["num_decoder_layers"] + 1
    assert [layer.tensors["keys"].shape[2] for layer in cache.layers] == [7, 7, 7, 6]
    cache.crop(-3)
    assert [layer.tensors["keys"].shape[2] for layer in cache.layers] == [4, 4, 4, 6]
    assert cache.depth == SMALL["num_decoder_layers"]
    assert cache.get_seq_length() == 4


def test_rows_of_a_cache_move_and_tokens_are_forgotten():
    model, inputs = make("plain"), source()
    ids = torch.tensor(make_rows([6, 6, 6], seed=3))
    at_once = whole(model, inputs, torch.cat((ids, ids[:, :1]), dim=1)).logits
    order = torch.tensor([2, 0, 0])
    with torch.no_grad():
        first = model(**inputs, decoder_input_ids=ids[:, :4], use_cache=True)
        cache, memory = first.past_key_values, first.encoder_last_hidden_state
        assert_near(first.logits, at_once[:, :4])
        # other tokens are read, and forgotten
        mask = inputs["attention_mask"]
        model(attention_mask=mask, encoder_outputs=(memory,), decoder_input_ids=ids[:, :2] + 1, past_key_values=cache)
        cache.crop(-3)
        cache.reorder_cache(order)
        rest = model(
            attention_mask=mask[order],
            encoder_outputs=(memory[order],),
            decoder_input_ids=ids[order, 3:],
            past_key_values=cache,
        )
    assert_near(rest.logits, at_once[order, 3:])


@pytest.mark.parametrize("kind", ["plain", "t5"])
def test_beams_score_what_the_whole_says(kind):
    model, inputs = make(kind), source()
    options = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.0}
    generated = generate(model, inputs, 6, output_scores=True, **options)
    shares = whole(model, inputs, generated.sequences).logits.log_softmax(-1)
    expected = shares.gather(2, generated.sequences[:, 1:, None]).sum((1, 2))
    assert_near(generated.sequences_scores, expected, 1e-5)
    first, second = generated.sequences.unflatten(0, (3, 2)).unbind(1)
    assert (first != second).any(-1).all()
    plain = generate(model, inputs, 6, use_cache=False, **options)
    assert torch.equal(plain.sequences, generated.sequences)


def test_options_of_a_call_reach_both_stacks():
    model, inputs = make("plain"), source()
    # fewer and more calls than the config says of either stack
    for options in ({"max_depth": 2}, {"max_depth": 5, "halting_threshold": 1.0}):
        generated = generate(model, inputs, 4, **options)
        at_once = whole(model, inputs, generated.sequences, **options)
        assert int(at_once.ponder_steps.max()) == int(at_once.encoder_ponder_steps.max()) == options["max_depth"]
        assert_near(torch.stack(generated.logits, dim=1), at_once.logits, 1e-6)


@pytest.mark.parametrize("assistance", [{"assistant_early_exit": 1}, {"prompt_lookup_num_tokens": 2}], ids=str)
def test_assisted_decoding_after_several_tokens_returns_the_steps_of_each(assistance):
    model, row = make("plain"), {"input_ids": torch.tensor(make_rows([6]))}
    row["decoder_input_ids"] = torch.tensor([[3, 5, 7, 5, 7]])
    plain, assisted = generate(model, row, 6), generate(model, row, 6, **assistance)
    assert torch.equal(assisted.sequences, plain.sequences)
    assert torch.equal(assisted.ponder_steps, plain.ponder_steps)
    at_once = whole(model, {"input_ids": row["input_ids"]}, plain.sequences)
    assert torch.equal(plain.ponder_steps, at_once.ponder_steps[:, 4:])


def loaded(folder, auto_class=AutoModelForSeq2SeqLM):
    model, info = auto_class.from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    return model.double(), {name: problems for name, problems in info.items() if problems}


@pytest.mark.parametrize("tied", [True, False])
def test_saving_and_resizing(tied, tmp_path):
    model = make("plain", tie_word_embeddings=tied)
    tables = {id(p) for p in (model.get_input_embeddings().weight, model.model.decoder.embed_tokens.weight)}
    assert len(tables | {id(model.lm_head.weight)}) == (1 if tied else 3)
    expected = model(**batch()).logits
    model.resize_token_embeddings(SMALL["vocab_size"] + 3)
    assert model.config.vocab_size == model.model.decoder.config.vocab_size == SMALL["vocab_size"] + 3
    assert_near(model(**batch()).logits[..., :-3], expected)
    inputs = batch()
    inputs["input_ids"][0, 0] = inputs["labels"][0, 0] = SMALL["vocab_size"] + 2
    model.save_pretrained(tmp_path / "head")
    again, problems = loaded(tmp_path / "head")
    assert problems == {}
    assert type(again) is SUTForConditionalGeneration
    # the halting heads, kept in float32, are rounded on the way
    assert_near(again(**inputs).loss, model(**inputs).loss, 1e-5)
    base, problems = loaded(tmp_path / "head", AutoModel)
    assert all("lm_head" in name for name in problems.get("unexpected_keys", ()))
    assert set(problems) <= {"unexpected_keys"}
    states = base(**source(), decoder_input_ids=torch.full((3, 2), 3)).last_hidden_state
    assert_near(states, again.model(**source(), decoder_input_ids=torch.full((3, 2), 3)).last_hidden_state)


def test_auto_classes_make_both_stacks_or_one():
    config = AutoConfig.for_model("sut", **{**SMALL, "is_encoder_decoder": True})
    assert type(AutoModelForSeq2SeqLM.from_config(config)) is SUTForConditionalGeneration
    both = AutoModel.from_config(config)
    assert (both.encoder.config.is_causal, both.decoder.config.is_causal) == (False, True)
    assert both.decoder.config.num_hidden_layers == SMALL["num_decoder_layers"]
    one = AutoModel.from_config(AutoConfig.for_model("sut", **SMALL))
    assert not hasattr(one, "encoder")


def contents(model) -> dict:
    return {
        name: {key: value if isinstance(value, (int, float, str)) else id(value) for key, value in vars(module).items()}
        for name, module in model.named_modules()
    }


def test_nothing_is_left_behind_on_modules():
    """Neither by training, evaluation nor generation: the loss after all of them is that before."""
    model = make("plain")
    before, loss = contents(model), model(**batch()).loss
    with torch.no_grad():
        model(**batch("r"), output_halting=True, output_experts=True)
    generate(model, source(), 3)
    model.train()(**batch()).loss.backward()
    model.eval()
    assert contents(model) == before
    assert_close(model(**batch()).loss, loss)


def test_accumulation_is_one_batch_for_the_task():
    """Means over labelled tokens: halves with as many labels each weigh as the whole does."""
    model = make("plain", router_loss="none", ponder_loss_weight=0.0)
    ids, mask = padded(make_rows([4, 2, 5, 3]))
    labels, _ = padded(make_rows([3, 3, 3, 3], seed=1))
    rows = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    wanted = gradients(model, rows)
    halves = [gradients(model, {name: value[part] for name, value in rows.items()}) for part in (slice(2), slice(2, 4))]
    for name, value in wanted.items():
        assert_near((halves[0][name] + halves[1][name]) / 2, value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(dtype, tmp_path):
    # nothing halts, all experts serve every token: rounding cannot choose otherwise
    model = make(
        "plain", halting_threshold=1.0, attention_experts_per_token=4, feed_forward_experts_per_token=3
    ).float()
    model.config.router_loss = "mutual_information"
    model.save_pretrained(tmp_path)
    half = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=dtype)
    assert {p.dtype for name, p in half.named_parameters() if "halting_head" in name} == {torch.float32}
    wanted = model(**batch())
    with torch.autocast("cpu", dtype):
        autocast = model(**batch())
        generate(model, source(), 2)
    for output, one in ((autocast, model), (half(**batch()), half)):
        tokens = batch()["labels"] != -100
        error = (output.logits.float() - wanted.logits)[tokens].abs().max() / wanted.logits.abs().max()
        assert error < 0.1
        assert abs(output.loss.item() - wanted.loss.item()) < 0.1
        one.zero_grad()
        output.loss.backward()
        assert all(p.grad.isfinite().all() for p in one.parameters())
    assert generate(half, source(), 3).sequences.shape == (3, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated:DeprecationWarning")
def test_traced_models_compute_the_same():
    model = make("plain", num_hidden_layers=1, num_decoder_layers=1).float()
    inputs = batch() | {"decoder_input_ids": torch.tensor(make_rows([5, 5, 5], seed=2))}
    wanted = model(**inputs)
    torch._dynamo.reset()
    output = torch.compile(model, fullgraph=True, backend="eager")(**inputs)
    assert_near(output.logits, wanted.logits, 1e-5)
    assert_near(output.loss, wanted.loss, 1e-5)
    output.loss.backward()
    # tracing takes seconds a call; after the only one there is nothing to judge
    unused = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert all(".halting_head." in name for name in unused)
    del inputs["labels"]
    rows, columns, targets = (torch.export.Dim(name, min=2, max=32) for name in ("rows", "columns", "targets"))
    shapes = {"input_ids": {0: rows, 1: columns}, "attention_mask": {0: rows, 1: columns}}
    shapes["decoder_input_ids"] = {0: rows, 1: targets}
    with torch.no_grad():
        program = torch.export.export(model, (), kwargs=inputs, dynamic_shapes=shapes).module()
        ids, mask = padded(make_rows([9, 3], seed=4), "l")
        other = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, :3]}
        for case in (inputs, other):
            assert_near(program(**case).logits, model(**case).logits, 1e-5)

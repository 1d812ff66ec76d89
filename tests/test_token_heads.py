"""The heads for tokens, spans and choices: shapes, losses, padding, saving, and what is refused."""

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel, pipeline

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.ops.exit_probe import ExitProbe
from hf_recurrent.models.ops.losses import NO_TARGET
from support.compare import assert_close, assert_same, gradients
from support.families import BY_NAME, LABELS, STEPS, VOCAB_SIZE, chunk_numbers, make_config, nightly, slow
from support.token_heads import (
    CHOICE,
    CHOICES,
    MASKED,
    NEW_HEADS,
    PAIRS,
    SPAN,
    TOKENS,
    cross_entropies,
    logits_of,
    make_head,
    make_head_batch,
    task_loss,
    without_targets,
)
from support.tokenizer import make_tokenizer

every_pair = pytest.mark.parametrize(("name", "head"), PAIRS)
heads = pytest.mark.parametrize("head", NEW_HEADS)
# sequences with a loss that depends on their depth
SUPERVISED = {"depth_objective": "every_step", "step_weights": "linear"}


def run(model, batch, **options):
    with torch.no_grad():
        return model(**batch, **options)


@every_pair
def test_outputs_and_loss(name, head):
    model, batch = make_head(name, head), make_head_batch(name, head)
    assert type(model) is ARCHITECTURES[BY_NAME[name].architecture].model_class(head)
    output = run(model, batch, output_halting=True, output_hidden_states=True)
    rows, length = len(batch["input_ids"]), batch["input_ids"].shape[-1]
    shapes = {TOKENS: (rows, length, LABELS), MASKED: (rows, length, VOCAB_SIZE), CHOICE: (rows, CHOICES)}
    assert {tuple(logits.shape) for logits in logits_of(output)} == {shapes.get(head, (rows, length))}
    assert output.loss.item() == pytest.approx(task_loss(head, logits_of(output), batch), rel=1e-5)
    num_encoded = rows * (CHOICES if head == CHOICE else 1) * (2 if BY_NAME[name].siamese else 1)
    assert len(output.hidden_states[0]) == num_encoded
    if "depth_objective" in BY_NAME[name].fields:
        # another loss in training, which is tested below
        return
    # in training, what halting costs is added, as of a classifier
    trained = run(model.train(), batch)
    auxiliary = 0.0 if trained.aux_loss is None else trained.aux_loss.item()
    assert trained.loss.item() == pytest.approx(task_loss(head, logits_of(trained), batch) + auxiliary, rel=1e-5)
    assert (auxiliary != 0.0) == BY_NAME[name].halts
    if BY_NAME[name].halts:
        units = (rows, CHOICES) if head == CHOICE else (rows,)
        for statistic in (output.ponder_cost, output.ponder_steps, output.halting_probabilities):
            assert statistic.shape[: len(units)] == units
        counted = trained.ponder_cost[batch["labels"] != NO_TARGET] if head == CHOICE else trained.ponder_cost
        expected = model.config.ponder_loss_weight * counted.mean().item()
        assert trained.ponder_loss.item() == pytest.approx(expected, rel=1e-5)


@every_pair
def test_other_ways_to_call(name, head):
    model, batch = make_head(name, head), make_head_batch(name, head)
    inputs = without_targets(batch)
    expected = run(model, batch)
    bare = run(model, inputs)
    assert {"loss", "aux_loss"}.isdisjoint(bare)
    assert all(value.shape[0] == len(batch["input_ids"]) for value in bare.values())
    assert_close(logits_of(bare), logits_of(expected))
    assert_close(run(model, batch, return_dict=False), expected.to_tuple())
    embedded = {key: value for key, value in batch.items() if key != "input_ids"}
    embedded["inputs_embeds"] = model.get_input_embeddings()(batch["input_ids"]).detach()
    assert_close(run(model, embedded).to_tuple(), expected.to_tuple(), 1e-5)


def widened(batch: dict[str, torch.Tensor], left: int, right: int, moved: bool) -> dict[str, torch.Tensor]:
    """More padding around sequences, which may also move to the right side; other tokens are at padding."""
    mask = batch["attention_mask"]
    length = mask.shape[-1]
    shift = (mask.sum(-1, keepdim=True) - length) * moved
    source = (torch.arange(length) + shift) % length
    changed = {}
    for key, value in batch.items():
        if key.endswith("positions"):
            offset = torch.where(value < length, left - shift.squeeze(-1), left + right + length)
            changed[key] = value + offset
        elif value.shape == mask.shape:
            fill = NO_TARGET if key == "labels" else 0
            changed[key] = torch.nn.functional.pad(value.gather(-1, source), (left, right), value=fill)
        else:
            changed[key] = value
    changed["input_ids"] = changed["input_ids"].masked_fill(changed["attention_mask"] == 0, 5)
    return changed


def of_tokens(output, mask: torch.Tensor) -> list[torch.Tensor]:
    """Logits, without those of padding where tokens have them."""
    return [each[mask] if each.shape[: mask.dim()] == mask.shape else each for each in logits_of(output)]


@pytest.mark.parametrize("padding", [(2, 3, True), slow((0, 0, True)), slow((0, 4, False))])
@every_pair
def test_padding_changes_nothing(name, head, padding):
    if BY_NAME[name].chunking == "balanced":
        pytest.skip("balanced chunks depend on the width of the batch, as in the reference implementation")
    model, batch = make_head(name, head), make_head_batch(name, head)
    other = widened(batch, *padding)
    actual, expected = run(model, other), run(model, batch)
    masks = other["attention_mask"].bool(), batch["attention_mask"].bool()
    assert_close(of_tokens(actual, masks[0]), of_tokens(expected, masks[1]), 1e-5)
    assert_close(actual.loss, expected.loss, 1e-5)


@pytest.mark.parametrize("head", [TOKENS, MASKED])
def test_padding_has_no_target(head):
    model, batch = make_head("gut", head), make_head_batch("gut", head)
    labels = batch["labels"].masked_fill(batch["attention_mask"] == 0, 2)
    assert_close(run(model, {**batch, "labels": labels}).loss, run(model, batch).loss)


@heads
def test_without_targets_the_loss_is_zero(head):
    model, batch = make_head("gut", head), make_head_batch("gut", head)
    nothing = {
        key: torch.full_like(value, NO_TARGET if key == "labels" else 99)
        for key, value in batch.items()
        if key not in without_targets(batch)
    }
    assert run(model, {**batch, **nothing}).loss.item() == 0.0


@every_pair
def test_the_gradient_reaches_every_parameter(name, head):
    variant, model = BY_NAME[name], make_head(name, head).train()
    found = gradients(model, make_head_batch(name, head))
    if head in (SPAN, CHOICE):
        # the last bias adds the same to all that is chosen among
        del found[[key for key in found if key.endswith("bias") and not key.startswith("model.")][-1]]
    unused = {key for key, value in found.items() if not value.any()}
    # the norm of memory is for pooling; a router has nothing to say about a single expert
    unread = ["memory_norm"] * (head != CHOICE) + ["router."] * (variant.experts_per_token == 1)
    assert unused == {key for key in found if any(part in key for part in unread)}


@pytest.mark.parametrize(
    ("name", "head"),
    [pair if pair[:1] == ("gut",) else slow(*getattr(pair, "values", pair)) for pair in PAIRS],
)
def test_saved_model_computes_the_same(name, head, tmp_path):
    model, batch = make_head(name, head), make_head_batch(name, head)
    model.save_pretrained(tmp_path)
    loaded, problems = getattr(transformers, head).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(problems.values())
    assert type(loaded) is type(model)
    assert_close(run(loaded, batch).to_tuple(), run(model, batch).to_tuple())
    base = AutoModel.from_pretrained(tmp_path)
    # a head may have no use for what pools, which is then new
    weights = model.model.state_dict()
    assert_close({name: value for name, value in base.state_dict().items() if name in weights}, dict(weights))


def test_embeddings_are_tied_or_not(tmp_path):
    for tied, last in ((True, "linear"), (True, "mlp"), (False, "linear")):
        config = make_config(BY_NAME["gut"], tie_word_embeddings=tied, lm_head=last)
        model = transformers.AutoModelForMaskedLM.from_config(config)
        table = model.get_input_embeddings().weight
        assert (model.get_output_embeddings().weight is table) == tied
        model.save_pretrained(tmp_path)
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
        assert (loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight) == tied
        model.resize_token_embeddings(VOCAB_SIZE + 3)
        assert model(torch.tensor([[VOCAB_SIZE + 2, 5]])).logits.shape == (1, 2, VOCAB_SIZE + 3)


@heads
def test_every_step_counts_by_its_weight(head):
    """The loss of states after 1 to L steps, weighed by 1 to L."""
    model = make_head("gut_no_halt", head, **SUPERVISED).train()
    batch = make_head_batch("gut_no_halt", head)
    outputs = [run(model.eval(), batch, max_depth=step) for step in range(1, STEPS + 1)]
    losses = [task_loss(head, logits_of(output), batch) for output in outputs]
    weights = torch.arange(1.0, STEPS + 1) / sum(range(1, STEPS + 1))
    expected = float((weights * torch.tensor(losses)).sum())
    assert run(model.train(), batch).loss.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["gut", "gutlb", slow("gutlb_count"), slow("ut"), slow("gutlb_token")])
def test_expected_loss_of_tokens_is_by_the_unit_that_halts(name):
    """Each token's losses after each step count by the halting distribution of its sequence, chunk or itself."""
    variant = BY_NAME[name]
    model = make_head(name, TOKENS, depth_objective="expected").train()
    batch = make_head_batch(name, TOKENS)
    mask = batch["attention_mask"].bool()
    base = run(model.model, without_targets(batch), output_steps=True, pooling=False)
    distribution = base.halting_distribution
    numbers = chunk_numbers(variant, mask) if variant.chunked else torch.zeros_like(batch["labels"])
    total, places = 0.0, (batch["labels"] != NO_TARGET).nonzero().tolist()
    for row, column in places:
        unit = column if variant.token_units else int(numbers[row, column])
        weights = distribution[row] if distribution.dim() == 2 else distribution[row, unit]
        logits = [model.classifier(states[row, column]).detach() for states in base.step_features]
        losses = cross_entropies(logits, [int(batch["labels"][row, column])] * len(logits))
        total += float((weights * torch.tensor(losses)).sum())
    output = run(model, batch)
    assert output.ponder_loss is not None
    assert (output.loss - output.aux_loss).item() == pytest.approx(total / len(places), rel=1e-4)


@heads
@pytest.mark.parametrize("name", ["gut", slow("gutlb"), slow("ut"), slow("sut"), slow("ndr_act")])
def test_expected_loss_trains_every_head(name, head):
    model = make_head(name, head, depth_objective="expected").train()
    found = gradients(model, make_head_batch(name, head))
    assert all(found[key].any() for key in found if "halting_head" in key or "classifier" in key)
    assert all(value.isfinite().all() for value in found.values())


def middle_score(scores: torch.Tensor) -> float:
    """A threshold that half of the scores exceed, and that equals none of them, because rounding would decide."""
    return scores.sort().values[len(scores) // 2 - 1 :][:2].mean().item()


@pytest.mark.parametrize("head", [TOKENS, slow(MASKED)])
@pytest.mark.parametrize("name", ["ut", slow("gut_token"), slow("sut"), slow("ndr_act")])
def test_tokens_stop_one_by_one_when_they_are_sure(name, head):
    model, batch = make_head(name, head), make_head_batch(name, head)
    mask = batch["attention_mask"].bool()
    sure = run(model, batch, max_depth=1).logits.softmax(-1).amax(-1)[mask]
    options = {"exit_criterion": "confidence", "exit_threshold": middle_score(sure)}
    output = run(model, batch, **options)
    assert output.ponder_steps.shape == mask.shape
    stopped = mask & (output.ponder_steps < STEPS)
    assert 0 < stopped.sum() < mask.sum()
    assert (output.ponder_steps[~mask] == -1).all()
    assert (output.logits.softmax(-1).amax(-1)[stopped] >= options["exit_threshold"] - 1e-6).all()
    other = widened(batch, 1, 2, moved=True)
    again = run(model, other, **options)
    assert torch.equal(again.ponder_steps[other["attention_mask"].bool()], output.ponder_steps[mask])


@pytest.mark.parametrize(
    ("name", "head"),
    [("ut", TOKENS), slow("gutlb_token", TOKENS), nightly("sut", MASKED), nightly("huginn_recurrent", TOKENS)],
)
def test_tokens_stop_one_by_one_by_a_probe(name, head, tmp_path):
    torch.manual_seed(1)
    model, batch = make_head(name, head), make_head_batch(name, head)
    mask, seen = batch["attention_mask"].bool(), []
    model.exit_probe, model.config.exit_probe_size = ExitProbe(model.config.hidden_size, 8), 8
    hook = model.exit_probe.register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert (run(model, batch, exit_criterion="probe", exit_threshold=1.0).ponder_steps[mask] == STEPS).all()
    hook.remove()
    options = {"exit_criterion": "probe", "exit_threshold": middle_score(seen[0])}
    steps = run(model, batch, **options).ponder_steps
    assert 0 < (steps[mask] < STEPS).sum() < mask.sum()
    other = widened(batch, 1, 2, moved=True)
    assert torch.equal(run(model, other, **options).ponder_steps[other["attention_mask"].bool()], steps[mask])
    for row in range(len(mask)):
        alone = {key: value[row : row + 1, mask[row]] for key, value in batch.items()}
        assert torch.equal(run(model, alone, **options).ponder_steps[0], steps[row, mask[row]])
    model.save_pretrained(tmp_path)
    loaded, problems = getattr(transformers, head).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(problems.values())
    assert torch.equal(run(loaded, batch, **options).ponder_steps, steps)
    # what no loss reads
    assert all(parameter.grad is None for parameter in trained_probe(model, batch).parameters())


def trained_probe(model, batch):
    """The probe of a model after a backward pass."""
    model.train()(**batch).loss.backward()
    return model.exit_probe


@pytest.mark.parametrize(
    ("name", "head", "criterion", "message"),
    [
        ("gut", TOKENS, "confidence", "answers for each token while its sequences stop as a whole: use 'convergence'"),
        ("ut", TOKENS, "probe", "no probe was fitted .*run `hf-recurrent fit-probe` first"),
        ("ut", SPAN, "entropy", "chooses among the tokens of a sequence, each of which predicts nothing alone"),
        ("gut", CHOICE, "stability", "chooses among the sequences of a question, each of which predicts nothing alone"),
    ],
)
def test_criteria_that_cannot_look_at_answers_are_refused(name, head, criterion, message):
    model, batch = make_head(name, head), make_head_batch(name, head)
    with pytest.raises(ValueError, match=f"'{criterion}', which looks at predictions, but .*{message}"):
        run(model, batch, exit_criterion=criterion)


def wrong_labels(shape, value, **kind):
    return lambda batch: {"labels": torch.full(shape, value, **kind)}


def at_padding(batch):
    row = int((batch["attention_mask"][:, -1] == 0).nonzero()[0])
    start = torch.zeros(6, dtype=torch.long)
    start[row] = 8
    return {"start_positions": start, "end_positions": start}


WRONG = {
    (TOKENS, "shape"): (wrong_labels((6, 4), 0), r"`labels` has shape \(6, 4\): expected \(6, 9\)"),
    (TOKENS, "class"): (wrong_labels((6, 9), LABELS), r"`labels` holds ids from 3 to 3 but `config.num_labels` is 3"),
    (MASKED, "id"): (wrong_labels((6, 9), VOCAB_SIZE), "but `config.vocab_size` is 24: pass token ids, or -100"),
    (SPAN, "one end"): (lambda batch: {"end_positions": None}, "`end_positions` is missing: pass the columns of both"),
    (SPAN, "shape"): (
        lambda batch: {"start_positions": torch.zeros(5, dtype=torch.long)},
        r"`start_positions` has shape \(5,\): expected \(6,\)",
    ),
    (SPAN, "padding"): (at_padding, "`start_positions` of row . is 8, where the row has padding"),
    (SPAN, "order"): (
        lambda batch: {"start_positions": torch.ones(6, dtype=torch.long), "end_positions": torch.zeros(6).long()},
        "`end_positions` of row 0 is 0, before its start at 1",
    ),
    (CHOICE, "choice"): (
        wrong_labels((6,), 3),
        "`labels` holds 3, but the inputs have 3 choices: pass numbers from 0",
    ),
    (CHOICE, "rows"): (wrong_labels((5,), 0), r"`labels` has shape \(5,\): expected \(6,\)"),
    (CHOICE, "no choices"): (
        lambda batch: {"input_ids": batch["input_ids"][:, 0]},
        r"`input_ids` is .*\(batch, choices, tokens\)",
    ),
    (CHOICE, "mask"): (
        lambda batch: {"attention_mask": batch["attention_mask"][:, :2]},
        "`attention_mask` has shape .*the inputs have 6 questions with 3 choices",
    ),
}


@pytest.mark.parametrize(("head", "kind"), WRONG, ids=[f"{head} {kind}" for head, kind in WRONG])
def test_what_does_not_fit_is_refused(head, kind):
    changes, message = WRONG[head, kind]
    batch = make_head_batch("gut", head)
    with pytest.raises(ValueError, match=message):
        run(make_head("gut", head), {**batch, **changes(batch)})


def test_positions_below_zero_are_the_first_column():
    model, batch = make_head("gut", SPAN), make_head_batch("gut", SPAN)
    below, first = (
        {**batch, "start_positions": torch.full((6, 1), value), "end_positions": torch.full((6, 1), value)}
        for value in (-7, 0)
    )
    assert_close(run(model, below).loss, run(model, first).loss)


@pytest.mark.parametrize(
    ("architecture", "head", "fields", "message"),
    [
        ("gut", MASKED, {"is_causal": True}, "`is_causal` is True: tokens .*before them only.*set it to False, or use"),
        (
            "block_recurrent",
            MASKED,
            {},
            "AutoModelForMaskedLM has no model for block_recurrent: .*AutoModelForCausalLM",
        ),
        ("rnn", MASKED, {"cell": "lstm"}, "`cell` is 'lstm': it reads to the left only, .*use 'bilstm'"),
        ("gut", TOKENS, {"pair_encoding": "siamese"}, "`pair_encoding` is 'siamese': .*set it to 'joint'"),
        (
            "gut",
            TOKENS,
            {"num_labels": 1},
            "`num_labels` is 1: GUTForTokenClassification has nothing to choose",
        ),
        ("gut", TOKENS, {"problem_type": "regression"}, "`problem_type` is 'regression': .*leave it None"),
        ("sut", SPAN, {"is_encoder_decoder": True}, "`is_encoder_decoder` is True but SUTFor.* has one stack"),
    ],
)
def test_configs_that_do_not_fit_are_refused(architecture, head, fields, message):
    sizes = {"num_labels": 3, "hidden_size": 16, "num_attention_heads": 2}
    config = AutoConfig.for_model(architecture, **{**sizes, **fields})
    with pytest.raises(ValueError, match=message):
        getattr(transformers, head).from_config(config)


TEXTS = ["w9 w4 w5", "w7 w4", "w23 w11 w4 w8 w9 w6"]


def named(*names):
    return pytest.mark.parametrize("name", [name if name == "gut" else slow(name) for name in names])


@named("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "rnn_lstm", "block_recurrent", "sut")
def test_token_classification_pipeline_in_batches(name):
    model, tokenizer = make_head(name, TOKENS), make_tokenizer()
    classify = pipeline("token-classification", model=model, tokenizer=tokenizer, device="cpu", ignore_labels=[])
    for text, found in zip(TEXTS, classify(TEXTS, batch_size=2), strict=True):
        expected = run(model, tokenizer(text, return_tensors="pt")).logits[0, 1:-1].softmax(-1)
        assert [item["word"] for item in found] == text.split()
        assert [item["entity"] for item in found] == [model.config.id2label[i] for i in expected.argmax(-1).tolist()]
        assert [item["score"] for item in found] == pytest.approx(expected.amax(-1).tolist(), abs=1e-5)


@named("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "rnn_bilstm", "sut")
def test_fill_mask_pipeline(name):
    model, tokenizer = make_head(name, MASKED), make_tokenizer()
    tokenizer.mask_token = "w4"
    fill = pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")
    for text, found in zip(TEXTS, fill(TEXTS, batch_size=2), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        (logits,) = run(model, inputs).logits[inputs.input_ids == tokenizer.mask_token_id]
        best = logits.softmax(-1).topk(5)
        assert [item["token"] for item in found] == best.indices.tolist()
        assert_same({"scores": torch.tensor([item["score"] for item in found])}, {"scores": best.values})

"""Fitting the probe: what it sees is what an exit sees, and it learns to tell right answers from wrong ones."""

import pytest
import torch
from transformers import AutoModel

from analysis.sweep_models import make_pairs, make_translator
from hf_recurrent.analysis.probe import JudgedAnswers, fit, fit_probe, held_out_units, judged_answers
from hf_recurrent.models.ops.exit_probe import ExitProbe
from support.compare import assert_close
from support.families import (
    BY_NAME,
    LABELS,
    LANGUAGE_BY_NAME,
    STEPS,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    nightly,
    slow,
    tiered,
)
from support.token_heads import CHOICE, MASKED, SPAN, TOKENS, make_head, make_head_batch

READS_WHOLE = [
    variant for variant in BY_NAME.values() if not (variant.fixed_layers or variant.chunked or variant.always_causal)
]
# criteria of Huginn see its coda applied to each token alone, and heads the whole coda
LANGUAGE = [
    variant
    for variant in LANGUAGE_BY_NAME.values()
    if not (variant.fixed_layers or variant.chunked or variant.architecture == "huginn_recurrent")
]


@torch.no_grad()
def exits_at(model, head, batch, step: int, num_features: int):
    """Features that the head gets, and logits, of a model that stops every unit after `step` steps."""
    model.exit_probe = ExitProbe(num_features, 4)
    seen = []
    hook = head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    options = {"exit_criterion": "probe", "exit_threshold": 0.0, "exit_patience": 1, "min_depth": step}
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    output = model(**inputs, **options)
    hook.remove()
    del model.exit_probe
    assert set(output.ponder_steps.unique().tolist()) <= {step, -1}
    if output.logits.dim() == 2:
        return seen[-1], output.logits
    # heads of texts see a zero state, for padding, and the tokens
    mask = inputs.get("decoder_attention_mask", inputs["attention_mask"]).bool()
    states = seen[-1].new_zeros(*mask.shape, seen[-1].shape[-1])
    states[mask] = seen[-1][1:]
    return states, output.logits


@pytest.mark.parametrize("variant", tiered(READS_WHOLE))
def test_a_probe_sees_the_features_by_which_sequences_would_be_classified(variant):
    model, batch = make_model(variant), make_batch(variant)
    found = judged_answers(model, [batch, make_batch(variant, rows=3, seed=1)])
    assert found.right.shape == (13, STEPS - 1)
    assert found.example.tolist() == list(range(13))
    assert found.right.any()
    for step in range(1, STEPS):
        features, logits = exits_at(model, model.classifier, batch, step, found.features.shape[-1])
        assert_close(found.features[:10, step - 1], features, tolerance=1e-4)
        assert found.right[:10, step - 1].tolist() == (logits.argmax(-1) == batch["labels"]).tolist()


def test_sequences_whose_tokens_stop_one_by_one_are_refused():
    model, batch = make_model(BY_NAME["ouro_recurrent"]), make_batch(BY_NAME["ouro_recurrent"])
    with pytest.raises(ValueError, match="classifies sequences, but its tokens stop one by one"):
        judged_answers(model, [batch])


@pytest.mark.parametrize("variant", tiered(LANGUAGE))
def test_a_probe_sees_the_states_by_which_tokens_would_be_predicted(variant):
    model, batch = make_language_model(variant), make_text(variant)
    found = judged_answers(model, [batch])
    # the first token that is there has nothing before it
    mask = batch["attention_mask"].bool()
    judged = mask[:, :-1] & (batch["labels"][:, 1:] != -100)
    assert found.example.tolist() == judged.nonzero()[:, 0].tolist()
    for step in range(1, STEPS):
        states, logits = exits_at(model, model.lm_head, batch, step, found.features.shape[-1])
        assert_close(found.features[:, step - 1], states[:, :-1][judged], tolerance=1e-4)
        right = logits[:, :-1].argmax(-1) == batch["labels"][:, 1:]
        assert found.right[:, step - 1].tolist() == right[judged].tolist()


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("ut", TOKENS),
        ("ut", MASKED),
        nightly("gut_token", TOKENS),
        slow("sut", MASKED),
        nightly("ouro_recurrent", TOKENS),
    ],
)
def test_a_probe_sees_the_states_by_which_tokens_would_be_labelled(name, head):
    model, batch = make_head(name, head), make_head_batch(name, head)
    found = judged_answers(model, [batch])
    judged = batch["labels"] != -100
    assert found.example.tolist() == judged.nonzero()[:, 0].tolist()
    assert found.right.any() or head == MASKED
    layer = model.classifier if head == TOKENS else model.lm_head
    for step in range(1, STEPS):
        states, logits = exits_at(model, layer, batch, step, found.features.shape[-1])
        assert_close(found.features[:, step - 1], states[judged], tolerance=1e-4)
        assert found.right[:, step - 1].tolist() == (logits.argmax(-1) == batch["labels"])[judged].tolist()


def test_decoders_are_judged_token_by_token():
    model, (batch, _) = make_translator(), make_pairs()
    found = judged_answers(model, [batch])
    judged = batch["labels"] != -100
    steps = model.config.num_decoder_layers
    assert found.right.shape == (int(judged.sum()), steps - 1)
    given = {**batch, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(batch["labels"])}
    given["decoder_attention_mask"] = judged.long()
    states, logits = exits_at(model, model.lm_head, given, steps - 1, found.features.shape[-1])
    assert_close(found.features[:, -1], states[judged], tolerance=1e-4)
    assert found.right[:, -1].tolist() == (logits.argmax(-1) == batch["labels"])[judged].tolist()


@torch.no_grad()
def seen_alone(model, inputs, num_features: int) -> list[torch.Tensor]:
    """What the probe is asked to judge in one sequence, chunk by chunk and step by step."""
    model.exit_probe, seen = ExitProbe(num_features, 4), []
    model.exit_probe.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(**inputs, exit_criterion="probe", exit_threshold=1.0)
    del model.exit_probe
    return seen


@pytest.mark.parametrize("reads", ["sequences", "tokens"])
def test_chunks_stop_by_themselves(reads):
    tokens = reads == "tokens"
    variant = (LANGUAGE_BY_NAME if tokens else BY_NAME)["gutlb"]
    model, batch = (
        (make_language_model(variant), make_text(variant)) if tokens else (make_model(variant), make_batch(variant))
    )
    found = judged_answers(model, [batch])
    for row in range(len(batch["input_ids"])):
        mask = batch["attention_mask"][row].bool()
        inputs = {name: batch[name][row : row + 1, mask] for name in ("input_ids", "attention_mask")}
        seen = seen_alone(model, inputs, found.features.shape[-1])
        chunks = [torch.stack(seen[first : first + STEPS - 1], dim=1) for first in range(0, len(seen), STEPS - 1)]
        expected = torch.cat(chunks)
        if tokens:
            expected = expected[:-1][batch["labels"][row, mask][1:] != -100]
        assert_close(found.features[found.example == row], expected, tolerance=1e-4)
    # the answers at the ends of texts, and those before
    assert len(found.right) > len(batch["input_ids"])


def test_independent_labels_must_all_be_right():
    model = make_model(BY_NAME["gut_no_halt"], problem_type="multi_label_classification")
    batch = make_batch(BY_NAME["gut_no_halt"])
    _, logits = exits_at(model, model.classifier, batch, 3, 32)
    wanted = (logits > 0).long()
    wanted[::2, 0] = 1 - wanted[::2, 0]
    found = judged_answers(model, [{**batch, "labels": wanted}])
    assert found.right[:, 2].tolist() == [False, True] * 5


def test_some_tokens_are_enough():
    variant = LANGUAGE_BY_NAME["gut_no_halt"]
    model, batches = make_language_model(variant), [make_text(variant, seed=seed) for seed in range(20)]
    every, some = (judged_answers(model, batches, most_units=most) for most in (10**6, 100))
    assert len(every.right) > 300
    assert 60 < len(some.right) < 140
    assert len(some.example.unique()) > 40
    # one in five batches is run
    few = judged_answers(model, batches, most_units=len(every.right) // 25)
    assert {number // 4 for number in few.example.tolist()} <= {0, 5, 10, 15}
    again, others = (judged_answers(model, batches, most_units=100, seed=seed) for seed in (0, 1))
    assert again.example.tolist() == some.example.tolist()
    assert others.example.tolist() != some.example.tolist()


def synthetic(examples: int = 400, steps: int = 5, num_features: int = 12) -> JudgedAnswers:
    """Answers that are right where a direction of the features says so, but for some noise."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(examples, steps, num_features, generator=generator)
    noise = 0.3 * torch.randn(examples, steps, generator=generator)
    return JudgedAnswers(features, features[..., 0] + noise > 0.5, torch.arange(examples))


def test_a_probe_learns_what_can_be_learned():
    answers = synthetic()
    held_out = held_out_units(answers.example, seed=0)
    assert int(held_out.sum()) == 80
    before = torch.get_rng_state()
    probe, updates = fit(answers, held_out, 16, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert 0 < updates <= 500
    features, right = answers.of(held_out)
    with torch.no_grad():
        found = probe(features)
        again = fit(answers, held_out, 16, seed=0)[0](features)
        other = fit(answers, held_out, 16, seed=1)[0](features)
    assert ((found > 0.5) == right).float().mean() > 0.85
    # as often right as it says
    sure = found > 0.8
    assert abs(float(right[sure].float().mean() - found[sure].mean())) < 0.1
    assert_close(again, found)
    assert not torch.allclose(other, found)


def test_the_model_stays_as_it_is():
    variant = BY_NAME["gut"]
    model, batch = make_model(variant).train(), make_batch(variant, rows=40)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    probe, found = fit_probe(model, [batch], size=8)
    assert (found["examples"], found["units"], found["steps"], found["held_out"]) == (40, 40, STEPS - 1, 8)
    assert model.training
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.exit_probe = probe
    fit_probe(model, [batch], size=4)
    assert model.exit_probe is probe


def test_requests_that_cannot_be_met():
    variant = BY_NAME["gut_no_halt"]
    model, batch = make_model(variant), make_batch(variant)

    def refused(message, model=model, batches=(batch,), **options):
        with pytest.raises(ValueError, match=message):
            fit_probe(model, batches, **options)

    refused("architecture 'tlb'", make_model(BY_NAME["tlb"]))
    refused("has no head", AutoModel.from_config(model.config))
    refused("predicts a number", make_model(variant, problem_type="regression"))
    refused("ForTokenClassification: .* its sequences stop as a whole", make_head("gut", TOKENS))
    refused("ForQuestionAnswering: .* predicts nothing alone", make_head("ut", SPAN))
    refused("ForMultipleChoice: .* predicts nothing alone", make_head("gut", CHOICE))
    refused("need 'labels'", batches=[{name: values for name, values in batch.items() if name != "labels"}])
    refused("no labelled examples", batches=[])
    refused("one depth step", max_depth=1)
    refused("size is 0", size=0)
    refused("one example", batches=[{name: values[:1] for name, values in batch.items()}])
    refused("different chunks", make_model(BY_NAME["gutlb_siamese"]), [make_batch(BY_NAME["gutlb_siamese"])])
    # always the first class
    model.classifier.output.weight.data.zero_()
    model.classifier.output.bias.data.copy_(torch.arange(LABELS) == 0)
    for answer, word in ((0, "right"), (1, "wrong")):
        labels = torch.full_like(batch["labels"], answer)
        refused(
            f"all 40 answers to fit to are {word}, so there is nothing to learn", batches=[{**batch, "labels": labels}]
        )

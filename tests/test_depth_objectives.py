"""Objectives over depth against brute force: one call for each depth, weighted by hand."""

import copy
import math

import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from hf_recurrent.models.depth.objectives import (
    sampled_depth,
)
from support.compare import assert_close, gradients
from support.families import (
    BY_NAME,
    EXPECTED_VARIANTS,
    LANGUAGE_BY_NAME,
    ONE_CHUNK,
    STEPS,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    slow,
    tiered,
)

# a head that is sure of halting would stop units at a threshold of 1
NEVER = {"exit_criterion": "convergence", "exit_threshold": 0.0, "exit_patience": 99}
LINEAR = [2 * step / (STEPS * (STEPS + 1)) for step in range(1, STEPS + 1)]


def trained_by(make, variant, objective: str, **changes):
    """A model of a variant without halting, or of one that halts, in training by an objective."""
    model = make(variant)
    model.config.depth_objective = objective
    for name, value in changes.items():
        setattr(model.config, name, value)
    return model.train()


WITHOUT_HALTING = ["gut_no_halt", "ndr", slow("ndr_relative"), slow("sut_dense")]


@pytest.mark.parametrize("weights", ["linear", "uniform"])
@pytest.mark.parametrize("name", WITHOUT_HALTING)
def test_every_step_is_the_weighted_loss_of_each_depth(name, weights):
    variant = BY_NAME[name]
    batch = make_batch(variant)
    final = trained_by(make_model, variant, "final")
    shares = LINEAR if weights == "linear" else [1 / STEPS] * STEPS
    expected = sum(share * final(**batch, max_depth=step).loss for step, share in enumerate(shares, start=1))
    model = trained_by(make_model, variant, "every_step", step_weights=weights)
    output = model(**batch)
    assert_close(output.loss, expected, tolerance=1e-5)
    assert_close(output.logits, final(**batch).logits, tolerance=1e-5)
    # in evaluation, the loss is that of the answer
    assert_close(model.eval()(**batch).loss, final(**batch).loss, tolerance=1e-5)


@pytest.mark.parametrize("name", ["gut_no_halt", slow("gutlb_no_halt"), "ndr"])
def test_every_step_of_language_models(name):
    variant = LANGUAGE_BY_NAME[name]
    batch, changes = make_text(variant), ONE_CHUNK if variant.chunked else {}
    final = trained_by(make_language_model, variant, "final", **changes)
    expected = sum(share * final(**batch, max_depth=step).loss for step, share in enumerate(LINEAR, start=1))
    model = trained_by(make_language_model, variant, "every_step", **changes)
    assert_close(model(**batch).loss, expected, tolerance=1e-5)


def test_every_step_of_chunks_supervises_the_last_chunk():
    variant = BY_NAME["gutlb"]
    batch = make_batch(variant)
    models = {}
    for objective in ("final", "every_step"):
        torch.manual_seed(0)
        config = type(make_model(variant).config)
        fields = {**make_model(variant).config.to_dict(), "halting": "none", "depth_objective": objective}
        models[objective] = type(make_model(variant))(config(**fields)).train()
    models["every_step"].load_state_dict(models["final"].state_dict())
    output = models["every_step"](**batch)
    final = models["final"](**batch)
    assert_close(output.logits, final.logits, tolerance=1e-5)
    assert abs(output.loss - final.loss) > 1e-4
    # a sequence of a single chunk is supervised as if there were no chunks
    short = {name: values[:, :4] if values.dim() == 2 else values for name, values in batch.items()}
    expected = sum(share * models["final"](**short, max_depth=step).loss for step, share in enumerate(LINEAR, start=1))
    assert_close(models["every_step"](**short).loss, expected, tolerance=1e-5)


@torch.no_grad()
def naive_distribution(model, variant, batch) -> torch.Tensor:
    """(B, L) from the halting head on recorded states, one state at a time."""
    states = model(**batch, output_hidden_states=True, **NEVER).hidden_states
    mask = batch["attention_mask"].bool()
    remaining, masses = torch.ones(mask.shape), []
    for step in range(1, STEPS):
        features = states[step]
        if model.config.transition_aware:
            features = torch.cat((states[step], states[step + 1]), dim=-1)
        if variant.token_units:
            probability = model.model.halting_head(features)
        else:
            means = torch.stack([row[keep].mean(0) for row, keep in zip(features, mask, strict=True)])
            probability = model.model.halting_head(means)[:, None].expand(mask.shape)
        masses.append(remaining * probability)
        remaining = remaining * (1 - probability)
    by_token = torch.stack((*masses, remaining), dim=-1)
    return torch.stack([row[keep].mean(0) for row, keep in zip(by_token, mask, strict=True)])


@pytest.mark.parametrize("prior", ["geometric", "uniform"])
@pytest.mark.parametrize("name", ["gut_expected", "ut_expected"])
def test_expected_loss_and_its_prior(name, prior):
    variant = BY_NAME[name]
    batch = make_batch(variant)
    model = make_model(variant, depth_prior=prior, depth_prior_weight=0.3)
    distribution = naive_distribution(model, variant, batch)
    output = model.train()(**batch)
    probe = copy.deepcopy(model).eval()
    task = torch.zeros(len(batch["labels"]))
    for step in range(1, STEPS + 1):
        with torch.no_grad():
            logits = probe(**batch, max_depth=step, **NEVER).logits
        losses = torch.nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        task += distribution[:, step - 1] * losses
    chances = torch.tensor([0.2 * 0.8**step for step in range(STEPS)]) if prior == "geometric" else torch.ones(STEPS)
    chances = chances / chances.sum()
    divergence = (distribution * (distribution / chances).log()).sum(-1)
    assert_close(output.aux_loss.detach(), 0.3 * divergence.mean(), tolerance=1e-4)
    assert_close(output.loss.detach(), task.mean() + 0.3 * divergence.mean(), tolerance=1e-4)
    output.loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in model.model.halting_head.parameters())


def test_expected_models_halt_by_their_own_mass():
    """Under learned halting a unit stops at the first step whose mass reaches the threshold, and answers from there."""
    variant = BY_NAME["gut_expected"]
    batch = make_batch(variant)
    model = make_model(variant, halting_threshold=0.5)
    mass = naive_distribution(model, variant, batch).cumsum(-1)[:, :-1]
    expected = torch.where(mass > 0.5, 0, 1).sum(-1) + 1
    with torch.no_grad():
        output = model(**batch)
        for row, steps in enumerate(output.ponder_steps.tolist()):
            alone = model(**batch, max_depth=steps, **NEVER)
            assert_close(output.logits[row], alone.logits[row], tolerance=1e-4)
    assert len(set(expected.tolist())) > 1
    assert output.ponder_steps.tolist() == expected.tolist()


@pytest.mark.parametrize("variant", tiered(EXPECTED_VARIANTS))
def test_expected_models_halt_alike_alone_and_together(variant):
    model, batch = make_model(variant), make_batch(variant)
    batch.pop("labels")
    with torch.no_grad():
        together = model(**batch)
        model.config.compaction = False
        padded = model(**batch)
        model.config.compaction = True
        for row, length in enumerate(batch["attention_mask"].sum(-1).tolist()):
            alone = model(**{name: values[row : row + 1, :length] for name, values in batch.items()})
            assert_close(alone.logits[0], together.logits[row], tolerance=1e-4)
            found = together.ponder_steps[row]
            assert alone.ponder_steps[alone.ponder_steps >= 0].tolist() == found[found >= 0].tolist()
    assert padded.ponder_steps.tolist() == together.ponder_steps.tolist()
    assert_close(padded.logits, together.logits, tolerance=1e-4)


@pytest.mark.parametrize("variant", tiered(EXPECTED_VARIANTS))
def test_expected_language_models_decode_from_a_cache(variant):
    model, batch = make_language_model(variant), make_text(variant)
    batch.pop("labels")
    with torch.no_grad():
        whole = model(**batch)
        cache, logits = None, []
        for start, stop in ((0, 6), (6, 7), (7, 14)):
            ids, mask = batch["input_ids"][:, start:stop], batch["attention_mask"][:, :stop]
            piece = model(ids, mask, past_key_values=cache, use_cache=True)
            cache = piece.past_key_values
            logits.append(piece.logits)
    mask = batch["attention_mask"].bool()
    assert_close(torch.cat(logits, 1)[mask], whole.logits[mask], tolerance=1e-4)


def make_translator(**changes):
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "sut",
        **{
            **{"vocab_size": 24, "hidden_size": 32, "num_attention_heads": 2, "head_dim": 16, "intermediate_size": 48},
            **{"num_hidden_layers": 3, "num_decoder_layers": 4, "attention_experts": 2, "feed_forward_experts": 2},
            **{"attention_experts_per_token": 1, "feed_forward_experts_per_token": 1, "router_loss": "none"},
            **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "router_dropout"), 0.0),
            **{"is_encoder_decoder": True, "halting": "none", "label_smoothing": 0.1},
            **changes,
        },
    )
    return AutoModelForSeq2SeqLM.from_config(config).train()


def translation_batch() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    labels = torch.randint(4, 24, (3, 5))
    labels[0, 3:] = -100
    return {"input_ids": torch.randint(4, 24, (3, 6)), "labels": labels}


@pytest.mark.parametrize("max_depth", [None, 2])
def test_every_step_of_each_stack_beside_the_other_at_full_depth(max_depth):
    batch = translation_batch()
    final, model = make_translator(depth_objective="final"), make_translator(depth_objective="every_step")
    model.load_state_dict(final.state_dict())
    expected = 0.0
    encoder_steps, decoder_steps = (max_depth, max_depth) if max_depth else (3, 4)
    full = final.model.encoder(batch["input_ids"], pooling=False, max_depth=encoder_steps)
    for step in range(1, decoder_steps + 1):
        share = step / sum(range(decoder_steps + 1))
        expected += share * final(encoder_outputs=full, labels=batch["labels"], max_depth=step).loss / 2
    for step in range(1, encoder_steps + 1):
        share = step / sum(range(encoder_steps + 1))
        encoded = final.model.encoder(batch["input_ids"], pooling=False, max_depth=step)
        loss = final(encoder_outputs=encoded, labels=batch["labels"], max_depth=decoder_steps).loss
        expected += share * loss / 2
    assert_close(model(**batch, max_depth=max_depth).loss, expected, tolerance=1e-5)


def test_every_step_trains_what_will_stop_by_its_predictions():
    """An exit criterion of the config stops nothing in training."""
    losses = []
    for criterion in ("learned", "entropy"):
        model = make_translator(depth_objective="every_step", exit_criterion=criterion)
        model.load_state_dict(make_translator().state_dict())
        torch.manual_seed(0)
        losses.append(model(**translation_batch()).loss)
    assert_close(*losses)


def test_expected_loss_of_both_stacks_trains_both_halting_heads():
    model = make_translator(depth_objective="expected", halting="token", halting_bias_init=0.0)
    output = model(**translation_batch())
    output.loss.backward()
    for stack in (model.model.encoder, model.model.decoder):
        assert stack.halting_head.down_proj.weight.grad.abs().sum() > 0
    assert output.aux_loss > 0


def test_an_objective_set_after_loading_is_that_of_both_stacks():
    created, changed = make_translator(depth_objective="expected", halting="token"), make_translator(halting="token")
    changed.load_state_dict(created.state_dict())
    changed.config.depth_objective = "expected"
    losses = []
    for model in (created, changed):
        torch.manual_seed(0)
        losses.append(model(**translation_batch()).loss)
    assert_close(*losses)


def test_depth_is_drawn_for_one_stack_at_a_time():
    model = make_translator(depth_sampling="uniform", depth_range=[1, 2])
    model.model.depth_generator = torch.Generator().manual_seed(0)
    depths = set()
    with torch.no_grad():
        for _ in range(30):
            output = model(**translation_batch())
            depths.add((int(output.encoder_ponder_steps.max()), int(output.ponder_steps.max())))
    assert depths == {(1, 4), (2, 4), (3, 1), (3, 2)}


def test_act_draws_no_more_steps_than_it_may_take():
    fields = {"halting": "act", "copy_gate": False, "num_hidden_layers": 4}
    for sampling in ({"depth_sampling": "poisson_lognormal"}, {"depth_sampling": "uniform", "depth_range": [2, 5]}):
        with pytest.raises(Exception, match="draw no more"):
            AutoConfig.for_model("ndr", **fields, **sampling)
    AutoConfig.for_model("ndr", **fields, depth_sampling="poisson_lognormal", depth_range=[1, 4])


@pytest.mark.parametrize("steps", [1, 2, STEPS])
def test_gradient_through_the_last_steps_only(steps):
    variant = BY_NAME["gut_no_halt"]
    batch = make_batch(variant)
    model = trained_by(make_model, variant, "final", backprop_steps=steps)
    found = gradients(model, batch)
    plain = trained_by(make_model, variant, "final")
    with torch.no_grad():
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        start = plain.model.embed_tokens(batch["input_ids"])
        if steps < STEPS:
            start = plain.model(**inputs, max_depth=STEPS - steps, output_hidden_states=True).hidden_states[-1]
    plain.zero_grad()
    rest = {"attention_mask": batch["attention_mask"], "labels": batch["labels"], "max_depth": steps}
    plain(inputs_embeds=start, **rest).loss.backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters() if parameter.grad is not None}
    assert len(expected) > 5
    for name, gradient in expected.items():
        assert_close(found[name], gradient, tolerance=1e-4, name=name)
    trains_embeddings = found["model.embed_tokens.weight"].abs().sum() > 0
    assert trains_embeddings == (steps == STEPS)


# the oldest supported transformers does not know the new name
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("name", ["gut_expected", "gut_every_step", slow("ut_expected"), slow("sut_expected")])
def test_gradient_checkpointing_changes_nothing(name):
    variant = BY_NAME[name]
    batch = make_batch(variant)
    plain = gradients(make_model(variant).train(), batch)
    model = make_model(variant).train()
    model.gradient_checkpointing_enable()
    for parameter, gradient in gradients(model, batch).items():
        assert_close(gradient, plain[parameter], tolerance=1e-5, min_scale=1e-3)


@pytest.mark.parametrize("name", ["gut_no_halt", slow("gutlb"), slow("ndr")])
def test_drawn_depths_are_those_of_the_range(name):
    variant = BY_NAME[name]
    model = make_model(variant, depth_sampling="uniform", depth_range=[2, 4]).train()
    model.model.depth_generator = torch.Generator().manual_seed(0)
    depths, batch = set(), make_batch(variant)
    for _ in range(20):
        with torch.no_grad():
            depths.add(len(model(**batch, output_hidden_states=True).hidden_states) - 1)
    assert depths == {2, 3, 4}
    with torch.no_grad():
        assert len(model.eval()(**batch, output_hidden_states=True).hidden_states) - 1 == STEPS


def test_distribution_of_drawn_depths():
    config = make_model(BY_NAME["gut_no_halt"], depth_sampling="poisson_lognormal").config
    generator = torch.Generator().manual_seed(0)
    drawn = torch.tensor([sampled_depth(config, 8, generator) for _ in range(4000)], dtype=torch.float64)
    # one more than a Poisson variable whose mean is log-normal with mean 8: variance 8 + 64 (exp(0.25) - 1)
    assert drawn.min() >= 1
    assert abs(drawn.mean() - 9) < 4 * math.sqrt((8 + 64 * math.expm1(0.25)) / 4000)
    assert abs(drawn.var() / (8 + 64 * math.expm1(0.25)) - 1) < 0.25
    config.depth_range = [3, 6]
    assert {sampled_depth(config, 8, generator) for _ in range(300)} == {3, 4, 5, 6}


@pytest.mark.parametrize("name", ["xpos_transformer", "tlb", "rnn_lstm", "block_recurrent"])
def test_models_without_iterated_block_read_no_objective_over_depth(name):
    variant = BY_NAME[name]
    batch = make_batch(variant)
    losses = [make_model(variant, **fields).train()(**batch).loss for fields in ({}, {"depth_objective": "every_step"})]
    assert_close(*losses)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth_objective": "final", "halting": "global"}, "trains no halting head"),
        ({"depth_objective": "expected"}, "needs a halting distribution"),
        ({"depth_sampling": "uniform", "depth_range": [4, 2]}, "1 <= low <= high"),
        ({"depth_range": [1, 2]}, "draws nothing"),
        ({"exit_criterion": "probe"}, "fit-probe"),
        ({"exit_threshold": 0.5}, "halting_threshold"),
        ({"exit_criterion": "confidence", "exit_threshold": 2}, "smallest probability"),
    ],
)
def test_bad_fields(changes, message):
    with pytest.raises(Exception, match=message):
        AutoConfig.for_model("gut", **changes)


@pytest.mark.parametrize("objective", ["every_step", "final"])
def test_objectives_set_after_loading_are_refused_in_training(objective):
    variant = BY_NAME["gut"]
    model, batch = make_model(variant), make_batch(variant)
    model.config.depth_objective = objective
    model.eval()(**batch)
    with pytest.raises(ValueError, match=f"`depth_objective` is '{objective}': it trains no halting head"):
        model.train()(**batch)

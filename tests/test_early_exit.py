"""Exit criteria against a naive twin, which runs every depth by itself and stops each example where its rule says."""

import functools

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForSequenceClassification, GenerationConfig

from hf_recurrent.models.config.exit_criteria import CRITERIA
from hf_recurrent.models.heads.pairs import split_pairs
from support.compare import assert_close
from support.exit_models import (
    classifier,
    exit_options,
    language_model,
    make_classifier,
    sharp_classifier,
    sharpen,
    with_probe,
)
from support.families import (
    BY_NAME,
    EXPECTED_VARIANTS,
    LABELS,
    LANGUAGE_BY_NAME,
    STEPS,
    make_batch,
    make_config,
    make_language_model,
    make_model,
    make_text,
    tiered,
)

SHARED = tuple(variant for variant in BY_NAME.values() if not variant.fixed_layers)
LANGUAGE = tuple(
    variant for variant in LANGUAGE_BY_NAME.values() if not variant.fixed_layers and variant.chunking != "count"
)
shared_blocks = pytest.mark.parametrize("variant", tiered(SHARED))
languages = pytest.mark.parametrize("variant", tiered(LANGUAGE))
criteria = pytest.mark.parametrize("criterion", CRITERIA)
# one of states and one of answers
QUICK_CRITERIA = ("convergence", "confidence")


def tiered_pairs(variants):
    """Variants and criteria: `make test` has the core of both, `make test-all` either with all of the other."""

    def mark(variant, criterion):
        chosen = variant.core + (criterion in QUICK_CRITERIA)
        return ((pytest.mark.nightly,), (pytest.mark.slow,), ())[chosen]

    pairs = [(variant, criterion) for variant in variants for criterion in CRITERIA]
    values = [pytest.param(*pair, id=f"{pair[0].name}-{pair[1]}", marks=mark(*pair)) for pair in pairs]
    return pytest.mark.parametrize(("variant", "criterion"), values)


# scores closer to a threshold than this could fall on either side by rounding
MARGIN = 1e-5


def between(criterion: str, scores: np.ndarray) -> float:
    """The threshold (L, N) in the widest gap between scores by which some examples stop early and others late."""
    scores = scores.reshape(len(scores), -1)
    # padding has none
    scores = scores[:, np.isfinite(scores).any(0)]
    values = np.sort(scores[np.isfinite(scores)])
    gaps = np.diff(values)
    for place in gaps.argsort()[::-1]:
        assert gaps[place] > 2 * MARGIN, "scores are too close to each other"
        threshold = float(values[place] + values[place + 1]) / 2
        if len(set(naive_steps(criterion, scores, threshold, 1, 1))) > 1:
            return threshold
    raise AssertionError("no threshold tells examples apart")


def naive_scores(criterion: str, logits: np.ndarray, probes: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Scores (L, N) of each step: logits (L, N, C), probabilities of the probe and relative changes (L, N)."""
    if criterion == "convergence":
        return changes
    if criterion == "probe":
        return probes
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    p = exponents / exponents.sum(-1, keepdims=True)
    if criterion == "confidence":
        return p.max(-1)
    if criterion == "entropy":
        return -(p * np.log(p)).sum(-1)
    if criterion == "stability":
        pairs = (p[1:].argmax(-1) == p[:-1].argmax(-1)).astype(float)
    else:
        pairs = (p[1:] * (np.log(p[1:]) - np.log(p[:-1]))).sum(-1)
    return np.concatenate((np.full_like(pairs[:1], np.nan), pairs))


def naive_steps(criterion: str, scores: np.ndarray, threshold: float | None, patience: int, least: int) -> np.ndarray:
    """(N,) step after which each example stops: the first at which the rule has held for `patience` steps."""
    stops = []
    for each in scores.T:
        held, stop = 0, len(each)
        for step, score in enumerate(each, start=1):
            passes = score > 0 if threshold is None else score <= threshold
            if threshold is not None and not CRITERIA[criterion].falls:
                passes = score >= threshold
            held = held + 1 if passes else 0
            if held >= patience and step >= least:
                stop = step
                break
        stops.append(stop)
    return np.array(stops)


@functools.cache
@torch.no_grad()
def answers_by_step(variant) -> tuple[np.ndarray, np.ndarray]:
    """Logits (L, B, C) and probabilities of the probe (L, B) of `make_classifier`, stopped after each step."""
    model, batch = make_classifier(variant), make_batch(variant)
    batch.pop("labels")
    logits, probes, head = [], [], model.answer_head()
    never = {"halting_threshold": 1.0} if variant.halts else {}
    if variant in EXPECTED_VARIANTS:
        # at a threshold of 1 a token whose head is sure stops, and answers from there
        never = {"exit_criterion": "convergence", "exit_threshold": 0.0, "exit_patience": 99}
    features = []
    model.classifier.register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    for steps in range(1, STEPS + 1):
        logits.append(model(**batch, max_depth=steps, **never).logits.double().numpy())
        probes.append(model.exit_probe(features[-1]).double().numpy())
    assert head.probe is not None
    return np.stack(logits), np.stack(probes)


@functools.cache
@torch.no_grad()
def changes_by_step(variant) -> np.ndarray:
    """Relative changes of `make_classifier` (L, rows, tokens), zero at padding."""
    model, batch = make_classifier(variant), make_batch(variant)
    batch.pop("labels")
    # a head that is sure of halting would stop units at a threshold of 1
    never = {"exit_criterion": "convergence", "exit_threshold": 0.0, "exit_patience": 99}
    states = model(**batch, output_hidden_states=True, **never).hidden_states
    mask = batch["attention_mask"].bool()
    if variant.siamese:
        _, mask = split_pairs(mask, batch["token_type_ids"])
    states = [torch.where(mask[..., None], state, 0.0).double() for state in states]
    sizes = [state.norm(dim=-1).clamp_min(1e-300) for state in states]
    pairs = zip(states[1:], states[:-1], sizes[:-1], strict=True)
    return torch.stack([(new - old).norm(dim=-1) / size for new, old, size in pairs]).numpy()


@criteria
@shared_blocks
def test_every_example_stops_where_its_own_answers_say(variant, criterion):
    model, batch = make_classifier(variant), make_batch(variant)
    batch.pop("labels")
    by_tokens = variant.stacked or (criterion == "convergence" and variant.token_units)
    if by_tokens:
        pytest.skip("tokens attend to each other's stopped states: compared with the twin of tokens")
    if variant.chunked and variant.siamese and criterion != "convergence":
        pytest.skip("refused, see the test of bad options")
    logits, probes = answers_by_step(variant)
    patience = CRITERIA[criterion].default_patience
    scores = naive_scores(criterion, logits, probes, changes_by_step(variant).max(-1))
    threshold = None if criterion == "stability" else between(criterion, scores)
    steps = naive_steps(criterion, scores, threshold, patience, 1)
    assert len(set(steps)) > 1 or criterion == "stability"
    with torch.no_grad():
        output = model(**batch, exit_criterion=criterion, exit_threshold=threshold)
    found = output.ponder_steps
    if variant.siamese and not variant.token_units:
        found = found.flatten(1).T.flatten() if criterion == "convergence" else found.flatten(1).amax(1)
    elif found.dim() == 2:
        found = found.amax(1)
    assert found.tolist() == steps.tolist()
    if not (variant.siamese and criterion == "convergence"):
        expected = torch.tensor(logits[steps - 1, np.arange(len(steps))])
        assert_close(output.logits.double(), expected, tolerance=1e-4)


@pytest.mark.parametrize(("patience", "least"), [(2, 1), (1, 4), (3, 4)])
@pytest.mark.parametrize("criterion", ["convergence", "agreement", "confidence"])
def test_patience_and_least_steps(criterion, patience, least):
    variant = BY_NAME["gut_no_halt"]
    model, batch = make_classifier(variant), make_batch(variant)
    batch.pop("labels")
    scores = naive_scores(criterion, *answers_by_step(variant), changes_by_step(variant).max(-1))
    threshold = between(criterion, scores)
    options = {"exit_criterion": criterion, "exit_threshold": threshold, "exit_patience": patience, "min_depth": least}
    with torch.no_grad():
        found = model(**batch, **options).ponder_steps
    assert found.tolist() == naive_steps(criterion, scores, threshold, patience, least).tolist()


@torch.no_grad()
def tokens_step_by_step(model, batch, criterion: str, threshold: float | None, num_steps: int):
    """States (B, S, E), steps and all scores, one application of the whole model's block at a time."""
    base = model.base_model
    mask = batch["attention_mask"].bool()
    states = base.get_input_embeddings()(batch["input_ids"])
    live, taken = mask.clone(), torch.zeros_like(batch["input_ids"])
    streak, before, scores = torch.zeros_like(taken), None, []
    for _ in range(num_steps):
        inputs = {"inputs_embeds": states, "attention_mask": batch["attention_mask"], "max_depth": 1}
        new = base(**inputs, output_hidden_states=True).hidden_states[1]
        change = (new - states).norm(dim=-1) / states.norm(dim=-1)
        states = torch.where(live[..., None], new, states)
        taken += live
        if criterion == "convergence":
            score = change.double().numpy()
        else:
            logits = model.predict(base.readout(states)).double().numpy()
            probes = model.exit_probe(base.readout(states)).double().numpy()
            pair = np.stack((logits if before is None else before, logits))
            score = naive_scores(criterion, pair, np.stack((probes, probes)), None)[-1]
            score = np.full_like(score, np.nan) if before is None and criterion in ("agreement", "stability") else score
            before = logits
        scores.append(np.where(live, score, np.nan))
        passes = score > 0 if threshold is None else score <= threshold
        if threshold is not None and not CRITERIA[criterion].falls:
            passes = score >= threshold
        streak = torch.where(torch.tensor(passes), streak + 1, 0)
        live = live & (streak < CRITERIA[criterion].default_patience)
    return states, torch.where(mask, taken, -1), np.stack(scores)


# states after several steps can be passed on to a further one only if nothing but the state is carried along
STEPWISE = [
    pytest.param(LANGUAGE_BY_NAME["gut_no_halt"], id="gut_no_halt"),
    pytest.param(LANGUAGE_BY_NAME["ndr"], id="ndr"),
    pytest.param(LANGUAGE_BY_NAME["sut"], id="sut"),
]


def make_language_twin(variant):
    model = make_language_model(variant)
    if variant.architecture == "sut":
        config = type(model.config)(**{**model.config.to_dict(), "halting": "none", "absolute_positions": False})
        plain = type(model)(config).eval()
        plain.load_state_dict(model.state_dict(), strict=False)
        model = plain
    sharpen(model.lm_head, 0.3 if variant.architecture == "sut" else 10.0)
    return with_probe(model, 32)


@criteria
@pytest.mark.parametrize("variant", STEPWISE)
def test_every_token_stops_by_itself_and_keeps_its_state(variant, criterion):
    model, batch = make_language_twin(variant), make_text(variant)
    batch.pop("labels")
    threshold = None
    if criterion != "stability":
        # a threshold that no score passes shows all scores
        never = -1.0 if CRITERIA[criterion].falls else 2.0
        threshold = between(criterion, tokens_step_by_step(model, batch, criterion, never, STEPS)[2])
    states, steps, _ = tokens_step_by_step(model, batch, criterion, threshold, STEPS)
    with torch.no_grad():
        output = model(**batch, exit_criterion=criterion, exit_threshold=threshold)
        expected = model.predict(model.base_model.readout(states))
    assert len(set(steps[steps >= 0].tolist())) > 1 or criterion == "stability"
    assert output.ponder_steps.tolist() == steps.tolist()
    mask = batch["attention_mask"].bool()
    assert_close(output.logits[mask], expected[mask], tolerance=1e-4)


@tiered_pairs(LANGUAGE)
def test_cached_decoding_equals_the_full_forward_pass(variant, criterion):
    model, batch = language_model(variant)
    options = exit_options(language_model, variant, criterion)
    with torch.no_grad():
        whole = model(**batch, **options)
        cache, logits, steps = None, [], []
        for start, stop in ((0, 6), (6, 7), (7, 11), (11, 14)):
            mask = batch["attention_mask"] if not variant.chunked else batch["attention_mask"][:, start:stop]
            new = {name: values[:, start:stop] for name, values in batch.items() if name != "attention_mask"}
            piece = model(
                **new,
                attention_mask=mask[:, :stop],
                past_key_values=cache,
                use_cache=True,
                **options,
            )
            cache = piece.past_key_values
            logits.append(piece.logits)
            steps.append(piece.ponder_steps)
    mask = batch["attention_mask"].bool()
    assert torch.cat(steps, 1)[mask].tolist() == whole.ponder_steps[mask].tolist()
    assert_close(torch.cat(logits, 1)[mask], whole.logits[mask], tolerance=1e-4)


@tiered_pairs(SHARED)
def test_padding_batch_mates_and_compaction_change_nothing(variant, criterion):
    if variant.chunked and variant.siamese and criterion != "convergence":
        pytest.skip("refused, see the test of bad options")
    if variant.chunking == "balanced":
        pytest.skip("chunks depend on the longest sequence of a batch")
    model, batch = classifier(variant)
    options = exit_options(classifier, variant, criterion)
    with torch.no_grad():
        together = model(**batch, **options)
        model.config.compaction = False
        padded = model(**batch, **options)
        model.config.compaction = True
        for row, length in enumerate(batch["attention_mask"].sum(-1).tolist()):
            alone = model(**{name: values[row : row + 1, :length] for name, values in batch.items()}, **options)
            assert_close(alone.logits[0], together.logits[row], tolerance=1e-4)
            found = together.ponder_steps[row]
            assert alone.ponder_steps[alone.ponder_steps >= 0].tolist() == found[found >= 0].tolist()
    assert padded.ponder_steps.tolist() == together.ponder_steps.tolist()
    assert_close(padded.logits, together.logits, tolerance=1e-4)


def test_language_heads_run_on_live_tokens_only():
    model, batch = language_model(LANGUAGE_BY_NAME["gut_no_halt"])
    model.config.compaction = False
    seen = []
    model.lm_head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[:-1].numel()))
    options = exit_options(language_model, LANGUAGE_BY_NAME["gut_no_halt"], "agreement")
    with torch.no_grad():
        steps = model(**batch, **options).ponder_steps
    # after the last step there is nothing left to decide, but all tokens get logits, and all padding those of one place
    live = [int((steps >= step).sum()) for step in range(1, STEPS)]
    assert len(set(live)) > 1
    assert seen == [count for count in live if count] + [int(batch["attention_mask"].sum()) + 1]


def test_calls_change_the_criterion_and_take_its_own_defaults():
    model, batch = make_classifier(BY_NAME["gut_no_halt"]), make_batch(BY_NAME["gut_no_halt"])
    batch.pop("labels")
    with torch.no_grad():
        by_default = model(**batch, exit_criterion="confidence").ponder_steps
        model.config.exit_criterion, model.config.exit_threshold, model.config.exit_patience = "agreement", 1e9, 3
        stored = model(**batch).ponder_steps
        changed = model(**batch, exit_criterion="confidence").ponder_steps
        learned = model(**batch, exit_criterion="learned").ponder_steps
    assert stored.tolist() == [4] * len(stored)
    assert changed.tolist() == by_default.tolist()
    assert learned.tolist() == [STEPS] * len(learned)


def test_criteria_rest_in_training():
    model, batch = make_classifier(BY_NAME["gut_no_halt"]), make_batch(BY_NAME["gut_no_halt"])
    output = model.train()(**batch, exit_criterion="convergence", exit_threshold=1e9)
    assert output.ponder_steps.tolist() == [STEPS] * len(output.ponder_steps)


def test_more_steps_than_in_training():
    model, batch = make_classifier(BY_NAME["ndr"]), make_batch(BY_NAME["ndr"])
    with torch.no_grad():
        output = model(**batch, max_depth=3 * STEPS, exit_criterion="convergence", exit_threshold=1e9, min_depth=9)
    assert output.ponder_steps.tolist() == [9] * len(output.ponder_steps)


@pytest.mark.parametrize("name", ["gut_no_halt", "ndr"])
def test_halting_probabilities_are_certain(name):
    model = make_classifier(BY_NAME[name])
    # padding on the left, which a model may shift to the right
    batch = {key: values.flip(-1) for key, values in make_batch(BY_NAME[name]).items()}
    options = exit_options(sharp_classifier, BY_NAME[name], "agreement")
    with torch.no_grad():
        output = model(**batch, **options, output_halting=True)
    assert len(set(output.ponder_steps[output.ponder_steps >= 0].tolist())) > 2
    rows = zip(output.halting_probabilities.tolist(), output.ponder_steps.tolist(), strict=True)
    for probabilities, steps in rows:
        assert probabilities == [float(decision == steps) for decision in range(STEPS)]
    assert output.aux_loss is None


@pytest.mark.parametrize("beams", [1, 3])
@languages
def test_generation_returns_the_steps_of_each_token(variant, beams):
    model, batch = language_model(variant)
    options = exit_options(language_model, variant, "confidence")
    generated = model.generate(
        **batch,
        **options,
        max_new_tokens=5,
        num_beams=beams,
        do_sample=False,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    steps = generated.ponder_steps
    assert steps.shape == (len(batch["input_ids"]), 5)
    # the mask and types of tokens go on as they end
    rest = {
        name: torch.cat((value, value[:, -1:].expand_as(steps)), dim=1)
        for name, value in batch.items()
        if name != "input_ids"
    }
    with torch.no_grad():
        whole = model(generated.sequences, **rest, **options)
    assert steps.tolist() == whole.ponder_steps[:, -6:-1].tolist()


def test_generation_configs_have_options_of_a_call(tmp_path):
    model, prompt = make_language_model(LANGUAGE_BY_NAME["gut"]), {"inputs": torch.full((1, 5), 7)}
    options = {"max_new_tokens": 6, "do_sample": False, "return_dict_in_generate": True}
    exits = {"exit_criterion": "convergence", "exit_threshold": 0.3, "max_depth": 5}
    expected = model.generate(**prompt, **options, **exits).ponder_steps
    of_two_steps = model.generate(**prompt, **options, **{**exits, "max_depth": 2}).ponder_steps
    assert not torch.equal(expected, of_two_steps)
    model.generation_config = GenerationConfig(**exits, pad_token_id=0)
    model.save_pretrained(tmp_path)
    saved = type(model).from_pretrained(tmp_path).eval()
    assert torch.equal(saved.generate(**prompt, **options).ponder_steps, expected)
    # what is given comes first
    assert torch.equal(saved.generate(**prompt, **options, max_depth=2).ponder_steps, of_two_steps)
    given = GenerationConfig(**options, max_depth=2)
    assert torch.equal(saved.generate(**prompt, generation_config=given).ponder_steps, of_two_steps)
    # a threshold is for its own criterion
    other = {"exit_criterion": "stability", "max_depth": 5}
    expected = model.generate(**prompt, **options, generation_config=GenerationConfig(**other)).ponder_steps
    assert torch.equal(saved.generate(**prompt, **options, **other).ponder_steps, expected)


def test_options_that_are_set_on_a_model_s_generation_config_are_saved(tmp_path):
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    model.generation_config.max_depth = 2
    model.generation_config.repetition_penalty = 1.1
    model.save_pretrained(tmp_path)
    saved = type(model).from_pretrained(tmp_path).generation_config
    assert (saved.max_depth, saved.repetition_penalty) == (2, 1.1)


@pytest.mark.parametrize("options", [{"prompt_lookup_num_tokens": 3}, {"prefill_chunk_size": 4}, {"guidance_scale": 2}])
def test_generation_in_other_passes_returns_the_steps_of_each_token(options):
    variant = LANGUAGE_BY_NAME["gut_no_halt"]
    model, batch = language_model(variant)
    exits = exit_options(language_model, variant, "confidence")
    options = {"max_new_tokens": 5, "do_sample": False, "return_dict_in_generate": True, "pad_token_id": 0, **options}
    generated = model.generate(batch["input_ids"][:1], **exits, **options)
    with torch.no_grad():
        whole = model(generated.sequences, **exits)
    assert generated.ponder_steps.tolist() == whole.ponder_steps[:, -6:-1].tolist()


def test_experts_of_every_step_that_was_taken():
    variant = BY_NAME["sut"]
    model, batch = sharp_classifier(variant)
    options = exit_options(sharp_classifier, variant, "convergence")
    with torch.no_grad():
        output = model(**batch, **options, output_experts=True)
    taken = (output.feed_forward_experts[..., 0] >= 0).sum(-1)
    assert taken.tolist() == output.ponder_steps.clamp_min(0).tolist()


@pytest.mark.parametrize("name", ["gut_no_halt", "gutlb"])
def test_all_steps_of_units_that_have_all_stopped(name):
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant)
    options = {"exit_criterion": "confidence", "exit_threshold": 0.0}
    with torch.no_grad():
        stopped = model(**batch, **options)
        recorded = model(**batch, **options, output_hidden_states=True)
    assert set(stopped.ponder_steps.flatten().tolist()) <= {1, -1}
    assert_close(recorded.logits, stopped.logits, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@criteria
def test_every_precision(criterion, dtype):
    variant = BY_NAME["gut_no_halt"]
    model, batch = with_probe(make_model(variant), 32).to(dtype), make_batch(variant)
    with torch.no_grad():
        output = model(**batch, exit_criterion=criterion)
    assert output.logits.dtype == dtype


@pytest.fixture
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_data_parallel_training_does_not_wait_for_the_probe(tmp_path):
    variant = BY_NAME["gut_no_halt"]
    with_probe(make_model(variant), 32).save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    model = DistributedDataParallel(loaded.train())
    for _ in range(2):
        model(**make_batch(variant)).loss.backward()
    assert loaded.classifier.output.weight.grad.abs().sum() > 0
    assert loaded.exit_probe.down_proj.weight.grad is None


def bad(variant_name: str = "gut_no_halt", message: str = "", **options):
    return pytest.param(variant_name, options, message, id="-".join((variant_name, *map(str, options.values()))))


@pytest.mark.parametrize(
    ("variant_name", "options", "message"),
    [
        bad(exit_criterion="patience", message="expected one of learned, convergence"),
        bad(exit_criterion="probe", message="fit-probe"),
        bad(exit_criterion="confidence", exit_threshold=1.5, message=r"in \[0, 1\]"),
        bad(exit_criterion="agreement", exit_threshold=-0.1, message="KL divergence"),
        bad(exit_criterion="convergence", exit_threshold=float("nan"), message="relative change"),
        bad(exit_criterion="stability", exit_threshold=0.5, message="exit_patience"),
        bad(exit_criterion="convergence", exit_patience=0, message="exit_patience is 0"),
        bad(exit_criterion="convergence", min_depth=True, message="min_depth is True"),
        bad(exit_threshold=0.5, message="halting_threshold"),
        bad("gut", exit_criterion="convergence", halting_threshold=0.5, message="exit_threshold"),
        bad("xpos_transformer", exit_criterion="convergence", message="layers of this model are not shared"),
        bad("gutlb_siamese", exit_criterion="confidence", message="different chunks"),
    ],
)
def test_bad_options_are_refused_before_any_work(variant_name, options, message):
    variant = BY_NAME[variant_name]
    model, batch = make_model(variant), make_batch(variant)
    model.model.embed_tokens.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(ValueError, match=message):
        model(**batch, **options)


def test_fields_that_are_changed_after_loading_are_checked():
    variant = BY_NAME["gut_no_halt"]
    with pytest.raises(StrictDataclassError, match="`exit_patience` is 0: it must be at least 1"):
        make_model(variant, exit_criterion="convergence", exit_patience=0)
    model, batch = make_model(variant, exit_criterion="confidence", exit_threshold=2), make_batch(variant)
    with pytest.raises(ValueError, match=r"exit_threshold is 2: .* at which exit_criterion='confidence' stops"):
        model(**batch)


@pytest.mark.parametrize("name", ["gut_no_halt", "ndr", "sut_dense"])
def test_halting_that_is_set_after_loading_needs_its_head(name):
    variant = BY_NAME[name]
    halting = {"ndr": "act", "sut": "token"}.get(variant.architecture, "global")
    model, batch = make_model(variant, halting=halting), make_batch(variant)
    with pytest.raises(ValueError, match=f"`halting` is '{halting}': .*no halting head; .* halting='{halting}'"):
        model(**batch)


def test_criteria_of_predictions_need_a_head():
    variant = BY_NAME["gut_no_halt"]
    model, batch = make_model(variant).model, make_batch(variant)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    model.config.exit_criterion = "agreement"
    with pytest.raises(ValueError, match="has no head: pass exit_criterion='convergence' or 'learned'"):
        model(**inputs)
    assert model(**inputs, exit_criterion="learned").ponder_steps.tolist() == [STEPS] * 10
    assert model(**inputs, exit_criterion="convergence").ponder_steps.shape == (10,)


def test_tokens_of_pairs_that_are_encoded_apart_predict_nothing():
    variant = BY_NAME["gut_siamese"]
    model = AutoModelForSequenceClassification.from_config(make_config(variant, is_causal=True)).eval()
    batch = make_batch(variant)
    with pytest.raises(ValueError, match=r"is_causal=True.* predict nothing alone: use 'convergence' or 'learned'"):
        model(**batch, exit_criterion="agreement")
    assert model(**batch, exit_criterion="convergence").ponder_steps.shape == (10, 9)


@pytest.mark.parametrize(("name", "num_labels"), [("gut_no_halt", 1), ("ut", 2), ("albert_recurrent", 1)])
@pytest.mark.parametrize("patience", [1, 2])
def test_numbers_agree_when_they_hardly_differ(name, num_labels, patience):
    variant = BY_NAME[name]
    model, batch = make_model(variant, problem_type="regression", num_labels=num_labels), make_batch(variant)
    batch.pop("labels")
    with torch.no_grad():
        never = {"halting_threshold": 1.0} if variant.halts else {}
        by_step = [model(**batch, max_depth=steps, **never).logits for steps in range(1, STEPS + 1)]
    values = torch.stack(by_step).double().numpy()
    differences = np.abs(np.diff(values, axis=0)).max(-1)
    scores = np.concatenate((np.full_like(differences[:1], np.nan), differences))
    threshold = between("agreement", scores)
    with torch.no_grad():
        output = model(**batch, exit_criterion="agreement", exit_threshold=threshold, exit_patience=patience)
    steps = naive_steps("agreement", scores, threshold, patience, 1)
    found = output.ponder_steps if output.ponder_steps.dim() == 1 else output.ponder_steps.amax(-1)
    assert found.tolist() == steps.tolist()
    assert_close(output.logits.double(), torch.tensor(values[steps - 1, np.arange(len(steps))]), tolerance=1e-4)


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_numbers_have_no_distribution_and_independent_labels_have_several(problem_type):
    variant = BY_NAME["gut_no_halt"]
    model, batch = make_model(variant, problem_type=problem_type), make_batch(variant)
    batch.pop("labels")
    if problem_type == "regression":
        for criterion in ("confidence", "entropy", "stability"):
            with pytest.raises(ValueError, match="predicts a number, without a distribution: use 'agreement'"):
                model(**batch, exit_criterion=criterion)
        return
    with torch.no_grad():
        by_step = torch.stack([model(**batch, max_depth=steps).logits for steps in range(1, STEPS + 1)])
    surest = torch.maximum(by_step.sigmoid(), 1 - by_step.sigmoid()).amin(-1).double().numpy()
    threshold = between("confidence", surest)
    with torch.no_grad():
        output = model(**batch, exit_criterion="confidence", exit_threshold=threshold)
    assert output.logits.shape[-1] == LABELS
    assert output.ponder_steps.tolist() == naive_steps("confidence", surest, threshold, 1, 1).tolist()

"""The loop over long documents: a step, and an interrupted run that goes on in the middle of documents."""

import json
import shutil

import pytest
import torch
from accelerate import Accelerator
from command_lines import read
from tiny_run import QUIET, killed, write_recipe

from hf_recurrent.analysis.losses import evaluate_documents
from hf_recurrent.data.segments import DocumentReader, TokenDocuments
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.documents import DocumentRun, train_step
from hf_recurrent.training.run_folder import DivergedError, checkpoint_to_resume, checkpoints, last_complete_checkpoint
from support.compare import assert_close
from support.families import slow
from support.own_data import flags, write_file

HEADS = {"num_attention_heads": 2, "intermediate_size": 24, "attention_dropout": 0.0}
CHUNKS = {**HEADS, "chunk_size": 4, "num_memory_slots": 3}
WINDOWS = {**HEADS, "window_size": 4, "num_state_vectors": 3}
MEMORIZING = {"recurrent_layers": [], "memory_layers": [-1], "memory_size": 8, "num_neighbors": 4}
MODELS = {"tlb": CHUNKS, "gutlb": {**CHUNKS, "halting": "global"}, "rnn": {}, "block_recurrent": WINDOWS}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "dropout": 0.0}
# rows begin, end and pass over the boundaries of checkpoints at other places each
LENGTHS = {"train": (30, 3, 21, 1, 12, 40, 9), "validation": (20, 2, 33), "test": (9,)}
RUN = {
    **QUIET,
    "benchmark": "long_documents",
    "benchmark_config": "folder",
    "segment_length": 8,
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 2,
    "max_steps": 6,
    "warmup_steps": 2,
    "logging_steps": 2,
    "save_steps": 3,
}


def text(number, length):
    """It repeats what it began with, so that there is something to learn."""
    return (f"{number}bcd{number}" * length)[:length]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for split, lengths in LENGTHS.items():
        for number, length in enumerate(lengths):
            write_file(folder / split / f"{number}.txt", text(number, length))
    return folder


@pytest.fixture
def trained(texts, tmp_path):
    """A function from a folder's name and changes to the run that was trained there."""

    def train(name, model_type="tlb", data_dir=texts, dropout=0.0, recipe=None, **changes):
        config = {**SIZES, **MODELS[model_type], "dropout": dropout, **changes.pop("config", {})}
        settings = {**RUN, "model_type": model_type, "config": config, "data_dir": data_dir, **changes}
        words = flags({key: value for key, value in settings.items() if key != "use_cpu"})
        run = read(*filter(None, [recipe]), *words, output_dir=str(tmp_path / name))
        run.prepare()
        run.train()
        return run

    return train


def weights(run):
    return {name: tensor.clone() for name, tensor in run.plain_model.state_dict().items()}


def assert_same(run, other):
    assert_close(weights(run), weights(other), 1e-4)
    assert_close(run.progress.log, other.progress.log, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        slow("tlb", {"gradient_accumulation_steps": 2}),
        slow("gutlb", {"max_grad_norm": 0.5}),
        ("block_recurrent", {"gradient_accumulation_steps": 2}),
        ("block_recurrent", {"config": MEMORIZING, "segment_length": 4}),
        ("rnn", {"optim": "adamw_torch", "learning_rate": 1e-2, "lr_schedule": "cosine"}),
    ],
    ids=["tlb", "gutlb", "block_recurrent", "memorizing", "rnn"],
)
def test_resumed_run_equals_straight_run(trained, model_type, changes, tmp_path):
    changes = {"max_steps": 9, "logging_steps": 4, "eval_steps": 5, "dropout": 0.1, **changes}
    straight = trained("straight", model_type, **changes)
    with killed(step=5):
        trained("resumed", model_type, **changes)
    assert last_complete_checkpoint(tmp_path / "resumed").name == "checkpoint-3"
    torch.manual_seed(99)
    resumed = trained("resumed", model_type, **changes)
    assert_same(resumed, straight)
    assert [entry["step"] for entry in straight.progress.log] == [4, 5, 8, 9, 9]
    # and the states, with which the documents would go on
    for ours, theirs in zip(resumed.caches, straight.caches, strict=True):
        assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), 1e-4)
    assert resumed.reader.state_dict() == straight.reader.state_dict()


@pytest.mark.slow
def test_training_learns_and_logs(trained, tmp_path):
    steps = {"max_steps": 60, "warmup_steps": 20, "logging_steps": 20, "save_steps": 25, "save_total_limit": 1}
    run = trained("run", **steps)
    first, *_, last = run.progress.log
    assert last["bits_per_token"] < 0.7 * first["bits_per_token"]
    # 2 rows of at most 8 predicted tokens
    assert 0 < first["tokens"] <= 20 * 16
    # the rate of the next step
    assert last["learning_rate"] == pytest.approx(1 / 60**0.5)
    (folder,) = (tmp_path / "run").iterdir()
    assert folder.name == "checkpoint-60"
    progress = json.loads((folder / "progress.json").read_text())
    assert progress["log"] == run.progress.log
    assert progress["seconds"] > 0
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


@pytest.mark.slow
def test_validation_is_of_whole_documents_from_their_beginning_and_changes_nothing(trained):
    run, plain = trained("run", eval_steps=3), trained("plain")
    assert_close(weights(plain), weights(run), 1e-4)
    found = {entry["step"]: entry for entry in run.progress.log if "validation_bits_per_token" in entry}
    assert [*found] == [3, 6]
    model, nats, tokens = run.plain_model.eval(), 0.0, 0
    for number, length in enumerate(LENGTHS["validation"]):
        ids = run.tokenizer(text(number, length), add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, :-1]
        nats += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        tokens += length - 1
    expected = nats / tokens / torch.log(torch.tensor(2.0)).item()
    assert found[6]["validation_bits_per_token"] == pytest.approx(expected, rel=1e-5)
    assert evaluate_documents(model, run.validation).bits_per_token == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_checkpoints_of_another_folder(trained, tmp_path):
    straight = trained("run")
    place = {name: str(tmp_path / "run" / f"checkpoint-{name}") for name in (3, 6)}
    # its sequences are grouped in another way
    groups = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    shutil.copytree(place[3], tmp_path / "grouped" / "checkpoint-3")
    assert_same(trained("grouped", **groups), straight)
    shutil.copytree(place[6], tmp_path / "refused" / "checkpoint-6")
    for split in ("train", "test"):
        write_file(tmp_path / "other" / split / "a.txt", "a text " * 9)
    for changes, message in (
        ({"per_device_train_batch_size": 3}, "batch_size was 2 and is 3"),
        ({"data_dir": tmp_path / "other"}, "documents was 7 and is 1; tokens was 116 and is 63"),
        ({"model_type": "rnn"}, r"cache for tlb .* one is for rnn "),
        ({"data_dir": tmp_path / "other", "eval_steps": 3}, r"eval_steps is set, but .* has no validation documents"),
    ):
        with pytest.raises(ValueError, match=message):
            trained("refused", **changes)
    # the last file of a checkpoint
    (tmp_path / "run" / "checkpoint-6" / "complete").unlink()
    with pytest.warns(UserWarning, match=r"skipping the incomplete .*checkpoint-6"):
        assert last_complete_checkpoint(tmp_path / "run").name == "checkpoint-3"
    with pytest.raises(ValueError, match=r"it is no complete checkpoint of output_dir"):
        checkpoint_to_resume(tmp_path / "run", place[6])


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 0, 1])
def test_checkpoints_are_kept_up_to_the_limit(trained, tmp_path, limit):
    (tmp_path / "recipe.yaml").write_text(f"save_total_limit: {json.dumps(limit)}")
    trained("run", recipe=tmp_path / "recipe.yaml", max_steps=3, save_steps=1)
    assert len(checkpoints(tmp_path / "run")) == (limit or 3)


@pytest.mark.slow
def test_settings_mean_what_they_mean_in_transformers(trained):
    """Warm-up in a fraction of the steps, and gradients that are not clipped."""
    plain, other = trained("plain"), trained("other", warmup_steps=0.3, max_grad_norm=0)
    assert_same(plain, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "value", "changes", "message"),
    [
        (5, float("nan"), {}, r"step 5: a weight or state is not a finite number.*checkpoint-3\. Lower"),
        # weights are huge, but finite
        (0, 1e38, {}, r"a weight or state is not a finite number\. Last good checkpoint: none yet"),
        (1, 1e38, {"eval_steps": 1}, r"a weight or state is not a finite number\. Last good checkpoint: none yet"),
    ],
)
def test_diverged_run_keeps_its_last_good_checkpoint(trained, monkeypatch, step, value, changes, message):
    take_step = DocumentRun.take_step

    def poison(run):
        if run.progress.steps == step:
            for parameter in run.plain_model.parameters():
                parameter.data.fill_(value)

    def poisoned(run):
        if step == 0:
            poison(run)
        take_step(run)
        poison(run)

    monkeypatch.setattr(DocumentRun, "take_step", poisoned)
    with pytest.raises(DivergedError, match=message):
        trained("run", max_steps=9, logging_steps=1, **changes)


@pytest.mark.parametrize(
    ("processes", "changed", "expected"),
    [
        (1, {}, []),
        (2, {"gradient_accumulation_steps": 1}, []),
        (1, {"gradient_accumulation_steps": 1}, ["size of a step = 2 (4)"]),
        (
            1,
            {"gradient_accumulation_steps": 1, "per_device_train_batch_size": 4, "warmup_steps": 3},
            ["warmup_steps = 3 (2)"],
        ),
    ],
)
def test_sequences_may_be_shared_out_in_another_way(monkeypatch, texts, tmp_path, processes, changed, expected):
    monkeypatch.setattr(DocumentRun, "num_processes", processes)
    settings = {**RUN, "model_type": "tlb", "config": SIZES | CHUNKS, "data_dir": str(texts)}
    path = write_recipe(tmp_path / "tiny.yaml", {**settings, "gradient_accumulation_steps": 2})
    assert read(path, *flags(changed)).changes == expected


# ---- a step

VOCAB_SIZE = 24


def corpus(*lengths):
    return TokenDocuments([[3 + (7 * place + length) % 20 for place in range(length)] for length in lengths])


DOCUMENTS = corpus(*LENGTHS["train"])


def language_model(model_type):
    torch.manual_seed(1)
    family, fields = ARCHITECTURES[model_type], {"vocab_size": VOCAB_SIZE, "pad_token_id": 0}
    config = family.config_class(**SIZES, **fields, **MODELS[model_type])
    return family.model_class("AutoModelForCausalLM")(config).train()


def gradients(model):
    """By name; a norm for pooling has none in a language model."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def steps_of(model_type, groups):
    """Gradients and sums of some steps without updates, so that only states go on."""
    model, reader = language_model(model_type), DocumentReader(DOCUMENTS, 4, 8, rewind=True)
    caches = [model.model.new_cache() for _ in range(groups)]
    for _ in range(3):
        model.zero_grad()
        sums = train_step(Accelerator(cpu=True), model, reader.next_segment(), caches)
        yield sums, gradients(model)


@pytest.mark.parametrize("model_type", MODELS)
def test_accumulated_groups_equal_one_batch(model_type):
    for parts in (steps_of(model_type, groups) for groups in (2, 4)):
        for (sums, ours), (others, theirs) in zip(steps_of(model_type, 1), parts, strict=True):
            assert sums[1] == others[1]
            torch.testing.assert_close(sums[0], others[0], rtol=1e-6, atol=0)
            assert len(ours) > 8
            torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-7)


def test_loss_is_the_mean_over_labelled_tokens():
    model, segment = language_model("tlb"), DocumentReader(DOCUMENTS, 4, 8).next_segment()
    sums = train_step(Accelerator(cpu=True), model, segment, [model.model.new_cache() for _ in range(2)])
    ours = gradients(model)
    model.zero_grad()
    logits = model(segment.input_ids, segment.attention_mask).logits
    nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), segment.labels.flatten(), reduction="none")
    (nats.sum() / (segment.labels >= 0).sum()).backward()
    assert sums[1] == (segment.labels >= 0).sum() == 8 + 2 + 8 + 0
    assert sums[0].item() == pytest.approx(nats.sum().item(), rel=1e-6)
    torch.testing.assert_close(ours, gradients(model), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("model_type", MODELS)
def test_state_goes_on_without_gradient(model_type):
    model, accelerator = language_model(model_type), Accelerator(cpu=True)
    first, second = DocumentReader(corpus(16), 1, 8)
    caches = [model.model.new_cache()]
    train_step(accelerator, model, first, caches)
    assert any(tensor.requires_grad for layer in caches[0].layers for tensor in layer.tensors.values())
    # the graph of the first segment was freed: backward would fail on it
    carried = train_step(accelerator, model, second, caches)
    whole = model(torch.cat((first.input_ids, second.input_ids), 1)).logits[0, 8:]
    expected = torch.nn.functional.cross_entropy(whole, second.labels[0], reduction="sum").item()
    assert carried[0].item() == pytest.approx(expected, rel=1e-5)
    fresh = train_step(accelerator, model, second, [model.model.new_cache()])
    assert fresh[0].item() != pytest.approx(expected, rel=1e-5)

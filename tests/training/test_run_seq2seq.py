"""`run_seq2seq.py` from recipe to publishable folder."""

import json

import pytest
import yaml
from safetensors.torch import load_file
from seq2seq_runs import SIZES, TINY_PAIRS
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_recurrent.hub import lint_card
from hf_recurrent.hub.reload import load_source, run
from hf_recurrent.training.evaluate import Request, evaluate_checkpoint, load_checkpoint
from hf_recurrent.training.selection import best_steps
from hf_recurrent.training.seq2seq_trainer import RecurrentSeq2SeqTrainer
from support.compare import assert_close

pytestmark = pytest.mark.slow

BENCHMARK = TINY_PAIRS["benchmark"]
REQUEST = Request(BENCHMARK, params=TINY_PAIRS["benchmark_params"])


def recipe_in(folder, **changes):
    recipe = {key: value for key, value in {**TINY_PAIRS, **changes}.items() if value is not None}
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return str(path)


@pytest.fixture(scope="module")
def straight(seq2seq_script, tmp_path_factory):
    """A tiny run without interruption."""
    folder = tmp_path_factory.mktemp("pairs")
    command = [recipe_in(folder), "--output_dir", str(folder / "run"), "--write_predictions", "--keep_checkpoints"]
    seq2seq_script.main(command)
    return folder / "run"


def test_folder_is_publishable(straight):
    lint_card(straight)
    figures = {path.stem.removeprefix("test_") for path in (straight / "assets").iterdir()}
    assert {"encoder_steps", "encoder_mass", "decoder_steps", "decoder_mass", "stacks_num_operators"} <= figures
    card = (straight / "README.md").read_text()
    assert "AutoModelForSeq2SeqLM" in card
    assert "pipeline(" not in card
    assert "| Split | n | Exact match | Majority class | Encoder steps | Decoder steps |" in card
    assert "accelerate launch training/run_seq2seq.py tiny.yaml" in card
    assert "The weights are the mean of the checkpoints of steps" in card
    assert json.loads((straight / "config.json").read_text())["architectures"] == ["SUTForConditionalGeneration"]


def test_tables_are_about_what_was_written(straight):
    table = json.loads((straight / "halting_stats.json").read_text())["splits"]["test"]
    lines = (straight / "predictions" / "test.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert table["n"] == len(rows) == 12
    assert table["accuracy"] == sum(row["label"] == row["prediction"] for row in rows) / 12
    assert {row["label"] for row in rows} <= set("#<>=^v|")
    # Figure 4: depth by operators, of both stacks
    by_operators = table["slices"]["num_operators"]["rows"]
    assert sum(row["n"] for row in by_operators) == 12
    assert all(0 < row[stack]["mean"] <= 3 for row in by_operators for stack in ("steps", "decoder_steps"))
    # what the decoder reads is its start and the symbol, what the encoder reads each word and the end
    assert sum(table["decoder"]["steps_histogram"]) == 2 * 12
    assert sum(table["steps_histogram"]) == sum(row["length"] + 1 for row in rows)
    assert table["target"]["nll"] > 0


def test_evaluating_again_gives_the_same(straight):
    checkpoint = load_checkpoint(straight, "cpu")
    table = json.loads((straight / "halting_stats.json").read_text())["splits"]["test"]
    again = evaluate_checkpoint(checkpoint, REQUEST, batch_size=5)["test"]
    assert again["slices"]["num_operators"]["rows"][0].keys() == table["slices"]["num_operators"]["rows"][0].keys()
    for name in ("accuracy", "ponder_cost", "majority_baseline"):
        assert again[name] == pytest.approx(table[name], rel=1e-5)
    assert again["target"] == pytest.approx(table["target"], rel=1e-5)
    shallow = evaluate_checkpoint(checkpoint, REQUEST, max_depth=1)["test"]
    assert shallow["steps"]["max"] == shallow["decoder"]["steps"]["max"] == shallow["max_depth"] == 1


def test_the_best_checkpoints_are_averaged(straight):
    state = json.loads((straight / "checkpoint-6" / "trainer_state.json").read_text())
    steps = best_steps(state["log_history"], range(7), "eval_nll", 2, greater=False, latest=False)
    assert len(steps) == 2
    first, second = (load_file(straight / f"checkpoint-{step}" / "model.safetensors") for step in steps)
    saved = load_file(straight / "model.safetensors")
    assert saved.keys() == first.keys()
    assert_close(saved, {name: (first[name] + second[name]) / 2 for name in first})


def test_what_publishing_compares(straight):
    config = json.loads((straight / "config.json").read_text())
    outputs, inputs = run(load_source(straight, config), config)
    assert inputs["decoder_input_ids"].shape == (3, 12)
    assert outputs["logits"].shape[:2] == (3, 12)
    # the start, and the four tokens that are written in any case
    assert outputs["generated"].shape == (3, 5)


def test_folder_loads_and_writes(straight):
    tokenizer = AutoTokenizer.from_pretrained(straight)
    model = AutoModelForSeq2SeqLM.from_pretrained(straight)
    inputs = tokenizer("( not a ) #SEP# b", return_tensors="pt")
    assert model.generate(**inputs, max_new_tokens=3).shape[0] == 1
    # a symbol and the end, which is as far as evaluations let it write
    assert model.generation_config.max_new_tokens == 2
    assert json.loads((straight / "card.json").read_text())["decoding"]["max_new_tokens"] == 2
    assert model.generate(**inputs, min_new_tokens=2).shape == (1, 3)


@pytest.mark.parametrize("step", [3, 6])
def test_resumed_run_equals_straight_run(seq2seq_script, straight, tmp_path, monkeypatch, step):
    """Killed in the middle of an epoch, and after the last step, before the evaluation."""
    import hf_recurrent.training.seq2seq_run as module

    class Killed(BaseException):
        pass

    train = RecurrentSeq2SeqTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == step:
            raise Killed
        return train(self, *args, **kwargs)

    def dies(*args, **kwargs):
        raise Killed

    command = [str(straight.parent / "tiny.yaml"), "--output_dir", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(RecurrentSeq2SeqTrainer, "training_step", killed)
        patch.setattr(module, "load_average", dies)
        with pytest.raises(Killed):
            seq2seq_script.main(command)
    seq2seq_script.main(command)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", straight))
    assert ours.keys() == theirs.keys()
    assert_close(ours, theirs, 1e-4)


def test_translation_is_measured_by_bleu(seq2seq_script, tmp_path):
    """Of texts from files, with a tokenizer that is trained on them, by beam search, at a fixed depth."""
    words = {"en": ["the", "cat", "dog", "sees", "hears", "house", "a"]}
    words["de"] = ["die", "Katze", "Hund", "sieht", "hört", "Haus", "ein"]
    for split, count in (("train", 40), ("valid", 6), ("test", 6)):
        for language, known in words.items():
            lines = [" ".join(known[(row * place + row) % 7] for place in range(1, 6)) for row in range(1, count + 1)]
            (tmp_path / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    path = recipe_in(
        *(tmp_path,),
        benchmark="wmt14_en_de",
        benchmark_params={"text_form": "tokenized"},
        data_dir=str(tmp_path),
        num_merges=10,
        config={**SIZES, "halting": "none", "ponder_loss_weight": 0.0},
        max_steps=2,
        generation_num_beams=2,
        generation_length_penalty=0.4,
        generation_max_length=9,
    )
    seq2seq_script.main([path, "--output_dir", str(tmp_path / "run")])
    folder = tmp_path / "run"
    lint_card(folder)
    table = json.loads((folder / "halting_stats.json").read_text())["splits"]["test"]
    assert 0 <= table["bleu"] <= 100
    assert "compounds:split" in table["bleu_signature"]
    assert 0 <= table["detokenized_bleu"] <= 100
    assert table["fixed_depth"]
    card = (folder / "README.md").read_text()
    assert "| Split | n | BLEU | Exact match |" in card
    assert "num_beams=2, length_penalty=0.4" in card
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["length_penalty"], generation["max_new_tokens"]) == (2, 0.4, 9)


def test_what_is_refused_leaves_the_folder_free(seq2seq_script, tmp_path):
    folder = tmp_path / "run"
    cases = [
        ({"max_tokens": 20}, "max_tokens is 20, but an example has"),
        ({"max_length": 1}, "there are no training examples"),
        ({"metric_for_best_model": "bits"}, "metric_for_best_model is 'bits'"),
        # evaluations on the way read targets and write none
        ({"metric_for_best_model": "bleu"}, "metric_for_best_model is 'bleu'"),
    ]
    for changes, message in cases:
        with pytest.raises(ValueError, match=message):
            seq2seq_script.main([recipe_in(tmp_path, **changes), "--output_dir", str(folder)])
        assert not (folder / "run.json").exists()

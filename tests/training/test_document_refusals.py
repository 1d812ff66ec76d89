"""What a user meets who got something wrong: the folder stays free, and errors name what was the matter."""

import pytest
import torch
import yaml
from document_runs import TINY_DOCUMENTS, language_model, session_of, tiny_texts, token_corpus

from hf_recurrent import GUTLBConfig
from hf_recurrent.training import document_loop
from hf_recurrent.training.arguments import DOCUMENT_ARGUMENT_TYPES
from hf_recurrent.training.document_loop import check_depth_sampling, train
from hf_recurrent.training.document_run import experiment_changes
from hf_recurrent.training.recipes import parse
from hf_recurrent.training.trainer import DivergedError

DOCUMENTS = {"train": token_corpus(40, 23, 31), "validation": token_corpus(20, 9)}


@pytest.fixture
def recipe(tmp_path):
    texts = tiny_texts(tmp_path / "texts")
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({**TINY_DOCUMENTS, "data_dir": str(texts)}))
    return str(path)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--segment_length", "12"], "segment_length is 12 .* whole windows"),
        (["--eval_segment_length", "12"], "eval_segment_length is 12 .* whole windows"),
        (["--compare_with", "nowhere"], "nowhere has no card.json: give the output folder of a finished run"),
    ],
)
def test_a_refused_run_leaves_the_folder_free(document_script, recipe, tmp_path, flags, message):
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        document_script.main([recipe, "--output_dir", str(folder), *flags])
    assert not folder.exists()


def test_depth_is_not_drawn_for_segments_of_one_document():
    check_depth_sampling(GUTLBConfig())
    with pytest.raises(ValueError, match="all segments of a document take the same number of steps"):
        check_depth_sampling(GUTLBConfig(depth_sampling="uniform"))


@pytest.mark.parametrize(
    ("processes", "flags", "expected"),
    [
        (1, [], []),
        (2, ["--gradient_accumulation_steps", "1"], []),
        (1, ["--gradient_accumulation_steps", "1"], ["gradient_accumulation_steps = 1 (2)"]),
        (
            1,
            ["--gradient_accumulation_steps", "1", "--per_device_train_batch_size", "4", "--warmup_steps", "3"],
            ["warmup_steps = 3 (2)"],
        ),
    ],
)
def test_sequences_may_be_shared_out_in_another_way(recipe, tmp_path, processes, flags, expected):
    argv = [recipe, "--output_dir", str(tmp_path / "run"), *flags]
    _, settings = parse(argv, DOCUMENT_ARGUMENT_TYPES)
    assert experiment_changes(argv, settings, processes) == expected


def test_a_checkpoint_of_another_model_is_not_called_damaged(tmp_path):
    train(session_of(tmp_path / "tlb", language_model("tlb"), DOCUMENTS, max_steps=2, save_steps=2))
    with pytest.raises(ValueError, match=r"checkpoint-2.* is of another model: .* cache for tlb .* one is for rnn "):
        session_of(
            tmp_path / "rnn",
            language_model("rnn"),
            DOCUMENTS,
            resume_from_checkpoint=str(tmp_path / "tlb" / "checkpoint-2"),
        )


@pytest.mark.parametrize("validating", [False, True])
def test_states_that_overflow_are_a_diverged_run(tmp_path, validating):
    """The weights are huge, but finite."""
    every = 1 if validating else None
    session = session_of(tmp_path / "run", language_model("tlb"), DOCUMENTS, max_steps=3, eval_steps=every)
    step = document_loop.take_step

    def overflowing(current):
        if validating:
            step(current)
        for parameter in current.plain_model.parameters():
            torch.nn.init.constant_(parameter, 1e38)
        if not validating:
            step(current)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_loop, "take_step", overflowing)
        with pytest.raises(DivergedError, match=r"a state is not a finite number\. Last good checkpoint: none yet"):
            train(session)

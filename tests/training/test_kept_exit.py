"""Fine-tuning a checkpoint that stops by an exit criterion, whose threshold was chosen for other weights."""

import warnings

import pytest

from hf_recurrent import GUTConfig
from hf_recurrent.training.arguments import ModelArguments
from hf_recurrent.training.trainer_run import TrainerRun


class Beginning(TrainerRun):
    """A run that has read its arguments, of any model."""

    is_main_process = True

    def __init__(self, changes):
        self.model_args = ModelArguments(model_name_or_path="calibrated", config=changes)


def test_a_kept_exit_is_told_before_training_and_on_the_card():
    config = GUTConfig(exit_criterion="confidence", exit_threshold=0.6)
    with pytest.warns(
        UserWarning, match=r"exit_criterion='confidence'.*hf-recurrent calibrate.*exit_criterion: learned"
    ):
        (line,) = Beginning({}).kept_exit(config)
    assert "`confidence`, was first chosen for the checkpoint" in line


@pytest.mark.parametrize(
    ("config", "changes"),
    [(GUTConfig(), {}), (GUTConfig(exit_criterion="confidence"), {"exit_criterion": "confidence"})],
    ids=["no exit", "asked for"],
)
def test_no_other_exit_is_told(config, changes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Beginning(changes).kept_exit(config) == []

"""The verdict itself: what is clear, obscure, a traceback and silent."""

import json

import pytest
import torch

from fuzz.refusing.verdict import command_verdict, is_clear_message, verdict
from hf_recurrent import GUTConfig
from hf_recurrent.models.common.configuration import require


def answer(function, *args, **kwargs) -> BaseException | None:
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None


def test_an_error_of_ours_is_clear():
    error = answer(require, False, "dropout", 1.5, "it must lie in [0, 1)")
    assert verdict(error, "dropout", 1.5) == "clear"
    assert verdict(error, "dropout", 2.5) == "obscure"
    assert verdict(error, "hidden_size", 1.5) == "obscure"


def test_a_strict_dataclass_wraps_an_error_of_ours():
    assert verdict(answer(GUTConfig, vocab_size=0), "vocab_size", 0) == "clear"


def test_an_error_of_others_is_obscure():
    assert verdict(answer(json.loads, "{name"), "name", "{name") == "obscure"
    assert verdict(answer(torch.zeros(2).view, 3), "size", 3) == "obscure"
    assert verdict(None, "name", 3) == "silent"


@pytest.mark.parametrize(
    ("message", "clear"),
    [
        ("`mask` has shape (2, 3): pass one 0 or 1 per token", True),
        ("`mask` is of torch.float32: pass one 0 or 1 per token", True),
        ("`mask` holds 7: pass one 0 or 1 per token", True),
        ("`mask` holds 70: pass one 0 or 1 per token", False),
        ("`masks` holds 7: pass one 0 or 1 per token", False),
        ("`mask` holds 7", False),
    ],
)
def test_what_a_message_must_hold(message, clear):
    assert is_clear_message(message, "mask", torch.full((2, 3), 7.0)) is clear


def test_commands():
    said = "Error: --max-steps is 0: pass a whole number, at least 1"
    assert command_verdict(2, said, "max_steps", 0) == "clear"
    assert command_verdict(0, said, "max_steps", 0) == "silent"
    assert command_verdict(1, f"Traceback (most recent call last):\n{said}", "max_steps", 0) == "traceback"
    assert command_verdict(1, f"{said}\n" * 3, "max_steps", 0) == "obscure"
    assert command_verdict(-9, said, "max_steps", 0) == "obscure"

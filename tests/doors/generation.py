"""`generate`: strategies, caches and assistants."""

import copy

import torch
from torch._dynamo.utils import counters
from transformers import CompileConfig

from .door import Room
from .models import CONSTANT, ENCODERS, LANGUAGE, live, prompt_for, refused

ROOM = Room("Generation")
GUESS = "guessed tokens .* a cache of constant size cannot"


def generate(architecture, rows=4, model=None, **options):
    model = model or live(architecture, LANGUAGE)
    prompt = {name: value[:rows] for name, value in prompt_for(architecture).items()}
    options = {"max_new_tokens": 5, "do_sample": False, **options}
    return model.generate(**prompt, **options)


def enter_equal(architecture, rows=4, **options):
    """Options that change no text."""
    assert torch.equal(generate(architecture, rows, **options), generate(architecture, rows, use_cache=False))


@ROOM.door("greedy, with a cache", ENCODERS)
def enter_greedy(architecture, folder):
    enter_equal(architecture, use_cache=True)


@ROOM.door("num_beams", ENCODERS)
def enter_beams(architecture, folder):
    found, expected = (generate(architecture, num_beams=3, use_cache=use_cache) for use_cache in (True, False))
    assert torch.equal(found, expected)


@ROOM.door("do_sample", ENCODERS)
def enter_samples(architecture, folder):
    found = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        found.append(generate(architecture, do_sample=True, temperature=2.0, use_cache=use_cache))
    assert torch.equal(*found)


@ROOM.door("cache_implementation='static'", ENCODERS)
def enter_static_cache(architecture, folder):
    """Compiled, as it is by default on accelerators."""
    config = CompileConfig(fullgraph=True, backend="eager", mode=None)
    config._compile_all_devices = True
    torch.compiler.reset()
    counters.clear()
    enter_equal(architecture, cache_implementation="static", compile_config=config)
    assert counters["stats"]["unique_graphs"] == 1


@ROOM.door("assistant_model", refused(GUESS, *CONSTANT) | ENCODERS)
def enter_assistant(architecture, folder):
    assistant = live(architecture, LANGUAGE)
    for parameter in assistant.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    enter_equal(architecture, rows=1, assistant_model=assistant)


@ROOM.door("assistant_early_exit", refused(GUESS, *CONSTANT) | refused("are not shared", "xpos_transformer") | ENCODERS)
def enter_early_exit(architecture, folder):
    model = live(architecture, LANGUAGE)
    expected = generate(architecture, rows=1, model=copy.deepcopy(model))
    assert torch.equal(generate(architecture, rows=1, model=model, assistant_early_exit=2), expected)


@ROOM.door("prompt_lookup_num_tokens", refused(GUESS, *CONSTANT) | ENCODERS)
def enter_prompt_lookup(architecture, folder):
    enter_equal(architecture, rows=1, prompt_lookup_num_tokens=2)

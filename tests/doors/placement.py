"""accelerate: where the weights of a loaded model lie. What is on disk is read for each call."""

import torch

from support.compare import assert_close

from .door import Room
from .models import CLASSIFIER, LANGUAGE, batch_for, compute, has_head, live, prompt_for

ROOM = Room("Placement")
PACKAGES = ["accelerate"]
GREEDY = {"max_new_tokens": 3, "do_sample": False}


def check(architecture, folder, plan, on_disk=False) -> None:
    """A classifier and a language model, placed by what `plan` says of them, compute what they do in memory."""
    for head in (head for head in (CLASSIFIER, LANGUAGE) if has_head(architecture, head)):
        model, batch, saved = live(architecture, head), batch_for(architecture, head), folder / head
        model.save_pretrained(saved)
        placed = type(model).from_pretrained(saved, **plan(model), offload_folder=saved / "offloaded").eval()
        assert any(parameter.is_meta for parameter in placed.parameters()) == on_disk
        assert_close(compute(placed, batch).logits, compute(model, batch).logits)
        if head == LANGUAGE:
            placed.generation_config = model.generation_config
            prompt = prompt_for(architecture)
            assert torch.equal(placed.generate(**prompt, **GREEDY), model.generate(**prompt, **GREEDY))


@ROOM.door("device_map='auto'", packages=PACKAGES)
def enter_any_device(architecture, folder):
    check(architecture, folder, lambda model: {"device_map": "auto"})


@ROOM.door("device_map={'': 'cpu'}", packages=PACKAGES)
def enter_given_device(architecture, folder):
    check(architecture, folder, lambda model: {"device_map": {"": "cpu"}})


@ROOM.door("device_map='auto', beyond max_memory", packages=PACKAGES)
def enter_small_memory(architecture, folder):
    """Half of the weights find no place, and are left on disk."""

    def plan(model):
        return {"device_map": "auto", "max_memory": {"cpu": model.get_memory_footprint() // 2}}

    check(architecture, folder, plan, on_disk=True)


def places(model) -> dict[str, str]:
    """The parts of the base model on disk, but for the table of embeddings, to which a head may be tied."""
    base = model.base_model
    parts = [*base.named_children(), *base.named_parameters(recurse=False)]
    disk = {f"{model.base_model_prefix}.{name}": "disk" for name, _ in parts}
    heads = [name for name, _ in model.named_children() if name != model.base_model_prefix]
    return disk | dict.fromkeys([*heads, f"{model.base_model_prefix}.embed_tokens"], "cpu")


@ROOM.door("offload to disk", packages=PACKAGES)
def enter_offload(architecture, folder):
    check(architecture, folder, lambda model: {"device_map": places(model)}, on_disk=True)

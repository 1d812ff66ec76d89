"""Running consecutive segments of "Block-Recurrent Transformers", with results under its authors' names.

Shapes: B sequences, N tokens of a segment, V token ids, H heads, D head dim, M memory slots.
"""

import math
import re

import torch
from torch.nn import functional as F

from .recording import require_keys, their_gradients

INPUTS = ("input_ids", "start_of_sequence", "target_ids", "loss_mask")


class BlockRecurrentReference:
    """Our model with their weights; see `Reference`. Gradients are of one segment.

    Args:
        theirs: their parameters.
        ours: values of ours, computed from `theirs`.
    """

    def __init__(self, model, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], grad_segment: int | None):
        self.model, self.theirs, self.ours = model, theirs, ours
        self.grad_segment = grad_segment

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        numbers = {int(match[1]) for name in io if (match := re.match(r"seg(\d+)\.", name))}
        last = max(numbers, default=1)
        with_gradients = (self.grad_segment or last) if gradients else None
        cache, results = self.model.model.new_cache(), {}
        for number in range(1, last + 1):
            prefix = f"seg{number}."
            require_keys(io, [prefix + name for name in INPUTS])
            segment = {name: io[prefix + name] for name in INPUTS}
            with torch.set_grad_enabled(number == with_gradients):
                named, loss = self.run_segment(segment, cache)
            results |= {prefix + name: tensor.detach() for name, tensor in named.items()}
            if number == with_gradients:
                self.model.zero_grad()
                loss.backward()
                results |= their_gradients(self.model, self.theirs, self.ours, zeros=True)
        return results

    def run_segment(self, segment: dict[str, torch.Tensor], cache) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        states: list[torch.Tensor] = []
        final = self.model.model.final_norm
        hook = final.register_forward_hook(lambda _, args, output: states.append(output))
        outputs = self.model(
            segment["input_ids"].long(),
            past_key_values=cache,
            start_of_document=segment["start_of_sequence"],
            detach=True,
            output_hidden_states=True,
        )
        hook.remove()
        logits, mask = outputs.logits, segment["loss_mask"]
        nll = F.cross_entropy(logits.transpose(1, 2), segment["target_ids"].long(), reduction="none") * mask
        loss = nll.sum()
        results = {
            "logits": logits,
            "token_nll": nll,
            "loss_sum": loss,
            "bits_per_token": loss / mask.sum() / math.log(2),
            "final_hidden": states[0],
        }
        results |= {f"hidden.{layer}": hidden for layer, hidden in enumerate(outputs.hidden_states[1:])}
        return results | cached_tensors(cache), loss


def cached_tensors(cache) -> dict[str, torch.Tensor]:
    """Tensors of the cache between segments."""
    results = {}
    for number, layer in enumerate(cache.layers[1:]):
        prefix, tensors = f"state.transformer{number}.", layer.tensors
        results[prefix + "previous_keys"] = tensors["previous_key"]
        results[prefix + "previous_values"] = tensors["previous_value"]
        if "state" in tensors:
            results[prefix + "recurrent_state"] = tensors["state"]
        if "memory_key" in tensors:
            heads = tensors["memory_key"].shape[1]
            results[prefix + "mem_layer.key_db"] = tensors["memory_key"].flatten(0, 1)
            results[prefix + "mem_layer.value_db"] = tensors["memory_value"].flatten(0, 1)
            count = tensors["memory_count"].repeat_interleave(heads)
            results[prefix + "mem_layer.database_index"] = count.to(torch.int32)
    return results

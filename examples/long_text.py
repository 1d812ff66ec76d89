"""Long text in constant memory: a block-recurrent model reads 100,000 bytes of Python, segment by segment.

    python examples/long_text.py

in the root of a checkout takes less than a minute on a CPU.
"""

# %% [markdown]
# # A text far longer than the window
# The model attends to windows of 16 bytes, each to itself and the one before, and carries 16 state vectors from
# window to window. It has learned on other files of Python's standard library.

# %%
import _pydecimal
import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import hf_recurrent  # noqa: F401 - lets the Auto classes know its models

folder = "model_cards/block-recurrent-python-cpu"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
text = Path(_pydecimal.__file__).read_text(encoding="utf-8")
ids = tokenizer(text, return_tensors="pt").input_ids[:, :100_001]
config = model.config
print(f"windows of {config.window_size} tokens, and {config.num_state_vectors} state vectors of {config.hidden_size}")

# %% [markdown]
# # The cache does not grow
# `past_key_values` goes from each segment to the next, as for any model of transformers. Beside its size is that of a
# cache that keeps keys and values of all tokens in all layers, as a usual Transformer's of this width does. Between two
# windows there is less to keep than in the middle of one, whose first tokens are kept, too.

# %%
SEGMENT = 1000
losses, cache, largest = [], None, 0
print("\ntokens read   cache   largest so far   keys and values of all tokens")
with torch.no_grad():
    for start in range(0, 100_000, SEGMENT):
        segment = ids[:, start : start + SEGMENT]
        outputs = model(segment, past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        following = ids[0, start + 1 : start + SEGMENT + 1]
        losses.append(torch.nn.functional.cross_entropy(outputs.logits[0], following))
        read, kept = start + SEGMENT, sum(tensor.nbytes for tensor in cache.state_dict().values())
        largest = max(largest, kept)
        if read in (1_000, 10_000, 100_000):
            all_tokens = 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * 4 * read
            print(f"{read:>11,} {kept / 1024:>4.0f} KiB {largest / 1024:>12.0f} KiB {all_tokens / 1024:>15,.0f} KiB")
carried = torch.stack(losses).mean().item() / math.log(2)

# %% [markdown]
# # What is the state worth?
# The same segments, each read as if it were a document of its own: all of them are one batch. Bits per byte say how
# well the next byte is predicted, lower is better.

# %%
segments = ids[0, :100_000].view(-1, SEGMENT)
following = ids[0, 1:].view(-1, SEGMENT)
total = 0.0
with torch.no_grad():
    for rows, targets in zip(segments.split(20), following.split(20), strict=True):
        total += torch.nn.functional.cross_entropy(model(rows).logits.transpose(1, 2), targets, reduction="sum").item()
reset = total / following.numel() / math.log(2)
shares = torch.bincount(following.flatten()).double() / following.numel()
constant = -(shares[shares > 0] * shares[shares > 0].log2()).sum().item()
print(f"\nbits per byte, best constant prediction:                {constant:.3f}")
print(f"bits per byte, state reset every {SEGMENT} tokens:           {reset:.3f}")
print(f"bits per byte, state carried through the whole text:    {carried:.3f}")

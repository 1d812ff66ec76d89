"""Flip-flop memory: remember one bit, ignore the rest, and spend no steps on what is ignored.

    python examples/flip_flop_memory.py

in the root of a checkout takes seconds on a CPU.
"""

# %% [markdown]
# # Remember one bit
# A flip-flop string is a list of instructions with a bit each: `w 1` writes, `i 0` is to be ignored, `r` reads. The
# bit after `r` must be the one written last, however long ago that was. All other bits are random.

# %%
import re
from collections import defaultdict

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_recurrent import load_benchmark

# both have learned strings of 64 tokens, of whose instructions four in five are `i`
folders = {"UT": "model_cards/ut-flip-flop-cpu", "TLB": "model_cards/tlb-flip-flop-cpu"}
models = {name: AutoModelForCausalLM.from_pretrained(folder).eval() for name, folder in folders.items()}
tokenizer = AutoTokenizer.from_pretrained(folders["UT"])
assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(folders["TLB"]).get_vocab()

prompt = tokenizer("w 1 i 0 i 0 i 1 i 0 i 0 i 0 r", return_tensors="pt")
for name, model in models.items():
    text = tokenizer.decode(model.generate(**prompt, max_new_tokens=1)[0], skip_special_tokens=True)
    print(f"{name} goes on: {text}")

# %% [markdown]
# # What is ignored takes few steps
# In a Universal Transformer (UT) that is a language model, each token halts by itself. Which ones think longest?

# %%
data = load_benchmark("flip_flop", train_length=64, num_train=0, num_validation=0, num_test=200)
tokens = tokenizer(data["test_64_p80"]["text"][:], return_tensors="pt")
with torch.no_grad():
    steps = models["UT"](**tokens).ponder_steps
of_kind = defaultdict(list)
for text, taken in zip(data["test_64_p80"]["text"][:], steps.tolist(), strict=True):
    words = text.split()
    for place, (word, number) in enumerate(zip(words, taken, strict=True)):
        of_kind[word if place % 2 == 0 else f"bit after {words[place - 1]}"].append(number)
print(f"\nUT, mean steps of at most {models['UT'].config.num_hidden_layers}")
for kind, numbers in sorted(of_kind.items(), key=lambda item: sum(item[1]) / len(item[1])):
    mean = sum(numbers) / len(numbers)
    print(f"{kind:>11}  {mean:.2f} {'█' * round(10 * mean)}")

# %% [markdown]
# # Twice the length
# The test is the last read of each string: at the trained length and at twice that, with many and few distractors.
# Guessing gives 50%. A Temporal Latent Bottleneck (TLB) reads chunks and carries a few memory slots between them.

# %%
print("\naccuracy on the last read of 200 strings; UT also with the mean steps of a token")
for split, rows in data.items():
    length, share = re.fullmatch(r"test_(\d+)_p(\d+)", split).groups()
    tokens = tokenizer(rows["text"][:], return_tensors="pt")
    shown = []
    for name, model in models.items():
        with torch.no_grad():
            outputs = model(**tokens)
        # the bit of the last read ends the string; it is predicted one place earlier
        right = outputs.logits[:, -2].argmax(-1) == tokens.input_ids[:, -1]
        shown.append(f"{name} {right.float().mean():6.1%}")
        if outputs.ponder_steps is not None:
            shown.append(f"in {outputs.ponder_steps.float().mean():.2f} steps")
    print(f"{length:>4} tokens, {share}% ignored:  {'  '.join(shown)}")

"""Adaptive depth: a Neural Data Router applies one function per step, and stops when nothing changes any more.

    python examples/adaptive_depth.py

in the root of a checkout takes seconds on a CPU.
"""

# %% [markdown]
# # One step per function
# In *compositional table lookup* a bit pattern such as `011` goes through a chain of functions: `011 f e h` is
# h(e(f(011))). Each letter is a fixed, memorised table. The chain must be worked off in order, so its length is the
# depth that an answer needs. No label tells the model how long a chain is.

# %%
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent import load_benchmark
from hf_recurrent.analysis.explain import explain

folder = "model_cards/ndr-ctl-forward"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
print(f"stops by {model.config.exit_criterion}, at most {model.config.num_hidden_layers} steps")

# %% [markdown]
# # Watch the copy gates
# A token's *copy gate* says how far a step overwrites the token's state. Closed (`.`, below a tenth) means: keep
# waiting. Digits are tenths. The gates open one token after the other: a function waits until its argument is there.

# %%
splits = "test_basic+test+validation_ood+test_ood"
chains = load_benchmark("compositional_table_lookup", "forward", split=splits).to_pandas()
text = chains[chains["depth"] == 9]["text"].iloc[0]
seen = explain(model, tokenizer, text)
print(f"\n{text} -> {seen.prediction}\n")
print("step   " + "".join(f"{token:>6}" for token in seen.tokens))
for step, gates in enumerate(seen.gates[: seen.num_steps], 1):
    print(f"{step:>4}   " + "".join(f"{'.' if gate < 0.1 else int(10 * gate):>6}" for gate in gates))

# %% [markdown]
# # When does nothing change any more?
# The gates stay open after a function has been applied, but they write the same state again. `convergence` stops when
# the states' relative change is below a threshold. Here it is for each token, again in tenths.

# %%
inputs = tokenizer(text, return_tensors="pt")
with torch.no_grad():
    states = model(**inputs, output_hidden_states=True).hidden_states
print("\nstep   " + "".join(f"{token:>6}" for token in seen.tokens))
for step in range(1, seen.num_steps + 1):
    before, after = states[step - 1][0], states[step][0]
    changes = ((after - before).norm(dim=-1) / after.norm(dim=-1)).tolist()
    print(f"{step:>4}   " + "".join(f"{'.' if change < 0.1 else int(10 * change):>6}" for change in changes))

# %% [markdown]
# # Steps follow the number of functions
# The model was trained on chains of up to five functions. Six to eight chose its settings; nine and ten are new to it.

# %%
print("\nfunctions  accuracy  steps")
for depth, group in chains.groupby("depth"):
    batch = tokenizer(group["text"].tolist()[:100], padding=True, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**batch)
    right = (outputs.logits.argmax(-1).numpy() == group["label"].to_numpy()[:100]).mean()
    steps = outputs.ponder_steps.float().mean().item()
    print(f"{depth:>9}  {right:>8.0%}  {steps:5.2f} {'█' * round(steps)}")

"""Stop early with a guarantee: choose an exit threshold, bound what it costs, and check the promise on fresh data.

    python examples/calibrate_with_guarantee.py

in the root of a checkout takes about a minute on a CPU. `hf-recurrent calibrate` does the same for a folder; this is
its Python API.
"""

# %% [markdown]
# # A model, and examples that it has not seen
# A Gated Universal Transformer (GUT) evaluates nested lists such as `[MAX 2 [MIN 4 7 ] ]` in at most 10 steps. It is
# small and far from perfect; the guarantee is about what stopping early costs, compared with all steps.

# %%
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

from hf_recurrent import load_benchmark
from hf_recurrent.analysis.calibration import Examples, Goal, apply_calibration, calibrate

folder = "model_cards/gut-listops"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
# other random expressions than those of training, of the same kind
drawn = load_benchmark("listops", "original", seed=1, num_train=0, num_validation=500, num_test=1000)


def encoded(split):
    """A split as padded batches of like lengths, with the expressions' depth as difficulty."""
    rows = drawn[split].map(lambda row: {"length": len(row["text"].split())}).sort("length")
    features = [{**tokenizer(row["text"]), "label": row["label"]} for row in rows]
    collate = DataCollatorWithPadding(tokenizer)
    batches = [collate(features[start : start + 64]) for start in range(0, len(features), 64)]
    return Examples(batches, rows["text"][:], rows["depth"][:])


# %% [markdown]
# # Choose
# `agreement` stops when two successive predictions agree: their KL divergence is below a threshold. An error is an
# answer that full depth gets right and the early exit gets wrong; the risk is their share. Thresholds are tested from
# the safest to the fastest, until one cannot be shown to be safe: with 95% confidence its risk is at most 2%.

# %%
goal = Goal(tolerance=0.02, confidence=0.95, repeats=1)
examples, fresh = encoded("validation"), encoded("test")
found = calibrate(model, examples, {"fresh": fresh}, goal, criteria=["agreement"], only_exits=True)
full = found["full_depth"]
print(f"{found['n']} examples; all {found['max_depth']} steps: {full['accuracy']:.1%} right\n")
print("threshold  mean steps  right   errors   risk  p-value  safe")
for row in found["criteria"]["agreement"]["curve"]:
    print(f"{row['threshold']:>9g}  {row['mean_depth']:>10.2f}  {row['accuracy']:.1%}  {row['lost']:>6}", end="")
    print(f"  {row['risk']:>5.1%}  {row['p_value']:>7.4f}  {'yes' if row['safe'] else 'no'}")
chosen = found["chosen"]
print(f"\nchosen: {chosen['criterion']} at {chosen['threshold']:g}")

# %% [markdown]
# # Check the promise on fresh data
# These examples had no part in the choice. Deeper expressions take more steps, though nothing taught the model to.

# %%
check = found["tests"]["fresh"]
print(f"\n{check['n']} fresh examples: risk {check['risk']:.2%}, promised at most {goal.tolerance:.0%}")
print(f"right: {check['accuracy']:.1%} in {check['mean_depth']:.2f} steps, {check['full_accuracy']:.1%} in all 10")
print("\ndepth   examples  mean steps")
for row in check["by_difficulty"]:
    print(f"{row['value']:>5}  {row['n']:>9}  {row['mean_depth']:10.2f} {'█' * round(4 * row['mean_depth'])}")

# %% [markdown]
# # Use it
# The choice is a few config fields. They are saved with the model, and every later call stops by them.

# %%
apply_calibration(model, found, benchmark="listops", benchmark_config="original", split="validation")
print()
for text in ("[MIN 5 4 4 5 ]", "[MAX 2 [MIN 3 1 4 [MIN 6 [MIN 8 0 0 ] ] ] 2 2 ]"):
    with torch.no_grad():
        outputs = model(**tokenizer(text, return_tensors="pt"))
    print(f"{text} -> {model.config.id2label[outputs.logits.argmax().item()]} in {outputs.ponder_steps.item()} steps")

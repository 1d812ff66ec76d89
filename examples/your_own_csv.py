"""Your own CSV: train a Gated Universal Transformer (GUT), calibrate it, predict a table, load it in a fresh process.

    python examples/your_own_csv.py

takes about two minutes on a CPU, and writes into runs/your_own_csv.
"""

# %% [markdown]
# # A table of texts and labels
# Any CSV with a column of texts and one of labels will do. This one has opinions that are wrapped up: "nobody believes
# that it is wrong that the soup is good" is positive. Each negation turns the meaning round, so no single word tells
# it, and the number of negations is the depth of the example. No text is in two files.

# %%
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import pandas as pd

NEGATIONS, OTHERS = ("it is wrong that", "nobody believes that", "i doubt that"), ("i think that", "everyone says that")
NOUNS = ("soup", "film", "hotel", "book", "phone", "song", "wine", "room", "plot", "staff")
POSITIVE = {"good": True, "great": True, "fine": True, "bad": False, "awful": False, "poor": False}
draw, rows = random.Random(0), []
for number in range(4):
    texts = list(itertools.product(itertools.product(NEGATIONS + OTHERS, repeat=number), NOUNS, POSITIVE))
    for wraps, noun, adjective in draw.sample(texts, min(len(texts), 1000)):
        negations = sum(wrap in NEGATIONS for wrap in wraps)
        label = "positive" if POSITIVE[adjective] == (negations % 2 == 0) else "negative"
        rows.append({"text": " ".join((*wraps, f"the {noun} is {adjective}")), "label": label, "negations": negations})
draw.shuffle(rows)
folder = Path("runs/your_own_csv")
folder.mkdir(parents=True, exist_ok=True)
for part, own in {"train": rows[:1600], "validation": rows[1600:2000], "test": rows[2000:]}.items():
    pd.DataFrame(own).to_csv(folder / f"{part}.csv", index=False)


def hf_recurrent(command, *more):
    """Run the command line `hf-recurrent`; its own messages are no part of this example's output."""
    words = [sys.executable, "-m", "hf_recurrent", *command.format(folder=folder).split(), *more]
    subprocess.run(words, check=True, stdout=sys.stderr)


# %% [markdown]
# # Train
# The model learns to answer after every step (`every_step`), so that it can stop at any of them. A finished run is not
# repeated: remove `runs/your_own_csv` to start again.

# %%
hf_recurrent(
    """train --model_type gut --tokenizer words --train_file {folder}/train.csv --slice_by negations
    --validation_file {folder}/validation.csv --test_file {folder}/test.csv --output_dir {folder}/model --max_steps 400
    --per_device_train_batch_size 64 --learning_rate 0.002 --lr_schedule cosine2 --warmup_steps 50 --eval_strategy no
    --use_cpu true""",
    *("--config", "{preset: tiny, num_hidden_layers: 6, halting: none, depth_objective: every_step}"),
)

# %% [markdown]
# # Calibrate
# The validation examples choose when to stop: with 95% confidence, at most 2% of the answers are lost by that.

# %%
hf_recurrent(
    """calibrate {folder}/model {folder}/validation.csv --test-file {folder}/test.csv --criterion confidence
    --tolerance 0.02 --slice-by negations"""
)
found = json.loads((folder / "model/calibration.json").read_text(encoding="utf-8"))
print(f"chosen on {found['n']} examples: stop when {found['chosen']['threshold']:.2%} sure of the answer\n")

# %% [markdown]
# # Predict a table
# Every row gets a label, a probability and the number of steps.

# %%
hf_recurrent(
    """predict {folder}/model --file {folder}/test.csv --output {folder}/predictions.csv --overwrite
    --keep-column text --keep-column label --keep-column negations"""
)
table = pd.read_csv(folder / "predictions.csv")
for row in table[:5].itertuples():
    print(f"{row.text} -> {row.prediction} in {row.steps:g} steps")
table["right"] = table["prediction"] == table["label"]
print(f"\n{table['right'].mean():.1%} of {len(table)} test rows right", end="; ")
print(f"the more frequent answer alone: {table['label'].value_counts(normalize=True).max():.1%}")
print("\nnegations  rows   right  mean steps")
for negations, own in table.groupby("negations"):
    steps = own["steps"].mean()
    print(f"{negations:>9}  {len(own):>4}  {own['right'].mean():>6.1%}  {steps:.2f} {'█' * round(5 * steps)}")

# %% [markdown]
# # Load it in a fresh process
# The folder carries its own code. With `trust_remote_code=True` transformers loads it where hf_recurrent is not
# imported, or not even installed.

# %%
FRESH = """
import sys
from transformers import pipeline

classify = pipeline("text-classification", sys.argv[1], trust_remote_code=True)
print(classify("i doubt that nobody believes that the soup is good")[0]["label"], end=", ")
print("with" if "hf_recurrent" in sys.modules else "without", "an import of hf_recurrent")
"""
fresh = subprocess.run([sys.executable, "-c", FRESH, folder / "model"], check=True, stdout=subprocess.PIPE, text=True)
print(f"\nin a fresh process: {fresh.stdout.strip()}")

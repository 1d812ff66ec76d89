"""Your own CSV: train a Gated Universal Transformer (GUT), calibrate it, predict a table, load it in a fresh process.

    python examples/your_own_csv.py

takes a minute or two on a CPU, and writes into runs/your_own_csv.
"""

# %% [markdown]
# # A table of texts and labels
# Any CSV with a column of texts and one of labels will do. This one has complaints, which go to a department: "the
# invoice is fine but the parcel is broken" is for delivery. A text names up to three things, of which one is bad. So
# no single word tells the department: what is bad has to be found first. No text is in two files.

# %%
import json
import random
import subprocess
import sys
from pathlib import Path

import pandas as pd

THINGS = {"delivery": ["parcel", "driver", "box"], "billing": ["invoice", "refund", "price"]}
THINGS["repair"] = ["screen", "battery", "camera"]
FINE, BAD = ["fine", "good", "great", "perfect"], ["broken", "wrong", "awful", "late", "missing", "faulty"]
draw, rows = random.Random(0), {}
while len(rows) < 2800:
    departments = draw.sample(sorted(THINGS), draw.randint(1, 3))
    moods = draw.sample([BAD, *[FINE] * (len(departments) - 1)], len(departments))
    parts = [
        f"the {draw.choice(THINGS[name])} is {draw.choice(mood)}" for name, mood in zip(departments, moods, strict=True)
    ]
    start = draw.choice(["", "hello ", "hi there ", "sorry but ", "since monday "])
    rows[start + f" {draw.choice(['and', 'but'])} ".join(parts)] = (departments[moods.index(BAD)], len(parts))
table = pd.DataFrame([(text, *facts) for text, facts in rows.items()], columns=["text", "label", "things"])
table = table.sample(frac=1, random_state=0)
folder = Path("runs/your_own_csv")
folder.mkdir(parents=True, exist_ok=True)
for part, own in {"train": table[:2000], "validation": table[2000:2400], "test": table[2400:]}.items():
    own.to_csv(folder / f"{part}.csv", index=False)


def hf_recurrent(command, *more):
    """Run the command line `hf-recurrent`; its own messages are no part of this example's output."""
    words = [sys.executable, "-m", "hf_recurrent", *command.format(folder=folder).split(), *more]
    subprocess.run(words, check=True, stdout=sys.stderr)


# %% [markdown]
# # Train
# By default the model learns to answer after every step, so that it can stop at any of them. A finished run is not
# repeated: remove `runs/your_own_csv` to start again.

# %%
hf_recurrent(
    """train --model_type gut --tokenizer words --train_file {folder}/train.csv --slice_by things
    --validation_file {folder}/validation.csv --test_file {folder}/test.csv --output_dir {folder}/model --max_steps 300
    --per_device_train_batch_size 64 --learning_rate 0.002 --lr_schedule cosine2 --warmup_steps 50 --eval_strategy no
    --use_cpu true""",
    *("--config", "{preset: tiny, num_hidden_layers: 6}"),
)

# %% [markdown]
# # Calibrate
# The validation examples choose when to stop: with 95% confidence, at most 2% of the answers are lost by that.

# %%
hf_recurrent(
    """calibrate {folder}/model {folder}/validation.csv --test-file {folder}/test.csv --criterion confidence
    --only_exits --in_place --tolerance 0.02 --slice-by things"""
)
found = json.loads((folder / "model/calibration.json").read_text(encoding="utf-8"))
print(f"chosen on {found['n']} examples: stop when {found['chosen']['threshold']:.2%} sure of the answer\n")

# %% [markdown]
# # Predict a table
# Every row gets a label, a probability and the number of steps.

# %%
hf_recurrent(
    """predict {folder}/model --file {folder}/test.csv --output {folder}/predictions.csv --overwrite
    --keep-column text --keep-column label --keep-column things"""
)
table = pd.read_csv(folder / "predictions.csv")
for row in table[:5].itertuples():
    print(f"{row.text} -> {row.prediction} in {row.steps:g} steps")
table["right"] = table["prediction"] == table["label"]
print(f"\n{table['right'].mean():.1%} of {len(table)} test rows right", end="; ")
print(f"the most frequent answer alone: {table['label'].value_counts(normalize=True).max():.1%}")
print("\nthings  rows   right  mean steps")
for things, own in table.groupby("things"):
    steps = own["steps"].mean()
    print(f"{things:>6}  {len(own):>4}  {own['right'].mean():>6.1%}  {steps:.2f} {'█' * round(5 * steps)}")

# %% [markdown]
# # Load it in a fresh process
# The folder carries its own code. With `trust_remote_code=True` transformers loads it where hf_recurrent is not
# imported, or not even installed.

# %%
FRESH = """
import sys
from transformers import pipeline

classify = pipeline("text-classification", sys.argv[1], trust_remote_code=True)
print(classify("the price is great but the battery is awful")[0]["label"], end=", ")
print("with" if "hf_recurrent" in sys.modules else "without", "an import of hf_recurrent")
"""
fresh = subprocess.run([sys.executable, "-c", FRESH, folder / "model"], check=True, stdout=subprocess.PIPE, text=True)
print(f"\nin a fresh process: {fresh.stdout.strip()}")

"""Translate with a Sparse Universal Transformer (SUT): number words into digits, learned from JSON lines.

    python examples/translate.py

takes about two minutes on a CPU, and writes into runs/translate.
"""

# %% [markdown]
# # Data of your own
# Pairs of sources and targets: every number below 10,000 in words and in digits. Test numbers are not in the training
# data, so that knowing answers by heart is of no use.

# %%
import random
import subprocess
import sys
from pathlib import Path

import pandas as pd
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq

from hf_recurrent.analysis.experts import count_experts, expert_table

SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def in_words(number):
    for unit, name in ((1000, "thousand"), (100, "hundred")):
        if number >= unit:
            rest = [in_words(number % unit)] if number % unit else []
            return " ".join([in_words(number // unit), name, *rest])
    if number < 20:
        return SMALL.split()[number]
    return " ".join([TENS.split()[number // 10 - 2], *([SMALL.split()[number % 10]] if number % 10 else [])])


numbers = random.Random(0).sample(range(10_000), 10_000)
pairs = pd.DataFrame({"words": in_words(number), "digits": " ".join(str(number))} for number in numbers)
folder = Path("runs/translate")
folder.mkdir(parents=True, exist_ok=True)
for part, own in {"train": pairs[:8500], "validation": pairs[8500:9000], "test": pairs[9000:]}.items():
    own.to_json(folder / f"{part}.jsonl", orient="records", lines=True)

# %% [markdown]
# # Train
# A finished run is not repeated: remove `runs/translate` to start again.

# %%
CONFIG = """{hidden_size: 64, num_hidden_layers: 4, num_decoder_layers: 2, num_attention_heads: 2, head_dim: 16,
  attention_experts: 4, attention_experts_per_token: 2, feed_forward_experts: 4, feed_forward_experts_per_token: 2,
  intermediate_size: 64, relative_window: 3, layer_norm: pre, tie_word_embeddings: false, halting: token,
  halting_bias_init: -2.0, ponder_loss_weight: 0.001, router_loss_weight: 0.01, dropout: 0.0, attention_dropout: 0.0,
  activation_dropout: 0.0, router_dropout: 0.0}"""
command = f"""train --model_type sut --source_column words --target_column digits --tokenizer words --use_cpu true
  --train_file {folder}/train.jsonl --validation_file {folder}/validation.jsonl --test_file {folder}/test.jsonl
  --max_steps 400 --batch_tokens 1536 --learning_rate 0.003 --lr_schedule cosine2 --warmup_steps 100 --adam_beta2 0.98
  --eval_strategy no --output_dir {folder}/model""".split()
subprocess.run([sys.executable, "-m", "hf_recurrent", *command, "--config", CONFIG], check=True, stdout=sys.stderr)

# %% [markdown]
# # Generate
# Each answer is right or wrong as a whole.

# %%
tokenizer = AutoTokenizer.from_pretrained(folder / "model")
model = AutoModelForSeq2SeqLM.from_pretrained(folder / "model").eval()
test = pairs[9000:].reset_index(drop=True)
batch = tokenizer(test["words"].tolist(), padding=True, return_tensors="pt")
test["written"] = tokenizer.batch_decode(model.generate(**batch, max_new_tokens=6), skip_special_tokens=True)
test["right"] = test["written"] == test["digits"]
for row in test[:5].itertuples():
    print(f"{row.words} -> {row.written}")
print(f"\n{test['right'].mean():.1%} of {len(test)} unseen numbers right; a constant answer: {1 / len(test):.1%}")

# %% [markdown]
# # Where does the encoder think longer?
# Each token of the source halts by itself.

# %%
real = batch.attention_mask == 1
with torch.no_grad():
    steps = model.get_encoder()(**batch).ponder_steps.masked_fill(~real, 0)
test["steps"] = (steps.sum(1) / real.sum(1)).tolist()
print(f"\nwords  numbers   right  encoder steps of a token (at most {model.config.num_hidden_layers})")
for length, own in test.groupby(test["words"].str.split().str.len()):
    mean = own["steps"].mean()
    print(f"{length:>5}  {len(own):>7}  {own['right'].mean():>6.1%}  {mean:.2f} {'█' * round(10 * mean)}")

# %% [markdown]
# # Which experts do tokens use?
# Of each expert of the encoder's feed-forward network: its share of the work, and the words that come to it more often
# than by chance.

# %%
features = [
    {**tokenizer(row.words), "labels": tokenizer(text_target=row.digits).input_ids} for row in test.itertuples()
]
collate = DataCollatorForSeq2Seq(tokenizer, model)
counts = count_experts(model, [collate(features[start : start + 100]) for start in range(0, len(features), 100)])
print("\nexpert  share  words")
for facts in expert_table(counts, tokenizer, len(test))["modules"]["encoder feed-forward"]["experts"]:
    names = ", ".join(word["token"] for word in facts["by_information"])
    print(f"{facts['expert']:>6}  {facts['share']:>5.1%}  {names}")

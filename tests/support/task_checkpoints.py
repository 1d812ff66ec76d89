"""Tiny checkpoints of random weights for each task, and a user's own examples for them."""

import csv
import json
import random

import torch
import transformers

from hf_recurrent import GUTConfig, GUTForSequenceClassification
from hf_recurrent.data.tokenizers import train_tokenizer
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.hub.results import EMPTY

from .token_checkpoints import WORDS, causal_checkpoint, masked_checkpoint, word_checkpoint, word_rows, write_rows
from .token_heads import CHOICE, SPAN

ROWS = 60
NAMES = ("negative", "positive")
ENDINGS = ("yes", "no", "perhaps")
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
# task -> options by which its examples are read
READ = {
    "classes": ("--text_column", "review", "--label_column", "stars", "--slice_by", "kind"),
    "words": ("--slice_by", "kind"),
    "masked": ("--line_by_line",),
    "texts": ("--line_by_line", "--slice_by", "size"),
    "spans": ("--slice_by", "kind"),
    "choices": ("--context_column", "ask", *(word for i in range(3) for word in ("--ending_columns", f"end{i}"))),
}


def review_rows(count, seed=0):
    generator = random.Random(seed)
    chosen = [generator.choices(WORDS, k=generator.randint(1, 9)) for _ in range(count)]
    return [
        {
            "review": " ".join(words),
            "stars": NAMES[sum(WORDS.index(word) % 2 == 0 for word in words) * 2 > len(words)],
            "kind": generator.choice("ab"),
            "score": f"{len(words) / 2:.1f}",
            "topics": "|".join(sorted({word for word in words if word in WORDS[:3]})),
        }
        for words in chosen
    ]


def text_rows(count, seed=0):
    rows = word_rows(count, seed=seed)
    return [{"text": " ".join(row["tokens"]), "size": len(row["tokens"]), "kind": row["kind"]} for row in rows]


def span_rows(count, seed=0):
    for number in range(seed, count + seed):
        town = ("Rome", "Oslo", "Paris")[number % 3]
        context = f"Anna {'never ' * (number % 4)}lives in {town}."
        answers = {"text": [town], "answer_start": [context.index(town)]}
        yield {"question": "Where?", "context": context, "answers": answers, "kind": number % 4}


def choice_rows(count, seed=0):
    for number in range(seed, count + seed):
        yield {"ask": f"Is it {number}?", "label": number % 3} | {f"end{i}": text for i, text in enumerate(ENDINGS)}


MADE = {"words": word_rows, "masked": text_rows, "texts": text_rows, "spans": span_rows, "choices": choice_rows}


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_examples(path, task, count=ROWS, seed=0):
    """A file of examples, whose suffix is appended."""
    if task == "classes":
        return write_csv(path.with_suffix(".csv"), review_rows(count, seed))
    return write_rows(path.with_suffix(".jsonl"), list(MADE[task](count, seed=seed)))


def named(*names):
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}


def classifier(folder, **fields):
    tokenizer = train_tokenizer("words", WORDS, frame="classification")
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(0)
    config = GUTConfig(vocab_size=len(tokenizer), **SIZES, **ids, **{"halting": "global", **fields})
    save_checkpoint(GUTForSequenceClassification(config).eval(), folder, tokenizer)
    return folder


def reader(folder, head):
    """A model that answers questions about texts of bytes."""
    tokenizer = train_tokenizer("bytes", [], frame="classification")
    config = GUTConfig(**SIZES, vocab_size=len(tokenizer), type_vocab_size=2, halting="global", halting_threshold=0.6)
    torch.manual_seed(3)
    save_checkpoint(getattr(transformers, head).from_config(config), folder, tokenizer)
    return folder


def make_checkpoint(folder, task):
    makers = {"words": word_checkpoint, "masked": masked_checkpoint, "texts": causal_checkpoint}
    if task == "classes":
        return classifier(folder, **named(*NAMES))
    return makers[task](folder) if task in makers else reader(folder, {"spans": SPAN, "choices": CHOICE}[task])


def record(folder, task="text-classification", recipe=None, **parameters):
    """Leave in a checkpoint what a run records of how it read its examples."""
    pair = "another text" if len(parameters.get("text_column", ())) > 1 else None
    found = {**EMPTY, "task": task, "model": {}, "data": {"parameters": parameters}}
    found["example"] = {"text": "a text", "text_pair": pair, "answer": None}
    (folder / "results.json").write_text(json.dumps(found))
    if recipe is not None:
        (folder / "recipe.yaml").write_text(recipe)
    return folder

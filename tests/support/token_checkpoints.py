"""Tiny checkpoints that answer for each token or the next one, with tokenizers of a few words, and rows for them."""

import json
import random

import torch

from hf_recurrent.data.tokenizers import train_tokenizer
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.gut.configuration_gut import GUTConfig
from hf_recurrent.models.gut.modeling_gut import GUTForCausalLM, GUTForMaskedLM, GUTForTokenClassification
from hf_recurrent.tasks.fill_mask import MASK

WORDS = ["good", "bad", "fine", "dull", "great", "poor"]
LABELS = ("bright", "dark", "plain")
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 4}


def lively(model):
    """A model whose tokens halt after different numbers of steps, and whose answers change on the way."""
    for name, parameter in model.named_parameters():
        if "halting_head" in name and parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=2.0)
    return model.eval()


def word_checkpoint(folder, **fields):
    """A token classifier with random weights."""
    tokenizer = train_tokenizer("words", WORDS, frame="classification")
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: place for place, name in enumerate(LABELS)}}
    torch.manual_seed(0)
    config = GUTConfig(vocab_size=len(tokenizer), **SIZES, **ids, **names, **{"halting": "token", **fields})
    save_checkpoint(lively(GUTForTokenClassification(config)), folder, tokenizer)
    return folder


def masked_checkpoint(folder, **fields):
    """A masked language model with random weights."""
    tokenizer = train_tokenizer("words", WORDS, frame="language")
    tokenizer.add_special_tokens({"mask_token": MASK})
    # the name of the mask token in a text is that token
    tokenizer.split_special_tokens = tokenizer.init_kwargs["split_special_tokens"] = False
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(0)
    config = GUTConfig(vocab_size=len(tokenizer), **SIZES, **ids, **{"halting": "token", **fields})
    save_checkpoint(lively(GUTForMaskedLM(config)), folder, tokenizer)
    return folder


def causal_checkpoint(folder, **fields):
    """A causal language model with random weights."""
    tokenizer = train_tokenizer("words", WORDS, frame="language")
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(0)
    config = GUTConfig(vocab_size=len(tokenizer), is_causal=True, **SIZES, **ids, **{"halting": "global", **fields})
    save_checkpoint(lively(GUTForCausalLM(config)), folder, tokenizer)
    return folder


def word_rows(count: int, seed: int = 0) -> list[dict]:
    """Words and labels, which depend on the word and sometimes on that before."""
    generator, rows = random.Random(seed), []
    for _ in range(count):
        words = generator.choices(WORDS, k=generator.randint(1, 9))
        labels = [
            LABELS[2] if before == word else LABELS[WORDS.index(word) % 2]
            for before, word in zip([None, *words], words, strict=False)
        ]
        rows.append({"tokens": words, "ner_tags": labels, "kind": generator.choice("ab")})
    return rows


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

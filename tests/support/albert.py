"""A small ALBERT of transformers with its tokenizer, and tasks of GLUE for it."""

from pathlib import Path

import torch
import transformers
from datasets import ClassLabel, Dataset, Features, Value
from transformers import AlbertConfig, AlbertTokenizer, PreTrainedModel

from hf_recurrent.data.glue import TASKS

WORDS = ("good", "bad", "film", "very", "the", "a", "0", "1", "2", "3")
TINY = {
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
}
LABELS = {
    "sst2": ["negative", "positive"],
    "mrpc": ["not_equivalent", "equivalent"],
    "qnli": ["entailment", "not_entailment"],
    "mnli": ["entailment", "neutral", "contradiction"],
}


def save_albert(folder: Path, head: str = "AlbertForPreTraining", **fields: object) -> PreTrainedModel:
    """Save a model with random weights and its tokenizer, by default with the heads of the published checkpoints."""
    special = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁")
    pieces = [*special, *(f"▁{word}" for word in WORDS)]
    tokenizer = AlbertTokenizer(vocab=[(piece, -float(number)) for number, piece in enumerate(pieces)])
    torch.manual_seed(0)
    model = getattr(transformers, head)(AlbertConfig(**{**TINY, "vocab_size": len(pieces), **fields}))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def glue_splits(task: str, size: int = 24) -> dict[str, Dataset]:
    """The splits of a task, with the columns and labels of the Hub's; the first word of each text tells the label."""
    facts, names = TASKS[task], LABELS[task]
    features = Features({**{name: Value("string") for name in facts.texts}, "label": ClassLabel(names=names)})

    def rows(secret: bool) -> Dataset:
        labels = [number % len(names) for number in range(size)]
        words = ("good", "bad", "film")
        texts = [f"{words[label]} film" + " very" * (number % 3) for number, label in enumerate(labels)]
        columns = {name: [f"the {text}" if place else text for text in texts] for place, name in enumerate(facts.texts)}
        return Dataset.from_dict({**columns, "label": [-1] * size if secret else labels}, features=features)

    tests = [name.replace("validation", "test") for name in facts.validation]
    return {name: rows(name in tests) for name in ("train", *facts.validation, *tests)}

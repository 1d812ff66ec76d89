"""A causal language model that honours the output contract, with predictions and steps known in advance."""

from types import SimpleNamespace

import numpy as np
import torch
from fake_classifier import FakeOutput

from hf_recurrent.models.config.base import Capabilities

VOCABULARY = 8
DEPTH = 4
COLUMNS = ("input_ids", "attention_mask", "labels")


class FakeLanguageModel(torch.nn.Module):
    """Predicts after each token the next number modulo the vocabulary, and thinks `id % 5` steps about it.

    Its halting head says 0.5 at each step executed.
    """

    def __init__(self, halting="global"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(num_hidden_layers=DEPTH, capabilities=Capabilities())
        if halting is not None:
            self.config.halting, self.config.halting_threshold = halting, 0.999
            self.config.capabilities = Capabilities(halting, "token", halting_threshold=0.999)

    def answer_head(self):
        return SimpleNamespace(answers="tokens")

    def forward(self, input_ids, attention_mask=None, output_halting=False, **options):
        logits = torch.nn.functional.one_hot((input_ids + 1) % VOCABULARY, VOCABULARY).float()
        if not hasattr(self.config, "halting"):
            return FakeOutput(logits=logits)
        steps = input_ids % (DEPTH + 1)
        if attention_mask is not None:
            steps = steps.masked_fill(attention_mask == 0, -1)
        executed = torch.arange(DEPTH) < steps[..., None]
        return FakeOutput(
            logits=logits,
            ponder_cost=steps.clamp_min(0).float().mean(1),
            ponder_steps=steps,
            halting_probabilities=executed * 0.5 if output_halting else None,
        )


def language_batches(rows=12, seed=0):
    """Batches of ids, right-padded, with some tokens labelled in every row; the label is the token itself."""
    generator = np.random.default_rng(seed)
    for width in (9, 6):
        ids = generator.integers(0, VOCABULARY, (rows // 2, width))
        mask = np.ones_like(ids)
        mask[::2, -2:] = 0
        wanted = (generator.random(ids.shape) < 0.4) & (mask == 1)
        wanted[:, 3] = True
        labels = np.where(wanted, ids, -100)
        yield {name: torch.tensor(values) for name, values in zip(COLUMNS, (ids, mask, labels), strict=True)}


def naive_rows(rows=12, seed=0):
    """Each row by plain loops: ids of its tokens, and its labelled positions but the first."""
    for batch in language_batches(rows, seed):
        for ids, mask, labels in zip(*(batch[name].tolist() for name in COLUMNS), strict=True):
            yield ids[: sum(mask)], [t for t, label in enumerate(labels) if t and label != -100]

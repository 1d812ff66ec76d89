"""Padding between the tokens of a sequence, which no tokenizer makes, counts as none: positions count tokens only."""

import pytest
import torch

from support.compare import assert_same, compute


def test_padding_between_tokens_changes_nothing(model, variant, batch):
    if variant.chunking == "balanced":
        pytest.skip("balanced chunks depend on the width of the batch, as in the reference implementation")
    if variant.always_causal:
        pytest.skip("causal models refuse it")
    length = batch["input_ids"].shape[1]
    split = 3
    gap = torch.zeros(len(batch["labels"]), 2, dtype=torch.long)
    spread = {
        name: values if values.dim() == 1 else torch.cat((values[:, :split], gap, values[:, split:length]), dim=1)
        for name, values in batch.items()
    }
    assert_same(compute(model, variant, spread), compute(model, variant, batch))

"""Tiny models that halt, and batches for them."""

import torch

from hf_recurrent import SUTConfig, SUTForConditionalGeneration, SUTForSequenceClassification

SPARSE = {
    "vocab_size": 24,
    "hidden_size": 16,
    "num_hidden_layers": 5,
    "attention_experts": 3,
    "attention_experts_per_token": 2,
    "feed_forward_experts": 3,
    "feed_forward_experts_per_token": 2,
    "num_attention_heads": 2,
    "head_dim": 8,
    "intermediate_size": 12,
    "relative_window": 1,
    "initializer_range": 1.0,
    "halting": "token",
    "halting_threshold": 0.9,
    "num_labels": 3,
}
SPARSE |= dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "router_dropout"), 0.0)


def enlivened(model):
    """Halting heads whose probabilities differ from token to token."""
    for name, module in model.named_modules():
        if name.endswith("halting_head"):
            torch.nn.init.normal_(module.down_proj.weight, std=1.5)
    return model.eval()


def make_sparse(**changes):
    torch.manual_seed(0)
    return enlivened(SUTForSequenceClassification(SUTConfig(**SPARSE | changes)))


def make_translator(**changes):
    torch.manual_seed(1)
    config = SUTConfig(**SPARSE, num_decoder_layers=4, is_encoder_decoder=True, **changes)
    return enlivened(SUTForConditionalGeneration(config))


def make_pairs(rows=7, seed=0):
    """Two batches of padded sources and targets, which end with the EOS token."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for number in (rows, 3):
        lengths = torch.randint(2, 8, (number, 1), generator=generator)
        ends = torch.randint(1, 4, (number, 1), generator=generator)
        labels = torch.randint(4, 24, (number, 4), generator=generator)
        labels = torch.where(torch.arange(4) == ends, 3, labels).masked_fill(torch.arange(4) > ends, -100)
        batches.append(
            {
                "input_ids": torch.randint(4, 24, (number, 8), generator=generator),
                "attention_mask": (torch.arange(8) < lengths).long(),
                "labels": labels,
            }
        )
    return batches

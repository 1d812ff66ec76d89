"""Tiny models with the heads for tokens, spans and choices, and batches for them.

Bases are those of the tests' classifiers, so that their halting is live.
"""

import functools

import torch
import transformers

from .families import BY_NAME, LABELS, VARIANTS, Variant, copy_model, make_batch, make_config, make_model, slow

TOKENS, MASKED = "AutoModelForTokenClassification", "AutoModelForMaskedLM"
SPAN, CHOICE = "AutoModelForQuestionAnswering", "AutoModelForMultipleChoice"
NEW_HEADS = (TOKENS, MASKED, SPAN, CHOICE)
CHOICES, MASK = 3, 1


def reads_both_sides(variant: Variant) -> bool:
    if variant.architecture == "rnn":
        return variant.fields.get("cell") == "bilstm"
    return not variant.always_causal


def fits(variant: Variant, head: str) -> bool:
    """Whether such a model has this head."""
    return (head != MASKED or reads_both_sides(variant)) and (head == CHOICE or not variant.siamese)


# (variant, head); those of the core are quick
PAIRS = [
    (variant.name, head) if variant.core else slow(variant.name, head)
    for variant in VARIANTS
    for head in NEW_HEADS
    if fits(variant, head)
]


@functools.cache
def _prototype(name: str, head: str):
    variant = BY_NAME[name]
    torch.manual_seed(0)
    model = getattr(transformers, head).from_config(make_config(variant)).eval()
    weights = make_model(variant).model.state_dict()
    # some heads have no use for what pools
    missing = model.model.state_dict().keys() ^ weights.keys()
    assert {name.partition(".")[0] for name in missing} <= {"pooler"}
    model.model.load_state_dict(weights, strict=False)
    return model


def make_head(name: str, head: str, **changes):
    """A model in evaluation mode; `changes` are config fields that leave its weights as they are."""
    model = copy_model(_prototype(name, head))
    for field, value in changes.items():
        setattr(model.config, field, value)
    return model


def make_head_batch(name: str, head: str, rows: int = 6, length: int = 9, seed: int = 0) -> dict[str, torch.Tensor]:
    """Sequences padded on the right, some tokens or sequences without a target."""
    variant = BY_NAME[name]
    generator = torch.Generator().manual_seed(seed)
    batch = make_batch(variant, rows=rows * CHOICES if head == CHOICE else rows, length=length, seed=seed)
    ids, mask = batch["input_ids"], batch["attention_mask"].bool()
    del batch["labels"]
    if head == CHOICE:
        labels = torch.randint(0, CHOICES, (rows,), generator=generator)
        labels[1] = -100
        return {key: value.unflatten(0, (rows, CHOICES)) for key, value in batch.items()} | {"labels": labels}
    lengths = mask.sum(-1)
    if head == SPAN:
        start = (torch.rand(rows, generator=generator) * lengths).long()
        end = torch.minimum(start + torch.randint(0, 3, (rows,), generator=generator), lengths - 1)
        # beyond what was read
        start[1], end[1], end[2] = length + 5, length + 6, length
        return {**batch, "start_positions": start, "end_positions": end}
    labelled = (torch.rand(mask.shape, generator=generator) < 0.5) & mask
    labelled[:, 0] = True
    classes = torch.randint(0, LABELS, mask.shape, generator=generator)
    labels = (classes if head == TOKENS else ids).masked_fill(~labelled, -100)
    if head == MASKED:
        batch["input_ids"] = ids.masked_fill(labelled, MASK)
    return {**batch, "labels": labels}


def without_targets(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: value for key, value in batch.items() if key not in ("labels", "start_positions", "end_positions")}


def logits_of(output) -> tuple[torch.Tensor, ...]:
    return (output.start_logits, output.end_logits) if "start_logits" in output else (output.logits,)


def cross_entropies(logits: list[torch.Tensor], targets: list[int]) -> list[float]:
    """Of vectors of logits, in plain arithmetic."""
    return [
        float(each.double().exp().sum().log() - each[target].double())
        for each, target in zip(logits, targets, strict=True)
    ]


def task_loss(head: str, logits: tuple[torch.Tensor, ...], batch: dict[str, torch.Tensor]) -> float:
    """The loss by brute force: means of cross-entropies over what has a target."""
    if head == SPAN:
        names, length = ("start_positions", "end_positions"), batch["input_ids"].shape[1]
        means = []
        for values, name in zip(logits, names, strict=True):
            targets = {row: int(target) for row, target in enumerate(batch[name]) if target < length}
            # no token of padding is among the answers
            read = [values[row][batch["attention_mask"][row].bool()] for row in targets]
            means.append(torch.tensor(cross_entropies(read, list(targets.values()))).mean())
        return float(sum(means) / 2)
    labels = batch["labels"]
    chosen = [tuple(place) for place in (labels != -100).nonzero().tolist()]
    losses = cross_entropies([logits[0][place] for place in chosen], [int(labels[place]) for place in chosen])
    return sum(losses) / len(losses)

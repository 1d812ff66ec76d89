"""Models with random weights, batches of mixed lengths, and the halting threshold for a wanted mean depth."""

import argparse
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from hf_recurrent import ARCHITECTURES

Batch = dict[str, torch.Tensor]
VOCABULARY, FIRST_TOKEN, LABELS = 256, 4, 10
DEPTH_TOLERANCE = 0.02
# factors on the initial weights of halting heads, so that units stop at different depths
STEEPNESS = {"gut": 12.0, "gutlb": 12.0, "ut": 4.0}
WITHOUT_DROPOUT = {
    "ndr": {"gate_dropout": 0.0, "position_dropout": 0.0},
    "sut": {"activation_dropout": 0.0, "router_dropout": 0.0, "router_loss": "none"},
}
EXPERTS = {
    "attention_experts": 4,
    "attention_experts_per_token": 2,
    "feed_forward_experts": 4,
    "feed_forward_experts_per_token": 2,
}
CHUNKS = {"chunk_size": 10, "num_memory_slots": 10}
OWN_FIELDS: dict[str, dict[str, Any]] = {
    # nothing in an untrained router halts, so that a probe decides
    "ndr": {"exit_probe_size": 64, "exit_criterion": "probe"},
    "sut": EXPERTS,
    "tlb": CHUNKS,
    "gutlb": CHUNKS,
    "block_recurrent": {"window_size": 16, "num_state_vectors": 16},
}


def add_size_options(parser: argparse.ArgumentParser, width: int = 256, steps: int = 6) -> None:
    parser.add_argument("--hidden-size", type=int, default=width)
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument("--num-steps", type=int, default=steps, help="most depth steps, or layers")


def build(architecture: str, args: argparse.Namespace, causal: bool = False, **fields: Any) -> torch.nn.Module:
    """A classifier or language model without dropout, in evaluation mode, whose units halt at different depths."""
    torch.manual_seed(args.seed)
    sizes = {
        "hidden_size": args.hidden_size,
        "num_attention_heads": args.num_heads,
        "intermediate_size": 2 * args.hidden_size,
        "num_hidden_layers": args.num_steps,
    }
    own = {} if causal and architecture == "ndr" else OWN_FIELDS.get(architecture, {})
    halting = next(iter(ARCHITECTURES[architecture].config_class.papers.values()), {})
    config = AutoConfig.for_model(
        architecture,
        vocab_size=VOCABULARY,
        num_labels=LABELS,
        dropout=0.0,
        attention_dropout=0.0,
        **{**sizes, "initializer_range": 1.0, **halting, **WITHOUT_DROPOUT.get(architecture, {}), **own, **fields},
    )
    model = (AutoModelForCausalLM if causal else AutoModelForSequenceClassification).from_config(config)
    head = getattr(model.model, "halting_head", None)
    with torch.no_grad():
        if architecture in STEEPNESS and head is not None:
            head.down_proj.weight.mul_(STEEPNESS[architecture])
        elif architecture == "sut" and head is not None:
            torch.nn.init.normal_(head.down_proj.weight, std=3.0 * args.hidden_size**-0.5)
        if hasattr(model, "exit_probe"):
            model.exit_probe.down_proj.weight.mul_(4.0)
    return model.eval().to(args.device, getattr(torch, args.dtype))


def random_tokens(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randint(FIRST_TOKEN, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def random_lengths(rows: int, shortest: int, longest: int, seed: int) -> torch.Tensor:
    """(rows,) lengths, uniform; the first is the longest."""
    lengths = torch.randint(shortest, longest + 1, (rows,), generator=torch.Generator().manual_seed(seed))
    lengths[0] = longest
    return lengths


def padded_batch(lengths: torch.Tensor, args: argparse.Namespace, left: bool = False) -> Batch:
    """Random sequences of these lengths (B,), padded on one side."""
    width = int(lengths.max())
    ids, places = random_tokens((len(lengths), width), args.seed + 1), torch.arange(width)
    mask = places >= width - lengths[:, None] if left else places < lengths[:, None]
    return {"input_ids": ids.to(args.device), "attention_mask": mask.long().to(args.device)}


def mixed_batch(args: argparse.Namespace, rows: int, longest: int, shortest: int | None = None) -> Batch:
    """Random sequences of lengths from a quarter of the longest, or from the shortest."""
    shortest = longest // 4 if shortest is None else shortest
    return padded_batch(random_lengths(rows, shortest, longest, args.seed + 2), args)


@torch.no_grad()
def infer(model: torch.nn.Module, batch: Batch) -> Any:
    return model(**batch)


def train_step(model: torch.nn.Module, batch: Batch) -> None:
    """Forward and backward."""
    output = model(**batch, labels=torch.zeros(len(batch["input_ids"]), dtype=torch.long, device=model.device))
    output.loss.backward()
    model.zero_grad()


def executed_fraction(model: torch.nn.Module, batch: Batch) -> float:
    """Token-steps of tokens that have not halted / all token-steps, padding left out of both.

    A transition-aware model applies its block once more than it takes steps, to find that the step is not worth taking.
    """
    config, mask = model.config, batch["attention_mask"].bool()
    steps = infer(model, batch).ponder_steps
    if steps is None:
        return 1.0
    steps = steps[:, None].expand_as(mask) if steps.dim() == 1 else steps
    # of chunks every one counts the same
    steps = steps[mask if steps.shape == mask.shape else steps >= 0]
    steps = steps + bool(getattr(config, "transition_aware", False) and config.exit_criterion == "learned")
    return steps.clamp_max(config.num_hidden_layers).float().mean().item() / config.num_hidden_layers


def set_threshold(model: torch.nn.Module, threshold: float) -> None:
    field = "halting_threshold" if model.config.exit_criterion == "learned" else "exit_threshold"
    setattr(model.config, field, threshold)


def tune_depth(model: torch.nn.Module, batch: Batch, fraction: float) -> float:
    """Bisect the threshold until `executed_fraction` is about the fraction -> what it is then."""
    low, high = 0.0, 1.0
    for _ in range(18):
        middle = (low + high) / 2
        set_threshold(model, middle)
        found = executed_fraction(model, batch)
        if abs(found / fraction - 1) < DEPTH_TOLERANCE:
            break
        low, high = (low, middle) if found > fraction else (middle, high)
    return found


def never_halt(model: torch.nn.Module) -> None:
    """Let every unit take all steps, and the model decide at each of them."""
    set_threshold(model, 1.0)

"""Throughput of continuous batching of prompts beside padded batches of `generate`, for the same texts.

    python -m perf decoding
    python -m perf decoding --architectures ut rnn --prompts 128 --batch-sizes 32 128

Prompts have 16 to 256 tokens and texts 8 to `--longest-text`, uniformly drawn. Both ways decode greedily, and every
text ends after its own number of tokens: by `PromptBatcher` it then gives its place to the next prompt, while
`generate` computes padding after it until the longest of its batch has ended, and waits for the deepest token at each
position. Models have random weights, and a halting threshold that is searched for the wanted mean depth on random text;
`depth` is that of the generated tokens, as a share of full depth. `equal` is the share of texts that are the same in
both ways, token by token: where two tokens are about as probable, rounding may decide. `generate by 32` are batches of
so many texts at once, as in the refilled ones. `ratio` is the time over that of `generate` in one batch of all prompts,
and `tokens/s` are new ones.
"""

import argparse
from collections.abc import Iterator

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

import hf_recurrent
from hf_recurrent.inference import Generated, PromptBatcher

from .core import Table, measure, time_columns
from .models import add_size_options, build, padded_batch, random_lengths, random_tokens, tune_depth

HALTING_ARCHITECTURES = ("ut", "gut", "sut", "gutlb")
SHORTEST_PROMPT, LONGEST_PROMPT, SHORTEST_TEXT = 16, 256, 8


def add_options(parser: argparse.ArgumentParser) -> None:
    names = list(hf_recurrent.ARCHITECTURES)
    add_size_options(parser, width=256, steps=10)
    parser.add_argument("--architectures", choices=names, nargs="+", default=names)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument(
        "--batch-sizes", type=int, nargs="+", default=[64, 32], help="texts at once of refilled batches"
    )
    parser.add_argument("--longest-text", type=int, default=256, help=f"new tokens, at least {SHORTEST_TEXT}")
    parser.add_argument("--depth", type=float, default=0.3, help="wanted mean depth as a share of full depth")
    parser.set_defaults(repeats=3)


class EndsAfter(StoppingCriteria):
    """Ends each text of a batch after its own number (B,) of new tokens."""

    def __init__(self, numbers: torch.Tensor, prompt_length: int):
        self.numbers, self.prompt_length = numbers, prompt_length

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs) -> torch.BoolTensor:
        return input_ids.shape[1] - self.prompt_length >= self.numbers


class Prompts:
    """Random prompts, and how many tokens follow each."""

    def __init__(self, args: argparse.Namespace):
        number, seed = args.prompts, args.seed
        lengths = random_lengths(number, SHORTEST_PROMPT, LONGEST_PROMPT, seed + 3)
        self.numbers = random_lengths(number, SHORTEST_TEXT, args.longest_text, seed + 4).flip(0)
        self.ids = [random_tokens((int(length),), seed + 5 + row) for row, length in enumerate(lengths)]

    def examples(self) -> list[dict]:
        pairs = zip(self.ids, self.numbers.tolist(), strict=True)
        return [{"input_ids": ids, "max_new_tokens": number} for ids, number in pairs]


def refilled(model: torch.nn.Module, prompts: Prompts, batch_size: int) -> list[Generated]:
    return list(PromptBatcher(model, batch_size=batch_size, eos_token_id=None)(prompts.examples()))


def padded(model: torch.nn.Module, prompts: Prompts, batch_size: int) -> list[torch.Tensor]:
    """Texts of `generate`, in batches of prompts in their order."""
    texts: list[torch.Tensor] = []
    for start in range(0, len(prompts.ids), batch_size):
        ids, numbers = prompts.ids[start : start + batch_size], prompts.numbers[start : start + batch_size]
        width = max(map(len, ids))
        rows = torch.stack([torch.nn.functional.pad(row, (width - len(row), 0)) for row in ids])
        mask = torch.arange(width) >= width - torch.tensor([[len(row)] for row in ids])
        numbers = numbers.to(model.device)
        found = model.generate(
            rows.to(model.device),
            attention_mask=mask.long().to(model.device),
            max_new_tokens=int(numbers.max()),
            eos_token_id=None,
            pad_token_id=0,
            do_sample=False,
            stopping_criteria=StoppingCriteriaList([EndsAfter(numbers, width)]),
        )
        texts += [row[width : width + number] for row, number in zip(found, numbers.tolist(), strict=True)]
    return texts


def rows_of(architecture: str, args: argparse.Namespace) -> Iterator[dict]:
    model = build(architecture, args, causal=True)
    if architecture in HALTING_ARCHITECTURES:
        tune_depth(model, padded_batch(torch.full((4,), LONGEST_PROMPT), args), args.depth)
    prompts = Prompts(args)
    ways = {"generate": lambda: padded(model, prompts, args.prompts)}
    for size in args.batch_sizes:
        if size < args.prompts:
            ways[f"generate by {size}"] = lambda size=size: padded(model, prompts, size)
        ways[f"refilled by {size}"] = lambda size=size: refilled(model, prompts, size)
    timings = measure(ways, args)
    found, expected = refilled(model, prompts, args.batch_sizes[-1]), padded(model, prompts, args.prompts)
    same = [torch.equal(text.token_ids, row.cpu()) for text, row in zip(found, expected, strict=True)]
    steps = [text.ponder_steps for text in found if text.ponder_steps is not None]
    for way, timing in timings.items():
        columns = time_columns(timing, timings["generate"])
        yield {
            "architecture": architecture,
            "way": way,
            **columns,
            "tokens/s": int(prompts.numbers.sum()) / timing.median,
            "depth": torch.cat(steps).float().mean().item() / args.num_steps if steps else None,
            "equal": sum(same) / len(same) if way.startswith("refilled") else None,
        }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    title = f"{args.prompts} prompts, width {args.hidden_size}, at most {args.num_steps} steps"
    yield Table(title, [row for architecture in args.architectures for row in rows_of(architecture, args)])

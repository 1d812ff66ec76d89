"""Time per generated token against context length, for each architecture as a causal language model with halting on.

    python perf/generation.py
    python perf/generation.py --families tlb gutlb --contexts 1024 16384 --repeats 15
    python perf/generation.py --num-steps 10 --mean-depth 4

Everything is `generate()` itself, batch 1, with a cache that was filled in pieces. Every context continues with the
same tokens: whole chunks in chunk models, whose time is the mean over them, so that work done once a chunk is
included; the median token in others. Contexts are taken in turns, and a token's time is the minimum over the repeats,
which other programs disturb least. The bias of the halting head is searched for the wanted mean depth, on random text;
`steps` is the mean of the timed tokens, and a transition-aware model applies its block once more than it takes steps.
`no cache` computes the whole context again for every token.
"""

import argparse
import copy
import json
import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import Cache

import hf_recurrent
from halting import tune_depth

CHUNK_ARCHITECTURES = ("tlb", "gutlb")
SHORT, LONG = 1024, 16384
VOCABULARY = 256
FIRST_TOKEN = 4
# factors on the initial weights of halting heads that keep the depth the same all along a text
HEAD_STEEPNESS = {"ut": 4.0, "gut": 1.0, "gutlb": 4.0}
TUNING_TOKENS = 256
UNCACHED_TOKENS = 4


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(hf_recurrent.ARCHITECTURES)
    parser.add_argument("--families", dest="architectures", choices=names, nargs="+", default=names)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--no-cache-contexts", type=int, nargs="*", default=[SHORT])
    parser.add_argument("--num-steps", type=int, default=6, help="layers of the architectures that never halt")
    parser.add_argument("--mean-depth", type=float, default=3.0, help="wanted block applications of those that halt")
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument("--chunk-size", type=int, default=20)
    parser.add_argument("--piece", type=int, default=512, help="tokens read at once while a context is filled")
    parser.add_argument("--tokens", type=int, default=9, help="tokens timed, of models without chunks")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--chunk-repeats", type=int, default=6, help="the same for models with chunks, which are fast")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", help="write the rows to this file too")
    args = parser.parse_args()
    args.contexts = sorted(args.contexts)
    return args


def random_tokens(count: int, seed: int) -> torch.Tensor:
    return torch.randint(FIRST_TOKEN, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(seed))


def build_model(architecture: str, args: argparse.Namespace) -> torch.nn.Module:
    torch.manual_seed(0)
    chunks = (
        {"chunk_size": args.chunk_size, "num_memory_slots": args.chunk_size}
        if architecture in CHUNK_ARCHITECTURES
        else {}
    )
    config = AutoConfig.for_model(
        architecture,
        vocab_size=VOCABULARY,
        hidden_size=args.hidden_size,
        num_attention_heads=args.num_heads,
        intermediate_size=4 * args.hidden_size,
        num_hidden_layers=args.num_steps,
        initializer_range=1.0,
        **chunks,
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    if hasattr(model.model, "halting_head"):
        with torch.no_grad():
            model.model.halting_head.down_proj.weight.mul_(HEAD_STEEPNESS[architecture])
        batch = {"input_ids": random_tokens(TUNING_TOKENS, seed=1)}
        tune_depth(model.model, batch, args.mean_depth / args.num_steps)
    return model.to(args.device)


class Continuation(LogitsProcessor):
    """Logits processor that makes `generate` continue with given tokens (N,), and records the time of each step."""

    def __init__(self, tokens: torch.Tensor):
        self.tokens = tokens.tolist()
        self.moments: list[float] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        if scores.is_cuda:
            torch.cuda.synchronize()
        self.moments.append(time.perf_counter())
        scores[:, self.tokens[len(self.moments) - 1]] = torch.inf
        return scores

    def seconds(self) -> list[float]:
        """Seconds of each step after the first, which processes the end of the context."""
        return [after - before for before, after in zip(self.moments, self.moments[1:], strict=False)]


def decode(model: torch.nn.Module, context: torch.Tensor, tokens: torch.Tensor, cache: Cache | None) -> list[float]:
    """Seconds of each of the tokens (N,) after the first, generated after a context (1, P)."""
    continuation = Continuation(tokens)
    model.generate(
        context,
        attention_mask=torch.ones_like(context),
        past_key_values=cache,
        use_cache=cache is not None,
        max_new_tokens=len(tokens),
        eos_token_id=None,
        do_sample=False,
        logits_processor=LogitsProcessorList([continuation]),
    )
    return continuation.seconds()


def fill_caches(model: torch.nn.Module, text: torch.Tensor, args: argparse.Namespace) -> dict[int, Cache]:
    """The caches of the contexts, each without its last token, from one pass over the text (1, P) in pieces."""
    cache, read, caches = model.model.new_cache(), 0, {}
    for context in args.contexts:
        while read < context - 1:
            stop = min(read + args.piece, context - 1)
            with torch.no_grad():
                model.model(text[:, read:stop], past_key_values=cache, pooling=False)
            read = stop
        caches[context] = copy.deepcopy(cache)
    return caches


def cache_bytes(cache: Cache) -> int:
    """Bytes of memory that the cache holds, reserved memory included."""
    values = [value for layer in cache.layers for value in vars(layer).values()]
    tensors = [tensor for value in values for tensor in (value.values() if isinstance(value, dict) else [value])]
    storages = [tensor.untyped_storage() for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class StepsTaken:
    """Mean ponder steps of the tokens a base model has been called on."""

    def __init__(self, model: torch.nn.Module):
        self.steps: list[torch.Tensor] = []
        self.hook = model.register_forward_hook(self.record)

    def record(self, module: torch.nn.Module, inputs: tuple, output) -> None:
        if output.ponder_steps is not None:
            self.steps.append(output.ponder_steps[:, -1].detach())

    def mean(self) -> float | None:
        self.hook.remove()
        return torch.cat(self.steps).float().mean().item() if self.steps else None


def measure(model: torch.nn.Module, architecture: str, args: argparse.Namespace) -> list[dict]:
    text = random_tokens(args.contexts[-1], seed=2).to(args.device)
    by_chunk = architecture in CHUNK_ARCHITECTURES
    # one more, because the first is not timed
    tokens = random_tokens((args.chunk_size if by_chunk else args.tokens) + 1, seed=3)[0]
    caches = fill_caches(model, text, args)
    seconds, steps = {context: [] for context in args.contexts}, {}
    # the first one is a warm-up
    for repeat in range(1 + (args.chunk_repeats if by_chunk else args.repeats)):
        for context in args.contexts:
            taken = StepsTaken(model.model)
            elapsed = decode(model, text[:, :context], tokens, copy.deepcopy(caches[context]))
            steps[context] = taken.mean()
            if repeat > 0:
                seconds[context].append(elapsed)
    typical = statistics.mean if by_chunk else statistics.median
    uncached = {
        context: min(decode(model, text[:, :context], tokens[:UNCACHED_TOKENS], None))
        for context in args.no_cache_contexts
        if context in args.contexts
    }
    return [
        {
            "family": architecture,
            "context": context,
            "seconds_per_token": typical(map(min, zip(*seconds[context], strict=True))),
            "mean_ponder_steps": steps[context],
            "cache_bytes": cache_bytes(caches[context]),
            "no_cache_seconds_per_token": uncached.get(context),
        }
        for context in args.contexts
    ]


def format_row(row: dict, first: dict) -> str:
    steps, uncached = row["mean_ponder_steps"], row["no_cache_seconds_per_token"]
    cells = [
        f"{row['family']:17s}{row['context']:6d}",
        f"{row['seconds_per_token'] * 1e3:7.2f}",
        f"{row['seconds_per_token'] / first['seconds_per_token']:6.2f}",
        "    -" if steps is None else f"{steps:5.2f}",
        f"{row['cache_bytes'] / 2**20:8.2f}",
        "" if uncached is None else f"{uncached * 1e3:7.1f}  {uncached / row['seconds_per_token']:6.1f}x",
    ]
    return "  ".join(cells).rstrip()


def ratios(rows: list[dict]) -> list[str]:
    """Summary of the table: growth of time with the context, and time that the cache saves."""
    found = {(row["family"], row["context"]): row for row in rows}
    lines = []
    for architecture in dict.fromkeys(row["family"] for row in rows):
        near, far = found.get((architecture, SHORT)), found.get((architecture, LONG))
        if near and far:
            growth = far["seconds_per_token"] / near["seconds_per_token"]
            lines.append(f"{architecture}: {LONG} / {SHORT} tokens of context: time {growth:.3f}")
        if near and near["no_cache_seconds_per_token"]:
            saved = near["no_cache_seconds_per_token"] / near["seconds_per_token"]
            lines.append(f"{architecture}: no cache / cache at {SHORT} tokens of context: time {saved:.1f}")
    return lines


def main() -> None:
    args = parse_arguments()
    rows = []
    print(
        f"width {args.hidden_size}, at most {args.num_steps} steps, chunks of {args.chunk_size}, batch 1, float32 on "
        f"{args.device}, {torch.get_num_threads()} threads"
    )
    print("architecture    context  ms/token  /first  steps  cache MiB  no cache ms, ratio")
    for architecture in args.architectures:
        measured = measure(build_model(architecture, args), architecture, args)
        rows += measured
        for row in measured:
            print(format_row(row, measured[0]), flush=True)
    print(*ratios(rows), sep="\n")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"arguments": vars(args), "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

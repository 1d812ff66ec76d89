"""The campaign of long contexts: read through caches of constant size in random pieces, they are as in one pass.

    cd tests; python -m fuzz.long_contexts --seconds 600 --seed 0

Everything is computed in float64, so that no halting decision falls by rounding.
"""

import math
import random
import sys
from collections.abc import Iterator

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from fuzz.campaigns import Findings, campaign_of, main
from fuzz.comparing.cases import computing_in
from hf_recurrent.models.depth.cache import RecurrentCache
from support.families import CACHED_VARIANTS, VOCAB_SIZE, Variant, make_config

VARIANTS = tuple(variant for variant in CACHED_VARIANTS if variant.constant_cache)
SHORTEST = 4096
# of weights with which states neither vanish nor run away
SPREAD = 0.3
# chunks and blocks as long as in use
CHUNKS = {"chunk_size": 64, "num_chunks": 3}
BLOCKS = {"window_size": 64, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 64}
# relative to the largest value, of results in float64
TOLERANCE = 1e-7
LONGEST_PIECE = 2048
# before the cache is counted: some layers keep one block or two, as the last piece ended
LAST_PIECE = 128

Piece = tuple[torch.Tensor, torch.Tensor]


def make_long_model(variant: Variant, seed: int) -> PreTrainedModel:
    """A language model in float64 whose units halt at different depths."""
    sizes = CHUNKS if variant.chunked else BLOCKS if variant.windowed else {}
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(make_config(variant, initializer_range=SPREAD, **sizes)).eval()
    for name, parameter in model.named_parameters():
        if "halting_head" in name:
            parameter.data.add_(torch.randn_like(parameter))
    return model.double()


def drawn_cuts(rng: random.Random, length: int) -> list[int]:
    """Sizes of pieces of every order of magnitude; the shortest context and the whole one end with the same piece."""
    cuts: list[int] = []
    for end in (SHORTEST, length):
        while (begin := sum(cuts)) < end - LAST_PIECE:
            cuts.append(min(int(2 ** rng.uniform(0, math.log2(LONGEST_PIECE))), end - LAST_PIECE - begin))
        cuts.append(LAST_PIECE)
    return cuts


def pieces(ids: torch.Tensor, mask: torch.Tensor, cuts: list[int]) -> Iterator[Piece]:
    return zip(ids.split(cuts, dim=1), mask.split(cuts, dim=1), strict=True)


def num_bytes(cache: RecurrentCache) -> int:
    """Memory that a cache keeps: of the storages of its tensors, which may be larger than these."""
    storages = [tensor.untyped_storage() for tensor in cache.state_dict().values()]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def read(model: PreTrainedModel, parts: Iterator[Piece]) -> Iterator[tuple[RecurrentCache, dict[str, torch.Tensor]]]:
    """The cache after each piece, and its logits and steps."""
    cache = None
    for ids, mask in parts:
        output = model(ids, mask, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        yield cache, results(output)


def results(output) -> dict[str, torch.Tensor]:
    steps = output.get("ponder_steps")
    return {"logits": output.logits, **({} if steps is None else {"ponder_steps": steps})}


def differences(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], mask: torch.Tensor) -> list[str]:
    """What differs at tokens, and at which first."""
    found = []
    for name, value in expected.items():
        gaps = (
            (actual[name] - value).abs().flatten(2).amax(-1) if value.dim() == 3 else (actual[name] != value).double()
        )
        limit = TOLERANCE * max(1.0, value.abs().max().item()) if value.is_floating_point() else 0.0
        wrong = ((gaps > limit) | gaps.isnan()) & mask.bool()
        if wrong.any():
            first = int(wrong.any(0).nonzero()[0])
            found.append(f"{name} differs by {gaps[wrong].max():.2g}, first at token {first}")
    return found


def compared(variant: Variant, rng: random.Random, length: int) -> list[str]:
    """Faults of a context that is read in pieces and in one pass: results, and the number of bytes of the cache."""
    model = make_long_model(variant, rng.randrange(10**6))
    generator = torch.Generator().manual_seed(rng.randrange(10**6))
    ids = torch.randint(4, VOCAB_SIZE, (2, length), generator=generator)
    mask = torch.ones_like(ids)
    # the second row begins later
    mask[1, : rng.choice((0, 1, rng.randrange(SHORTEST)))] = 0
    sizes, parts, begin = {}, [], 0
    cuts = drawn_cuts(rng, length)
    with torch.no_grad(), computing_in(torch.float64, torch.complex128, torch.Tensor.double):
        for cut, (cache, part) in zip(cuts, read(model, pieces(ids, mask, cuts)), strict=True):
            begin += cut
            parts.append(part)
            if begin in (SHORTEST, length):
                sizes[begin] = num_bytes(cache)
        joined = {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
        found = differences(joined, results(model(ids, mask)), mask)
    if sizes[SHORTEST] != sizes[length]:
        found.append(f"the cache has {sizes[SHORTEST]} bytes after {SHORTEST} tokens, {sizes[length]} after {length}")
    return found


def draw(rng: random.Random) -> tuple[str, list[str]]:
    variant = rng.choice(VARIANTS)
    return variant.name, compared(variant, rng, rng.choice([2**power for power in range(13, 17)]))


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Contexts for so long, or so many of them -> what was found."""
    return campaign_of(draw, seconds, count, seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))

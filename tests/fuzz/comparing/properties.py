"""What must not change a result: a table of properties, each of them comparisons of two runs of one model."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from fuzz.comparing.batches import Batch, Padding, arranged
from fuzz.comparing.cases import Case
from fuzz.comparing.detours import drawn_detours
from fuzz.comparing.reading import Detour
from fuzz.comparing.runs import AUXILIARY, Run


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs whose results must be the same, for the rows that both have.

    Attributes:
        first_tokens: by row, how many of its first tokens are compared, and nothing but tokens; None for all of a row.
        without: names of results that may differ.
        stopped_before: only rows all of whose units took fewer steps are compared.
        same_rows: whether results of the batch as a whole, such as the loss, are compared, too.
        half: whether the first run computes in half precision, and need only be near.
    """

    actual: Run
    expected: Run
    first_tokens: dict[int, int] | None = None
    without: tuple[str, ...] = ()
    stopped_before: int | None = None
    same_rows: bool = True
    half: bool = False


class Drawing(NamedTuple):
    """What a property draws its runs from."""

    case: Case
    config: object
    rng: random.Random

    @property
    def numbers(self) -> list[int]:
        return list(range(len(self.case.rows)))

    @property
    def is_causal(self) -> bool:
        return self.config.is_causal or self.case.head == "ForCausalLM"

    def batch(self, padding: Padding | None = None, numbers: list[int] | None = None) -> Batch:
        """All rows, or some, with padding anywhere that the model allows."""
        allowed = ["right", "left", "both"] if self.is_causal else ["right", "left", "both", "inside"]
        padding = self.rng.choice(allowed) if padding is None else padding
        return arranged(self.case, self.config, self.numbers if numbers is None else numbers, padding, self.rng)

    def alone(self, number: int) -> Batch:
        return self.batch("none", [number])


def first_call(drawing: Drawing) -> Iterator[Comparison]:
    """Nothing to compare, but an error is a fault."""
    run = Run(drawing.batch("right"))
    yield Comparison(run, run)


def row_alone(drawing: Drawing) -> Iterator[Comparison]:
    whole = Run(drawing.batch())
    for number in drawing.numbers:
        alone = Run(drawing.alone(number))
        yield Comparison(whole, alone, same_rows=False, without=padded_losses(drawing))


def row_order(drawing: Drawing) -> Iterator[Comparison]:
    batch = drawing.batch()
    order = drawing.numbers
    drawing.rng.shuffle(order)
    yield Comparison(Run(batch.at(order)), Run(batch))


def padding(drawing: Drawing) -> Iterator[Comparison]:
    yield Comparison(Run(drawing.batch()), Run(drawing.batch("right")), without=padded_losses(drawing))


def padded_losses(drawing: Drawing) -> tuple[str, ...]:
    """Results that a field makes depend on padding, as a reference implementation does."""
    counts = getattr(drawing.config, "padding_in_ponder_cost", False)
    return ("ponder_cost", "loss", *AUXILIARY) if counts else ()


def padding_gradients(drawing: Drawing) -> Iterator[Comparison]:
    yield Comparison(*(Run(drawing.batch(side), "gradients") for side in (None, "right")))


def embeddings(drawing: Drawing) -> Iterator[Comparison]:
    batch = drawing.batch()
    yield Comparison(Run(batch, embedded=True), Run(batch))


def field_of_timing(name: str, kind: str = "forward") -> Callable[[Drawing], Iterator[Comparison]]:
    def compare(drawing: Drawing) -> Iterator[Comparison]:
        batch = drawing.batch()
        on, off = (
            Run(batch, kind, fields={"hard_stop": True, "compaction": True, name: each}) for each in (True, False)
        )
        yield Comparison(on, off)

    return compare


def further_steps(drawing: Drawing) -> Iterator[Comparison]:
    """Where all units have stopped before a maximum, a larger one changes nothing."""
    most, batch = drawing.config.num_hidden_layers, drawing.batch()
    few = drawing.rng.randint(max(1, most - 2), most - 1)
    # halting probabilities, and experts, are recorded for the maximum of steps
    recorded = ("halting_probabilities", "attention_experts", "cross_attention_experts", "feed_forward_experts")
    runs = [Run(batch, options={"max_depth": steps}) for steps in (most, few)]
    without = (*recorded, *(f"encoder_{name}" for name in recorded), "loss", *AUXILIARY)
    if getattr(drawing.config, "halted_tokens", None) == "released":
        # halting mass then grows with each step
        without = (*without, "ponder_cost", "encoder_ponder_cost")
    yield Comparison(*runs, without=without, stopped_before=few)


def attention(drawing: Drawing) -> Iterator[Comparison]:
    batch = drawing.batch()
    default = Run(batch, drawing.rng.choice(("forward", "gradients")), attention="sdpa")
    for name in ("eager", "flex_attention"):
        yield Comparison(default.but(attention=name), default)
    if runs_flash_attention(drawing):
        yield Comparison(default.but(attention="flash_attention_2"), default)


def experts(drawing: Drawing) -> Iterator[Comparison]:
    run = Run(drawing.batch(), drawing.rng.choice(("forward", "gradients")), experts="eager")
    yield Comparison(run.but(experts="batched_mm"), run)


def checkpointing(drawing: Drawing) -> Iterator[Comparison]:
    run = Run(drawing.batch(), "gradients", training=True)
    yield Comparison(run.but(checkpointing=True), run)


def saving(drawing: Drawing) -> Iterator[Comparison]:
    run = Run(drawing.batch())
    yield Comparison(run.but(reload=True), run)


def recording(drawing: Drawing) -> Iterator[Comparison]:
    names = ["output_hidden_states", "output_attentions", "output_gates"]
    records = drawing.config.capabilities.attends or drawing.config.cell == "dnc"
    if drawing.case.architecture == "sut" or not records:
        names = names[: 2 if records else 1]
    run = Run(drawing.batch(), attention="eager")
    yield Comparison(run.but(options={drawing.rng.choice(names): True}), run)


def later_tokens(drawing: Drawing) -> Iterator[Comparison]:
    """Other tokens, or none, from some place on."""
    case, rng = drawing.case, drawing.rng
    lengths = [len(row.target or row.ids) for row in case.rows]
    kept = {number: rng.randint(1, length) for number, length in enumerate(lengths)}

    def changed(row, first: int):
        ids = row.target or row.ids
        other = ids[:first] + tuple((token + 1) % drawing.config.vocab_size for token in ids[first:])
        return dataclasses.replace(row, **({"target": other} if row.target else {"ids": other}))

    rows = tuple(changed(row, kept[number]) for number, row in enumerate(case.rows))
    # a decoder's inputs are its targets, one place later
    first_tokens = {number: length + case.two_stacks for number, length in kept.items()}
    layout = rng.random()
    batches = (
        arranged(each, drawing.config, drawing.numbers, "right", random.Random(layout))
        for each in (case, case.but(rows=rows))
    )
    yield Comparison(*(Run(batch) for batch in batches), first_tokens=first_tokens, same_rows=False)


def prefix(drawing: Drawing) -> Iterator[Comparison]:
    number = drawing.rng.choice(drawing.numbers)
    row = drawing.case.rows[number]
    length = drawing.rng.randint(1, len(row.target or row.ids))
    cut = {"labelled": row.labelled[:length], "target" if row.target else "ids": (row.target or row.ids)[:length]}
    rows = tuple(dataclasses.replace(row, **cut) if n == number else r for n, r in enumerate(drawing.case.rows))
    short = Drawing(drawing.case.but(rows=rows), drawing.config, drawing.rng)
    yield Comparison(Run(short.alone(number)), Run(drawing.batch()), first_tokens={number: length}, same_rows=False)


def pieces(drawing: Drawing) -> Iterator[Comparison]:
    new_mask = not drawing.config.capabilities.growing_cache and drawing.rng.random() < 0.5
    yield reading(drawing, new_mask, lambda batch, cuts: ())


def detours(group: str) -> Callable[[Drawing], Iterator[Comparison]]:
    """A reading with detours, above all of a group."""

    def drawn(drawing: Drawing, batch: Batch, cuts: tuple[int, ...]) -> tuple[Detour | None, ...]:
        columns = batch.target_columns or batch.columns
        return drawn_detours(group, drawing.config, columns, cuts, drawing.rng)

    def compare(drawing: Drawing) -> Iterator[Comparison]:
        # of which the columns that were read in between are no part
        new_mask = not drawing.config.capabilities.growing_cache
        yield reading(drawing, new_mask, partial(drawn, drawing))

    return compare


def reading(drawing: Drawing, new_mask: bool, detours: Callable[..., tuple[Detour | None, ...]]) -> Comparison:
    """Some columns at a time and all at once."""
    batch = drawing.batch()
    name = "decoder_input_ids" if drawing.case.two_stacks else "input_ids"
    while name not in batch.arguments:
        batch = drawing.batch()
    left, cuts = batch.arguments[name].shape[1], ()
    while left:
        cuts += (min(left, drawing.rng.choice((1, 1, 2, 3, 5, 8))),)
        left -= cuts[-1]
    read = Run(batch, "pieces", cuts=cuts, new_mask=new_mask, detours=detours(batch, cuts))
    return Comparison(read, Run(batch), same_rows=False)


NEW_TOKENS, MOST_BEAMS = 4, 3


def generation(drawing: Drawing) -> Iterator[Comparison]:
    """Left-padded rows of a batch as each alone, with a cache or without."""
    batch = drawing.batch(None if drawing.case.two_stacks else "left")
    cached = use_cache(drawing)
    together = Run(batch, "generate", options={"use_cache": cached}, new_tokens=NEW_TOKENS)
    for number in drawing.numbers:
        yield Comparison(together, together.but(batch=drawing.alone(number)), same_rows=False)
    if cached:
        yield Comparison(together, together.but(options={"use_cache": False}))


def beams(drawing: Drawing) -> Iterator[Comparison]:
    """Left-padded rows of a batch as each alone, read again for each token."""
    batch = drawing.batch(None if drawing.case.two_stacks else "left")
    number = drawing.rng.randint(2, MOST_BEAMS)
    together = Run(batch, "generate", options={"use_cache": use_cache(drawing)}, new_tokens=NEW_TOKENS, beams=number)
    for row in drawing.numbers:
        alone = Run(drawing.alone(row), "search", new_tokens=NEW_TOKENS, beams=number)
        yield Comparison(together, alone, same_rows=False)


def use_cache(drawing: Drawing) -> bool:
    return drawing.case.two_stacks or (is_resumable(drawing) and drawing.rng.random() < 0.8)


def half_precision(drawing: Drawing) -> Iterator[Comparison]:
    run = Run(drawing.batch())
    # records of experts' choices say where decisions were near
    half = run.but(
        half=drawing.rng.choice(("loaded", "autocast")), half_type=drawing.rng.choice((torch.bfloat16, torch.float16))
    )
    yield Comparison(half, run, half=True)


def is_sound_over_widths(drawing: Drawing) -> bool:
    """Not chunks that depend on the batch's width, as in the reference implementation."""
    return getattr(drawing.config, "chunking", None) != "balanced"


def is_resumable(drawing: Drawing) -> bool:
    """Whether what a token gets depends on nothing after it, not even how much comes."""
    config = drawing.config
    whole = getattr(config, "chunking", "fixed") != "fixed" or getattr(config, "cap_depth_by_length", False)
    return (drawing.is_causal or drawing.case.two_stacks) and not whole


def stops(drawing: Drawing) -> bool:
    return drawing.config.capabilities.exit_criterion is not None


def has_loss(drawing: Drawing) -> bool:
    return drawing.case.head != "Model"


def has_kernels(drawing: Drawing) -> bool:
    special = drawing.case.architecture == "ndr" and drawing.config.attention != "absolute"
    return drawing.config.capabilities.attends and not special and has_loss(drawing)


def runs_flash_attention(drawing: Drawing) -> bool:
    return drawing.case.architecture not in ("sut", "block_recurrent")


def has_cache(drawing: Drawing) -> bool:
    return drawing.case.head != "ForSequenceClassification"


def generates(drawing: Drawing) -> bool:
    return drawing.case.head in ("ForCausalLM", "ForConditionalGeneration") and is_sound_over_widths(drawing)


class Property(NamedTuple):
    """A function from a drawing to comparisons, where it holds, and in what share of cases it is tried."""

    compare: Callable[[Drawing], Iterator[Comparison]]
    holds: Callable[[Drawing], bool] = lambda drawing: True
    share: float = 0.5


def both(*conditions: Callable[[Drawing], bool]) -> Callable[[Drawing], bool]:
    return lambda drawing: all(condition(drawing) for condition in conditions)


def pads_freely(drawing: Drawing) -> bool:
    return has_loss(drawing) and not padded_losses(drawing)


FIRST_CALL = "a first call"
PROPERTIES = {
    FIRST_CALL: Property(first_call, share=1.0),
    "a row alone is the row in its batch": Property(row_alone, is_sound_over_widths, 1.0),
    "the order of rows": Property(row_order),
    "padding": Property(padding, is_sound_over_widths, 1.0),
    "padding, for gradients": Property(padding_gradients, both(pads_freely, is_sound_over_widths)),
    "embeddings in the place of ids": Property(embeddings, share=0.2),
    "compaction": Property(field_of_timing("compaction"), stops, 1.0),
    "compaction, for gradients": Property(field_of_timing("compaction", "gradients"), both(stops, has_loss)),
    "leaving the loop early": Property(field_of_timing("hard_stop"), stops),
    "further steps": Property(further_steps, both(stops, lambda drawing: drawing.config.num_hidden_layers > 1), 1.0),
    "the attention kernel": Property(attention, has_kernels),
    "the experts' kernel": Property(experts, lambda drawing: drawing.case.architecture == "sut" and has_loss(drawing)),
    "gradient checkpointing": Property(checkpointing, has_loss),
    "saving and loading": Property(saving, share=0.2),
    "recording": Property(recording),
    "later tokens": Property(later_tokens, lambda drawing: drawing.is_causal or drawing.case.two_stacks, 1.0),
    "the end of a row": Property(prefix, both(is_resumable, has_cache)),
    "reading in pieces": Property(pieces, both(is_resumable, has_cache), 1.0),
    **{
        name: Property(detours(group), both(is_resumable, has_cache))
        for name, group in {
            "cropping a cache": "crop",
            "rows of a cache": "rows",
            "copies of a cache": "copies",
            "documents in a cache": "documents",
        }.items()
    },
    "generating alone, in a batch, and without a cache": Property(generation, generates, 0.25),
    "beam search": Property(beams, generates, 0.25),
    "half precision": Property(half_precision, share=0.2),
}

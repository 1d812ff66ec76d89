"""Block-Recurrent Transformers are their naive twin: whole sequences, pieces, new documents, with gradients."""

import functools

import pytest
import torch

from reference.block_recurrent import Reader, rms_norm
from support.block_models import KINDS, make_block_model, make_rows, padded
from support.families import slow

pytestmark = pytest.mark.architecture("block_recurrent")

TOLERANCE = 1e-9
# a token, less than a block, a block, up to more than three
LENGTHS = [1, 2, 3, 7, 11]
SIDES = {"left": [True] * 5, "right": [False] * 5, "both": [True, False, True, True, False]}
SOME_KINDS = ["fixed_skip", "two_layers", "feedback_two_layers", "slide", "everything", "one_token_memory"]
some_kinds = pytest.mark.parametrize("kind", SOME_KINDS)
kinds = pytest.mark.parametrize("kind", [kind if kind in SOME_KINDS else slow(kind) for kind in KINDS])


def twin_logits(model, rows) -> list[torch.Tensor]:
    """(length, V) of each sequence."""
    reader, logits = Reader(model), []
    for row in rows:
        reader.start()
        logits.append(torch.stack([reader.logits(reader.read(token)) for token in row.tolist()]))
    return logits


def weighted(logits: torch.Tensor) -> torch.Tensor:
    """A number that depends on every logit (N, V) in its own way."""
    return (logits * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)).sum()


def gradients(model, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def assert_near(actual, expected) -> None:
    """Tensors, or dictionaries of them, relative to the largest value where that is above one."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(
                actual[name], value, rtol=0, atol=TOLERANCE * max(1.0, value.abs().max()), msg=lambda m, n=name: n + m
            )
        return
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * max(1.0, expected.abs().max().item()))


@functools.cache
def twin(kind: str):
    """Rows, their logits (N, V), and the gradients of `weighted`, of a model that is to be left as it is."""
    model, rows = make_block_model(kind), make_rows(LENGTHS)
    logits = torch.cat(twin_logits(model, rows))
    return rows, logits.detach(), gradients(model, weighted(logits))


@kinds
def test_rows_are_the_twins(kind):
    model = make_block_model(kind)
    rows, expected, expected_gradients = twin(kind)
    for number, side in enumerate(SIDES):
        model.set_attn_implementation(["eager", "sdpa"][number % 2])
        ids, mask = padded(rows, SIDES[side], 12)
        actual = model(ids, mask).logits[mask.bool()]
        assert_near(actual, expected)
        assert_near(gradients(model, weighted(actual)), expected_gradients)
    # a window of one token gives no choice, and a block that is not completed leaves states as they are
    assert model.config.window_size != 3 or all(gradient.any() for gradient in expected_gradients.values())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [2, 3, 8])
@pytest.mark.parametrize("kind", ["fixed_skip", "everything"])
def test_rows_without_padding_are_the_twins(kind, length, implementation):
    model, rows = make_block_model(kind), make_rows([length] * 2)
    model.set_attn_implementation(implementation)
    expected = torch.cat(twin_logits(model, rows))
    ids, expected_gradients = torch.stack(rows), gradients(model, weighted(expected))
    pieces = (length,) if length < 4 else (3, 3, 1, length - 7)
    for actual in (model(ids).logits, read_pieces(model, ids, torch.ones_like(ids), pieces)):
        assert_near(actual.flatten(0, 1), expected)
        assert_near(gradients(model, weighted(actual.flatten(0, 1))), expected_gradients)


def read_pieces(model, ids, mask, sizes, **options) -> torch.Tensor:
    """Logits (B, S, V) of one piece after the other."""
    cache, begin, logits = None, 0, []
    for size in sizes:
        piece = slice(begin, begin + size)
        output = model(ids[:, piece], mask[:, piece], past_key_values=cache, use_cache=True, **options)
        cache, begin = output.past_key_values, begin + size
        logits.append(output.logits)
    assert begin == ids.shape[1]
    return torch.cat(logits, dim=1)


@kinds
@pytest.mark.parametrize("sizes", [(2, 1, 4, 5), slow((1,) * 12), slow((8, 1, 3))], ids=str)
def test_pieces_are_the_twins(kind, sizes):
    """Each sequence is at another place of its block; some pieces are padding only for some sequences."""
    model, (rows, expected, _) = make_block_model(kind), twin(kind)
    with torch.no_grad():
        for side in ("left", "both"):
            ids, mask = padded(rows, SIDES[side], 12)
            assert_near(read_pieces(model, ids, mask, sizes)[mask.bool()], expected)


@some_kinds
def test_gradients_go_through_the_cache(kind):
    model, (rows, _, expected) = make_block_model(kind), twin(kind)
    ids, mask = padded(rows, SIDES["both"], 12)
    for sizes in ((2, 1, 4, 5), (1,) * 12):
        actual = read_pieces(model, ids, mask, sizes)[mask.bool()]
        assert_near(gradients(model, weighted(actual)), expected)


@some_kinds
def test_detach_makes_what_was_read_constant(kind):
    model, (row,) = make_block_model(kind), make_rows([11])
    sizes, reader, expected = (4, 1, 6), Reader(model), []
    for tokens in row.split(sizes):
        if expected:
            reader.detach()
        expected += [reader.logits(reader.read(token)) for token in tokens.tolist()]
    cut = gradients(model, weighted(torch.stack(expected)))
    mask = torch.ones(1, 11)
    assert_near(gradients(model, weighted(read_pieces(model, row[None], mask, sizes, detach=True)[0])), cut)
    whole = gradients(model, weighted(model(row[None]).logits[0]))
    assert max((whole[name] - value).abs().max() for name, value in cut.items()) > 1e-3


def segments(rows: list[list[torch.Tensor]], width: int):
    """Ids, mask, starts and documents of one segment after the other, as readers of documents give them."""
    waiting = [[(number, tokens) for number, tokens in enumerate(documents)] for documents in rows]
    begun = [False] * len(rows)
    while any(waiting):
        pieces, start, numbers = [], torch.zeros(len(rows), dtype=torch.bool), []
        for row, queue in enumerate(waiting):
            number, tokens = queue[0] if queue else (-1, torch.zeros(0, dtype=torch.long))
            start[row] = bool(queue) and not begun[row]
            numbers.append(number)
            pieces.append(tokens[:width])
            begun[row] = len(tokens) > width
            if queue:
                queue[:1] = [(number, tokens[width:])] if begun[row] else []
        yield *padded(pieces, [False] * len(rows), width), start, numbers


def read_documents(model, rows: list[list[torch.Tensor]], width: int) -> torch.Tensor:
    """Logits (N, V) of all documents of the first row, then of the second, and so on."""
    found, cache = [[[] for _ in documents] for documents in rows], None
    for ids, mask, start, numbers in segments(rows, width):
        if cache is None:
            # nothing is kept of what is no document
            cache = model(ids.flip(0), use_cache=True).past_key_values
        output = model(ids, mask, past_key_values=cache, start_of_document=start)
        for row, number in enumerate(numbers):
            if number >= 0:
                found[row][number].append(output.logits[row, mask[row].bool()])
    return torch.cat([torch.cat(pieces) for documents in found for pieces in documents])


@some_kinds
def test_documents_are_the_twins(kind):
    """Rows begin documents while others go on; those that have run out are padding only."""
    model = make_block_model(kind)
    lengths = [[5, 4, 2], [10], [1, 7, 3], [3]]
    rows = [make_rows(document_lengths, seed) for seed, document_lengths in enumerate(lengths)]
    expected = torch.cat([logits for documents in rows for logits in twin_logits(model, documents)])
    actual = read_documents(model, rows, 4)
    assert_near(actual, expected)
    assert_near(gradients(model, weighted(actual)), gradients(model, weighted(expected)))
    with torch.no_grad():
        for width in (4, 1):
            assert_near(read_documents(model, rows, width), expected)


@some_kinds
def test_states_that_are_reset_are_as_learned(kind):
    """In the middle of a block, and without forgetting the tokens before."""
    model, (row,) = make_block_model(kind), make_rows([11])
    reader = Reader(model)
    with torch.no_grad():
        for token in row[:7].tolist():
            reader.read(token)
        reader.start_states()
        expected = torch.stack([reader.logits(reader.read(token)) for token in row[7:].tolist()])
        cache = model(row[None, :7], use_cache=True).past_key_values
        cache.reset_states()
        pieces = [model(piece[None], past_key_values=cache).logits[0] for piece in row[7:].split((1, 3))]
    assert_near(torch.cat(pieces), expected)
    if model.config.recurrent_layers and model.config.window_size <= 7:
        assert not torch.allclose(model(row[None]).logits[0, 7:], expected)


@pytest.mark.parametrize("kind", ["lstm_dual", "feedback_two_layers", "everything"])
@pytest.mark.parametrize("side", ["left", "both"])
def test_records_are_the_twins(kind, side):
    """Attention to tokens and states, states after each block, and the forget gates of each block."""
    model, rows = make_block_model(kind), make_rows(LENGTHS)
    model.set_attn_implementation("eager")
    ids, mask = padded(rows, SIDES[side], 12)
    with torch.no_grad():
        output = model.model(ids, mask, output_attentions=True, output_hidden_states=True, output_gates=True)
    for number, row in enumerate(rows):
        reader, hidden, attended, read = Reader(model), [], [], []
        with torch.no_grad():
            for token in row.tolist():
                reader.read(token)
                hidden.append(torch.stack(reader.hidden))
                attended.append(torch.stack([torch.stack(heads) for heads in reader.attended]))
                read.append(torch.stack(reader.read_states))
        own = mask[number].bool()
        assert_near(torch.stack(output.hidden_states, dim=2)[number, own], torch.stack(hidden))
        for records, expected in ((output.attentions, attended), (output.read_attentions, read)):
            maps = torch.stack([record[number][:, own] for record in records])
            assert_near(maps.permute(2, 0, 1, 3), torch.stack(expected))
        complete = len(row) // 3
        assert len(output.gates) == 3
        assert len(output.memory_states) == 1 + 3 + 1
        for block in range(3):
            share = 1 - reader.shares[block] if block < complete else torch.zeros(4, 12, dtype=torch.double)
            assert_near(output.gates[block][number], share)
            assert_near(output.memory_states[block + 1][number], reader.states[min(block + 1, complete)])
        assert_near(output.memory_states[0][number], reader.states[0])
        last = reader.updated(reader.recurrent[-1])[0] if len(row) % 3 else reader.states[-1]
        assert_near(output.memory_states[-1][number], last)
        assert_near(output.pooler_output[number], output.last_hidden_state[number, own][-1] + rms_norm(last).mean(0))

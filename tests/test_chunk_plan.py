"""Every token of a sequence is in one chunk, whatever stands beside the sequence in its batch."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from hf_recurrent.models.depth.chunk_plan import plan_chunks


def config_of(model_type: str = "tlb", **fields):
    return AutoConfig.for_model(
        model_type, vocab_size=24, hidden_size=16, num_attention_heads=2, intermediate_size=16, **fields
    )


def chunks_of(config, mask: torch.Tensor) -> list[list[list[int]]]:
    """For each sequence of (B, S), the columns of each of its chunks."""
    chunks: list[list[list[int]]] = [[] for _ in mask]
    for chunk in plan_chunks(config, mask, None, sharded=False):
        rows = range(len(mask)) if chunk.sequences is None else chunk.sequences.tolist()
        for row, columns, valid in zip(rows, chunk.columns, chunk.valid, strict=True):
            if bool(valid.any()):
                chunks[row].append(columns[valid].tolist())
    return chunks


@pytest.mark.parametrize("num_chunks", [3, 5, 12])
def test_a_counted_cut_depends_on_the_sequence_alone(num_chunks):
    """In batches of every width from 1 to 512, padded on either side, each sequence has the chunks it has alone."""
    config = config_of(chunking="count", num_chunks=num_chunks)
    for width in range(1, 513):
        lengths = sorted({width, width - 1, width // 2 + 1, num_chunks + 1, num_chunks, num_chunks - 1, 1})
        lengths = torch.tensor([length for length in lengths if 0 < length <= width])
        left, column = width % 2 == 0, torch.arange(width)
        mask = column >= width - lengths[:, None] if left else column < lengths[:, None]
        for length, chunks in zip(lengths.tolist(), chunks_of(config, mask), strict=True):
            size = -(-length // num_chunks)
            first = width - length if left else 0
            columns = list(range(first, first + length))
            assert chunks == [columns[i : i + size] for i in range(0, length, size)]


@pytest.mark.parametrize("chunking", ["fixed", "balanced"])
def test_other_cuts_hold_every_token_once(chunking):
    config = config_of(chunking=chunking, chunk_size=7)
    for width in (*range(1, 40), 511, 512):
        lengths = torch.arange(1, width + 1)[-40:]
        mask = torch.arange(width) < lengths[:, None]
        for length, chunks in zip(lengths.tolist(), chunks_of(config, mask), strict=True):
            assert [column for chunk in chunks for column in chunk] == list(range(length))


@pytest.mark.parametrize("auto_class", [AutoModelForSequenceClassification, AutoModelForCausalLM])
@pytest.mark.parametrize("model_type", ["tlb", "gutlb"])
@pytest.mark.parametrize("num_chunks", [5, 20])
def test_padding_and_longer_sequences_drop_no_token(auto_class, model_type, num_chunks):
    """The last tokens count, and logits are those of the sequence alone."""
    model = auto_class.from_config(config_of(model_type, chunking="count", num_chunks=num_chunks)).eval()
    width = num_chunks + 1
    ids = torch.randint(4, 24, (4, width))
    lengths = torch.tensor([width, width - 1, width - 2, 2])
    mask = (torch.arange(width) < lengths[:, None]).long()
    with torch.no_grad():
        together = model(ids, attention_mask=mask).logits
        for row, length in enumerate(lengths.tolist()):
            alone = model(ids[row : row + 1, :length]).logits[0]
            beside = together[row, :length] if alone.dim() == 2 else together[row]
            torch.testing.assert_close(beside, alone, rtol=0, atol=1e-5)
    embeds = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeds, attention_mask=mask).logits
    target = logits[torch.arange(4), lengths - 1] if logits.dim() == 3 else logits
    target.pow(2).sum().backward()
    touched = embeds.grad.abs().sum(-1) > 0
    assert bool((touched == mask.bool()).all())

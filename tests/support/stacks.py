"""Models whose tokens stop one by one, in every layout of a batch."""

import torch

from .compare import assert_close

PIECES = (5, 6, 10, 11)


def assert_same_in_every_layout(model, text: dict[str, torch.Tensor], tolerance: float) -> None:
    """Steps and logits of tokens are the same padded, without compaction, with records, alone and in pieces."""
    mask = text["attention_mask"].bool()
    rows = [ids[tokens] for ids, tokens in zip(text["input_ids"], mask, strict=True)]
    with torch.no_grad():
        expected = model(**text)
        assert len(expected.ponder_steps[mask].unique()) > 2
        model.config.compaction = False
        found = {"kept": model(**text), "recorded": model(**text, output_hidden_states=True)}
        model.config.compaction = True
        for name, output in found.items():
            assert torch.equal(output.ponder_steps, expected.ponder_steps), name
            assert_close(output.logits[mask], expected.logits[mask], tolerance)
        alone = [model(row[None]) for row in rows]
        for row, tokens in enumerate(mask):
            assert torch.equal(alone[row].ponder_steps[0], expected.ponder_steps[row][tokens])
            assert_close(alone[row].logits[0], expected.logits[row][tokens], tolerance)
        cache, pieces, length = model.model.new_cache(), [], mask.shape[1]
        for start, stop in zip((0, *PIECES), (*PIECES, length), strict=True):
            piece = {"input_ids": text["input_ids"][:, start:stop], "attention_mask": text["attention_mask"][:, :stop]}
            pieces.append(model(**piece, past_key_values=cache))
    assert torch.equal(torch.cat([piece.ponder_steps for piece in pieces], dim=1), expected.ponder_steps)
    assert_close(torch.cat([piece.logits for piece in pieces], dim=1)[mask], expected.logits[mask], tolerance)

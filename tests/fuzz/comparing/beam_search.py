"""Beam search of one row that reads all of every beam again for each token, as a reference for `generate`.

Shapes: K beams, T new tokens, V token ids.
"""

import torch


def beam_search(
    model: torch.nn.Module, arguments: dict[str, torch.Tensor], options: dict, num_beams: int, new_tokens: int
) -> dict[str, torch.Tensor]:
    """The best sequences (K, T), the means of their tokens' log-probabilities (K,), and their executed steps (K, T)."""
    source = arguments["input_ids"]
    two_stacks = model.config.is_encoder_decoder
    ids = torch.tensor([[model.config.decoder_start_token_id]]) if two_stacks else source
    totals, steps, first = torch.zeros(1), torch.zeros(1, 0, dtype=torch.long), ids.shape[1]
    for _ in range(new_tokens):
        inputs = {"input_ids": ids}
        if two_stacks:
            inputs = {"input_ids": source.expand(len(ids), -1), "decoder_input_ids": ids}
        with torch.no_grad():
            output = model(**inputs, **options)
        scores = totals[:, None] + output.logits[:, -1].log_softmax(-1)
        totals, best = scores.flatten().topk(num_beams)
        beam, token = best // scores.shape[1], best % scores.shape[1]
        ids = torch.cat((ids[beam], token[:, None]), dim=1)
        if output.get("ponder_steps") is not None:
            steps = torch.cat((steps, output.ponder_steps[:, -1:]), dim=1)[beam]
    return {"sequences": ids[:, first:], "scores": totals / new_tokens, "ponder_steps": steps}

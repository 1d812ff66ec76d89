"""Pairs of sentences that are encoded separately, in one batch of twice the size (`pair_encoding="siamese"`).

Shapes: B pairs, S tokens of a pair, W tokens of the longest sentence, E width.
"""

import torch

from ..base.outputs import RecurrentOutput
from ..ops.checks import check_ids, check_inputs, other_marks, refuse, wrong_row
from ..ops.graphs import in_graph
from ..ops.layers import embedding_width
from ..ops.positions import tokens_first


def split_pairs(attention_mask: torch.Tensor, token_type_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the tokens of both sentences of pairs (B, S) -> their columns and mask, (2B, W) each.

    All first sentences come before all second ones.

    Raises:
        ValueError: a pair has no token of one of the sentences, or tokens of a third.
    """
    sentences = torch.cat([attention_mask & (token_type_ids == sentence) for sentence in (0, 1)])
    one_sentence = wrong_row(
        ~sentences.any(-1),
        lambda row: (
            f"row {row % len(attention_mask)} of `token_type_ids` does not hold two sentences: with "
            "pair_encoding='siamese' mark the tokens of the first with 0 and of the second with 1, as the tokenizer "
            "does for (text, text_pair)"
        ),
    )
    refuse(other_marks("token_type_ids", token_type_ids, attention_mask), one_sentence)
    columns, _ = tokens_first(sentences)
    columns = columns[:, : attention_mask.shape[1] if in_graph() else int(sentences.sum(-1).max())]
    return columns, sentences.gather(1, columns)


def pair_features(sentences: torch.Tensor) -> torch.Tensor:
    """[u; v; u * v; |u - v|] of all first sentences u, then all second ones v: (2B, E) -> (B, 4E)."""
    first, second = sentences.unflatten(0, (2, -1))
    return torch.cat((first, second, first * second, (first - second).abs()), dim=-1)


def encode_siamese(
    head,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    **kwargs,
) -> tuple[torch.Tensor, RecurrentOutput]:
    """Encode both sentences of each pair -> (B, 4E) features, and outputs by pair instead of by sentence."""
    config = head.config
    if token_type_ids is None:
        raise ValueError(
            "pair_encoding='siamese' needs `token_type_ids` to tell the sentences apart: encode with "
            "tokenizer(text, text_pair), or set config.pair_encoding to 'joint'"
        )
    check_ids("token_type_ids", token_type_ids)
    sizes = (config.vocab_size, embedding_width(head.get_input_embeddings()), 0)
    mask, _ = check_inputs(input_ids, inputs_embeds, attention_mask, None, sizes)
    types_shape, shape = tuple(token_type_ids.shape), tuple(mask.shape)
    if types_shape != shape:
        raise ValueError(f"`token_type_ids` has shape {types_shape}: the inputs have {shape}, pass 0 or 1 each")
    columns, mask = split_pairs(mask, token_type_ids)
    if input_ids is not None:
        # columns after a sentence's end hold tokens of the other one
        input_ids = torch.where(mask, input_ids.repeat(2, 1).gather(1, columns), config.pad_token_id or 0)
    if inputs_embeds is not None:
        index = columns[..., None].expand(-1, -1, inputs_embeds.shape[-1])
        inputs_embeds = inputs_embeds.repeat(2, 1, 1).gather(1, index)
    outputs = head.encode(input_ids, mask, None, inputs_embeds, **kwargs)

    def by_token(values: torch.Tensor) -> torch.Tensor:
        """Values of the sentences' tokens in the columns of their pairs: (2B, W, ...) -> (B, S, ...)."""
        # padding goes to a column that is cut off
        places = torch.where(mask, columns, shape[1])
        values, places = (torch.cat(each.unflatten(0, (2, -1)).unbind(), dim=1) for each in (values, places))
        places = places.reshape(*places.shape, *[1] * (values.dim() - 2)).expand_as(values)
        fill = 0.0 if values.is_floating_point() else -1
        merged = values.new_full((shape[0], shape[1] + 1, *values.shape[2:]), fill)
        return merged.scatter(1, places, values)[:, : shape[1]]

    def by_part(values: torch.Tensor) -> torch.Tensor:
        return by_token(values) if config.counts_by_token else values.unflatten(0, (2, -1)).transpose(0, 1)

    def mean(values: torch.Tensor) -> torch.Tensor:
        return values.unflatten(0, (2, -1)).mean(0)

    changes = {
        "ponder_cost": mean,
        "halting_distribution": mean,
        "ponder_steps": by_part,
        "halting_probabilities": by_part,
        "attention_experts": by_token,
        "feed_forward_experts": by_token,
        "step_features": lambda features: tuple(map(pair_features, features)),
    }
    by_pair = {name: change(outputs[name]) for name, change in changes.items() if name in outputs}
    return pair_features(outputs.pooler_output), RecurrentOutput(**{**outputs, **by_pair})

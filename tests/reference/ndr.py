"""The Neural Data Router as its paper describes it, and adaptive computation time token by token.

`Router` is a module with the parameter names of `NDRForSequenceClassification`, so that it can be trained beside it.
Shapes: B rows, N columns, H heads, E width.
"""

import torch
from torch import nn

from .geometric_naive import weights_of


class Step(nn.Module):
    """One step's parts: attention (`attention.*`), its norm, the network, its norm, and the gate."""

    def __init__(self, width: int, inner: int, heads: int, dropout: float):
        super().__init__()
        self.attention = nn.Module()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self.attention, name, nn.Linear(width, width, bias=False))
        self.attention.direction = nn.Linear(width, 2 * heads)
        self.attention.content_bias = nn.Parameter(torch.zeros(heads, width // heads))
        for name in ("scale", "direction_scale", "match_bias"):
            self.attention.register_parameter(name, nn.Parameter(torch.zeros(1)))
        self.attention_norm, self.update_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward, self.gate = nn.Module(), nn.Module()
        for network, size in ((self.feed_forward, inner), (self.gate, width)):
            network.up_proj, network.down_proj = nn.Linear(width, size), nn.Linear(size, width)
        self.dropout = nn.Dropout(dropout)

    def network(self, layers: nn.Module, states: torch.Tensor) -> torch.Tensor:
        return layers.down_proj(self.dropout(layers.up_proj(states).relu()))


class Router(nn.Module):
    """Classifier of rows whose tokens stand in their first columns, read out at the last token."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        sizes = config.hidden_size, config.intermediate_size, config.num_attention_heads
        self.model.block = Step(*sizes, config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """-> loss, and logits (B, C)."""
        states = self.model.embed_tokens(ids)
        for _ in range(self.config.num_hidden_layers):
            states = self.step(states, mask)
        last = states[torch.arange(len(ids)), mask.sum(-1) - 1]
        logits = self.classifier(last)
        return nn.functional.cross_entropy(logits, labels), logits

    def step(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        block = self.model.block
        attended = block.attention_norm(states + block.dropout(self.attend(states, mask)))
        update = block.update_norm(block.network(block.feed_forward, attended))
        gate = block.network(block.gate, attended).sigmoid()
        if self.training:
            gate = gate * (torch.rand(gate.shape[:-1]) >= self.config.gate_dropout)[..., None]
        return gate * update + (1 - gate) * states

    def attend(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        layers, heads = self.model.block.attention, self.config.num_attention_heads
        query, key, value = (
            layer(states).unflatten(-1, (heads, -1)).transpose(1, 2)
            for layer in (layers.q_proj, layers.k_proj, layers.v_proj)
        )
        key = nn.functional.dropout(key, self.config.attention_dropout, self.training)
        content = (query + layers.content_bias[:, None]) @ key.transpose(-1, -2)
        left, right = layers.direction(states).unflatten(-1, (heads, 2)).permute(3, 0, 2, 1)
        length = states.shape[1]
        offset = torch.arange(length) - torch.arange(length)[:, None]
        direction = torch.where(offset > 0, right[..., None], torch.where(offset < 0, left[..., None], 0.0))
        scores = layers.scale * content + layers.direction_scale * direction + layers.match_bias
        scores = scores.masked_fill(~mask[:, None, None] | (offset == 0), -torch.inf)
        merged = (weights_of(scores) @ value).transpose(1, 2).flatten(-2)
        return layers.o_proj(merged)


def adaptive_computation(
    states: list[torch.Tensor], probabilities: torch.Tensor, threshold: float, universal: bool
) -> tuple[torch.Tensor, int, float]:
    """One token: its states after each step, and its probability before each -> output, steps, remainder."""
    output, mass = torch.zeros_like(states[0]), 0.0
    for step, (state, probability) in enumerate(zip(states, probabilities.tolist(), strict=True), start=1):
        stops = mass + probability > threshold or (not universal and step == len(states))
        weight = 1.0 - mass if stops else probability
        output = output * (1.0 - weight) + weight * state if universal else output + weight * state
        if stops:
            return output, step, weight
        mass += probability
    return output, len(states), 0.0

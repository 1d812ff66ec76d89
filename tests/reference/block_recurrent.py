"""The Block-Recurrent Transformer, naively: one sequence, token and head at a time, from the paper's text and the
reference implementation's semantics. It takes nothing from the model but its configuration and parameters.

Shapes: E width, W tokens of a block, S state vectors, H heads, D head dim.
"""

import math

import torch


def rms_norm(states: torch.Tensor, scale: torch.Tensor | float = 1.0, eps: float = 1e-6) -> torch.Tensor:
    return states / (states.square().mean(-1, keepdim=True) + eps).sqrt() * scale


def unit(vector: torch.Tensor) -> torch.Tensor:
    return vector / (vector.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def bucket(distance: int, num_buckets: int, max_distance: int) -> int:
    exact = num_buckets // 2
    if distance < exact:
        return distance
    step = math.log(max_distance / exact) / (num_buckets - exact)
    # a hair more, so that a distance that begins a bucket is in it
    return min(num_buckets - 1, exact + math.floor(math.log(distance / exact) / step + 1e-9))


class Reader:
    """Reads a document; `states` and `shares` list what each block left of the top recurrent layer's state vectors."""

    def __init__(self, model):
        self.config = config = model.config
        self.weights = {name.removeprefix("model."): p for name, p in model.named_parameters()}
        depth = config.num_hidden_layers
        self.recurrent = sorted(layer % depth for layer in config.recurrent_layers)
        self.remembering = [layer % depth for layer in config.memory_layers]
        self.start()

    def start(self) -> None:
        """Before the first token of a document."""
        config = self.config
        nothing = self.weights["embed_tokens.weight"].new_zeros(config.num_attention_heads, config.head_dim)
        layers = range(config.num_hidden_layers)
        # pairs of key and value (H, D)
        self.previous = [[(nothing, nothing)] * config.window_size for _ in layers]
        self.begun = [[] for _ in layers]
        self.slots = {layer: [None] * config.memory_size for layer in self.remembering}
        self.written = 0
        self.start_states()
        self.states = [self.state[self.recurrent[-1]]] if self.recurrent else []
        self.shares = []

    def start_states(self) -> None:
        self.state = {
            layer: self.weights[f"layers.{layer}.state_cell.initial_state.weight"] for layer in self.recurrent
        }

    def detach(self) -> None:
        """Cut the gradient to what has been read."""
        for layers in (self.previous, self.begun):
            layers[:] = [[(key.detach(), value.detach()) for key, value in pairs] for pairs in layers]
        self.state = {layer: state.detach() for layer, state in self.state.items()}

    def heads(self, name: str, states: torch.Tensor) -> torch.Tensor:
        """(..., E) -> (..., H, D)."""
        return (states @ self.weights[f"{name}.weight"].T).unflatten(-1, (-1, self.config.head_dim))

    def scale(self, name: str, head: int) -> torch.Tensor:
        scale = self.weights[f"{name}.weight"][head]
        return scale.abs() if self.config.attention_scale == "absolute" else scale

    def read(self, token: int) -> torch.Tensor:
        """-> (E,) its final state; what each layer attended to stays in `attended` and `read_states`."""
        states = self.weights["embed_tokens.weight"][token]
        self.attended, self.read_states = [], []
        self.hidden = [states]
        for layer in range(self.config.num_hidden_layers):
            states = self.layer(layer, states)
            self.hidden.append(states)
        if len(self.begun[0]) == self.config.window_size:
            self.complete_block()
        return rms_norm(states, self.weights["final_norm.weight"], self.config.layer_norm_eps)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        table = self.weights.get("lm_head.weight", self.weights["embed_tokens.weight"])
        size = self.config.hidden_size if self.config.logit_divisor == "hidden_size" else self.config.vocab_size
        return table @ states / math.sqrt(size)

    def layer(self, layer: int, states: torch.Tensor) -> torch.Tensor:
        name, eps = f"layers.{layer}", self.config.layer_norm_eps
        hidden = rms_norm(states, self.weights[f"{name}.attention_norm.weight"], eps)
        attention = f"{name}.attention"
        query = unit(self.heads(f"{attention}.q_proj", hidden))
        found = [self.look_back(layer, query[head], head) for head in range(self.config.num_attention_heads)]
        source = layer if layer in self.recurrent else self.recurrent[-1] if self.config.feedback else None
        if source is not None:
            keys, values = self.view(source)
            asked = unit(self.heads(f"{attention}.state_q_proj", hidden))
            weights = [
                (keys[:, head] @ asked[head] * self.scale(f"{attention}.state_scales", head)).softmax(-1)
                for head in range(self.config.num_attention_heads)
            ]
            self.read_states.append(torch.stack(weights))
            found += [weights[head] @ values[:, head] for head in range(self.config.num_attention_heads)]
        key, value = unit(self.heads(f"{attention}.k_proj", hidden)), self.heads(f"{attention}.v_proj", hidden)
        self.begun[layer].append((key, value))
        states = states + self.weights[f"{attention}.o_proj.weight"] @ torch.cat(found)
        inner = rms_norm(states, self.weights[f"{name}.feed_forward_norm.weight"], eps)
        inner = (self.weights[f"{name}.up_proj.weight"] @ inner).relu()
        return states + self.weights[f"{name}.down_proj.weight"] @ inner

    def look_back(self, layer: int, query: torch.Tensor, head: int) -> torch.Tensor:
        """Attention of a head (D,) to the W tokens before."""
        config, attention = self.config, f"layers.{layer}.attention"
        width, place = config.window_size, len(self.begun[layer])
        scores = []
        pairs = (self.previous[layer] + self.begun[layer])[-width:]
        for distance, (key, _) in zip(range(width, 0, -1), pairs, strict=True):
            score = query @ key[head]
            if layer not in self.remembering or config.memory_position_bias:
                number = bucket(distance, config.relative_attention_num_buckets, config.relative_attention_max_distance)
                score = score + self.weights[f"{attention}.position_bias.table.weight"][head, number]
            scores.append(score * self.scale(f"{attention}.scales", head))
        weights = torch.stack(scores).softmax(-1)
        if head == 0:
            self.attended.append([])
        self.attended[-1].append(torch.cat((weights.new_zeros(place), weights, weights.new_zeros(width - place))))
        found = sum(weight * value[head] for weight, (_, value) in zip(weights, pairs, strict=True))
        if layer not in self.remembering:
            return found
        share = self.weights[f"{attention}.memory.share.weight"][head].sigmoid()
        return found * (1 - share) + self.recall(layer, query, head) * share

    def recall(self, layer: int, query: torch.Tensor, head: int) -> torch.Tensor:
        """Attention of a head to the external memory; gradients reach its query and scale only."""
        config, slots = self.config, self.slots[layer]
        nothing = (query.new_zeros(()), torch.zeros_like(query))
        known = [None if pair is None else (query @ pair[0][head].detach(), pair[1][head].detach()) for pair in slots]
        count = config.num_neighbors
        if config.memory_retrieval == "exact":
            groups = [[pair] for pair in sorted(filter(None, known), key=lambda pair: -pair[0].item())[:count]]
            groups += [[]] * (count - len(groups))
        else:
            groups = [[pair for pair in known[first::count] if pair is not None] for first in range(count)]
        best = [max(group, key=lambda pair: pair[0].item(), default=nothing) for group in groups]
        scores = torch.stack([score for score, _ in best]) * self.scale(f"layers.{layer}.attention.scales", head)
        return sum(weight * value for weight, (_, value) in zip(scores.softmax(-1), best, strict=True))

    def identified(self, layer: int) -> torch.Tensor:
        cell = f"layers.{layer}.state_cell"
        normed = rms_norm(self.state[layer], self.weights[f"{cell}.norm.weight"], self.config.layer_norm_eps)
        return normed + self.weights[f"{cell}.ids.weight"]

    def view(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (S, H, D) of a layer's state vectors."""
        cell, states = f"layers.{layer}.state_cell", self.identified(layer)
        return unit(self.heads(f"{cell}.k_proj", states)), self.heads(f"{cell}.v_proj", states)

    def updated(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """State vectors (S, E) as the block before and the begun one leave them, and the share of the old in them."""
        config, cell, weights = self.config, f"layers.{layer}.state_cell", self.weights
        states, (keys, values) = self.identified(layer), self.view(layer)
        own = unit(self.heads(f"{cell}.q_proj", states))
        asked = unit(self.heads(f"{cell}.token_q_proj", states))
        pairs = self.previous[layer] + self.begun[layer]
        found = []
        for head in range(config.num_attention_heads):
            scores = own[:, head] @ keys[:, head].T * self.scale(f"{cell}.scales", head)
            found.append(scores.softmax(-1) @ values[:, head])
        for head in range(config.num_attention_heads):
            token_keys, token_values = (torch.stack([pair[side][head] for pair in pairs]) for side in (0, 1))
            scores = asked[:, head] @ token_keys.T * self.scale(f"{cell}.token_scales", head)
            found.append(scores.softmax(-1) @ token_values)
        found = torch.cat(found, dim=-1)
        before = self.state[layer]
        if config.state_update == "single":
            return self.gate(f"{cell}.feed_forward_gate", before, (found @ weights[f"{cell}.up_proj.weight"].T).relu())
        after, share = self.gate(f"{cell}.attention_gate", before, found)
        if config.state_update == "skip":
            return after, share
        inner = rms_norm(after, weights[f"{cell}.feed_forward_norm.weight"], config.layer_norm_eps)
        last, last_share = self.gate(
            f"{cell}.feed_forward_gate", after, (inner @ weights[f"{cell}.up_proj.weight"].T).relu()
        )
        return last, share * last_share

    def gate(self, name: str, state: torch.Tensor, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = self.weights
        new = inputs @ weights[f"{name}.proj.weight"].T
        new = new.tanh() if self.config.state_update == "single" else new
        if self.config.state_gate == "fixed":
            share = weights[f"{name}.bias.weight"].sigmoid()
            return state * share + new * (1 - share), share.expand_as(state)
        forget, take = (
            inputs @ weights[f"{name}.{kind}_gate.weight"].T + weights[f"{name}.{kind}_gate.bias"]
            for kind in ("forget", "input")
        )
        share = (forget + 1).sigmoid()
        return state * share + new * (take - 1).sigmoid(), share

    def complete_block(self) -> None:
        updates = {layer: self.updated(layer) for layer in self.recurrent}
        self.state = {layer: state for layer, (state, _) in updates.items()}
        if updates:
            self.states.append(updates[self.recurrent[-1]][0])
            self.shares.append(updates[self.recurrent[-1]][1])
        for layer, slots in self.slots.items():
            for number, pair in enumerate(self.begun[layer]):
                slots[(self.written + number) % len(slots)] = pair
        self.written += self.config.window_size
        self.previous, self.begun = self.begun, [[] for _ in self.begun]

"""The Sparse Universal Transformer, naively: one row, one token, one expert and one head at a time, from the paper's
text and the reference implementation's semantics. It takes nothing from the model but its configuration and parameters.

Shapes: n tokens of a row, d width, E experts, k of them for a token, H heads, D head dim, L calls.
"""

import math
from dataclasses import dataclass, field

import torch
from torch.nn.functional import gelu


def layer_norm(states: torch.Tensor, weights: dict[str, torch.Tensor], name: str, eps: float) -> torch.Tensor:
    centred = states - states.mean()
    scaled = centred / (centred.square().mean() + eps).sqrt()
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def sinusoid(position: int, width: int) -> torch.Tensor:
    half = width // 2
    angles = [position * math.exp(-number * math.log(10_000) / max(half - 1, 1)) for number in range(half)]
    # the model's table is of float32
    table = torch.tensor([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])
    return table.double()


def t5_bucket(distance: int, config, causal: bool) -> int:
    """Of a key that stands `distance` behind the query, below zero in front of it."""
    number, first = config.relative_attention_num_buckets, 0
    if not causal:
        number //= 2
        first = number if distance > 0 else 0
    exact, away = number // 2, abs(distance)
    if away < exact:
        return first + away
    share = math.log(away / exact) / math.log(config.relative_attention_max_distance / exact)
    # a hair more, so that a distance that begins a bucket is in it
    return first + min(number - 1, exact + math.floor(share * (number - exact) + 1e-9))


@dataclass
class Choice:
    """What one router made of one token in one call."""

    probabilities: torch.Tensor  # (E,)
    gates: dict[int, torch.Tensor]  # by descending gate
    weight: torch.Tensor


@dataclass
class Token:
    hidden: torch.Tensor
    soft: torch.Tensor
    accumulated: torch.Tensor | float = 0.0
    remaining: torch.Tensor = field(default_factory=lambda: torch.ones((), dtype=torch.float64))
    layers: torch.Tensor | float = 0.0
    halted: bool = False
    steps: int = 0
    probabilities: list = field(default_factory=list)
    experts: list = field(default_factory=list)


@dataclass
class Row:
    """What a stack made of a row."""

    states: torch.Tensor  # (n, d)
    costs: list[torch.Tensor]  # expected calls of each token
    steps: list[int]
    probabilities: torch.Tensor  # (n, L), 0 where nothing was judged
    experts: torch.Tensor  # (routers, n, L, k), -1 where a token was not routed


class Stack:
    """One stack over rows without padding; `choices` lists, by router, all that was routed in any row."""

    def __init__(self, model, prefix: str = ""):
        named = dict(model.named_parameters(remove_duplicate=False))
        self.weights = {name.removeprefix(prefix): p for name, p in named.items() if name.startswith(prefix)}
        self.config = model.get_submodule(prefix.rstrip(".")).config
        across = "block.cross_attention.router.output.weight" in self.weights
        self.routers = ["block.attention.router", *["block.cross_attention.router"] * across, "block.router"]
        self.choices: dict[str, list[Choice]] = {name: [] for name in self.routers}

    def norm(self, name: str, states: torch.Tensor) -> torch.Tensor:
        return layer_norm(states, self.weights, name, self.config.layer_norm_eps)

    def route(self, name: str, states: torch.Tensor, weight: torch.Tensor) -> Choice:
        inner = (self.weights[f"{name}.hidden.weight"] @ states + self.weights[f"{name}.hidden.bias"]).tanh()
        scores = (self.weights[f"{name}.output.weight"] @ inner).exp()
        shares = scores / scores.sum()
        attends = "attention" in name
        config = self.config
        count = config.attention_experts_per_token if attends else config.feed_forward_experts_per_token
        best = sorted(range(len(shares)), key=lambda expert: -shares[expert].item())[:count]
        total = sum(shares[expert] for expert in best) + 1e-6
        choice = Choice(shares, {expert: shares[expert] / total for expert in best}, weight)
        self.choices[name].append(choice)
        return choice

    def bias(self, name: str, query: torch.Tensor, head: int, distance: int) -> torch.Tensor | float:
        """What a scaled query (D,) adds to its score of a key."""
        kind = self.config.relative_positions
        if kind == "none" or "cross" in name:
            return 0.0
        table = self.weights[f"{name}.position_bias.table.weight"]
        if kind == "t5":
            return table[head, t5_bucket(distance, self.config, self.config.is_causal)]
        window = self.config.relative_window
        return query @ table[head, :, max(-window, min(window, distance)) + window]

    def attend(self, name: str, states: torch.Tensor, place: int, source: list[torch.Tensor], choice: Choice):
        """What the token at `place` finds in a source of (d,) states."""
        size, found = self.config.head_dim, 0.0
        for expert, gate in choice.gates.items():
            heads = []
            for head in range(self.config.num_attention_heads):
                part = slice(head * size, (head + 1) * size)
                query = states @ self.weights[f"{name}.query_map.weight"][expert][:, part] / math.sqrt(size)
                keys, values = (
                    [self.weights[f"{name}.{kind}.weight"][part] @ each for each in source]
                    for kind in ("k_proj", "v_proj")
                )
                scores = [query @ key + self.bias(name, query, head, j - place) for j, key in enumerate(keys)]
                shares = torch.stack(scores).softmax(0)
                heads.append(sum(share * value for share, value in zip(shares, values, strict=True)))
            found = found + gate * (torch.cat(heads) @ self.weights[f"{name}.output_map.weight"][expert])
        return found

    def think(self, states: torch.Tensor, choice: Choice) -> torch.Tensor:
        up, up_bias, down, down_bias = (
            self.weights[f"block.experts.{name}"] for name in ("up_proj", "up_proj_bias", "down_proj", "down_proj_bias")
        )
        return sum(
            gate * (gelu(states @ up[expert] + up_bias[expert]) @ down[expert] + down_bias[expert])
            for expert, gate in choice.gates.items()
        )

    def sub_layer(self, name: str, router: str, states: torch.Tensor, weight: torch.Tensor | None, work):
        """-> the states behind a sub-layer, and its experts; without a weight nothing is routed, norms stay."""
        pre = self.config.layer_norm == "pre"
        inputs = self.norm(f"block.{name}_norm", states) if pre else states
        experts = None
        if weight is not None:
            choice = self.route(router, inputs, weight)
            states, experts = states + work(inputs, choice), list(choice.gates)
        return (states if pre else self.norm(f"block.{name}_norm", states)), experts

    def call(self, states, weight, place: int, source: list[torch.Tensor], memory: list[torch.Tensor] | None):
        """The block, for one token -> its state, and the experts of each router."""
        experts = []
        if self.config.is_causal:
            source = source[: place + 1]
        for name, router in zip(
            ["attention", *["cross_attention"] * (memory is not None), "feed_forward"], self.routers, strict=True
        ):
            if name == "feed_forward":
                work = self.think
            else:
                read = source if name == "attention" else memory

                def work(inputs, choice, name=name, read=read):
                    return self.attend(f"block.{name}", inputs, place, read, choice)

            states, chosen = self.sub_layer(name, router, states, weight, work)
            experts.append(chosen)
        return states, experts

    def judge(self, token: Token, step: int, threshold: float) -> None:
        """By the state behind call `step`, from 1."""
        inner = gelu(
            self.weights["halting_head.up_proj.weight"] @ token.hidden + self.weights["halting_head.up_proj.bias"]
        )
        odds = self.weights["halting_head.down_proj.weight"] @ inner
        if "halting_head.down_proj.bias" in self.weights:
            odds = odds + self.weights["halting_head.down_proj.bias"]
        going_on, halting = odds.softmax(0)
        token.probabilities.append(halting.item() if not token.halted else 0.0)
        if token.halted and self.config.halted_tokens == "frozen":
            return
        mass = token.remaining * halting
        token.accumulated = token.accumulated + mass * token.hidden
        token.layers = token.layers + mass * (step - 1)
        token.remaining = token.remaining * going_on
        token.halted = token.halted or token.remaining.item() < 1 - threshold

    def embed(self, ids: list[int]) -> list[torch.Tensor]:
        config, states = self.config, []
        for place, number in enumerate(ids):
            state = self.weights["embed_tokens.weight"][number]
            state = state * math.sqrt(config.hidden_size) if config.scale_embeddings else state
            states.append(state + sinusoid(place + 2, len(state)) if config.absolute_positions else state)
        return states

    def read(self, ids: list[int], memory=None, max_depth: int | None = None, threshold: float | None = None) -> Row:
        config = self.config
        most = config.num_hidden_layers if max_depth is None else max_depth
        threshold = config.halting_threshold if threshold is None else threshold
        pre = config.layer_norm == "pre"
        tokens = [Token(state, state) for state in self.embed(ids)]
        for step in range(most):
            source = [self.norm("block.attention_norm", t.soft) if pre else t.soft for t in tokens]
            for place, token in enumerate(tokens):
                if step == 0:
                    token.probabilities.append(0.0)
                elif config.halting != "none":
                    self.judge(token, step, threshold)
                live = not token.halted
                new, experts = self.call(token.hidden, token.remaining if live else None, place, source, memory)
                if live or config.halted_tokens == "released":
                    token.hidden = new
                if live:
                    token.soft, token.steps = token.accumulated + token.remaining * new, step + 1
                token.experts.append(experts)
        count = config.attention_experts_per_token, config.feed_forward_experts_per_token
        assert count[0] == count[1]
        filled = [[[ids or [-1] * count[0] for ids in call] for call in t.experts] for t in tokens]
        left = [t.layers + (0.0 if t.halted else t.remaining) * (most - 1) + 1.0 for t in tokens]
        final = [self.norm("final_norm", t.soft) if pre else t.soft for t in tokens]
        shown = [t.probabilities + [0.0] * (most - len(t.probabilities)) for t in tokens]
        shown = torch.tensor(shown, dtype=torch.float64)
        return Row(torch.stack(final), left, [t.steps for t in tokens], shown, torch.tensor(filled).permute(2, 0, 1, 3))


def router_loss(choices: list[Choice], config) -> torch.Tensor:
    """Of one router over a batch."""
    number = len(choices[0].probabilities)
    if config.router_loss == "mutual_information":
        mass = sum(choice.weight for choice in choices) + 1e-12
        usage = sum(choice.weight * choice.probabilities for choice in choices) / mass
        entropy = -sum(share * share.log() for share in usage)
        within = -sum(choice.weight * sum(p * p.log() for p in choice.probabilities) for choice in choices) / mass
        return within + entropy if config.mutual_information_sign == "released" else within - entropy
    if config.router_loss == "switch":
        mean = sum(choice.probabilities for choice in choices) / len(choices)
        used = [sum(expert in choice.gates for choice in choices) for expert in range(number)]
        return number * sum(share * count for share, count in zip(mean, used, strict=True)) / sum(used)
    if number == 1:
        return 0.0
    gates = [sum(choice.gates.get(expert, 0.0) for choice in choices) for expert in range(number)]
    mean = sum(gates) / number
    return sum((gate - mean) ** 2 for gate in gates) / (number - 1) / (mean**2 + 1e-10)


def cross_entropy(logits: torch.Tensor, target: int, smoothing: float = 0.0) -> torch.Tensor:
    """Of (V,) scores; a share of the target is spread over all other ids."""
    shares = logits.softmax(0)
    others = smoothing / (len(logits) - 1)
    wanted = [(1.0 - smoothing if number == target else others) for number in range(len(logits))]
    return -sum(share * value.log() for share, value in zip(wanted, shares, strict=True) if share)


def auxiliary_losses(
    config, stacks: list[Stack], ponder: torch.Tensor | float, num_targets: int
) -> dict[str, torch.Tensor | float]:
    """The weighted terms by name, and their sum."""
    share = 1 / num_targets if config.aux_loss_reduction == "sum" else 1
    terms = {}
    if config.halting != "none":
        terms["ponder_loss"] = config.ponder_loss_weight * ponder * share
    if config.router_loss != "none":
        losses = [router_loss(choices, config) for stack in stacks for choices in stack.choices.values()]
        terms["router_loss"] = config.router_loss_weight * sum(losses) * share
    return {"aux_loss": sum(terms.values()), **terms}

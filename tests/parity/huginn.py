"""Running the inputs of Huginn, with results under its authors' names.

Shapes: B sequences, S tokens, n tokens of a call, E width, H heads, D head dim, V token ids.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from hf_recurrent import HuginnRecurrentConfig, HuginnRecurrentForCausalLM
from hf_recurrent.convert.huginn import HUGINN, ROTATIONS
from hf_recurrent.convert.loading import load_weights
from hf_recurrent.models.ops.attention import NO_ROTATIONS, KeyValue, Rotations, eager_attention_forward
from hf_recurrent.models.ops.positions import rotation_angles, rotation_table

from .recording import recorded, require_keys, their_gradients

# number of steps of the calls whose results are recorded, besides the config's; and of those with a cache
FEW_STEPS, SOME_STEPS = 1, 3
# tokens of the first pieces that a sequence is read in, and that are generated
FIRST_PIECES, NUM_GENERATED = (4, 2), 10
LATENT = "latent-diff"


class HuginnReference:
    """Our model with its weights; see `Reference`.

    The authors' code never reads `attention_mask`: neither do calls whose results are the authors' own.

    Args:
        model: language model.
        theirs: its parameters.
        ours: values of ours, computed from `theirs`.
        case: the recorded case, whose thresholds and numbers of steps are those of the calls.
    """

    def __init__(self, model, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], case: dict[str, Any]):
        self.model, self.theirs, self.ours = model, theirs, ours
        self.thresholds = dict(case.get("exit_thresholds", {}))
        self.lookups = tuple(case.get("spec", {}).get("lookups", ("full",)))
        self.steps_of_loss = tuple(case.get("num_steps_pair_of_loss", (0, model.config.num_hidden_layers)))
        model.set_attn_implementation("eager")

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        require_keys(io, ("input_ids", "attention_mask", "input_states", "labels", "generate_input_ids"))
        inputs = {"input_ids": io["input_ids"], "initial_states": io["input_states"]}
        if "position_ids" in io:
            inputs["position_ids"] = io["position_ids"]
        with torch.set_grad_enabled(gradients):
            results = self.loss(inputs, io["labels"])
        if gradients:
            self.model.zero_grad()
            results["loss"].backward()
            results |= their_gradients(self.model, self.theirs, self.ours, "loss/")
        with torch.no_grad():
            results |= self.fixed(inputs, io["attention_mask"]) | self.cached(inputs)
            results |= self.generated(io["generate_input_ids"]) | self.adaptive(io)
        return {name: tensor.detach() for name, tensor in results.items()}

    def loss(self, inputs: dict[str, torch.Tensor], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss of labels that are shifted already, by steps without gradients and steps with them."""
        config, (without, with_gradient) = self.model.config, self.steps_of_loss
        backprop_steps, config.backprop_steps = config.backprop_steps, with_gradient
        try:
            output = self.model.train()(**inputs, shift_labels=labels, max_depth=without + with_gradient)
        finally:
            config.backprop_steps = backprop_steps
            self.model.eval()
        # of a whole number of steps only the gradients differ
        return {"loss": output.loss, "loss_integer_steps": output.loss, "loss_logits": output.logits}

    def fixed(self, inputs: dict[str, torch.Tensor], mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """States and logits of calls of several numbers of steps."""
        base, results, most = self.model.model, {}, self.model.config.num_hidden_layers
        pads_left = not bool(mask[:, 0].all())
        for steps in (FEW_STEPS, SOME_STEPS, most):
            with recorded(base.norm) as normed, recorded(base.prelude[-1]) as embedded:
                output = self.model(**inputs, max_depth=steps, output_hidden_states=True)
            results[f"latent_states.{steps}"], results[f"head_states.{steps}"] = normed
            results[f"logits.{steps}"] = output.logits
            if pads_left:
                results[f"unpadded_logits.{steps}"] = self.model(**inputs, attention_mask=mask, max_depth=steps).logits
        core_states = torch.stack(output.hidden_states[1:])
        return results | {"core_states": core_states, "embedded_inputs": embedded[0].hidden_states}

    def cached(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Logits of tokens that are read in pieces, and the cache after them."""
        config, base = self.model.config, self.model.model
        cache, pieces, start = base.new_cache(SOME_STEPS), [], 0
        length = inputs["input_ids"].shape[1]
        for size in (*FIRST_PIECES, *(1,) * (length - sum(FIRST_PIECES))):
            piece = {name: values[:, start : start + size] for name, values in inputs.items()}
            pieces.append(self.model(**piece, past_key_values=cache, max_depth=SOME_STEPS).logits)
            start += size
        number, layers = SOME_STEPS * config.layers_per_step, cache.layers
        core, prelude, coda = layers[:number], layers[number:][: config.prelude_layers], layers[-config.coda_layers :]
        in_order = [*reversed(coda), *prelude, *core]
        return {
            "cached_logits.3": torch.cat(pieces, dim=1),
            "cache_slots": torch.arange(len(in_order)) - config.coda_layers,
            "cache_keys": torch.stack([layer.tensors["keys"] for layer in in_order]),
            "cache_values": torch.stack([layer.tensors["values"] for layer in in_order]),
        }

    def generated(self, prompts: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=NUM_GENERATED,
            do_sample=False,
            eos_token_id=None,
            max_depth=SOME_STEPS,
        )
        if not self.thresholds:
            return {"generated": found[:, prompts.shape[1] :]}
        # all tokens of the prompt exit together, and each new one by itself
        loop, unread, tokens, steps = AdaptiveLoop(self.model, "full"), prompts[0], [], []
        for _ in range(NUM_GENERATED):
            states = torch.zeros(len(unread), self.model.config.hidden_size)
            read = loop.read(unread, states, LATENT, self.thresholds[LATENT])
            unread = read.logits[-1:].argmax(-1)
            tokens.append(unread)
            steps.append(len(read.values))
        return {
            "generated": found[:, prompts.shape[1] :],
            "generated_adaptive": torch.stack(tokens, dim=1),
            "generated_adaptive_steps": torch.tensor([steps]),
        }

    def adaptive(self, io: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Steps, exit values and logits of sequences that are read token by token, each of which exits by itself."""
        most, results = self.model.config.num_hidden_layers, {}
        for lookup in self.lookups:
            for criterion, threshold in self.thresholds.items():
                rows = []
                for ids, states in zip(io["input_ids"], io["input_states"], strict=True):
                    loop, pairs = AdaptiveLoop(self.model, lookup), zip(ids.split(1), states.split(1), strict=True)
                    rows.append([loop.read(*pair, criterion, threshold) for pair in pairs])
                name = criterion if lookup == "full" else f"{criterion}.{lookup}"
                values = [
                    [nn.functional.pad(each.values, (0, most - len(each.values)), value=math.nan) for each in row]
                    for row in rows
                ]
                results[f"adaptive_steps.{name}"] = torch.tensor([[len(each.values) for each in row] for row in rows])
                results[f"adaptive_values.{name}"] = torch.stack([torch.stack(row) for row in values])
                results[f"adaptive_logits.{name}"] = torch.stack(
                    [torch.cat([each.logits for each in row]) for row in rows]
                )
        return results


class Read(NamedTuple):
    """Tokens that were read together."""

    logits: torch.Tensor  # (n, V)
    values: torch.Tensor  # exit value after each step that was taken


class AdaptiveLoop:
    """The authors' loop of adaptive compute over a sequence, and its cache: a slot for each layer of each step.

    Tokens that exited lack the slots of later steps. Of these, later tokens see none ("full"), or the latest that the
    token has of the same layer ("latest-m4", of a core of four layers).
    """

    def __init__(self, model, lookup: str):
        self.language_model, self.model, self.lookup = model, model.model, lookup
        self.slots: dict[int, dict[int, KeyValue]] = {}
        # of the tokens that are read together
        self.positions: range = range(0)
        self.rotations = NO_ROTATIONS

    def read(self, ids: torch.Tensor, states: torch.Tensor, criterion: str, threshold: float) -> Read:
        """Read tokens (n,) from initial states (n, E) until the criterion holds for the last one, or for all steps."""
        model, values = self.model, []
        self.positions = range(self.positions.stop, self.positions.stop + len(ids))
        angles = rotation_angles(torch.tensor([self.positions]), model.config.head_dim, model.config.rope_theta)
        table = rotation_table(angles)[0]
        self.rotations = Rotations(table, table)
        embedded = model.embedded(ids[None], None, None)[0]
        for slot, layer in enumerate(model.prelude):
            embedded = self.applied(layer, slot, embedded)
        evidence = states if criterion in ON_STATES else ON_LOGITS[criterion].start(model.config.vocab_size)
        for step in range(model.config.num_hidden_layers):
            states = model.block.adapter(torch.cat((states, embedded), dim=-1))
            for number, layer in enumerate(model.block.layers):
                slot = len(model.prelude) + step * len(model.block.layers) + number
                states = self.applied(layer, slot, states)
            if criterion in ON_STATES:
                value, evidence = ON_STATES[criterion](evidence, states), states
            else:
                value, evidence = ON_LOGITS[criterion].judge(evidence, self.logits(states)[-1])
            values.append(float(value))
            if value >= threshold if criterion == "argmax-stability" else value < threshold:
                break
        return Read(self.logits(states), torch.tensor(values, dtype=states.dtype))

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (n, V) of running states (n, E)."""
        states = self.model.norm(states)
        for number, layer in enumerate(self.model.coda):
            states = self.applied(layer, -1 - number, states)
        return self.language_model.predict(self.model.norm(states))

    def applied(self, layer: nn.Module, slot: int, states: torch.Tensor) -> torch.Tensor:
        """States (n, E) of the tokens that are read, after a layer."""
        normed = layer.attention_norm(states)
        query, *key_value = layer.attention.projected(normed, normed, self.rotations)
        entries = self.slots.setdefault(slot, {})
        entries |= {place: KeyValue(*pair) for place, *pair in zip(self.positions, *key_value, strict=True)}
        key, value = (torch.stack(each, dim=1)[None] for each in zip(*self.visible(slot), strict=True))
        mask = None
        if len(states) > 1:
            hidden = torch.ones(len(states), key.shape[2], dtype=torch.bool).triu(1)
            mask = torch.zeros(hidden.shape).masked_fill(hidden, -math.inf)
        attention = layer.attention
        attended, _ = eager_attention_forward(
            attention, query.transpose(0, 1)[None], key, value, mask, attention.scaling
        )
        return layer.updated(states, attention.o_proj(attended[0].flatten(-2)))

    def visible(self, slot: int) -> list[KeyValue]:
        """Keys and values (H, D) of the tokens that are seen in a slot."""
        entries, cycle, first = self.slots[slot], len(self.model.block.layers), len(self.model.prelude)
        if self.lookup == "full" or slot < first:
            return list(entries.values())
        same_layer = range(first + (slot - first) % cycle, slot + 1, cycle)
        places = self.slots[0]
        return [
            next(self.slots[each][place] for each in reversed(same_layer) if place in self.slots[each])
            for place in places
        ]


def latent_change(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return ((after - before).norm(dim=-1) / after.norm(dim=-1)).mean()


def turned(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return 1 - ((after * before).sum(-1) / after.norm(dim=-1) / before.norm(dim=-1)).mean()


def entropy_change(before: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    probabilities = logits.softmax(-1)
    entropy = -(probabilities * (probabilities + 1e-10).log()).sum(-1)
    return (entropy - before).abs(), entropy


def divergence(before: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    after = logits.log_softmax(-1)
    return (before.exp() * (before - after)).sum(-1), after


def likely_divergence(before: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Divergence of distributions whose unlikely tokens all have the probability that they have by chance."""
    probabilities = logits.softmax(-1)
    unlikely = probabilities < 0.1 * probabilities.amax(-1, keepdim=True)
    probabilities = torch.where(unlikely, 1 / probabilities.shape[-1], probabilities)
    after = (probabilities / probabilities.sum(-1, keepdim=True)).log()
    return (before.exp() * (before - after)).sum(-1), after


def unchanged_steps(before: tuple[int, int], logits: torch.Tensor) -> tuple[int, tuple[int, int]]:
    """How many successive steps have not changed the most likely token."""
    token = int(logits.argmax(-1))
    count = before[1] + 1 if token == before[0] else 0
    return count, (token, count)


def uniform(vocab_size: int) -> torch.Tensor:
    return torch.full((vocab_size,), 1 / vocab_size).log()


class OfLogits(NamedTuple):
    """A criterion on logits: what it compares the first with, by V; and its value, with what the next compare with."""

    start: Callable[[int], Any]
    judge: Callable[[Any, torch.Tensor], tuple[Any, Any]]


ON_STATES = {LATENT: latent_change, "cosine": turned}
ON_LOGITS = {
    "entropy-diff": OfLogits(lambda _: torch.tensor(100.0), entropy_change),
    "kl": OfLogits(uniform, divergence),
    "minp-kl": OfLogits(uniform, likely_divergence),
    "argmax-stability": OfLogits(lambda _: (-1, 0), unchanged_steps),
}


def load(case: dict, weights: dict[str, torch.Tensor]) -> HuginnReference:
    """The language model of a case."""
    theirs = case["config"]
    config = HuginnRecurrentConfig(**HUGINN.our_fields(theirs))
    model = HuginnRecurrentForCausalLM(config)
    names = HUGINN.their_names(model)
    weights = {name: tensor for name, tensor in weights.items() if name != ROTATIONS}
    load_weights(model, weights, names)
    ours = {names[theirs]: tensor for theirs, tensor in weights.items()}
    return HuginnReference(model.eval(), weights, ours, case)

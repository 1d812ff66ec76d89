"""Running the inputs of Ouro, with results under its authors' names.

Shapes: B sequences, S tokens, T depth steps, V token ids.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hf_recurrent import OuroRecurrentConfig, OuroRecurrentForCausalLM
from hf_recurrent.convert.loading import load_weights
from hf_recurrent.convert.ouro import OURO
from hf_recurrent.models.depth.objectives import (
    continuation_targets,
    gate_loss,
    halting_distribution,
    objective_loss,
    prior_divergence,
)
from hf_recurrent.models.ops.losses import NO_TARGET, token_losses

from .recording import recorded, require_keys, their_gradients

THRESHOLDS = (0.3, 0.5, 0.9)
CACHED_THRESHOLD = 0.5
# tokens that are read at once before others are read one by one, and that are generated
NUM_AT_ONCE, NUM_GENERATED = 4, 10


class OuroReference:
    """Our model with its weights; see `Reference`.

    The authors' losses count the token after padding on the left, which the state at that padding predicts. Ours leave
    it out: they are computed here from the states of all columns, by the attention that the authors wrote out.

    Args:
        model: language model.
        theirs: its parameters.
        ours: values of ours, computed from `theirs`.
    """

    def __init__(self, model, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]):
        self.model, self.theirs, self.ours = model, theirs, ours
        model.set_attn_implementation("eager")

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        require_keys(io, ("input_ids", "attention_mask", "labels", "generate_input_ids"))
        inputs = {name: io[name] for name in ("input_ids", "attention_mask", "position_ids") if name in io}
        with torch.set_grad_enabled(gradients):
            results = self.steps(inputs)
            results |= self.losses(results, io["labels"])
        if gradients:
            for name in ("loss", "stage1_loss", "stage2_loss"):
                self.model.zero_grad()
                results[name].backward(retain_graph=True)
                results |= their_gradients(self.model, self.theirs, self.ours, f"{name}/")
        with torch.no_grad():
            results |= self.exits(inputs) | self.cached(inputs) | self.generated(io)
        return {name: tensor.detach() for name, tensor in results.items()}

    @contextmanager
    def mixing(self) -> Iterator[None]:
        """Mix states by their exit probabilities, as the authors' code does where labels are given."""
        objective, self.model.config.depth_objective = self.model.config.depth_objective, "mixture"
        try:
            yield
        finally:
            self.model.config.depth_objective = objective

    def steps(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        base = self.model.model
        with recorded(*base.block.layers) as layers:
            output = self.model(**inputs, halting_threshold=1.0, output_hidden_states=True, output_halting=True)
        states = torch.stack(output.hidden_states[1:])
        return {
            "layer_hidden_states": torch.stack([layer.hidden_states for layer in layers]),
            "step_hidden_states": states,
            "gate_logits": base.halting_head.proj(states).squeeze(-1),
            "step_logits": self.model.predict(states),
            "exit_pdf": halting_distribution(output.halting_probabilities),
        }

    def losses(self, found: dict[str, torch.Tensor], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Losses by what was found after each step."""
        config, targets = self.model.config, labels[:, 1:]
        labelled = targets != NO_TARGET
        by_step = [token_losses(logits[:, :-1], targets) for logits in found["step_logits"]]
        states = found["step_hidden_states"]
        probabilities = self.model.model.halting_head(states).movedim(0, -1)
        pdf = halting_distribution(probabilities.roll(1, dims=-1))
        mixed = torch.einsum("bst,tbsv->bsv", pdf, found["step_logits"])
        stop, pdf = self.model.model.halting_head(states.detach()).movedim(0, -1)[:, :-1], pdf[:, :-1]
        expected = objective_loss(config, by_step, pdf)[labelled].mean()
        # of a uniform prior the divergence is what the entropy lacks of its maximum
        entropy = torch.tensor(float(len(by_step))).log() - prior_divergence(config, pdf)[labelled].mean()
        return {
            "loss": token_losses(mixed[:, :-1], targets)[labelled].mean(),
            "step_token_losses": torch.stack(by_step),
            "stage1_expected_loss": expected,
            "stage1_entropy": entropy,
            "stage1_loss": expected - config.depth_prior_weight * entropy,
            "stage2_continue_targets": continuation_targets(by_step).movedim(-1, 0),
            "stage2_loss": gate_loss(by_step, stop)[labelled].mean(),
        }

    def exits(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        results = {"logits": self.model(**inputs).logits}
        with self.mixing():
            results["weighted_logits"] = self.model(**inputs, halting_threshold=1.0).logits
        for threshold in THRESHOLDS:
            output = self.model(**inputs, halting_threshold=threshold)
            results[f"logits.{threshold}"] = output.logits
            results[f"exit_steps.{threshold}"] = output.ponder_steps - 1
        return results

    def cached(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Logits of tokens that are read in pieces, and the cache after them."""
        results = {}
        for name, threshold in (("", None), (f".{CACHED_THRESHOLD}", CACHED_THRESHOLD)):
            cache, pieces, length = self.model.model.new_cache(), [], inputs["input_ids"].shape[1]
            stops = range(min(NUM_AT_ONCE, length), length + 1)
            for start, stop in zip((0, *stops), stops, strict=False):
                piece = {key: value[:, start:stop] for key, value in inputs.items()}
                piece["attention_mask"] = inputs["attention_mask"][:, :stop]
                output = self.model(**piece, past_key_values=cache, halting_threshold=threshold)
                pieces.append(output.logits)
            results[f"cached_logits{name}"] = torch.cat(pieces, dim=1)
            if threshold is None:
                results["cache_keys"] = torch.stack([layer.tensors["keys"] for layer in cache.layers])
                results["cache_values"] = torch.stack([layer.tensors["values"] for layer in cache.layers])
        return results

    def generated(self, io: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        prompts, results = io["generate_input_ids"], {}
        mask = io.get("generate_attention_mask")
        for name, threshold in (("", None), (f".{CACHED_THRESHOLD}", CACHED_THRESHOLD)):
            options = {} if threshold is None else {"halting_threshold": threshold}
            found = self.model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts) if mask is None else mask,
                max_new_tokens=NUM_GENERATED,
                do_sample=False,
                eos_token_id=None,
                **options,
            )
            results[f"generated{name}"] = found[:, prompts.shape[1] :]
        return results


def load(case: dict, weights: dict[str, torch.Tensor]) -> OuroReference:
    """The language model of a case."""
    theirs = case["config"]
    special = {name: theirs[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id") if name in theirs}
    config = OuroRecurrentConfig(**OURO.our_fields(theirs), **special)
    model = OuroRecurrentForCausalLM(config)
    names = OURO.their_names(model)
    load_weights(model, weights, names)
    return OuroReference(model.eval(), weights, {names[theirs]: tensor for theirs, tensor in weights.items()})

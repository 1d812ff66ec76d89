"""Running the inputs of "The Neural Data Router", with results under its authors' names.

Shapes: B sequences, S raw columns, N = S + 2 columns, T steps taken, E width, H heads, D head dim.
"""

import torch

from hf_recurrent.models.depth.act import ACT
from hf_recurrent.models.ops.positions import sinusoids

from .recording import require_keys, their_gradients


class NeuralDataRouterReference:
    """Our model with their weights; see `Reference`. `theirs`: their parameters; `ours`: ours, computed from them."""

    def __init__(self, model, theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], test_steps: int | None):
        self.model, self.theirs, self.ours = model, theirs, ours
        self.max_depth = test_steps

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        require_keys(io, ("input_ids", "lengths", "labels"))
        implementation = self.model.config._attn_implementation
        # the only implementation that returns attention weights
        self.model.set_attn_implementation("eager")
        try:
            return self.run_eager(io, gradients)
        finally:
            self.model.set_attn_implementation(implementation)

    def run_eager(self, io: dict[str, torch.Tensor], gradients: bool) -> dict[str, torch.Tensor]:
        ids, mask = self.with_boundaries(io["input_ids"], io["lengths"])
        base = self.model.model
        self.model.zero_grad()
        records = {"output_hidden_states": True, "output_attentions": True, "output_gates": True}
        with torch.set_grad_enabled(gradients):
            outputs = self.model(ids, mask, labels=io["labels"], max_depth=self.max_depth, **records)
        with torch.no_grad():
            encoded = base(ids, mask, max_depth=self.max_depth)
            results = self.encoder_results(ids, mask, outputs, encoded)
        results |= {"logits": outputs.logits, "loss": outputs.loss.view(1)}
        if self.halts:
            results["total_loss"] = results["loss"] + results["act_reg_loss"]
        if gradients:
            (outputs.loss if outputs.aux_loss is None else outputs.loss + outputs.aux_loss).backward()
            results |= their_gradients(self.model, self.theirs, self.ours)
        return {name: tensor.detach() for name, tensor in results.items()}

    @property
    def halts(self) -> bool:
        return self.model.config.halting != "none"

    def with_boundaries(self, ids: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Add BEGIN before and END after each sequence's tokens: (B, S) -> (B, N), and the mask of the tokens."""
        config, lengths = self.model.config, lengths[:, None].long()
        begin = ids.new_full((ids.shape[0], 1), config.bos_token_id)
        ids = torch.cat((begin, ids, torch.zeros_like(begin)), dim=1).scatter(1, lengths + 1, config.eos_token_id)
        return ids, torch.arange(ids.shape[1], device=ids.device) < lengths + 2

    def encoder_results(self, ids: torch.Tensor, mask: torch.Tensor, outputs, encoded) -> dict[str, torch.Tensor]:
        config, attention = self.model.config, self.model.model.block.attention
        # their loop ends when every token has halted
        taken = int(encoded.ponder_steps.max())
        before, after = outputs.hidden_states[:taken], outputs.hidden_states[1 : taken + 1]
        results = {
            "ids_with_specials": ids,
            "attention_mask": mask,
            "embedded_input": before[0],
            "hidden_states": torch.stack(after),
            "attention": torch.stack(outputs.attentions[:taken]),
            "last_hidden_state": encoded.last_hidden_state,
        }
        if outputs.gates is not None:
            results["copy_gate"] = torch.stack(outputs.gates[:taken])
        if config.attention == "absolute_relative":
            results["absrel_gate"] = torch.stack([attention.distance_gate(states).sigmoid() for states in before])
        if config.attention == "geometric":
            results["direction"] = torch.stack(
                [attention.direction(states).unflatten(-1, (-1, 2)) for states in before]
            )
        else:
            first = 0 if config.attention == "absolute" else 1 - ids.shape[1]
            results["sinusoids"] = sinusoids(torch.arange(first, ids.shape[1]), config.hidden_size)
        return results | (self.halting_results(before, mask) if self.halts else {})

    def halting_results(self, before: tuple[torch.Tensor, ...], mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """The decisions of each step, for halted tokens, too."""
        config, head = self.model.config, self.model.model.halting_head
        universal = config.halting == "act_universal"
        strategy = ACT(head, config.halting_threshold, config.num_hidden_layers, universal)
        state = strategy.initial_state(before[0], mask)
        steps: dict[str, list[torch.Tensor]] = {}
        for step, states in enumerate(before):
            state = strategy.decide(state, states, step)
            decided = {
                "p": state.probability,
                "update_weights": state.weights,
                "p_halt": state.mass.masked_fill(~mask, 1.0),
                "still_running": state.live.float(),
                "remainders": state.remainder,
                "n_updates": state.steps.float(),
            }
            for name, values in decided.items():
                steps.setdefault(f"act_step_{name}", []).append(values)
        return {name: torch.stack(values) for name, values in steps.items()} | {
            "act_remainders": state.remainder,
            "act_n_updates": state.steps.float(),
            "act_reg_loss": config.ponder_loss_weight * state.remainder.mean().view(1),
        }

"""A classifier that honours the output contract with halting probabilities known in advance."""

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from transformers.utils import ModelOutput

from hf_recurrent.models.config.base import Capabilities


@dataclass
class FakeOutput(ModelOutput):
    logits: torch.Tensor | None = None
    ponder_cost: torch.Tensor | None = None
    ponder_steps: torch.Tensor | None = None
    halting_probabilities: torch.Tensor | None = None


class FakeClassifier(torch.nn.Module):
    """Row i of `probabilities` (N, ..., L) drives the example whose first token id is i.

    Units stop, by plain loops, at the first step whose cumulative mass reaches the threshold; the class
    answered is the example's id modulo 3. Token units are padding where the attention mask is 0.
    """

    def __init__(self, probabilities, *, halting="global", threshold=0.9):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.frozen = torch.nn.Dropout().eval()
        self.probabilities = probabilities
        layers = 4 if probabilities is None else probabilities.shape[-1]
        self.config = SimpleNamespace(
            num_hidden_layers=layers, capabilities=Capabilities(), num_labels=3, problem_type=None
        )
        if halting is not None:
            unit = {"none": None, "token": "token"}.get(halting, "sequence")
            self.config.capabilities = Capabilities(halting, unit, halting_threshold=threshold)
            self.config.halting = halting
            self.config.halting_threshold = threshold
        self.calls = []

    def answer_head(self):
        return SimpleNamespace(answers="labels")

    def forward(self, input_ids, attention_mask=None, output_halting=False, **options):
        self.calls.append({"training": self.training, "grad": torch.is_grad_enabled(), **options})
        ids = input_ids[:, 0]
        logits = torch.nn.functional.one_hot(ids % 3, 3).float()
        if self.probabilities is None:
            return FakeOutput(logits=logits)
        threshold = options.get("halting_threshold") or self.config.halting_threshold
        limit = options.get("max_depth") or self.config.num_hidden_layers
        rows = self.probabilities[ids, ..., :limit].clone()
        if self.config.halting == "token":
            rows = rows[:, : input_ids.shape[1]]
        steps = torch.zeros(rows.shape[:-1], dtype=torch.long)
        for place in torch.cartesian_prod(*[torch.arange(n) for n in (*steps.shape, 1)]).tolist():
            place = tuple(place[:-1])
            steps[place] = self._run(rows[place], threshold)
        if self.config.halting == "token":
            steps[attention_mask == 0] = -1
        cost = steps.clamp(min=0).double().reshape(len(ids), -1).mean(-1)
        return FakeOutput(
            logits=logits,
            ponder_cost=cost.float(),
            ponder_steps=steps,
            halting_probabilities=rows if output_halting else None,
        )

    def _run(self, row, threshold):
        """Steps accepted; entries after the one that crossed the threshold are zeroed in place."""
        total, left = 0.0, 1.0
        for i, probability in enumerate(row.tolist()):
            total += left * probability
            left *= 1 - probability
            if total >= threshold:
                row[i + 1 :] = 0
                return i
        return len(row)


def batches_of(examples, batch_size, length=3):
    """Batches over ids 0..N-1, every label 0; the second half of the ids has one padding position."""
    for start in range(0, examples, batch_size):
        ids = torch.arange(start, min(start + batch_size, examples))
        mask = torch.ones(len(ids), length, dtype=torch.long)
        mask[ids >= examples // 2, -1] = 0
        tokens = torch.cat([ids[:, None], torch.full((len(ids), length - 1), 7)], dim=1)
        yield {"input_ids": tokens, "attention_mask": mask, "labels": torch.zeros(len(ids), dtype=torch.long)}

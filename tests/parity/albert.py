"""Running the inputs of ALBERT and PABEE, with results under their names.

Shapes: B sequences, S tokens, L depth steps, C labels.
"""

import torch

from hf_recurrent import (
    AlbertRecurrentConfig,
    AlbertRecurrentForMaskedLM,
    AlbertRecurrentForSequenceClassification,
)
from hf_recurrent.convert.albert import ALBERT, SEPARATE
from hf_recurrent.convert.loading import load_weights
from hf_recurrent.models.heads.classification import classification_losses, problem_type_of

from .recording import recorded, require_keys, their_gradients

PATIENCES = (1, 2, 3)


class AlbertReference:
    """Our models with their weights; see `Reference`.

    A sequence is read at its first column, as theirs is, even where that is padding; ours reads its first token.

    Args:
        model: classifier of sequences.
        by_step: the same with a classifier for each depth step.
        masked: masked language model.
        theirs: their parameters.
        ours: of each model, its parameters' values, computed from `theirs`.
        regression_threshold: difference of successive scores below which they agree.
    """

    def __init__(self, model, by_step, masked, theirs: dict, ours: list[dict], regression_threshold: float | None):
        self.model, self.by_step, self.masked = model, by_step, masked
        self.theirs, self.ours = theirs, ours
        self.regression_threshold = regression_threshold

    def run(self, io: dict[str, torch.Tensor], gradients: bool = False) -> dict[str, torch.Tensor]:
        require_keys(io, ("input_ids", "labels", "mlm_labels"))
        names = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        inputs = {name: io[name] for name in names if name in io}
        for model in (self.model, self.masked):
            model.zero_grad()
        with torch.set_grad_enabled(gradients):
            results = self.states(inputs)
            results |= self.classified(results, io["labels"])
            masked = self.masked(**inputs, labels=io["mlm_labels"])
            results |= {"mlm_logits": masked.logits, "mlm_loss": masked.loss}
        if gradients:
            for name, model, ours in (("loss", self.model, self.ours[0]), ("mlm_loss", self.masked, self.ours[2])):
                results[name].backward()
                results |= their_gradients(model, self.theirs, ours, f"{name}/")
        return {name: tensor.detach() for name, tensor in results.items()}

    def states(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        base = self.model.model
        with recorded(base.embedding_norm, base.embedding_proj) as embeddings:
            layers = [layer for group in base.groups for layer in group.layers]
            with recorded(*layers) as inner, recorded(*base.groups) as steps:
                base(**inputs, output_hidden_states=True, return_dict=True)
        embedded, mapped = embeddings
        inner, steps = ([output.hidden_states for output in outputs] for outputs in (inner, steps))
        return {
            "embedding_output": embedded,
            "mapped_embeddings": mapped,
            "hidden_states": torch.stack([mapped, *inner]),
            "layer_hidden_states": torch.stack(steps),
            "last_hidden_state": steps[-1],
            "pooler_output": base.pooler(steps[-1][:, 0]).tanh(),
        }

    def classified(self, states: dict[str, torch.Tensor], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        config = self.model.config
        logits = self.model.predict(states["pooler_output"], None)
        pooled = self.by_step.model.pooler(states["layer_hidden_states"][:, :, 0]).tanh()
        by_step = torch.stack([self.by_step.predict(features, steps) for steps, features in enumerate(pooled, 1)])
        results = {
            "logits": logits,
            "loss": classification_losses(logits, labels, config).mean(),
            "pabee_logits": by_step,
        }
        # theirs is of one label
        if problem_type_of(labels, config) != "multi_label_classification":
            losses = torch.stack([classification_losses(each, labels, config).mean() for each in by_step])
            weights = torch.arange(1, len(losses) + 1, device=losses.device)
            results["pabee_training_loss"] = (weights * losses).sum() / weights.sum()
        for patience in PATIENCES:
            results |= {f"{name}.{patience}": each for name, each in self.exits(by_step, patience).items()}
        return results

    def exits(self, by_step: torch.Tensor, patience: int) -> dict[str, torch.Tensor]:
        """Layers computed, logits and predictions (B, ...), by their rule of patience, from logits (L, B, C)."""
        scores = by_step[..., 0] if self.regression_threshold is not None else by_step.argmax(-1)
        agrees = scores[1:] == scores[:-1]
        if self.regression_threshold is not None:
            agrees = (scores[1:] - scores[:-1]).abs() < self.regression_threshold
        layers = first_exit(agrees, patience)
        rows = torch.arange(by_step.shape[1], device=by_step.device)
        found = {
            "patience_layers": layers,
            "patience_logits": by_step[layers - 1, rows],
            "patience_predictions": scores[layers - 1, rows],
        }
        if self.regression_threshold is None:
            found["patience_batch_layers"] = first_exit(agrees.all(1, keepdim=True), patience).squeeze(0)
        return found


def first_exit(agrees: torch.Tensor, patience: int) -> torch.Tensor:
    """Layers (B,) after which predictions have agreed with the one before so often in a row, else all: (L - 1, B)."""
    streak = torch.zeros_like(agrees[0], dtype=torch.long)
    layers = torch.full_like(streak, len(agrees) + 1)
    for number, same in enumerate(agrees, 2):
        streak = torch.where(same, streak + 1, 0)
        layers = torch.where((streak >= patience) & (layers > number), number, layers)
    return layers


def load(case: dict, weights: dict[str, torch.Tensor]) -> AlbertReference:
    """The models of a case: a classifier, one with a classifier for each step, and a masked language model."""
    theirs = case["config"]
    fields = ALBERT.our_fields(theirs) | {"num_labels": theirs["num_labels"]}
    config, separate = AlbertRecurrentConfig(**fields), AlbertRecurrentConfig(**fields, **SEPARATE)
    models = (
        AlbertRecurrentForSequenceClassification(config),
        AlbertRecurrentForSequenceClassification(separate),
        AlbertRecurrentForMaskedLM(config),
    )
    names = [ALBERT.their_names(model) for model in models]
    used = {theirs for each in names for theirs in each}
    unused = weights.keys() - used
    if unused:
        raise ValueError(f"the weights do not fit the config: unexpected {', '.join(sorted(unused))}")
    ours = []
    for model, each in zip(models, names, strict=True):
        tensors = {theirs: weights[theirs] for theirs in each if theirs in weights}
        load_weights(model.eval(), tensors, each)
        ours.append({each[theirs]: tensor for theirs, tensor in tensors.items()})
    return AlbertReference(*models, weights, ours, case.get("regression_threshold"))

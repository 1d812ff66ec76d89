"""Tiny models with exit probes, and thresholds of exit criteria by which their units stop at several depths."""

import functools

import numpy as np
import pytest
import torch

from hf_recurrent.models.config.exit_criteria import CRITERIA
from hf_recurrent.models.ops.exit_probe import ExitProbe

from .families import ONE_CHUNK, make_batch, make_language_model, make_model, make_text

# classifiers and criteria whose scores are all alike, so that no threshold tells units apart
ALIKE = {
    ("gut_siamese", "probe"),
    ("gut_types", "entropy"),
    ("gut_types", "probe"),
    ("ndr_act", "probe"),
    ("ut_global", "agreement"),
}


def with_probe(model, num_features: int):
    """The model with an exit probe, whose answers differ."""
    torch.manual_seed(1)
    probe = ExitProbe(num_features, 8)
    for parameter in probe.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    model.exit_probe = probe.eval()
    model.config.exit_probe_size = 8
    return model


def make_classifier(variant):
    """A classifier of one chunk whose answers differ from example to example, with a probe."""
    changes = {"cap_depth_by_length": False} if variant.architecture in ("ut", "gut", "gutlb") else {}
    changes |= ONE_CHUNK if variant.chunked else {}
    model = make_model(variant, **changes)
    if variant.architecture in ("gut", "gutlb"):
        model.config.hard_stop = True
    sharpen(model.classifier)
    return with_probe(model, 4 * 32 if variant.siamese else 32)


def sharpen(head: torch.nn.Module, factor: float = 10.0) -> None:
    """Make untrained predictions differ from one another."""
    last = head.output if hasattr(head, "output") else head
    last.weight.data.mul_(factor)


def classifier(variant):
    """A model whose answers differ, with a probe, and a batch."""
    model, batch = make_model(variant), make_batch(variant)
    batch.pop("labels")
    sharpen(model.classifier, 30.0 if variant.architecture in ("ndr", "sut") and not variant.act else 10.0)
    return with_probe(model, 4 * 32 if variant.siamese else 32), batch


def language_model(variant):
    model, batch = make_language_model(variant), make_text(variant)
    batch.pop("labels")
    # embeddings of tokens that predict, too, are large as they are
    factor = 100.0 if variant.architecture == "ndr" else 10.0
    sharpen(model.lm_head, 0.3 if model.config.tie_word_embeddings else factor)
    return with_probe(model, 32), batch


def sharp_classifier(variant):
    return make_classifier(variant), make_batch(variant)


@functools.cache
def exit_threshold(make, variant, criterion: str) -> float | None:
    """One by which some units of `make(variant)` stop early and some late; None if its scores are all alike."""
    model, batch = make(variant)
    falls = CRITERIA[criterion].falls
    thresholds = np.geomspace(3.0, 1e-3, 40) if falls else 1.0 - np.geomspace(1e-3, 0.999, 40)
    # those far from each other first
    for threshold in (*thresholds[::4], *thresholds[2::4], *thresholds[1::2]):
        with torch.no_grad():
            steps = model(**batch, exit_criterion=criterion, exit_threshold=float(threshold)).ponder_steps
        if len(set(steps[steps >= 0].tolist())) > 2:
            return float(threshold)
    return None


def exit_options(make, variant, criterion: str) -> dict:
    """Options by which some units of `make(variant)` stop early and some late."""
    if criterion == "stability":
        return {"exit_criterion": criterion}
    if make is classifier and (variant.name, criterion) in ALIKE:
        pytest.skip("this tiny model's scores are all alike")
    threshold = exit_threshold(make, variant, criterion)
    if threshold is None:
        pytest.fail(f"no threshold tells units of {variant.name} apart by {criterion}")
    return {"exit_criterion": criterion, "exit_threshold": threshold}

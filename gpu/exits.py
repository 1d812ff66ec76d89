"""Exit criteria on the GPU: units stop where they do on the CPU, and answer what they answer there.

The models are those of the tests, whose answers differ, at thresholds by which some of their units stop early.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from hf_recurrent.models.config.exit_criteria import CRITERIA
from perf.core import Table

from .checks import Check, Setting
from .correct import SAME_STEPS, TOLERANCE, largest_error, on, placed

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.exit_models import ALIKE, classifier, exit_options, language_model
from support.families import LANGUAGE_VARIANTS, VARIANTS, Variant


def as_on_the_cpu(make: Callable, variant: Variant, device: str) -> Table:
    """Share of units that take as many steps on both devices, and the largest error of the logits of all that do."""
    kind = "classifier" if make is classifier else "language model"
    row: dict[str, Any] = {"model": f"{variant.name} {kind}"}
    for criterion in CRITERIA:
        if make is classifier and (variant.name, criterion) in ALIKE:
            continue
        options = exit_options(make, variant, criterion)
        model, batch = make(variant)
        model.eval()
        with torch.no_grad():
            expected = model(**batch, **options)
            found = model.to(device)(**on(device, batch), **options)
        same = found.ponder_steps.cpu() == expected.ponder_steps
        row[criterion] = same.float().mean().item()
        assert row[criterion] >= SAME_STEPS, f"{criterion}: {row[criterion]} of the units take as many steps"
        if same.all():
            row[f"{criterion}: error"] = largest_error({"": found.logits.cpu()}, {"": expected.logits})
            assert row[f"{criterion}: error"] < TOLERANCE, row
    return Table("Exit criteria: share of units with the CPU's steps, and errors of logits where all have them", [row])


def checks(setting: Setting) -> Iterator[Check]:
    """Every architecture that iterates one block; in a rehearsal the quick tier's."""

    def check(make: Callable, variant: Variant) -> list[Table]:
        with placed(setting) as device:
            return [as_on_the_cpu(make, variant, device)]

    for make, variants in ((classifier, VARIANTS), (language_model, LANGUAGE_VARIANTS)):
        chosen = [each for each in variants if not each.fixed_layers and (each.core or not setting.toy)]
        for variant in sorted(chosen, key=lambda each: not each.core):
            # whose blocks of tokens depend on the text's length
            if make is language_model and variant.chunking == "count":
                continue
            kind = "classifier" if make is classifier else "language model"
            yield Check(f"{variant.name} {kind}", lambda make=make, variant=variant: check(make, variant))

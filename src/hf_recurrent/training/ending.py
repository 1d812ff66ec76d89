"""How a run ends: what describes it is written, and it is published if that was asked for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from huggingface_hub import HfApi

from ..hub import CardData, publish_checkpoint, write_card
from ..metrics.serialize import write_bytes, write_json
from .arguments import ReportArguments
from .card import recipe_of
from .run_folder import remove_checkpoints, write_run

if TYPE_CHECKING:
    from .arguments import RecurrentTrainingArguments
    from .document_arguments import DocumentTrainingArguments

    PublishingArguments = RecurrentTrainingArguments | DocumentTrainingArguments


def finish(
    folder: Path, settings: dict[str, Any], card: CardData, report: ReportArguments, timing: dict | None = None
) -> None:
    """Write what describes a run, its `timing` where it is told, and last the mark that it is complete."""
    write_bytes(folder / "recipe.yaml", yaml.safe_dump(recipe_of(settings), sort_keys=False, width=110).encode())
    write_card(folder, card)
    if timing is not None:
        write_json(folder / "timing.json", timing)
    write_run(folder, settings, finished=True)
    if not report.keep_checkpoints:
        remove_checkpoints(folder)


def publishing(args: "PublishingArguments") -> dict[str, Any]:
    return {
        "repo_id": args.hub_model_id,
        "private": args.hub_private_repo,
        "revision": args.hub_revision,
        "api": HfApi(token=args.hub_token),
    }


def publish(folder: Path, args: "PublishingArguments") -> str:
    """Publish a finished run -> what was done, in words."""
    done = publish_checkpoint(folder, **publishing(args))
    return f"{'published' if done.changed or done.deleted else 'unchanged:'} {done.url}"

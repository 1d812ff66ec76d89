"""A user's own texts for a causal language model that is trained already: blocks, all of whose tokens are predicted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from ..analysis.inference import SHIFTED
from ..analysis.text_losses import BLOCKS, DOCUMENTS, TextLosses, collect_text_losses, text_table
from ..models.common.token_targets import NO_TARGET
from .arguments import LanguageDataArguments
from .collator import PaddingCollator
from .data import EvaluationSplit, by_length
from .language_data import TextSplit, warn_of_cuts, with_numbers
from .masked_data import block_columns
from .token_examples import Choice, blocks_of

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class NextTokenSplit(EvaluationSplit):
    """An encoded test split whose `labels` are the tokens after each."""

    def batches(self, tokenizer: Any, batch_size: int) -> DataLoader:
        """Padded batches in the order of the examples, with `shift_labels` (B, S)."""
        pad = PaddingCollator(tokenizer, lists_of_labels=True)

        def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            batch = pad(examples)
            return {**{name: batch[name] for name in ("input_ids", "attention_mask")}, SHIFTED: batch["labels"]}

        return DataLoader(self.dataset.select_columns(["input_ids", "labels"]), batch_size, collate_fn=collate)


def chosen_blocks(
    arguments: LanguageDataArguments, tokenizer: Any, choices: Mapping[str, Choice]
) -> Iterator[tuple[str, "Dataset"]]:
    """Splits by their names, as blocks.

    Args:
        choices: split -> choice of its blocks.

    Raises:
        ValueError: texts cannot be read, or have no two tokens.
    """
    arguments.own.warn()
    blocks = blocks_of(arguments.own, arguments, tokenizer)
    for name, choice in choices.items():
        rows, place = choice(blocks.dataset(name, None)), arguments.own.place_name(name)
        if not len(rows):
            raise ValueError(f"{place} has no two tokens of text: name another file")
        if not arguments.pack:
            warn_of_cuts(place, rows, arguments)
        yield name, rows


def next_token_splits(
    arguments: LanguageDataArguments, tokenizer: Any, choices: Mapping[str, Choice]
) -> Iterator[NextTokenSplit]:
    """Splits of which each predicted token counts, sorted by length.

    Args:
        choices: split -> choice of its blocks.

    Raises:
        ValueError: texts cannot be read, or have no two tokens.
    """
    for name, rows in chosen_blocks(arguments, tokenizer, choices):
        labelled = rows.map(lambda row: {"labels": [*row["input_ids"][1:], NO_TARGET]}, desc="next tokens")
        columns = block_columns(arguments)
        yield NextTokenSplit(name, by_length(with_numbers(labelled, columns)), columns)


def evaluate_texts(
    model: Any, tokenizer: Any, split: TextSplit, block_size: int, batch_size: int, **options: Any
) -> tuple[TextLosses, dict[str, Any]]:
    """The losses of a split, and their `text_table`.

    Args:
        block_size: most tokens of a block.
        options: of `collect_text_losses`.
    """
    batches = split.batches(tokenizer, batch_size)
    found = collect_text_losses(model, batches, len(split.dataset), **options)
    table = text_table(
        *(model, found, split.sizes(tokenizer)),
        kind=BLOCKS if split.pack else DOCUMENTS,
        block_size=block_size,
        max_steps=options.get("max_steps"),
        halting_threshold=options.get("halting_threshold"),
        slices=split.slices,
    )
    return found, table

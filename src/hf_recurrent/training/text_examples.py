"""A user's own texts for a causal language model that is trained already: blocks, all of whose tokens are predicted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from ..analysis.inference import SHIFTED
from ..models.common.token_targets import NO_TARGET
from .arguments import LanguageDataArguments
from .collator import PaddingCollator
from .data import EvaluationSplit, by_length
from .language_data import warn_of_cuts, with_numbers
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
    arguments: LanguageDataArguments, tokenizer: Any, names: Sequence[str], choose: Choice
) -> Iterator[tuple[str, "Dataset"]]:
    """Splits by their names, as blocks that were chosen.

    Raises:
        ValueError: texts cannot be read, or have no two tokens.
    """
    arguments.own.warn()
    blocks = blocks_of(arguments.own, arguments, tokenizer)
    for name in names:
        rows, place = choose(blocks.dataset(name, None)), arguments.own.place_name(name)
        if not len(rows):
            raise ValueError(f"{place} has no two tokens of text: name another file")
        if not arguments.pack:
            warn_of_cuts(place, rows, arguments)
        yield name, rows


def next_token_splits(
    arguments: LanguageDataArguments, blocks: Iterable[tuple[str, "Dataset"]]
) -> Iterator[NextTokenSplit]:
    """Splits of which each predicted token counts, sorted by length."""
    columns = block_columns(arguments)
    for name, rows in blocks:
        labelled = rows.map(lambda row: {"labels": [*row["input_ids"][1:], NO_TARGET]}, desc="next tokens")
        yield NextTokenSplit(name, by_length(with_numbers(labelled, columns)), columns)

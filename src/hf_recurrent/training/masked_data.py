"""Blocks of a user's own documents with masks, for a masked language model."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import DataCollatorForLanguageModeling

from ..models.common.token_targets import NO_TARGET
from .arguments import ModelArguments
from .collator import PaddingCollator
from .data import Splits
from .language_data import LENGTH, load_blocks, load_language_tokenizer, require_end, with_numbers
from .token_arguments import MaskedDataArguments
from .token_data import CONTEXT_FREE, TokenSplit

if TYPE_CHECKING:
    from datasets import Dataset

MASK = "[MASK]"
# of the masks of evaluations, whatever the seed of the run
EVALUATION_SEED = 0
# examples that are counted at a time
PIECE = 1000


def load_masked_tokenizer(model: ModelArguments, data: MaskedDataArguments) -> Any:
    """The tokenizer of a language model, with a mask token.

    Raises:
        ValueError: as `load_language_tokenizer`, or a checkpoint's has no mask token.
    """
    tokenizer = load_language_tokenizer(model, data)
    require_end(tokenizer, data)
    if tokenizer.mask_token is None:
        if model.model_name_or_path is not None:
            raise ValueError(
                f"model_name_or_path is {model.model_name_or_path!r}, whose tokenizer has no mask token: take a "
                "checkpoint of a masked language model"
            )
        tokenizer.add_special_tokens({"mask_token": MASK})
    return tokenizer


def read_masks_in_texts(tokenizer: Any) -> None:
    """Let a tokenizer read the name of its mask token in a text as that token, which pipelines rely on."""
    tokenizer.split_special_tokens = tokenizer.init_kwargs["split_special_tokens"] = False


class MaskingCollator:
    """Pads examples, and masks those that have no `labels` yet by transformers' rules: 80% `[MASK]`, 10% random.

    The masks follow from the tokens of the batch and the seed alone, so that a resumed run has those that it would
    have had, and each epoch's shuffled batches have others.
    """

    def __init__(self, tokenizer: Any, probability: float, seed: int):
        self.seed = seed
        self.pad = PaddingCollator(tokenizer, lists_of_labels=True)
        self.rules = DataCollatorForLanguageModeling(tokenizer, mlm_probability=probability)
        self.special = torch.tensor(tokenizer.all_special_ids)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        kept = [name for name in ("input_ids", "labels") if name in examples[0]]
        batch = self.pad([{name: example[name] for name in kept} for example in examples])
        return batch if "labels" in batch else {**batch, **self.masked(batch["input_ids"])}

    def masked(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """`input_ids` (B, S) with masks, and `labels` (B, S), -100 where there is none."""
        seed = zlib.crc32(input_ids.numpy().tobytes(), self.seed)
        self.rules.generator = torch.Generator().manual_seed(seed)
        inputs, labels = self.rules.torch_mask_tokens(input_ids.clone(), torch.isin(input_ids, self.special))
        return {"input_ids": inputs, "labels": labels}


def load_masked(data: MaskedDataArguments, tokenizer: Any) -> Splits:
    """Blocks to train on, and those to evaluate with the same masks each time.

    Raises:
        ValueError: as `load_blocks`, or no token of a split is masked.
    """
    splits = load_blocks(data, tokenizer)
    masked = {name: with_masks(rows, data, tokenizer) for name, rows in splits.validation.items()}
    seen = token_frequencies(splits.train, len(tokenizer))
    evaluation = []
    for split in splits.evaluation:
        rows = masked.get(split.name)
        rows = with_masks(split.dataset, data, tokenizer) if rows is None else rows
        columns = block_columns(data)
        found = TokenSplit(split.name, with_numbers(rows, columns), columns)
        require_masks(found, data)
        evaluation.append(with_frequencies(found, seen))
    return Splits(splits.train, masked, evaluation)


def block_columns(data: MaskedDataArguments) -> tuple[str, ...]:
    """Columns of difficulty of blocks: those with parts of several documents have none."""
    return () if data.pack else (LENGTH, *data.own.slice_by)


def with_masks(rows: "Dataset", data: MaskedDataArguments, tokenizer: Any) -> "Dataset":
    """Blocks with the masks of evaluations, and `labels`."""
    collator = MaskingCollator(tokenizer, data.mlm_probability, EVALUATION_SEED)

    def mask(row: Mapping[str, Any]) -> dict[str, list[int]]:
        found = collator.masked(torch.tensor([row["input_ids"]]))
        return {name: values[0].tolist() for name, values in found.items()}

    return rows.map(mask, desc="masks")


def require_masks(split: TokenSplit, data: MaskedDataArguments) -> None:
    """Raise a ValueError if no token of a split is masked."""
    if not split.counts.any():
        raise ValueError(
            f"mlm_probability is {data.mlm_probability}, which masks no token of {split.name}: raise it, or give more "
            "text"
        )


def token_frequencies(train: "Dataset", size: int) -> np.ndarray:
    """How often each token occurs in training (V,)."""
    counts = np.zeros(size, np.int64)
    for piece in train.select_columns(["input_ids"]).with_format("numpy").iter(PIECE):
        counts += np.bincount(np.concatenate(list(piece["input_ids"])), minlength=size)
    return counts


def with_frequencies(split: TokenSplit, seen: np.ndarray) -> TokenSplit:
    """A split with the frequencies of its masked tokens in training, and the loss of a model that knows only these.

    Each token counts once more than it occurs, so that none is impossible.

    Args:
        seen: as of `token_frequencies`.
    """
    labels = np.concatenate([np.asarray(row) for row in split.dataset["labels"]])
    labels = labels[labels != NO_TARGET]
    shares = (seen + 1) / (seen + 1).sum()
    bits = -np.log2(shares[labels])
    baseline = {"nll": float(bits.mean() * np.log(2))}
    return replace(split, of_tokens={CONTEXT_FREE: bits}, baseline=baseline)

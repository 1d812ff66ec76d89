"""Tokens of texts that are masked and predicted: `fill-mask`."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from transformers import DataCollatorForLanguageModeling

from ..data.batches import PaddingCollator
from ..data.columns import narrowest
from ..models.common.token_targets import NO_TARGET
from .arguments import MaskArguments
from .base import Split, Splits
from .metrics import masked_statistics, of_logits, perplexity, text_metrics, with_ponder_metrics
from .text_generation import OfBlocks, plain_reading
from .token_classification import CONTEXT_FREE, PerToken

if TYPE_CHECKING:
    from datasets import Dataset

MASK = "[MASK]"
# of the masks of evaluations, whatever the seed of the run
EVALUATION_SEED = 0
# examples that are counted at a time
PIECE = 1000
# tokens before and after the mask of an example
AROUND = 12


class FillMask(PerToken, OfBlocks):
    """Masked tokens of blocks of documents."""

    tag = "fill-mask"
    script = "training/run_mlm.py"
    auto_class = "AutoModelForMaskedLM"
    model_kind, data_kind = "a masked language model", "has documents"
    arguments = MaskArguments
    metric_name = "masked_accuracy"
    preprocess_logits: ClassVar[Callable | None] = staticmethod(of_logits(masked_statistics))
    scores: ClassVar[Sequence[str]] = ("nll", "perplexity", "token_accuracy")
    as_trained: ClassVar = ("pack", "line_by_line", "keep_linebreaks", "mlm_probability", "max_seq_length")

    def check(self, args: Any, report: Any) -> None:
        if report.write_predictions:
            raise ValueError("write_predictions is true: masked tokens are many and drawn at random; leave it out")
        if args.train_sampling_strategy == "sequential":
            # masks follow from the blocks of a batch
            raise ValueError("train_sampling_strategy is 'sequential': all epochs would have the same masks")

    def load_tokenizer(self, model: Any, checkpoint: Path | None = None, default: str = "bpe") -> Any:
        tokenizer, name = super().load_tokenizer(model), model.model_name_or_path
        self.require_end(tokenizer, name)
        if tokenizer.mask_token is None:
            if name is not None:
                raise ValueError(
                    f"model_name_or_path is {name!r}, whose tokenizer has no mask token: take a checkpoint of a masked "
                    "language model"
                )
            tokenizer.add_special_tokens({"mask_token": MASK})
        return tokenizer

    def load_splits(self, tokenizer: Any) -> Splits:
        """Blocks to train on, and those to evaluate with the same masks each time."""
        train, found = self.load_blocks(tokenizer)
        masked = {name: self.with_masks(rows, tokenizer) for name, rows in found.items()}
        seen, role = token_frequencies(train, len(tokenizer)), "test" if "test" in found else "validation"
        split = with_frequencies(self.masked_split(role, masked[role]), seen)
        # pipelines rely on the name of the mask token in a text being that token
        tokenizer.split_special_tokens = tokenizer.init_kwargs["split_special_tokens"] = False
        validation = {name: rows for name, rows in masked.items() if name == "validation"}
        return Splits(train, validation, [split])

    def evaluated_split(self, name: str, rows: "Dataset", tokenizer: Any, train_file: str | None) -> Split:
        """A split of a checkpoint's blocks with masks.

        Args:
            train_file: the documents of training, by which masked tokens are known without their context.
        """
        split = self.masked_split(name, self.with_masks(rows, tokenizer))
        if train_file is None:
            return split
        training = replace(self.documents, files={"train": train_file}, wanted=())
        blocks = replace(self.blocks(plain_reading(tokenizer)), source=training)
        return with_frequencies(split, token_frequencies(blocks.dataset("train", None), len(tokenizer)))

    def masked_split(self, name: str, rows: "Dataset") -> Split:
        """A split of the blocks of which some token is masked. Raises a ValueError if there is none."""
        for column in self.block_columns:
            rows = rows.remove_columns(column).add_column(column, narrowest(list(map(str, rows[column]))))
        found = self.labelled(Split(self, name, rows, self.block_columns))
        if not len(found.dataset):
            raise ValueError(
                f"mlm_probability is {self.data.mlm_probability}, which masks no token of {name}: raise it, or give "
                "more text"
            )
        return found

    def with_masks(self, rows: "Dataset", tokenizer: Any) -> "Dataset":
        """Blocks with the masks of evaluations, and `labels`."""
        collator = self.collator(tokenizer, seed=EVALUATION_SEED)

        def mask(row: Mapping[str, Any]) -> dict[str, list[int]]:
            found = collator.masked(torch.tensor([row["input_ids"]]))
            return {name: values[0].tolist() for name, values in found.items()}

        return rows.map(mask, desc="masks")

    def collator(self, tokenizer: Any, examples: Any = None, seed: int = 0) -> "MaskingCollator":
        return MaskingCollator(tokenizer, self.data.mlm_probability, seed)

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        return with_ponder_metrics(prediction, text_metrics)

    def unit_scores(self, split: Split, examples: pd.DataFrame) -> dict[str, Any]:
        nll = float(examples["nll"].mean())
        scores = {"nll": nll, "perplexity": perplexity(nll)}
        if "nll" in split.baseline:
            scores["perplexity_of_frequencies"] = perplexity(split.baseline["nll"])
        return {"scores": scores}

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        example = split.dataset[0]
        ids, labels = list(example["input_ids"]), example["labels"]
        places = [place for place, label in enumerate(labels) if label != NO_TARGET]
        place = min(places, key=lambda place: abs(place - AROUND), default=0)
        # other masks are what they hide
        ids = [old if label == NO_TARGET else label for old, label in zip(ids, labels, strict=True)]
        answer, ids[place] = ids[place], tokenizer.mask_token_id
        shown = ids[max(place - AROUND, 0) : place + AROUND]
        return {"text": tokenizer.decode(shown), "answer": tokenizer.decode([answer])}


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


def token_frequencies(train: "Dataset", size: int) -> np.ndarray:
    """How often each token occurs in training (V,)."""
    counts = np.zeros(size, np.int64)
    for piece in train.select_columns(["input_ids"]).with_format("numpy").iter(PIECE):
        counts += np.bincount(np.concatenate(list(piece["input_ids"])), minlength=size)
    return counts


def with_frequencies(split: Split, seen: np.ndarray) -> Split:
    """A split with the frequencies of its masked tokens in training, and the loss of a model that knows only these.

    Each token counts once more than it occurs, so that none is impossible.

    Args:
        seen: as of `token_frequencies`.
    """
    labels = np.concatenate([np.asarray(row) for row in split.dataset["labels"]])
    labels = labels[labels != NO_TARGET]
    shares = (seen + 1) / (seen + 1).sum()
    bits = -np.log2(shares[labels])
    return replace(split, of_units={CONTEXT_FREE: bits}, baseline={"nll": float(bits.mean() * np.log(2))})

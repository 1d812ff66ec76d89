"""Tokens of texts that are masked and predicted: `fill-mask`."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling

from ..data.batches import PaddingCollator
from ..metrics.functional import Row, perplexity, text_metrics
from ..metrics.tensors import masked_statistics, of_logits
from ..models.ops.losses import NO_TARGET
from .arguments import MaskArguments
from .base import Split, Splits
from .text_generation import OfBlocks, plain_reading
from .token_classification import CONTEXT_FREE, PerToken

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
    preprocess_logits = staticmethod(of_logits(masked_statistics))
    metrics = staticmethod(text_metrics)
    scores = ("nll", "perplexity", "token_accuracy")
    metric_name = "masked_accuracy"
    as_trained = ("pack", "line_by_line", "keep_linebreaks", "mlm_probability", "max_seq_length")

    def check(self, args: Any, report: Any) -> None:
        if report.write_predictions:
            raise ValueError("write_predictions is true: masked tokens are many and drawn at random; leave it out")
        if args.train_sampling_strategy == "sequential":
            # masks follow from the blocks of a batch
            raise ValueError("train_sampling_strategy is 'sequential': all epochs would have the same masks")

    def suited(self, tokenizer: Any, name: str) -> Any:
        found = super().suited(tokenizer, name)
        if found.mask_token is None:
            if self.data.tokenizer is None and name != self.default_tokenizer:
                raise ValueError(
                    f"model_name_or_path is {name!r}, whose tokenizer has no mask token: take a checkpoint of a masked "
                    "language model"
                )
            found.add_special_tokens({"mask_token": MASK})
        return found

    def prepared(self, rows: Dataset, tokenizer: Any) -> Dataset:
        """Blocks with the masks of evaluations, and `labels`."""
        collator = self.collator(tokenizer, EVALUATION_SEED)

        def mask(row: Row) -> dict[str, list[int]]:
            found = collator.masked(torch.tensor([row["input_ids"]]))
            return {name: values[0].tolist() for name, values in found.items()}

        return rows.map(mask, desc="masks")

    def block_split(self, name: str, rows: Dataset) -> Split:
        """A split of the blocks of which some token is masked. Raises a ValueError if there is none."""
        found = self.labelled(super().block_split(name, rows))
        if not len(found.dataset):
            raise ValueError(
                f"mlm_probability is {self.data.mlm_probability}, which masks no token of {name}: raise it, or give "
                "more text"
            )
        return found

    def load_splits(self, tokenizer: Any) -> Splits:
        found = super().load_splits(tokenizer)
        # pipelines rely on the name of the mask token in a text being that token
        tokenizer.split_special_tokens = tokenizer.init_kwargs["split_special_tokens"] = False
        return found

    def known_examples(self, train_file: str, tokenizer: Any) -> Dataset:
        training = replace(self.documents, files={"train": train_file}, wanted=())
        return replace(self.blocks(plain_reading(tokenizer)), source=training).dataset("train", None)

    def with_knowledge(self, split: Split, train: Dataset, tokenizer: Any) -> Split:
        """A split with how unexpected its masked tokens are by their frequencies in training, and the loss by these.

        Each token counts once more than it occurs, so that none is impossible.
        """
        seen = np.ones(len(tokenizer), np.int64)
        for piece in train.select_columns(["input_ids"]).with_format("numpy").iter(PIECE):
            seen += np.bincount(np.concatenate(list(piece["input_ids"])), minlength=len(seen))
        labels = np.concatenate([np.asarray(row) for row in split.dataset["labels"]])
        bits = -np.log2((seen / seen.sum())[labels[labels != NO_TARGET]])
        return replace(split, of_units={CONTEXT_FREE: bits}, baseline={"nll": float(bits.mean() * np.log(2))})

    def collator(self, tokenizer: Any, seed: int = 0) -> "MaskingCollator":
        return MaskingCollator(tokenizer, self.data.mlm_probability, seed)

    def further_scores(self, split: Split, examples: pd.DataFrame) -> Row:
        nll = float(examples["nll"].mean())
        scores = {"nll": nll, "perplexity": perplexity(nll)}
        if split.baseline:
            scores["perplexity_of_frequencies"] = perplexity(split.baseline["nll"])
        return {"scores": scores}

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        example = split.dataset[0]
        labels = np.array(example["labels"])
        place = min(np.flatnonzero(labels != NO_TARGET), key=lambda place: abs(place - AROUND))
        # other masks are what they hide
        ids = np.where(labels == NO_TARGET, example["input_ids"], labels)
        answer, ids[place] = tokenizer.decode([ids[place]]), tokenizer.mask_token_id
        return {"text": tokenizer.decode(ids[max(place - AROUND, 0) : place + AROUND]), "answer": answer}


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

    def __call__(self, examples: Sequence[Row]) -> dict[str, torch.Tensor]:
        kept = [name for name in ("input_ids", "labels") if name in examples[0]]
        batch = self.pad([{name: example[name] for name in kept} for example in examples])
        return batch if "labels" in batch else {**batch, **self.masked(batch["input_ids"])}

    def masked(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """`input_ids` (B, S) with masks, and `labels` (B, S), -100 where there is none."""
        seed = zlib.crc32(input_ids.numpy().tobytes(), self.seed)
        self.rules.generator = torch.Generator().manual_seed(seed)
        inputs, labels = self.rules.torch_mask_tokens(input_ids.clone(), torch.isin(input_ids, self.special))
        return {"input_ids": inputs, "labels": labels}

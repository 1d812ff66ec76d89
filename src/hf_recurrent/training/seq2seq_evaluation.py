"""Evaluation of models that write a target for each source: scores, and when both stacks stop."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.evaluate import each_batch
from ..analysis.halting import HaltingRecord, halting_columns, halting_table
from ..analysis.inference import stack_output, to_device
from ..analysis.model_facts import DECODER, ENCODER, stack_depths, stopping_rule
from ..analysis.tables import join_batches
from ..benchmarks.wmt14_en_de.text_forms import join_pieces, plain_text
from ..metrics.bleu import bleu, compound_split_bleu
from ..models.common.token_targets import NO_TARGET
from .metrics import summarize, target_statistics

if TYPE_CHECKING:
    from .seq2seq_data import PairSplit


def warn_of_longer(model: Any, split: "PairSplit") -> None:
    """Warn of targets that are longer than what a checkpoint may write."""
    longest, most = split.longest_target, model.generation_config.max_new_tokens
    if most is not None and longest > most:
        warnings.warn(
            f"targets of {split.name} have up to {longest} tokens, and the checkpoint writes at most {most}: longer "
            "ones count as wrong, unless you raise max_new_tokens in its generation_config.json",
            stacklevel=2,
        )


def collect_pairs(
    model: Any,
    tokenizer: Any,
    split: "PairSplit",
    batch_size: int,
    *,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> tuple[dict[str, HaltingRecord], dict[str, float]]:
    """Generate a target for each source of `split` by the model's generation config, and run it on the true one.

    Returns records of both stacks and `summarize`. The records have the same written and true targets, as texts, and
    the steps at which tokens stopped: the decoder's tokens are its inputs when the true target is given.

    `max_depth` and `halting_threshold` are the depth limit and threshold of this run, instead of the checkpoint's.
    """
    overrides = {"max_depth": max_depth, "halting_threshold": halting_threshold}
    extra = {name: value for name, value in overrides.items() if value is not None}
    config = model.config
    # checkpoints of earlier versions have no limit
    limit = model.generation_config.max_new_tokens or split.longest_target
    depths = {stack: max_depth or depth for stack, depth in stack_depths(config).items()}

    def of_batch(batch: dict[str, Any]) -> tuple[list[str], list[str], np.ndarray, dict[str, dict[str, np.ndarray]]]:
        """Written and true texts, statistics of the targets, and columns of each stack that halts."""
        batch = to_device(batch, model)
        output = model(**batch, **extra, output_halting=True)
        sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
        labels = batch["labels"]
        return (
            texts(tokenizer, model.generate(**sources, max_new_tokens=limit, do_sample=False, **extra)),
            texts(tokenizer, labels.masked_fill(labels == NO_TARGET, tokenizer.pad_token_id)),
            target_statistics(output, labels).cpu().numpy(),
            {
                stack: halting_columns(output, config, depths[stack], stack)
                for stack in depths
                # criteria that look at predictions stop the decoder only
                if stack_output(output, stack, "halting_probabilities") is not None
            },
        )

    bar = "writing targets" if progress else None
    found = each_batch(model, split.batches(tokenizer, batch_size), of_batch, progress=bar)
    written, true, statistics, halting = zip(*found, strict=True)
    columns = {stack: [found[stack] for found in halting if stack in found] for stack in depths}
    answers = {"label": np.array(split.references or [*chain(*true)]), "prediction": np.array([*chain(*written)])}
    rule, threshold = stopping_rule(config)
    threshold = extra.get("halting_threshold", threshold)
    records = {
        stack: HaltingRecord.from_columns(
            answers | (join_batches(found) if found else {}),
            split.slices,
            halting=rule if found else "none",
            unit="token" if found else None,
            max_depth=depths[stack],
            threshold=threshold if found else None,
        )
        for stack, found in columns.items()
    }
    return records, summarize(np.concatenate(statistics))


def texts(tokenizer: Any, ids: Any) -> list[str]:
    return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


def pair_table(records: Mapping[str, HaltingRecord], metrics: Mapping[str, float]) -> dict[str, Any]:
    """`halting_table` of the encoder, whose `accuracy` is exact match, with the decoder's statistics beside it.

    More keys are `decoder` (the fields of halting of `halting_table`; None for a fixed depth), `decoder_steps` in each
    row of a slice; and `target`, `nll` in nats a token and `token_accuracy` given the true tokens before each.

    Args:
        records, metrics: as of `collect_pairs`.
    """
    table, decoder = (halting_table(records[stack]) for stack in (ENCODER, DECODER))
    own = ("unit", "max_depth", "steps", "ponder_cost", "forced_halt_rate", "halting_mass", "steps_histogram")
    table["decoder"] = None if decoder["fixed_depth"] else {name: decoder[name] for name in own}
    table["target"] = {name: metrics[name] for name in ("nll", "token_accuracy")}
    for column, results in table["slices"].items():
        other = decoder["slices"][column]
        for row, same in zip(results["rows"], other["rows"], strict=True):
            row["decoder_steps"] = same["steps"]
        results["decoder_spearman"] = other["spearman"]
    return table


def scores(form: str | None, written: Sequence[str], true: Sequence[str]) -> dict[str, Any]:
    """`bleu`, in points of 100, and its `bleu_signature`; nothing for texts that are not measured by BLEU (None).

    Plain texts, such as a user's own, are compared as they are; tokenized ones, as in most papers, by words with
    compounds split, and put back together as people write them besides (`detokenized_bleu`).
    """
    if form is None:
        return {}
    if form == "plain":
        found = bleu(written, true)
    else:
        words = [[join_pieces(text) for text in texts] if form == "bpe" else texts for texts in (written, true)]
        found = compound_split_bleu(*words)
    named = {"bleu": found.score, "bleu_signature": found.signature}
    if form != "plain":
        whole = ([plain_text(text, form) for text in texts] for texts in (written, true))
        named["detokenized_bleu"] = bleu(*whole).score
    return named

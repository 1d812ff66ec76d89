"""Evaluation of models that write a target for each source: scores, and when both stacks stop."""

import importlib.util
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.halting import HaltingRecord, halting_columns, halting_table
from ..analysis.inference import progress_bar, stack_output, to_device
from ..analysis.model_facts import stack_depths, stopping_rule
from ..analysis.tables import HALTING_FILE, join_batches, write_tables
from ..benchmarks.sequence_tokenizers import TRANSLATION
from ..benchmarks.wmt14_en_de.text_forms import join_pieces, plain_text
from ..files import plain
from ..inference.modes import inference_mode
from ..inference.processes import collected, dealt, is_first
from ..metrics.bleu import bleu, compound_split_bleu
from ..models.common.token_targets import NO_TARGET
from .arguments import BenchmarkArguments, Seq2SeqArguments
from .evaluation import Evaluation, short_example, write_predictions
from .metrics import summarize, target_statistics
from .report_arguments import TimedReportArguments
from .seq2seq_data import PairSplit, text_form
from .text_arguments import BLEU


@dataclass(frozen=True)
class Decoding:
    """Settings of decoding, greedy with one beam.

    `max_tokens` None, as in checkpoints of earlier versions: as many as the longest true target has.
    """

    num_beams: int = 1
    length_penalty: float = 1.0
    max_tokens: int | None = None

    @classmethod
    def of(cls, model: Any) -> "Decoding":
        """The settings of a checkpoint's `generation_config.json`."""
        config = model.generation_config
        return cls(config.num_beams or 1, config.length_penalty or 1.0, config.max_new_tokens)

    def set(self, model: Any) -> None:
        """Make these the defaults of a checkpoint."""
        model.generation_config.num_beams = self.num_beams
        model.generation_config.max_new_tokens = self.max_tokens
        if self.num_beams > 1:
            model.generation_config.length_penalty = self.length_penalty

    def warn_of_longer(self, split: PairSplit) -> None:
        """Warn of targets that are longer than what may be written."""
        longest = split.longest_target
        if self.max_tokens is not None and longest > self.max_tokens:
            warnings.warn(
                f"targets of {split.name} have up to {longest} tokens, and the checkpoint writes at most "
                f"{self.max_tokens}: longer ones count as wrong, unless you raise max_new_tokens in its "
                "generation_config.json",
                stacklevel=2,
            )

    def options(self, longest_target: int) -> dict[str, Any]:
        """Arguments of `generate`."""
        options = {"max_new_tokens": self.max_tokens or longest_target, "num_beams": self.num_beams, "do_sample": False}
        return options | ({"length_penalty": self.length_penalty} if self.num_beams > 1 else {})


@dataclass(frozen=True)
class PairRecord:
    """`encoder` and `decoder` have the same written and true targets, as texts, and the steps at which tokens stopped.

    The decoder's tokens are its inputs when the true target is given. `metrics` are those of `summarize`.
    """

    encoder: HaltingRecord
    decoder: HaltingRecord
    metrics: dict[str, float]


def collect_pairs(
    model: Any,
    tokenizer: Any,
    split: PairSplit,
    *,
    batch_size: int,
    decoding: Decoding,
    max_steps: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> PairRecord:
    """Generate a target for each source of `split`, and run the model on the true one.

    `max_steps` and `halting_threshold` are the depth limit and threshold of this run, instead of the checkpoint's.
    """
    overrides = {"max_steps": max_steps, "halting_threshold": halting_threshold}
    extra = {name: value for name, value in overrides.items() if value is not None}
    options = {**decoding.options(split.longest_target), **extra}
    config = model.config
    depths = {stack: max_steps or depth for stack, depth in stack_depths(config).items()}

    def of_batch(batch: dict[str, Any]) -> tuple[list[str], list[str], np.ndarray, dict[str, dict[str, np.ndarray]]]:
        """Written and true texts, statistics of the targets, and columns of each stack that halts."""
        batch = to_device(batch, model)
        output = model(**batch, **extra, output_halting=True)
        sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
        labels = batch["labels"]
        return (
            texts(tokenizer, model.generate(**sources, **options)),
            texts(tokenizer, labels.masked_fill(labels == NO_TARGET, tokenizer.pad_token_id)),
            target_statistics(output, labels).cpu().numpy(),
            {
                stack: halting_columns(output, config, depths[stack], stack)
                for stack in depths
                # criteria that look at predictions stop the decoder only
                if stack_output(output, stack, "halting_probabilities") is not None
            },
        )

    batches = dealt(split.batches(tokenizer, batch_size))
    with inference_mode(model):
        own = [of_batch(batch) for batch in progress_bar(batches, progress, "writing targets", "batch")]
    written, true, statistics, halting = zip(*collected(own), strict=True)
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
            max_steps=depths[stack],
            threshold=threshold if found else None,
        )
        for stack, found in columns.items()
    }
    return PairRecord(**records, metrics=summarize(np.concatenate(statistics)))


def texts(tokenizer: Any, ids: Any) -> list[str]:
    return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


def pair_table(record: PairRecord, data: BenchmarkArguments) -> dict[str, Any]:
    """`halting_table` of the encoder, whose `accuracy` is exact match, with the decoder's statistics beside it.

    More keys are `decoder` (the fields of halting of `halting_table`; None for a fixed depth), `decoder_steps` in each
    row of a slice; `target`, `nll` in nats a token and `token_accuracy` given the true tokens before each; and the
    `scores` of the texts.
    """
    table, decoder = halting_table(record.encoder), halting_table(record.decoder)
    own = ("unit", "max_steps", "steps", "ponder_cost", "forced_halt_rate", "halting_mass", "steps_histogram")
    table["decoder"] = None if decoder["fixed_depth"] else {name: decoder[name] for name in own}
    table["target"] = {name: record.metrics[name] for name in ("nll", "token_accuracy")}
    for column, results in table["slices"].items():
        other = decoder["slices"][column]
        for row, same in zip(results["rows"], other["rows"], strict=True):
            row["decoder_steps"] = same["steps"]
        results["decoder_spearman"] = other["spearman"]
    return plain(table | scores(data, *(record.encoder.examples[name].tolist() for name in ("prediction", "label"))))


def evaluate_pairs(
    model: Any,
    tokenizer: Any,
    splits: list[PairSplit],
    folder: Path,
    data: BenchmarkArguments,
    run: TimedReportArguments,
    decoding: Decoding,
    args: Seq2SeqArguments,
) -> Evaluation:
    """Evaluate `model` on every split; write halting_stats.json, figures and, if asked for, predictions to `folder`.

    Of several processes that share the splits, the first one alone writes, and has more than `tables` and `seconds`.
    """
    evaluation = Evaluation()
    for split in splits:
        start = time.perf_counter()
        record = collect_pairs(
            *(model, tokenizer, split),
            batch_size=args.per_device_eval_batch_size,
            decoding=decoding,
            progress=not args.disable_tqdm,
        )
        evaluation.seconds[split.name] = time.perf_counter() - start
        evaluation.tables[split.name] = pair_table(record, data)
        if run.write_predictions and is_first():
            path = folder / "predictions" / f"{split.name.replace('/', '-')}.jsonl"
            write_predictions(path, split, record.encoder, str)
    if is_first():
        # matplotlib is loaded where figures are drawn alone
        from .seq2seq_plots import plot_pairs

        first = splits[0]
        evaluation.example = short_example(first)
        evaluation.plots = plot_pairs(folder, evaluation.tables[first.name], prefix=first.name)
        write_tables(folder, HALTING_FILE, evaluation.tables)
    return evaluation


def by_bleu(data: BenchmarkArguments) -> bool:
    """Whether what is written is measured by BLEU."""
    return data.benchmark == TRANSLATION if data.own is None else getattr(data, "metric_name", None) == BLEU


def require_scores(data: BenchmarkArguments) -> None:
    """Raise a ValueError before training if the package that measures what is written is not installed."""
    if by_bleu(data) and importlib.util.find_spec("sacrebleu") is None:
        place = f"benchmark {data.benchmark!r} is measured by BLEU" if data.own is None else "metric_name is 'bleu'"
        raise ValueError(f"{place}, which needs the package sacrebleu: pip install 'hf-recurrent[translation]'")


def scores(data: BenchmarkArguments, written: Sequence[str], true: Sequence[str]) -> dict[str, Any]:
    """`bleu`, in points of 100, and its `bleu_signature`; nothing for data that are not measured by BLEU.

    Plain texts, such as a user's own, are compared as they are; tokenized ones, as in most papers, by words with
    compounds split, and put back together as people write them besides (`detokenized_bleu`).
    """
    if not by_bleu(data):
        return {}
    form = "plain" if data.own is not None else text_form(data)
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

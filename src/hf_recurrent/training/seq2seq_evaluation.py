"""The evaluation that ends a run: what the model writes for each source, and when both of its stacks stop."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.halting import HaltingRecord, halting_columns, halting_table
from ..analysis.inference import inference_mode, progress_bar, to_device
from ..analysis.model_facts import halting_strategy, halts, stack_depths
from ..analysis.model_facts import halting_threshold as configured_threshold
from ..analysis.tables import HALTING_FILE, join_batches, write_tables
from ..metrics.serialize import plain
from .arguments import BenchmarkArguments
from .evaluation import Evaluation, example_row, write_predictions
from .seq2seq_arguments import PairReportArguments
from .seq2seq_data import PairSplit
from .seq2seq_metrics import IGNORED, row_statistics, summarize
from .seq2seq_scores import scores


@dataclass(frozen=True)
class Decoding:
    """How targets are written: greedily with one beam. `max_tokens` None: as many as the longest true target has."""

    num_beams: int = 1
    length_penalty: float = 1.0
    max_tokens: int | None = None

    @classmethod
    def of(cls, model: Any) -> "Decoding":
        """As a checkpoint's `generation_config.json` says."""
        config = model.generation_config
        return cls(config.num_beams or 1, config.length_penalty or 1.0, config.max_new_tokens)

    def set(self, model: Any) -> None:
        """Let a checkpoint write targets like this unless it is told otherwise."""
        model.generation_config.num_beams = self.num_beams
        model.generation_config.max_new_tokens = self.max_tokens
        if self.num_beams > 1:
            model.generation_config.length_penalty = self.length_penalty

    def options(self, longest_target: int) -> dict[str, Any]:
        """What `generate` is told."""
        options = {"max_new_tokens": self.max_tokens or longest_target, "num_beams": self.num_beams, "do_sample": False}
        return options | ({"length_penalty": self.length_penalty} if self.num_beams > 1 else {})


@dataclass(frozen=True)
class PairRecord:
    """`encoder` and `decoder` hold the same written and true targets, as texts, beside when the tokens of each stopped.

    The decoder's tokens are those that it reads when it is given the true target. `metrics` are `summarize`'s.
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
    """Write a target for each source of `split`, and read the true one.

    `max_steps` and `halting_threshold` are the depth limit and threshold of this run, instead of the checkpoint's.
    """
    overrides = {"max_steps": max_steps, "halting_threshold": halting_threshold}
    extra = {name: value for name, value in overrides.items() if value is not None}
    options = {**decoding.options(split.longest_target), **extra}
    written, true, statistics = [], [], []
    config = model.config
    depths = {stack: max_steps or depth for stack, depth in stack_depths(config).items()}
    columns: dict[str, list[dict[str, np.ndarray]]] = {stack: [] for stack in depths}
    with inference_mode(model):
        for batch in progress_bar(split.batches(tokenizer, batch_size), progress, "writing targets", "batch"):
            batch = to_device(batch, model)
            output = model(**batch, **extra, output_halting=True)
            statistics.append(row_statistics(output, batch["labels"]).cpu().numpy())
            sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
            written += texts(tokenizer, model.generate(**sources, **options))
            true += texts(tokenizer, batch["labels"].masked_fill(batch["labels"] == IGNORED, tokenizer.pad_token_id))
            for stack in columns if halts(config) else ():
                columns[stack].append(halting_columns(output, config, depths[stack], stack))
    threshold = extra.get("halting_threshold", configured_threshold(config))
    records = {
        stack: HaltingRecord.from_columns(
            {"label": np.array(true), "prediction": np.array(written), **(join_batches(found) if found else {})},
            split.slices,
            halting=halting_strategy(config),
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
    """`halting_table` of the encoder, whose `accuracy` is exact match, with what the decoder does beside it.

    More keys are `decoder` (the fields of halting of `halting_table`; None for a fixed depth), `decoder_steps` in each
    row of a slice; `target`, `nll` in nats a token and `token_accuracy` given the true tokens before each; and what
    `scores` says of the texts.
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
    run: PairReportArguments,
    decoding: Decoding,
    batch_size: int,
) -> Evaluation:
    """Evaluate `model` on every split; write halting_stats.json, figures and, if asked for, predictions to `folder`."""
    from .seq2seq_plots import plot_pairs

    evaluation = Evaluation()
    for split in splits:
        start = time.perf_counter()
        record = collect_pairs(*(model, tokenizer, split), batch_size=batch_size, decoding=decoding, progress=True)
        evaluation.seconds[split.name] = time.perf_counter() - start
        evaluation.tables[split.name] = pair_table(record, data)
        if run.write_predictions:
            path = folder / "predictions" / f"{split.name.replace('/', '-')}.jsonl"
            write_predictions(path, split, record.encoder, str)
    first = splits[0]
    evaluation.example = example_row(first)
    evaluation.plots = plot_pairs(folder, evaluation.tables[first.name], prefix=first.name)
    write_tables(folder, HALTING_FILE, evaluation.tables)
    return evaluation

"""Targets that are written for sources, by an encoder-decoder model: `translation`.

Shapes: B examples of a batch, N of all.
"""

import importlib.util
import warnings
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..analysis.answers import DECODER, ENCODER, join_batches, stack_output, to_device
from ..analysis.evaluate import each_batch
from ..analysis.halting import HaltingRecord, halting_columns, halting_table, stack_depths, stopping_rule
from ..benchmarks import benchmark_info
from ..benchmarks.sequence_tokenizers import TRANSLATION, sequence_tokenizer
from ..benchmarks.wmt14_en_de.text_forms import join_pieces, plain_text
from ..data.batches import PairCollator, token_counts, within
from ..data.reading import LENGTH, Columns
from ..data.tokenizers import load_saved_tokenizer, require_end, unknown_token_id
from ..metrics.bleu import bleu, compound_split_bleu
from ..metrics.functional import Row, Scores, summarize
from ..metrics.tensors import target_statistics
from ..models.ops.losses import NO_TARGET
from ..utils import plain
from .arguments import BLEU, EXACT_MATCH, PairArguments
from .base import (
    EXAMPLE_CHARACTERS,
    Measured,
    Split,
    Splits,
    Task,
    beginning,
    require_known_words,
    require_tokens,
    short_example,
    some_examples,
    warn_of_cuts,
)

SOURCE, TARGET = PAIR = ("source", "target")
# names of columns of sources and targets
USUAL = (PAIR, ("text", "summary"), ("input", "output"), ("question", "answer"))
# the texts that written targets are compared with
REFERENCE = "reference"
# of targets, while they are encoded
TARGET_LENGTH = "target_length"
# what a table says of the decoder's halting
OF_DECODER = ("unit", "max_depth", "steps", "ponder_cost", "forced_halt_rate", "halting_mass", "steps_histogram")


class Translation(Task):
    """A target that is written for each source."""

    tag = "translation"
    script = "training/run_seq2seq.py"
    auto_class = "AutoModelForSeq2SeqLM"
    model_kind, data_kind = "an encoder-decoder model", "has sources and targets"
    arguments = PairArguments
    fields = tuple((name, f"{name}_column") for name in PAIR)
    frame = "seq2seq"
    limit_name = "max_source_length"
    make_collator = PairCollator
    # what the trainer keeps of an evaluated batch instead of logits
    example_statistics = staticmethod(target_statistics)
    scores = ("nll", "accuracy", "token_accuracy")
    metric_name = EXACT_MATCH
    text_flags = "--source_column and --target_column"
    as_trained = ("source_prefix",)

    # ---- reading

    def inputs_of(self, found: Sequence[str], place: str) -> tuple[Row, dict[str, str]]:
        data = self.data
        columns = data.source_column, data.target_column
        if data.source_lang is not None:
            columns = f"translation.{data.source_lang}", f"translation.{data.target_lang}"
        if columns[0] is None:
            columns = next((pair for pair in USUAL if set(pair) <= set(found)), columns)
        if columns[0] is None:
            raise ValueError(
                f"{place} has the columns {', '.join(found)}: name two with --source_column and --target_column"
            )
        inputs = dict(zip(PAIR, columns, strict=True))
        return inputs, {f"{name}_column": column for name, column in inputs.items()}

    def example(self, row: Row, columns: Columns) -> Row:
        texts = super().example(row, columns)
        return {**texts, SOURCE: (self.data.source_prefix or "") + texts[SOURCE]}

    def column_facts(self, columns: Columns) -> Row:
        return {**super().column_facts(columns), "source_prefix": self.data.source_prefix or None}

    # ---- encoding

    @property
    def text_form(self) -> str | None:
        """Whether texts are plain, tokenized or cut into BPE pieces; None where a benchmark has one form only."""
        if self.data.is_own:
            return "plain"
        defaults = benchmark_info(self.data.benchmark).parameters[self.data.benchmark_config]
        return {**defaults, **self.data.benchmark_params}.get("text_form")

    @property
    def metric(self) -> str:
        """BLEU where a user asks for it, or the benchmark is of translation."""
        by_bleu = self.data.metric_name == BLEU if self.data.is_own else self.data.benchmark == TRANSLATION
        return BLEU if by_bleu else EXACT_MATCH

    def check(self, args: Any = None, report: Any = None) -> None:
        """Raise a ValueError before training if the package that measures what is written is not installed."""
        if self.metric == BLEU and importlib.util.find_spec("sacrebleu") is None:
            data = self.data
            place = "metric_name is 'bleu'" if data.is_own else f"benchmark {data.benchmark!r} is measured by BLEU"
            raise ValueError(f"{place}, which needs the package sacrebleu: pip install 'hf-recurrent[translation]'")

    def benchmark_tokenizer(self, checkpoint: Path | None) -> Any:
        """The tokenizer of the run's checkpoint, or one that is made from the training examples if words are open."""
        data = self.data
        if checkpoint is not None:
            return load_saved_tokenizer(str(checkpoint))
        options = {"num_merges": data.num_merges, "text_form": self.text_form}
        options = {name: value for name, value in options.items() if value is not None}
        if not benchmark_info(data.benchmark).vocabulary:
            options["examples"] = some_examples(self.source.splits["train"], data.max_train_samples)
        return sequence_tokenizer(data.benchmark, **options)

    def encode(self, examples: Dataset, tokenizer: Any, place: str) -> Dataset:
        """Token ids of sources, and as `labels` those of targets, beside the texts and slice columns.

        Of a user's own, `length` is that of the source in tokens before a cut, its end included, and `reference` is the
        target as the tokenizer spells it or, where that is cut or has unknown words, the target itself, which no model
        writes.

        Raises:
            ValueError: an example of a benchmark has unknown words, a text has no tokens, or the tokenizer puts no
                end-of-text token after texts.
        """
        require_end(tokenizer)
        info, unknown = self.source.info, unknown_token_id(tokenizer)
        limits = {name: getattr(self.data, f"max_{name}_length") for name in PAIR}

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            encoded, lengths = within(tokenizer, limits[SOURCE], batch[SOURCE])
            wanted, target_lengths = within(tokenizer, limits[TARGET], text_target=batch[TARGET])
            for texts, counts in ((batch[SOURCE], lengths), (batch[TARGET], target_lengths)):
                # the end of a text is no token of it
                require_tokens(texts, (count - 1 for count in counts), place)
            labels = wanted["input_ids"]
            columns = {**{name: encoded[name] for name in ("input_ids", "attention_mask")}, "labels": labels}
            if info is not None:
                return columns
            spelled = tokenizer.batch_decode(labels, skip_special_tokens=True)
            rows = zip(labels, target_lengths, spelled, batch[TARGET], strict=True)
            texts = [
                (ours if len(ids) == length and unknown not in ids else text).strip()
                for ids, length, ours, text in rows
            ]
            return {**columns, LENGTH: lengths, TARGET_LENGTH: target_lengths, REFERENCE: texts}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        if info is not None:
            require_known_words(encoded, tokenizer, info, "input_ids", "labels")
            return encoded
        for name, column in zip(PAIR, (LENGTH, TARGET_LENGTH), strict=True):
            warn_of_cuts(encoded[column][:], limits[name], f"max_{name}_length", f"{name}s of {place}")
        unwritable = sum(unknown in ids for ids in encoded["labels"])
        if unwritable:
            warnings.warn(
                f"{unwritable:,} of {len(encoded):,} targets of {place} have words that the tokenizer does not know, "
                "and cannot be written: 'bpe' and 'bytes' know all of them",
                stacklevel=2,
            )
        return encoded.remove_columns([TARGET_LENGTH])

    # ---- training

    def metrics(self, answers: np.ndarray, labels: Any) -> Scores:
        """`summarize` of the statistics that the trainer kept of each example."""
        return summarize(answers)

    def finalize(self, model: Any, splits: Splits, args: Any) -> None:
        settings = model.generation_config
        longest = int(token_counts(splits.train, "labels").max())
        settings.num_beams = args.generation_num_beams or 1
        settings.max_new_tokens = args.generation_max_length or max(longest, *map(longest_target, splits.evaluation))
        if settings.num_beams > 1:
            settings.length_penalty = args.generation_length_penalty

    # ---- measuring

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model writes for each source, by its generation config, and the table of exact matches and steps.

        The table is the `halting_table` of the encoder, with more keys: `decoder` (the fields of its halting when the
        true target is given; None for a fixed depth), `decoder_steps` in each row of a slice; `target`, `nll` in nats a
        token and `token_accuracy` given the true tokens before each; and `scores`.
        """
        config, progress = model.config, "writing targets" if options.pop("progress", False) else None
        run = {name: value for name, value in options.items() if value is not None}
        # checkpoints of earlier versions have no limit
        limit = model.generation_config.max_new_tokens or longest_target(split)
        depths = {stack: run.get("max_depth", depth) for stack, depth in stack_depths(config).items()}

        def texts(ids: Any) -> list[str]:
            return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]

        def of_batch(batch: Row) -> tuple[list[str], list[str], np.ndarray, dict[str, dict]]:
            """Written and true texts, statistics of the targets, and columns of each stack that halts."""
            batch = to_device(batch, model)
            output, labels = model(**batch, **run, output_halting=True), batch["labels"]
            sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
            written = model.generate(**sources, max_new_tokens=limit, do_sample=False, **run)
            true = labels.masked_fill(labels == NO_TARGET, tokenizer.pad_token_id)
            halting = {
                stack: halting_columns(output, config, depth, stack)
                for stack, depth in depths.items()
                # criteria that look at predictions stop the decoder only
                if stack_output(output, stack, "halting_probabilities") is not None
            }
            return texts(written), texts(true), target_statistics(output, labels).cpu().numpy(), halting

        found = each_batch(model, split.batches(tokenizer, batch_size), of_batch, progress=progress)
        written, true, statistics, halting = zip(*found, strict=True)
        written = [*chain(*written)]
        true = split.dataset[REFERENCE][:] if REFERENCE in split.dataset.column_names else [*chain(*true)]
        rule, threshold = stopping_rule(config)
        records = {}
        for stack, depth in depths.items():
            columns = {"label": np.array(true), "prediction": np.array(written)}
            fields: Row = {"halting": "none", "unit": None, "threshold": None}
            if stack in halting[0]:
                columns |= join_batches(own[stack] for own in halting)
                fields = {"halting": rule, "unit": "token", "threshold": run.get("halting_threshold", threshold)}
            records[stack] = HaltingRecord.from_columns(columns, split.slices, max_depth=depth, **fields)
        table, decoder = halting_table(records[ENCODER]), halting_table(records[DECODER])
        for column, results in table["slices"].items():
            other = decoder["slices"][column]
            for row, same in zip(results["rows"], other["rows"], strict=True):
                row["decoder_steps"] = same["steps"]
            results["decoder_spearman"] = other["spearman"]
        table["decoder"] = None if decoder["fixed_depth"] else {name: decoder[name] for name in OF_DECODER}
        given = summarize(np.concatenate(statistics))
        table["target"] = {name: given[name] for name in ("nll", "token_accuracy")}
        form = self.text_form if self.metric == BLEU else None
        return records[ENCODER].examples, plain({**table, **scores(form, written, true)})

    def card_example(self, split: Split, tokenizer: Any) -> Row:
        """A source with its target, or the beginning of a long one."""
        shown = short_example(split)
        source = shown[SOURCE]
        start = source if len(source) <= 4 * EXAMPLE_CHARACTERS else beginning(source)
        return {"text": start, "answer": shown[TARGET] if start == source else None}


def longest_target(split: Split) -> int:
    """Tokens of the longest target, its end included."""
    return int(token_counts(split.dataset, "labels").max())


def warn_of_longer(model: Any, split: Split) -> None:
    """Warn of targets that are longer than what a checkpoint may write."""
    longest, most = longest_target(split), model.generation_config.max_new_tokens
    if most is not None and longest > most:
        warnings.warn(
            f"targets of {split.name} have up to {longest} tokens, and the checkpoint writes at most {most}: longer "
            "ones count as wrong, unless you raise max_new_tokens in its generation_config.json",
            stacklevel=2,
        )


def scores(form: str | None, written: Sequence[str], true: Sequence[str]) -> Row:
    """`bleu`, in points of 100, and its `bleu_signature`; nothing for texts that are not measured by BLEU (None).

    Plain texts, such as a user's own, are compared as they are; tokenized ones, as in most papers, by words with
    compounds split, and put back together as people write them besides (`detokenized_bleu`).
    """
    if form is None:
        return {}
    if form == "plain":
        found, more = bleu(written, true), {}
    else:
        words = [[join_pieces(text) for text in texts] if form == "bpe" else texts for texts in (written, true)]
        whole = ([plain_text(text, form) for text in texts] for texts in (written, true))
        found, more = compound_split_bleu(*words), {"detokenized_bleu": bleu(*whole).score}
    return {"bleu": found.score, "bleu_signature": found.signature, **more}

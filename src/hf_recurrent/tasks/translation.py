"""Targets that are written for sources, by an encoder-decoder model: `translation`.

Shapes: B examples of a batch, T target tokens, V vocabulary, N examples.
"""

import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader

from ..analysis.answers import join_batches, stack_output, to_device
from ..analysis.evaluate import each_batch
from ..analysis.halting import HaltingRecord, halting_columns, halting_table
from ..analysis.model_facts import DECODER, ENCODER, stack_depths, stopping_rule
from ..benchmarks import benchmark_info
from ..benchmarks.sequence_tokenizers import TRANSLATION, sequence_tokenizer
from ..benchmarks.wmt14_en_de.text_forms import join_pieces, plain_text
from ..data.batches import PairCollator, token_counts, within
from ..data.columns import LENGTH, Columns, check_slices, require_columns, text_of
from ..data.tokenizers import load_saved_tokenizer, unknown_token_id
from ..files import plain
from ..metrics.bleu import bleu, compound_split_bleu
from ..models.common.token_targets import NO_TARGET
from .arguments import PairArguments
from .base import (
    EXAMPLE_CHARACTERS,
    Measured,
    Split,
    Splits,
    Task,
    require_known_words,
    require_tokens,
    short_example,
    some_examples,
    warn_of_cuts,
)
from .metrics import mean_per_example
from .text_classification import beginning

if TYPE_CHECKING:
    from datasets import Dataset

SOURCE, TARGET = PAIR = ("source", "target")
# names of columns of sources and targets
USUAL = (PAIR, ("text", "summary"), ("input", "output"), ("question", "answer"))
# the texts that written targets are compared with
REFERENCE = "reference"
# of targets, while they are encoded
TARGET_LENGTH, KNOWN = "target_length", "known"
EXACT_MATCH, BLEU = METRICS = ("exact_match", "bleu")
# columns of `target_statistics`; the last ones are there for stacks that halt alone
TARGET_COLUMNS = ("tokens", "nll", "right_tokens", "right")
HALTING_COLUMNS = ("ponder_steps", "ponder_cost", "encoder_ponder_steps", "encoder_ponder_cost")


class Translation(Task):
    """A target that is written for each source."""

    tag = "translation"
    script = "training/run_seq2seq.py"
    auto_class = "AutoModelForSeq2SeqLM"
    model_kind, data_kind = "an encoder-decoder model", "has sources and targets"
    arguments = PairArguments
    frame = "seq2seq"
    metric_name = "exact_match"
    has_labels, has_classes = False, False
    text_flags = "--source_column and --target_column"
    token_columns = ("input_ids", "labels")
    scores: ClassVar[Sequence[str]] = ("nll", "accuracy", "token_accuracy")
    as_trained: ClassVar = ("source_prefix",)

    # ---- reading

    def columns(self, found: Sequence[str], place: str, needs_label: bool = True) -> Columns:
        data = self.data
        source, target = data.source_column, data.target_column
        if data.source_lang is not None:
            source, target = f"translation.{data.source_lang}", f"translation.{data.target_lang}"
        if source is None:
            source, target = next((pair for pair in USUAL if set(pair) <= set(found)), (None, None))
        if source is None:
            raise ValueError(
                f"{place} has the columns {', '.join(found)}: name two with --source_column and --target_column"
            )
        require_columns({"source_column": source, "target_column": target}, found, place)
        return Columns({SOURCE: source, TARGET: target}, None, check_slices(data.slice_by, found, place))

    def example(self, row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
        texts = {name: text_of(row, column) for name, column in columns.inputs.items()}
        return {**texts, SOURCE: (self.data.source_prefix or "") + texts[SOURCE]}

    def features(self, columns: Columns) -> dict[str, Any]:
        from datasets import Value

        return dict.fromkeys(PAIR, Value("string"))

    def reading_options(self) -> list[Any]:
        return [self.data.source_prefix]

    def column_facts(self, columns: Columns) -> dict[str, Any]:
        names = dict(zip(("source_column", "target_column"), columns.texts, strict=True))
        return {**names, "source_prefix": self.data.source_prefix or None}

    # ---- encoding

    @property
    def text_limit(self) -> int | None:
        return self.data.max_source_length

    def limit_length(self, most: int) -> None:
        """Sources are cut by their own limit alone."""

    @property
    def text_form(self) -> str | None:
        """Whether texts are plain, tokenized or cut into BPE pieces; None where a benchmark has one form only."""
        if self.data.is_own:
            return "plain"
        defaults = benchmark_info(self.data.benchmark).parameters[self.data.benchmark_config]
        return {**defaults, **self.data.benchmark_params}.get("text_form")

    @property
    def by_bleu(self) -> bool:
        """Whether what is written is measured by BLEU."""
        return self.data.metric_name == BLEU if self.data.is_own else self.data.benchmark == TRANSLATION

    @property
    def metric(self) -> str:
        return BLEU if self.by_bleu else EXACT_MATCH

    def check(self, args: Any = None, report: Any = None) -> None:
        """Raise a ValueError before training if the package that measures what is written is not installed."""
        if self.by_bleu and importlib.util.find_spec("sacrebleu") is None:
            data = self.data
            place = "metric_name is 'bleu'" if data.is_own else f"benchmark {data.benchmark!r} is measured by BLEU"
            raise ValueError(f"{place}, which needs the package sacrebleu: pip install 'hf-recurrent[translation]'")

    def load_tokenizer(self, model: Any, checkpoint: Path | None = None) -> Any:
        """As of any task; that of a benchmark without a fixed vocabulary is made from its training examples."""
        data = self.data
        if data.is_own or model.model_name_or_path is not None:
            return super().load_tokenizer(model)
        if checkpoint is not None:
            return load_saved_tokenizer(str(checkpoint))
        options = {} if data.num_merges is None else {"num_merges": data.num_merges}
        if self.text_form is not None:
            options["text_form"] = self.text_form
        if benchmark_info(data.benchmark).vocabulary:
            return sequence_tokenizer(data.benchmark, **options)
        train = some_examples(self.source.splits["train"], data.max_train_samples)
        return sequence_tokenizer(data.benchmark, train, **options)

    def encode(self, examples: "Dataset", tokenizer: Any, place: str, info: Any = None) -> "Dataset":
        """Token ids of sources, and as `labels` those of targets, beside the texts and slice columns.

        Of a user's own, `length` is that of the source in tokens before a cut, its end included, and `reference` is the
        target as the tokenizer spells it or, where that is cut or has unknown words, the target itself, which no model
        writes.

        Raises:
            ValueError: a text without tokens, or a tokenizer that does not end a text with its EOS token.
        """
        encode = self.encode_own if info is None else self.encode_benchmark
        return encode(examples, tokenizer, place, info)

    def encode_benchmark(self, examples: "Dataset", tokenizer: Any, place: str, info: Any) -> "Dataset":
        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            for column in PAIR:
                empty = [place for place, text in enumerate(batch[column]) if not text.strip()]
                if empty:
                    example = {name: values[empty[0]] for name, values in batch.items()}
                    raise ValueError(f"an example of {info.name} has no {column}: {example}")
            encoded = tokenizer(batch[SOURCE])
            labels = tokenizer(text_target=batch[TARGET])["input_ids"]
            require_end(tokenizer, encoded["input_ids"][0], labels[0])
            return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": labels}

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        require_known_words(encoded, tokenizer, info, "input_ids", "labels")
        return encoded

    def encode_own(self, examples: "Dataset", tokenizer: Any, place: str, info: Any) -> "Dataset":
        limits = {name: getattr(self.data, f"max_{name}_length", None) for name in PAIR}
        unknown = unknown_token_id(tokenizer)

        def tokenize(batch: dict[str, list]) -> dict[str, list]:
            encoded, lengths = within(tokenizer, limits[SOURCE], batch[SOURCE])
            wanted, target_lengths = within(tokenizer, limits[TARGET], text_target=batch[TARGET])
            labels = wanted["input_ids"]
            require_end(tokenizer, *encoded["input_ids"], *labels)
            known = [unknown not in ids for ids in labels]
            spelled = tokenizer.batch_decode(labels, skip_special_tokens=True)
            rows = zip(spelled, batch[TARGET], known, target_lengths, labels, strict=True)
            return {
                "input_ids": encoded["input_ids"],
                "attention_mask": encoded["attention_mask"],
                "labels": labels,
                LENGTH: lengths,
                TARGET_LENGTH: target_lengths,
                KNOWN: known,
                REFERENCE: [
                    (ours if complete and length == len(ids) else text).strip()
                    for ours, text, complete, length, ids in rows
                ],
            }

        encoded = examples.map(tokenize, batched=True, num_proc=self.data.num_proc, desc="encoding")
        for name, column in zip(PAIR, (LENGTH, TARGET_LENGTH), strict=True):
            lengths = np.asarray(encoded[column][:])
            # the end alone
            require_tokens(encoded, lengths > 1, name, place)
            warn_of_cuts(lengths, limits[name], f"max_{name}_length", f"{name}s of {place}")
        unwritable = encoded.num_rows - sum(encoded[KNOWN][:])
        if unwritable:
            warnings.warn(
                f"{unwritable:,} of {len(encoded):,} targets of {place} have words that the tokenizer does not know, "
                "and cannot be written: 'bpe' and 'bytes' know all of them",
                stacklevel=2,
            )
        return encoded.remove_columns([TARGET_LENGTH, KNOWN])

    def collator(self, tokenizer: Any, examples: Any = None, seed: int = 0) -> PairCollator:
        return PairCollator(tokenizer)

    # ---- models and training

    def config_fields(self) -> dict[str, Any]:
        return {"is_encoder_decoder": True}

    @staticmethod
    def example_statistics(output: Any, labels: torch.Tensor) -> torch.Tensor:
        """What the trainer keeps of an evaluated batch instead of logits."""
        return target_statistics(output, labels)

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        """`summarize` of the statistics that the trainer kept of each example."""
        return summarize(prediction.predictions)

    def finalize(self, model: Any, splits: Splits, args: Any) -> None:
        settings = model.generation_config
        longest = int(token_counts(splits.train, "labels").max())
        settings.num_beams = args.generation_num_beams or 1
        settings.max_new_tokens = args.generation_max_length or max(longest, *map(longest_target, splits.evaluation))
        if settings.num_beams > 1:
            settings.length_penalty = args.generation_length_penalty

    # ---- measuring

    def batches(self, split: Split, tokenizer: Any, batch_size: int) -> DataLoader:
        examples = split.dataset.select_columns(["input_ids", "attention_mask", "labels"])
        return DataLoader(examples, batch_size=batch_size, collate_fn=PairCollator(tokenizer))

    def measure(self, split: Split, model: Any, tokenizer: Any, batch_size: int, **options: Any) -> Measured:
        """What a model writes for each source, and the table of its exact matches and steps, with `pair_table`."""
        records, metrics = collect_pairs(model, tokenizer, split, batch_size, **options)
        examples = records[ENCODER].examples
        written, true = (examples[name].tolist() for name in ("prediction", "label"))
        form = self.text_form if self.by_bleu else None
        return examples, plain({**pair_table(records, metrics), **scores(form, written, true)})

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
        texts = {name: split.dataset[name][:] for name in split.slice_columns}
        kept = [name for name in ("label", "prediction", "steps") if name in examples]
        for number, example in enumerate(examples[kept].to_dict("records")):
            yield {**{name: values[number] for name, values in texts.items()}, **plain(example)}

    # ---- for a card

    def card_example(self, split: Split, tokenizer: Any) -> dict[str, Any]:
        """A source with its target, or the beginning of a long one."""
        shown = short_example(split)
        source = shown[SOURCE]
        start = source if len(source) <= 4 * EXAMPLE_CHARACTERS else beginning(source)
        return {"text": start, "answer": shown[TARGET] if start == source else None}


def longest_target(split: Split) -> int:
    """Tokens of the longest target, its end included."""
    return int(token_counts(split.dataset, "labels").max())


def require_end(tokenizer: Any, *texts: list[int]) -> None:
    """Raise a ValueError for token ids of a text that do not end with the EOS token."""
    if any(ids[-1:] != [tokenizer.eos_token_id] for ids in texts):
        raise ValueError(
            f"the tokenizer does not end a text with {tokenizer.eos_token!r} (id {tokenizer.eos_token_id}), which a "
            "decoder needs to stop"
        )


def target_statistics(output: Mapping[str, Any], labels: torch.Tensor) -> torch.Tensor:
    """Numbers of each example, (B, 8) in double precision: `TARGET_COLUMNS` and `HALTING_COLUMNS`, NaN where unknown.

    These are the labelled tokens, their negative log-likelihood in nats (sum), how many of them are predicted, whether
    all are, and of decoder and encoder the executed and the expected depth, in steps, means over the example's tokens.

    An example is right if every token of its target is the likeliest one after the true tokens before it. Greedy
    decoding gets just these right: as long as it has made no mistake, it has the true tokens before it.

    Args:
        output: a model's output with `logits` (B, T, V), aligned with `labels`.
        labels: (B, T) token ids, -100 where there is none.
    """
    logits = output["logits"]
    labelled = labels != NO_TARGET
    losses = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=NO_TARGET, reduction="none"
    ).view_as(labels)
    hits = (logits.argmax(-1) == labels) & labelled
    tokens = labelled.sum(1)
    columns = [tokens, losses.double().sum(1), hits.sum(1), hits.sum(1) == tokens]
    for name in HALTING_COLUMNS:
        value = output.get(name)
        unknown = torch.full_like(tokens, float("nan"), dtype=torch.float64)
        columns.append(unknown if value is None else mean_per_example(value))
    return torch.stack([column.double() for column in columns], 1)


def summarize(statistics: np.ndarray) -> dict[str, float]:
    """Metrics from the `target_statistics` of examples, (N, 8).

    `nll` is the mean over tokens in nats, `accuracy` the fraction of examples that greedy decoding gets right, and
    `token_accuracy` that of tokens; ponder statistics are means over examples.
    """
    columns = dict(zip((*TARGET_COLUMNS, *HALTING_COLUMNS), statistics.T, strict=True))
    tokens = columns["tokens"].sum()
    metrics = {
        "nll": columns["nll"].sum() / tokens,
        "accuracy": columns["right"].mean(),
        "token_accuracy": columns["right_tokens"].sum() / tokens,
    }
    metrics |= {name: columns[name].mean() for name in HALTING_COLUMNS if not np.isnan(columns[name]).any()}
    return {name: float(value) for name, value in metrics.items()}


def warn_of_longer(model: Any, split: Split) -> None:
    """Warn of targets that are longer than what a checkpoint may write."""
    longest, most = longest_target(split), model.generation_config.max_new_tokens
    if most is not None and longest > most:
        warnings.warn(
            f"targets of {split.name} have up to {longest} tokens, and the checkpoint writes at most {most}: longer "
            "ones count as wrong, unless you raise max_new_tokens in its generation_config.json",
            stacklevel=2,
        )


def collect_pairs(
    model: Any,
    tokenizer: Any,
    split: Split,
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
    limit = model.generation_config.max_new_tokens or longest_target(split)
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

    references = split.dataset[REFERENCE][:] if REFERENCE in split.dataset.column_names else None
    bar = "writing targets" if progress else None
    found = each_batch(model, split.batches(tokenizer, batch_size), of_batch, progress=bar)
    written, true, statistics, halting = zip(*found, strict=True)
    columns = {stack: [found[stack] for found in halting if stack in found] for stack in depths}
    answers = {"label": np.array(references or [*chain(*true)]), "prediction": np.array([*chain(*written)])}
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

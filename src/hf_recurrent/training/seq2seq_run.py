"""Runs that turn a source into a target with an encoder-decoder model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..hub import CardData
from ..hub.card import Example, Plot
from ..hub.tasks import TRANSLATION
from ..templating import percent
from .arguments import SEQ2SEQ_ARGUMENT_TYPES
from .card import EXAMPLE_CHARACTERS, RunFacts, beginning, common_fields, history, limitations, split_results
from .data import Splits
from .evaluation import Evaluation
from .objectives import PAIR_COLUMNS, SEQ2SEQ
from .run_folder import step_of
from .selection import best_checkpoints, load_average
from .seq2seq_data import PairCollator, load_pair_tokenizer, load_pairs, longest_target
from .seq2seq_evaluation import Decoding, evaluate_pairs, require_scores
from .seq2seq_trainer import RecurrentSeq2SeqTrainer
from .trainer_run import TrainerRun


class Seq2SeqRun(TrainerRun):
    """A run on sources and targets, whose best checkpoints may be averaged."""

    argument_types = SEQ2SEQ_ARGUMENT_TYPES
    trainer_class = RecurrentSeq2SeqTrainer

    def __init__(self, argv: Sequence[str]):
        super().__init__(argv)
        require_scores(self.data_args)
        args = self.args
        self.decoding = Decoding(
            args.generation_num_beams or 1, args.generation_length_penalty, args.generation_max_length
        )

    def load_tokenizer(self) -> Any:
        return load_pair_tokenizer(self.model_args, self.data_args, self.checkpoint)

    def load_splits(self) -> Splits:
        return load_pairs(self.data_args, self.tokenizer)

    def collator(self) -> Callable[[list[dict]], dict[str, Any]]:
        return PairCollator(self.tokenizer)

    def finalize_model(self) -> dict[str, Any]:
        averaged: list[Path] = best_checkpoints(self.state, self.args)
        if averaged:
            load_average(self.model, [checkpoint / "model.safetensors" for checkpoint in averaged])
        replace(self.decoding, max_tokens=self.decoding.max_tokens or longest_target(self.splits)).set(self.model)
        steps = sorted(step_of(checkpoint) for checkpoint in averaged)
        return {**super().finalize_model(), "averaged": steps}

    def evaluate_splits(self) -> Evaluation:
        return evaluate_pairs(
            *(self.model, self.tokenizer, self.splits.evaluation, self.folder),
            *(self.data_args, self.report_args, Decoding.of(self.model), self.args),
        )

    def card(self, facts: RunFacts) -> CardData:
        config, data, report, tables = self.model.config, self.data_args, self.report_args, self.evaluation.tables
        split, table = next(iter(tables.items()))
        fields = common_fields(self.model, data, report, facts, table, SEQ2SEQ.script)
        decoding = Decoding.of(self.model)
        return CardData(
            **fields,
            claim=headline(fields["model_name"], split, table),
            task=TRANSLATION,
            metric="bleu" if "bleu" in table else "exact_match",
            decoding={
                "length_penalty": decoding.length_penalty,
                "num_beams": decoding.num_beams,
                "max_new_tokens": decoding.max_tokens,
            },
            results=split_results(tables, report, data, config, facts.steps, changes=facts.changes),
            example=pair_example(*(self.evaluation.example[column] for column in PAIR_COLUMNS)),
            limitations=[*limitations(data, tables, SEQ2SEQ), *history(facts, config)],
            plots=[Plot(**plot, split=split) for plot in self.evaluation.plots],
        )


def pair_example(source: str, target: str) -> Example:
    """The example of the usage section: a source with its target, or the beginning of a long one."""
    start = source if len(source) <= 4 * EXAMPLE_CHARACTERS else beginning(source)
    return Example(start, answer=target if start == source else None)


def headline(title: str, split: str, table: dict[str, Any]) -> str:
    """How well the model writes targets, in one sentence."""
    if "bleu" in table:
        done = f"BLEU of {table['bleu']:.1f} on the {table['n']:,} pairs of the `{split}` split"
    else:
        done = (
            f"{percent(table['accuracy'])} of the {table['n']:,} targets of the `{split}` split written exactly, where "
            f"the most frequent one gives {percent(table['majority_baseline'])}"
        )
    if table["fixed_depth"]:
        return f"{title}: {done}, in a fixed {table['max_steps']} depth steps."
    own = table["decoder"]
    return (
        f"{title}: {done}, in {table['steps']['mean']:.1f} of at most {table['max_steps']} depth steps of the encoder "
        f"and {own['steps']['mean']:.1f} of {own['max_steps']} of the decoder on average."
    )

"""Runs that turn a source into a target with an encoder-decoder model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..hub import CardData
from ..hub.card import Example
from ..templating import percent
from .arguments import SEQ2SEQ_ARGUMENT_TYPES
from .card import EXAMPLE_CHARACTERS, RunFacts, beginning, limitations, run_card
from .collator import PairCollator
from .objectives import PAIR_COLUMNS, SEQ2SEQ
from .run_folder import WEIGHTS, step_of
from .selection import best_checkpoints, load_average
from .seq2seq_data import PairSplit, load_pair_tokenizer, longest_target, require_scores
from .seq2seq_trainer import RecurrentSeq2SeqTrainer
from .trainer_run import TrainerRun


class Seq2SeqRun(TrainerRun):
    """A run on sources and targets, whose best checkpoints may be averaged."""

    argument_types = SEQ2SEQ_ARGUMENT_TYPES
    trainer_class = RecurrentSeq2SeqTrainer
    split_type = PairSplit

    def __init__(self, argv: Sequence[str]):
        super().__init__(argv)
        require_scores(self.data_args)

    def load_tokenizer(self) -> Any:
        return load_pair_tokenizer(self.model_args, self.data_args, self.checkpoint)

    def collator(self) -> Callable[[list[dict]], dict[str, Any]]:
        return PairCollator(self.tokenizer)

    def finalize_model(self) -> dict[str, Any]:
        args, settings = self.args, self.model.generation_config
        averaged: list[Path] = best_checkpoints(self.state, args)
        if averaged:
            load_average(self.model, [checkpoint / WEIGHTS for checkpoint in averaged])
        settings.num_beams = args.generation_num_beams or 1
        settings.max_new_tokens = args.generation_max_length or longest_target(self.splits)
        if settings.num_beams > 1:
            settings.length_penalty = args.generation_length_penalty
        steps = sorted(step_of(checkpoint) for checkpoint in averaged)
        return {**super().finalize_model(), "averaged": steps}

    def card(self, facts: RunFacts) -> CardData:
        tables, data, decoding = self.evaluation.tables, self.data_args, self.model.generation_config
        shown = self.splits.evaluation[0].short_example()
        return run_card(
            *(self.model, data, self.report_args, facts, tables, self.evaluation.plots),
            claim=headline,
            metric="bleu" if "bleu" in next(iter(tables.values())) else "exact_match",
            decoding={
                "length_penalty": decoding.length_penalty or 1.0,
                "num_beams": decoding.num_beams,
                "max_new_tokens": decoding.max_new_tokens,
            },
            example=pair_example(*(shown[column] for column in PAIR_COLUMNS)),
            limitations=limitations(data, tables, SEQ2SEQ),
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
        return f"{title}: {done}, in a fixed {table['max_depth']} depth steps."
    own = table["decoder"]
    return (
        f"{title}: {done}, in {table['steps']['mean']:.1f} of at most {table['max_depth']} depth steps of the encoder "
        f"and {own['steps']['mean']:.1f} of {own['max_depth']} of the decoder on average."
    )

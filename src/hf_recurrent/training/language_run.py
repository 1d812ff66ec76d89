"""Runs of causal language models on a user's own documents."""

import warnings
from typing import Any

from ..hub import CardData
from .arguments import LANGUAGE_ARGUMENT_TYPES
from .card import RunFacts
from .data import Splits
from .document_card import prompt_of
from .language_card import language_card
from .language_data import LanguageCollator, load_blocks, load_language_tokenizer, require_end
from .trainer_run import TrainerRun

# options of the trainer that need to know all examples, or how many there are
NEED_EXAMPLES = ("batch_sampling", "batch_tokens")


class LanguageRun(TrainerRun):
    """A run on blocks of documents, all of whose tokens are predicted."""

    argument_types = LANGUAGE_ARGUMENT_TYPES

    def load_tokenizer(self) -> Any:
        tokenizer = load_language_tokenizer(self.model_args, self.data_args)
        require_end(tokenizer, self.data_args)
        return tokenizer

    def load_splits(self) -> Splits:
        return load_blocks(self.data_args, self.tokenizer)

    def collator(self) -> LanguageCollator:
        return LanguageCollator(self.tokenizer)

    def check(self) -> None:
        super().check()
        data = self.data_args
        if data.own is None:
            raise ValueError("there is nothing to train on: name documents with train_file or dataset_name")
        if self.report_args.write_predictions:
            raise ValueError("write_predictions is true: of documents every token is predicted; leave it out")
        if data.streaming:
            self.check_streaming()

    def check_streaming(self) -> None:
        """Raise a ValueError for settings that need to know all blocks, or their number."""
        args = self.args
        if args.max_steps <= 0:
            raise ValueError("streaming is true: the number of blocks is not known, so set max_steps")
        given = {name: getattr(args, name) for name in NEED_EXAMPLES}
        given["dataloader_num_workers"] = args.dataloader_num_workers or None
        strategy = args.train_sampling_strategy
        given["train_sampling_strategy"] = None if strategy in ("random", "sequential") else strategy
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} is {value!r} and streaming true: blocks come one after another; leave it out")
        if self.data_args.on_error == "skip" and self.is_main_process:
            warnings.warn(
                "on_error is 'skip' and streaming true: broken rows are left out as they come, and not counted",
                stacklevel=2,
            )
        # each process reads all blocks and takes its own: those of a batch need not be equally long
        args.accelerator_config.dispatch_batches = False

    def card(self, facts: RunFacts) -> CardData:
        first = self.splits.evaluation[0].dataset[0]["input_ids"]
        prompt = prompt_of(self.tokenizer.decode(first, skip_special_tokens=True))
        place = (self.model, self.tokenizer, self.data_args, self.report_args, self.evaluation, facts)
        return language_card(*place, prompt=prompt)

    def summary(self) -> str:
        return summary(self.evaluation.tables)


def summary(tables: dict[str, dict[str, Any]]) -> str:
    """Plain-text table: a line for each split."""
    head = f"{'split':<12} {'tokens':>12} {'bits/token':>11} {'bits/byte':>10} {'perplexity':>11} {'accuracy':>9} steps"
    lines = [head]
    for name, table in tables.items():
        row = table["carries"][0]
        steps = "fixed" if table["mean_steps"] is None else f"{table['mean_steps']:.2f}"
        perplexity = "" if table["perplexity"] is None else f"{table['perplexity']:.2f}"
        by_byte = "" if row["bits_per_byte"] is None else f"{row['bits_per_byte']:.4f}"
        bits = f"{row['bits_per_token']:>11.4f} {by_byte:>10}"
        lines.append(
            f"{name:<12} {table['tokens']:>12,} {bits} {perplexity:>11} {table['token_accuracy']:>9.4f} {steps}"
        )
    return "\n".join(lines)

"""A user's own words with labels, or own documents with masks, for a checkpoint: encoded, and ready to be measured."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..models.common.token_targets import NO_TARGET
from ..text_data.evaluation_source import EvaluationSource
from .arguments import LanguageDataArguments
from .language_data import Blocks, with_numbers
from .masked_data import block_columns, require_masks, token_frequencies, with_frequencies, with_masks
from .token_arguments import MaskedDataArguments, WordDataArguments
from .token_data import TokenSplit, encode_words, with_knowledge, with_labels

if TYPE_CHECKING:
    from datasets import Dataset

# chooses some of the rows of a split
Choice = Callable[["Dataset"], "Dataset"]


def word_splits(
    arguments: WordDataArguments,
    tokenizer: Any,
    examples: Iterable[tuple[str, "Dataset"]],
    train_file: str | None = None,
) -> Iterator[TokenSplit]:
    """Splits of words, sorted by length.

    Args:
        examples: names of splits, with their words and labels.
        train_file: the examples of training, by which splits have what is known without context.
    """
    train = None
    if train_file is not None:
        source = of_training(arguments.own, train_file)
        train = encode_words(source.splits["train"], arguments, tokenizer, source.place_name("train"))
    for name, rows in examples:
        split = TokenSplit.of(name, rows, arguments, tokenizer)
        yield with_labels(split) if train is None else with_knowledge(split, train)


def masked_splits(
    arguments: MaskedDataArguments,
    tokenizer: Any,
    blocks: Iterable[tuple[str, "Dataset"]],
    train_file: str | None = None,
) -> Iterator[TokenSplit]:
    """Splits of blocks with masks, without blocks of which no token is masked.

    Args:
        blocks: names of splits, with their blocks.
        train_file: the documents of training, by which splits have what is known without context.
    """
    seen, columns = None, block_columns(arguments)
    if train_file is not None:
        training = blocks_of(of_training(arguments.own, train_file), arguments, tokenizer)
        seen = token_frequencies(training.dataset("train", None), len(tokenizer))
    for name, rows in blocks:
        split = TokenSplit(name, with_numbers(with_masks(rows, arguments, tokenizer), columns), columns)
        require_masks(split, arguments)
        kept = split.dataset.filter(
            lambda row: any(label != NO_TARGET for label in row["labels"]), desc="masked blocks"
        )
        split = replace(split, dataset=kept)
        yield split if seen is None else with_frequencies(split, seen)


def blocks_of(source: EvaluationSource, arguments: LanguageDataArguments, tokenizer: Any) -> Blocks:
    """Blocks of documents, where the name of a token is plain text, as it was in training."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.split_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens = True
    return Blocks(source, tokenizer, arguments.block_size, arguments.pack)


def of_training(source: EvaluationSource, train_file: str) -> EvaluationSource:
    """The same kind of source of the examples of training."""
    return replace(source, dataset_name=None, dataset_config_name=None, files={"train": train_file}, wanted=())

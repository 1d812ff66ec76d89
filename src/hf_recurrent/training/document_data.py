"""The documents of a recipe as tokens."""

from typing import TYPE_CHECKING, Any

from ..benchmarks import document_tokenizer, encode_document
from ..documents import TokenDocuments, encode_documents
from .arguments import DocumentArguments, ModelArguments
from .data import load_own_config, some_examples
from .language_data import load_language_tokenizer
from .model import load_saved_tokenizer, require_no_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset


def load_document_splits(arguments: DocumentArguments) -> dict[str, "Dataset"]:
    """The splits of a configuration, of documents, cut down to the requested numbers.

    Raises:
        ValueError: the data are not as they should be, or there is nothing to train or to test on.
    """
    splits = load_own_config(arguments)
    if arguments.own is not None:
        arguments.own.warn()
    elif not any(name.startswith("test") for name in splits) or "train" not in splits:
        raise ValueError(
            f"benchmark_config {arguments.benchmark_config!r} has the splits {', '.join(splits)}: train and test are "
            "needed; divide the documents into folders of these names, or by validation_share and test_share"
        )
    limits = {"train": arguments.max_train_samples}
    return {name: some_examples(split, limits.get(name, arguments.max_eval_samples)) for name, split in splits.items()}


def test_splits(splits: "dict[str, Dataset]") -> "dict[str, Dataset]":
    """The splits to evaluate at the end; own documents may have none but those to validate on."""
    tests = {name: split for name, split in splits.items() if name.startswith("test")}
    return tests or {name: split for name, split in splits.items() if name != "train"}


def load_document_tokenizer(model: ModelArguments, data: DocumentArguments, train: "Dataset") -> Any:
    """The tokenizer by its name, for bpe trained on `train`, or that of the checkpoint to fine-tune.

    Raises:
        ValueError: it cannot be had, or a checkpoint is to take another one than its own.
    """
    if data.own is not None:
        return load_language_tokenizer(model, data, default="bytes")
    if model.model_name_or_path is not None:
        require_no_tokenizer(model.model_name_or_path, tokenizer=data.tokenizer)
        return load_saved_tokenizer(model.model_name_or_path, **model.hub_options)
    if data.tokenizer != "bpe":
        return document_tokenizer(data.tokenizer or "bytes")
    return document_tokenizer("bpe", (document["text"] for document in train), data.tokenizer_vocab_size)


def require_predictions(splits: "dict[str, Dataset]", tokenizer: Any) -> None:
    """Raise a ValueError for a split without any document of two tokens: the first one of each is not predicted."""
    for name, split in splits.items():
        if not any(len(encode_document(tokenizer, document["text"])) > 1 for document in split):
            raise ValueError(
                f"the {name} documents ({len(split):,}) have one token each at most, and nothing to predict: give "
                "longer ones"
            )


def encode_splits(
    splits: dict[str, "Dataset"], tokenizer: Any, arguments: DocumentArguments
) -> dict[str, TokenDocuments]:
    """The tokens of the documents to train and to validate on; those to test on stay texts."""
    wanted = [name for name in splits if name in ("train", "validation")]
    return {name: encode_documents(splits[name], tokenizer, arguments.num_proc) for name in wanted}

"""Tokenizers of long documents. A document is its whole text: nothing is put before or after it.

- bytes: every byte is a token, V = 256 + 4 special ones, as in the paper's byte-level runs (V = 260).
- BPE: bytes that often follow each other are merged, to a vocabulary of the size wanted.
- any other, by its name on the Hub or its folder, such as the paper's SentencePiece vocabulary ("google-t5/t5-base").

Both of the former are lossless: `decode` gives back any text. SentencePiece is not: T5's takes line ends for spaces.
In a text, the names of special tokens are text like any other.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from ..byte_text import BYTES
from ..special_tokens import SPECIAL_TOKENS, token_ids

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# embedding tables have such multiples of rows: 32,128 for T5's 32,100 tokens
EMBEDDING_MULTIPLE = 128


def byte_tokenizer() -> "PreTrainedTokenizerFast":
    """The tokenizer whose token `4 + b` is the byte b; `[PAD]` is token 0."""
    from tokenizers import models

    return _complete(_byte_level(models.BPE(vocab=token_ids(BYTES), merges=[]), split_words=False))


def train_bpe_tokenizer(
    documents: Iterable[str], vocabulary_size: int, at_most: bool = False
) -> "PreTrainedTokenizerFast":
    """A byte-level BPE tokenizer that is trained on documents; the same documents give the same tokenizer.

    Args:
        documents: texts of the train split, and of it only.
        vocabulary_size: tokens, the four special ones and the 256 bytes among them.
        at_most: have fewer tokens if the documents give no more, instead of an error.

    Raises:
        ValueError: the vocabulary is too small, or the documents do not have so many different tokens.
    """
    from tokenizers import models, trainers

    smallest = len(SPECIAL_TOKENS) + len(BYTES)
    if isinstance(vocabulary_size, bool) or not isinstance(vocabulary_size, int) or vocabulary_size < smallest:
        raise ValueError(
            f"vocabulary_size={vocabulary_size!r}: expected an integer >= {smallest} (bytes, special tokens)"
        )
    tokenizer = _byte_level(models.BPE(), split_words=True)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=list(BYTES),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    if tokenizer.get_vocab_size() != vocabulary_size and not at_most:
        raise ValueError(
            f"vocabulary_size={vocabulary_size}: the documents give {tokenizer.get_vocab_size()} tokens only; ask for "
            "fewer, or give more documents"
        )
    return _complete(tokenizer)


def document_tokenizer(
    name: str, documents: Iterable[str] | None = None, vocabulary_size: int | None = None
) -> "PreTrainedTokenizerBase":
    """A tokenizer by name.

    Args:
        name: "bytes"; "bpe", with `documents` and `vocabulary_size` to train it; or a name on the Hub or a folder. One
            without a padding token takes its end-of-text token for it, which an attention mask tells apart.
        documents: texts of the train split, for "bpe".
        vocabulary_size: for "bpe".

    Raises:
        ValueError: arguments that do not go together, or a tokenizer that cannot be had.
    """
    if name != "bpe" and (documents is not None or vocabulary_size is not None):
        raise ValueError(
            f"name={name!r}: documents and vocabulary_size are for 'bpe', which is trained; leave them out"
        )
    if name == "bytes":
        return byte_tokenizer()
    if name == "bpe":
        if documents is None or vocabulary_size is None:
            raise ValueError("name='bpe': give the documents to train on, and vocabulary_size")
        return train_bpe_tokenizer(documents, vocabulary_size)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"name={name!r}: expected 'bytes', 'bpe', a tokenizer's name on the Hub, or its folder ({error})"
        ) from error
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"name={name!r}: the tokenizer has neither a padding nor an end token: set its pad_token")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode_document(tokenizer: "PreTrainedTokenizerBase", text: str) -> "np.ndarray":
    """The token ids (tokens,) of a document, int32; bytes take a short cut to the same ids."""
    import numpy as np

    if is_byte_tokenizer(tokenizer):
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32) + np.int32(len(SPECIAL_TOKENS))
    # no warning that the text is longer than a model's context: it is read in segments
    encoded = tokenizer(text, add_special_tokens=False, return_attention_mask=False, verbose=False)
    return np.asarray(encoded["input_ids"], dtype=np.int32)


def token_num_bytes(tokenizer: "PreTrainedTokenizerBase") -> "np.ndarray":
    """How many bytes of text each token id stands for, (V,): 0 for special tokens.

    Summed over the tokens that were predicted, these are exactly the bytes of bits per byte.

    Raises:
        ValueError: the tokenizer is not at byte level, so that a token's bytes depend on the text around it.
    """
    import numpy as np

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if type(getattr(backend, "decoder", None)).__name__ != "ByteLevel":
        raise ValueError(
            f"tokenizer={type(tokenizer).__name__}: its tokens are not sequences of bytes; divide by the bytes of "
            "whole documents instead (column num_bytes)"
        )
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    special = set(tokenizer.all_special_tokens)
    for token, index in tokenizer.get_vocab().items():
        # each character of a token stands for a byte
        counts[index] = 0 if token in special else len(token)
    return counts


def num_token_ids(tokenizer: "PreTrainedTokenizerBase") -> int:
    """One more than the largest id of a token; some tokenizers have gaps between their ids."""
    return max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))


def embedding_rows(tokenizer: "PreTrainedTokenizerBase") -> int:
    """The rows of an embedding table: one a token for ours, and the next multiple of 128 for others, as T5 has them."""
    vocabulary, size = tokenizer.get_vocab(), num_token_ids(tokenizer)
    if [vocabulary.get(token) for token in SPECIAL_TOKENS.values()] == list(range(len(SPECIAL_TOKENS))):
        return size
    return -(-size // EMBEDDING_MULTIPLE) * EMBEDDING_MULTIPLE


def _byte_level(model: "models.BPE", split_words: bool) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_words)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _complete(tokenizer: "Tokenizer") -> "PreTrainedTokenizerFast":
    from ..byte_level import ByteLevelTokenizer

    return ByteLevelTokenizer(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        # a model goes on at the end of a document
        padding_side="left",
        clean_up_tokenization_spaces=False,
        # a source file may hold the word "[PAD]"
        split_special_tokens=True,
        **SPECIAL_TOKENS,
    )


@lru_cache(maxsize=1)
def _byte_vocabulary() -> dict[str, int]:
    return token_ids(BYTES)


def is_byte_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether it is `byte_tokenizer()`, or a copy that was saved and loaded."""
    return (
        len(tokenizer) == len(_byte_vocabulary())
        and getattr(tokenizer, "split_special_tokens", False)
        and tokenizer.get_vocab() == _byte_vocabulary()
    )

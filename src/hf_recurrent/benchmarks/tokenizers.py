"""Tokenizers: symbol by symbol where the vocabulary is known, byte by byte, or BPE that is trained on texts.

    frame               one text            a pair                              padding
    "classification"    [BOS] a [EOS]       [BOS] a [EOS] [BOS] b [EOS]         right
    "language"          a                   a b                                 left
    "seq2seq"           a [EOS]             a [EOS] b [EOS]                     right

Models split pairs by `token_type_ids` (0 of the first text, 1 of the second), so both texts get their own [BOS] and
[EOS] in "classification". A decoder starts with [EOS] too. A document is its whole text: nothing is put around it.
Bytes and BPE are lossless: `decode` gives back any text. In a text, the names of special tokens are text like any
other.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from .byte_text import BYTES, ESCAPE_BASE, ESCAPED_BYTES

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# the tokens that every tokenizer has before its vocabulary
SPECIAL_TOKENS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}
MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
TYPE_INPUT = "token_type_ids"
PADDING_SIDES = {"classification": "right", "language": "left", "seq2seq": "right"}
# embedding tables have such multiples of rows: 32,128 for T5's 32,100 tokens
EMBEDDING_MULTIPLE = 128


def token_ids(vocabulary: Sequence[str]) -> dict[str, int]:
    """The ids of tokens, and of the special tokens before them."""
    return {token: i for i, token in enumerate((*SPECIAL_TOKENS.values(), *vocabulary))}


def complete(
    tokenizer: "Tokenizer",
    frame: str,
    *,
    of_bytes: bool = False,
    trims_spaces: bool = False,
    split_special_tokens: bool = True,
) -> "PreTrainedTokenizerFast":
    """A tokenizer for transformers.

    Args:
        frame: what is put around texts, see the module.
        of_bytes: whether it is at byte level.
        trims_spaces: whether a token's characters begin with its word, not with the space before it.
        split_special_tokens: whether the name of a special token in a text is text.
    """
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    from .byte_level import ByteLevelTokenizer

    templates = {
        "classification": ("[BOS] $A [EOS]", "[BOS] $A [EOS] [BOS]:1 $B:1 [EOS]:1"),
        "seq2seq": ("$A [EOS]", "$A [EOS] $B [EOS]"),
    }
    if frame in templates:
        single, pair = templates[frame]
        special = [(token, number) for token, number in token_ids(()).items() if token in pair]
        framed = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
        trimmed = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
        tokenizer.post_processor = processors.Sequence([trimmed, framed]) if trims_spaces else framed
    return (ByteLevelTokenizer if of_bytes else PreTrainedTokenizerFast)(
        tokenizer_object=tokenizer,
        model_input_names=[name for name in MODEL_INPUTS if frame == "classification" or name != TYPE_INPUT],
        padding_side=PADDING_SIDES[frame],
        clean_up_tokenization_spaces=False,
        split_special_tokens=split_special_tokens,
        **SPECIAL_TOKENS,
    )


def word_level(vocabulary: Sequence[str], pattern: str | None) -> "Tokenizer":
    """A tokenizer whose tokens stand between white space; an unknown one becomes `[UNK]`.

    Args:
        vocabulary: tokens in the order of their ids, which come after those of the special tokens.
        pattern: regular expression of what is a token even without space around it.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(token_ids(vocabulary), unk_token=SPECIAL_TOKENS["unk_token"]))
    split = [pre_tokenizers.WhitespaceSplit()]
    if pattern is not None:
        split.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    return tokenizer


def symbol_tokenizer(
    vocabulary: Sequence[str], pattern: str | None, ignored: str | None = None, with_frame: bool = True
) -> "PreTrainedTokenizerFast":
    """The tokenizer of the symbols of a benchmark, among which are pixels.

    Args:
        vocabulary, pattern: as for `word_level`.
        ignored: regular expression of what is left out.
        with_frame: whether texts get [BOS], [EOS] and types; without, they are read and written as they are.
    """
    from tokenizers import Regex, normalizers

    tokenizer = word_level(vocabulary, pattern)
    if ignored is not None:
        tokenizer.normalizer = normalizers.Replace(Regex(ignored), " ")
    return complete(tokenizer, "classification" if with_frame else "language", split_special_tokens=False)


def framed_byte_tokenizer() -> "PreTrainedTokenizerFast":
    """The tokenizer whose token `4 + b` is the byte b of the text in UTF-8; `[PAD]` is token 0.

    Bytes that are no part of UTF-8 text are escaped in it by `byte_text`, and become one token each again.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    tokenizer = Tokenizer(models.BPE(vocab=token_ids(BYTES), merges=[]))
    # as the characters that stand for its bytes, an escaped byte is four bytes long
    escapes = [
        normalizers.Replace("".join(BYTES[part] for part in chr(ESCAPE_BASE + byte).encode()), BYTES[byte])
        # 0xf4 last: it begins the spelling of every escape, and would make new ones of escaped bytes
        for byte in sorted(ESCAPED_BYTES, key=lambda byte: byte == 0xF4)
    ]
    tokenizer.normalizer = normalizers.Sequence([normalizers.ByteLevel(), *escapes])
    tokenizer.decoder = decoders.ByteLevel()
    return complete(tokenizer, "classification", of_bytes=True)


def byte_level(split_words: bool) -> "Tokenizer":
    """A tokenizer whose tokens are the bytes of UTF-8; merges that are learned stay within words if `split_words`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab=token_ids(BYTES), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_words)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_tokenizer(frame: str = "language") -> "PreTrainedTokenizerFast":
    """The tokenizer whose token `4 + b` is the byte b; `[PAD]` is token 0."""
    return complete(byte_level(False), frame, of_bytes=True, trims_spaces=frame == "classification")


def train_bpe_tokenizer(
    documents: Iterable[str], vocabulary_size: int, at_most: bool = False, frame: str = "language"
) -> "PreTrainedTokenizerFast":
    """A byte-level BPE tokenizer that is trained on documents; the same documents give the same tokenizer.

    Args:
        documents: texts of the train split, and of it only.
        vocabulary_size: tokens, the four special ones and the 256 bytes among them.
        at_most: have fewer tokens if the documents give no more, instead of an error.
        frame: what is put around texts, see the module.

    Raises:
        ValueError: the vocabulary is too small, or the documents do not have so many different tokens.
    """
    from tokenizers import trainers

    smallest = len(token_ids(BYTES))
    if vocabulary_size < smallest:
        raise ValueError(
            f"vocabulary_size={vocabulary_size!r}: expected an integer >= {smallest} (bytes, special tokens)"
        )
    tokenizer = byte_level(True)
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
    return complete(tokenizer, frame, of_bytes=True, trims_spaces=frame == "classification")


def document_tokenizer(
    name: str, documents: Iterable[str] | None = None, vocabulary_size: int | None = None
) -> "PreTrainedTokenizerBase":
    """A tokenizer of documents by name.

    SentencePiece is not lossless: T5's takes line ends for spaces.

    Args:
        name: "bytes"; "bpe", with `documents` and `vocabulary_size` to train it; or a name on the Hub or a folder, such
            as the paper's vocabulary ("google-t5/t5-base"). One without a padding token takes its end-of-text token
            for it, which an attention mask tells apart.
        documents: texts of the train split, for "bpe".
        vocabulary_size: for "bpe".

    Raises:
        ValueError: arguments that do not go together, or a tokenizer that cannot be had.
    """
    if name == "bpe":
        if documents is None or vocabulary_size is None:
            raise ValueError("name='bpe': give the documents to train on, and vocabulary_size")
        return train_bpe_tokenizer(documents, vocabulary_size)
    if documents is not None or vocabulary_size is not None:
        raise ValueError(
            f"name={name!r}: documents and vocabulary_size are for 'bpe', which is trained; leave them out"
        )
    if name == "bytes":
        return byte_tokenizer()
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


@cache
def _byte_vocabulary() -> dict[str, int]:
    return token_ids(BYTES)


def is_byte_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether it is `byte_tokenizer()`, or a copy that was saved and loaded."""
    return (
        len(tokenizer) == len(_byte_vocabulary())
        and getattr(tokenizer, "split_special_tokens", False)
        and tokenizer.get_vocab() == _byte_vocabulary()
    )


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

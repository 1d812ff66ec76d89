"""Tokenizers of benchmarks: symbol by symbol where the vocabulary is known, byte by byte for texts that are bytes.

    one text    [BOS] [MAX 2 9 ] [EOS]
    a pair      [BOS] ( not a ) [EOS] [BOS] b [EOS]
    types       0     0 0   0 0 0     1     1 1

Models split pairs by `token_type_ids`, so both texts get their own [BOS] and [EOS]. Pixels are symbols too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .byte_text import BYTES, ESCAPE_BASE, ESCAPED_BYTES
from .special_tokens import SPECIAL_TOKENS, token_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def framed(vocabulary: dict[str, int]) -> "processors.TemplateProcessing":
    """The post-processor that puts [BOS] and [EOS] around each text, and gives the texts of a pair different types."""
    from tokenizers import processors

    bos, eos = SPECIAL_TOKENS["bos_token"], SPECIAL_TOKENS["eos_token"]
    return processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {bos}:1 $B:1 {eos}:1",
        special_tokens=[(token, vocabulary[token]) for token in (bos, eos)],
    )


def ended() -> "processors.TemplateProcessing":
    """The post-processor that puts [EOS] behind each text."""
    from tokenizers import processors

    eos = SPECIAL_TOKENS["eos_token"]
    return processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A {eos} $B {eos}", special_tokens=[(eos, token_ids(())[eos])]
    )


def framed_byte_tokenizer() -> "PreTrainedTokenizerFast":
    """The tokenizer whose token `4 + b` is the byte b of the text in UTF-8; `[PAD]` is token 0.

    Bytes that are no part of UTF-8 text are escaped in it by `byte_text`, and become one token each again.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    from .byte_level import ByteLevelTokenizer

    vocabulary = token_ids(BYTES)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    # as the characters that stand for its bytes, an escaped byte is four bytes long
    escapes = [
        normalizers.Replace("".join(BYTES[part] for part in chr(ESCAPE_BASE + byte).encode()), BYTES[byte])
        # 0xf4 last: it begins the spelling of every escape, and would make new ones of escaped bytes
        for byte in sorted(ESCAPED_BYTES, key=lambda byte: byte == 0xF4)
    ]
    tokenizer.normalizer = normalizers.Sequence([normalizers.ByteLevel(), *escapes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = framed(vocabulary)
    return ByteLevelTokenizer(
        tokenizer_object=tokenizer,
        model_input_names=list(MODEL_INPUTS),
        clean_up_tokenization_spaces=False,
        # a review may hold the word "[PAD]"
        split_special_tokens=True,
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
    """The tokenizer of the symbols of a benchmark.

    Args:
        vocabulary, pattern: as for `word_level`.
        ignored: regular expression of what is left out.
        with_frame: whether texts get [BOS], [EOS] and types; without, they are read and written as they are, and padded
            on the left, where a model that goes on with them has its padding.
    """
    from tokenizers import Regex, normalizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = word_level(vocabulary, pattern)
    if ignored is not None:
        tokenizer.normalizer = normalizers.Replace(Regex(ignored), " ")
    if with_frame:
        tokenizer.post_processor = framed(token_ids(vocabulary))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=[name for name in MODEL_INPUTS if with_frame or name != "token_type_ids"],
        padding_side="right" if with_frame else "left",
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
    )

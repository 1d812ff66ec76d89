"""The tokenizer of texts that are bytes: classifiers read one text, or two, between [BOS] and [EOS].

    one text    [BOS] t e x t [EOS]
    a pair      [BOS] t e x t [EOS] [BOS] p a i r [EOS]
    types       0     0 0 0 0 0     1     1 1 1 1 1

Token 4 + b is the byte b of the text in UTF-8. Bytes that are no part of UTF-8 text stand in it as `byte_text` says,
and become one token each again.
"""

from typing import TYPE_CHECKING

from .byte_text import ESCAPE_BASE, ESCAPED_BYTES
from .long_documents.family import BYTES
from .special_tokens import SPECIAL_TOKENS, token_ids

if TYPE_CHECKING:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def framed(vocabulary: dict[str, int]) -> "processors.TemplateProcessing":
    """What puts [BOS] and [EOS] around each text, and tells the texts of a pair apart by their types."""
    from tokenizers import processors

    bos, eos = SPECIAL_TOKENS["bos_token"], SPECIAL_TOKENS["eos_token"]
    return processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {bos}:1 $B:1 {eos}:1",
        special_tokens=[(token, vocabulary[token]) for token in (bos, eos)],
    )


def framed_byte_tokenizer() -> "PreTrainedTokenizerFast":
    """The tokenizer whose token `4 + b` is the byte b; `[PAD]` is token 0."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

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
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=list(MODEL_INPUTS),
        clean_up_tokenization_spaces=False,
        # a review may hold the word "[PAD]"
        split_special_tokens=True,
        **SPECIAL_TOKENS,
    )

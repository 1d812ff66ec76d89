"""Tokenizers for the tiny models."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from .families import VOCAB_SIZE

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Of words "w4" to "w23", with BOS and EOS around a row, and pairs by type."""
    words = [*SPECIAL.values(), *(f"w{index}" for index in range(len(SPECIAL), VOCAB_SIZE))]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[BOS] $A [EOS]",
        pair="[BOS] $A [EOS] [BOS]:1 $B:1 [EOS]:1",
        special_tokens=[("[BOS]", 2), ("[EOS]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "token_type_ids", "attention_mask"], **SPECIAL
    )


def make_letters() -> PreTrainedTokenizerFast:
    """Of single letters, "a" to "t"."""
    ids = {token: number for number, token in enumerate((*SPECIAL.values(), *"abcdefghijklmnopqrst"))}
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)

"""A word-level tokenizer for the tiny models: words "w4" to "w23", BOS and EOS around a row, pairs by type."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from .families import VOCAB_SIZE

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}


def make_tokenizer() -> PreTrainedTokenizerFast:
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

"""Tokenizers of the benchmarks: word by word, where these are known.

    one text    [BOS] [MAX 2 9 ] [EOS]
    a pair      [BOS] ( not a ) [EOS] [BOS] b [EOS]
    types       0     0 0   0 0 0     1     1 1

Models split pairs by `token_type_ids`, so both sentences get their own [BOS] and [EOS]. Flip-flop strings get neither,
nor types: they are what a language model reads and writes, word for word.
"""

from typing import TYPE_CHECKING

from .registry import get_family
from .sequence_tokenizers import sequence_tokenizer
from .special_tokens import SPECIAL_TOKENS, token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# what the authors wrap around their words and the benchmark does not
_DROPPED = {"listops": r"[()]", "listops_depth": r"[()]"}
# a word as it is found in loosely spaced text
_WORDS = {
    "listops": r"\[[A-Z]+|\]|[0-9]",
    "listops_depth": r"\[[A-Z]+|\]|[0-9]",
    "logical_inference": r"[()]",
    "flip_flop": r"[wir01]",
    "compositional_table_lookup": r"[01]{3}|[a-k]",
    "simple_arithmetic": r"[()*+0-9]",
}
# texts that are read as they are, without [BOS], [EOS] and types
_BARE = ("flip_flop",)


def build_tokenizer(name: str) -> "PreTrainedTokenizerFast":
    """The tokenizer of a benchmark, with `[PAD]` as token 0.

    That of `long_documents` is at byte level, and reads any text as it is (`document_tokenizer` has others). Those of
    benchmarks of sources and targets are `sequence_tokenizer`'s. For the other benchmarks:

    Loose spacing is understood, and for ListOps the authors' parentheses are dropped; an unknown word becomes
    `[UNK]`. `normalize_expression` is the strict form that reports mistakes instead. Padding is on the right;
    `generate` needs `padding_side="left"` for prompts of different lengths.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    info = get_family(name).info
    if info.target_column:
        return sequence_tokenizer(name)
    if not info.synthetic:
        # its words are not known beforehand, but its bytes are
        from .long_documents.tokenizers import byte_tokenizer

        return byte_tokenizer()
    vocabulary = token_ids(info.vocabulary)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unk_token"]))
    if name in _DROPPED:
        tokenizer.normalizer = normalizers.Replace(Regex(_DROPPED[name]), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_WORDS[name]), "isolated")]
    )
    model_inputs = ["input_ids", "attention_mask"]
    if name not in _BARE:
        bos, eos = SPECIAL_TOKENS["bos_token"], SPECIAL_TOKENS["eos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A {eos}",
            pair=f"{bos} $A {eos} {bos}:1 $B:1 {eos}:1",
            special_tokens=[(token, vocabulary[token]) for token in (bos, eos)],
        )
        model_inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=model_inputs,
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
    )

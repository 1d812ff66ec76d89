"""Tokenizers of the benchmarks: word by word, where these are known; pixels are words too.

    one text    [BOS] [MAX 2 9 ] [EOS]
    a pair      [BOS] ( not a ) [EOS] [BOS] b [EOS]
    types       0     0 0   0 0 0     1     1 1

Models split pairs by `token_type_ids`, so both sentences get their own [BOS] and [EOS]. Flip-flop strings get neither,
nor types: they are what a language model reads and writes, word for word.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .byte_tokenizer import MODEL_INPUTS, framed, framed_byte_tokenizer
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
# configs that are spelled as another benchmark is
_SPELLINGS = {("lra", None): "listops", ("lra", "listops"): "listops"}
# texts that are read as they are, without [BOS], [EOS] and types
_BARE = ("flip_flop",)


def build_tokenizer(name: str, config_name: str | None = None) -> "PreTrainedTokenizerFast":
    """The tokenizer of a benchmark, with `[PAD]` as token 0.

    That of `long_documents` is at byte level, and reads any text as it is (`document_tokenizer` has others). Those of
    benchmarks of sources and targets are `sequence_tokenizer`'s. For the other benchmarks:

    Loose spacing is understood, and for ListOps the authors' parentheses are dropped; an unknown word becomes
    `[UNK]`. `normalize_expression` is the strict form that reports mistakes instead. Padding is on the right;
    `generate` needs `padding_side="left"` for prompts of different lengths.

    `config_name` matters where configs have different words, as in `lra`, whose texts are bytes and whose images are
    numbers, the pixels; None: the default config.
    """
    info = get_family(name, config_name).info
    if info.target_column:
        return sequence_tokenizer(name)
    if info.modality == "bytes":
        return framed_byte_tokenizer()
    if not info.synthetic and not info.label_names:
        # its words are not known beforehand, but its bytes are
        from .long_documents.tokenizers import byte_tokenizer

        return byte_tokenizer()
    return _word_tokenizer(_SPELLINGS.get((name, config_name), name), info.vocabulary)


def _word_tokenizer(name: str, words: Sequence[str]) -> "PreTrainedTokenizerFast":
    """The tokenizer of known words in the spelling of benchmark `name`."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = token_ids(words)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unk_token"]))
    if name in _DROPPED:
        tokenizer.normalizer = normalizers.Replace(Regex(_DROPPED[name]), " ")
    split = [pre_tokenizers.WhitespaceSplit()]
    if name in _WORDS:
        split.append(pre_tokenizers.Split(Regex(_WORDS[name]), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    bare = name in _BARE
    if not bare:
        tokenizer.post_processor = framed(vocabulary)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=[kept for kept in MODEL_INPUTS if not (bare and kept == "token_type_ids")],
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
    )

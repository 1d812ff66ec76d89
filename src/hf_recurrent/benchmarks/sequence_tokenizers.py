"""Joint tokenizers of sequence-to-sequence benchmarks: one vocabulary for sources and targets.

    source      ( not a ) #SEP# b [EOS]
    target      # [EOS]

A decoder starts with [EOS] too, so nothing stands before a text. Words, where these are few; BPE for translation.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .registry import get_benchmark
from .tokenizers import SPECIAL_TOKENS, complete, train_bpe_tokenizer, word_level
from .wmt14_en_de.text_forms import TEXT_FORMS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NUM_MERGES = 32_764
TRANSLATION = "wmt14_en_de"

# where a word ends, in the vocabulary of a BPE tokenizer of words
_END_OF_WORD = "</w>"
_BYTES = 256


def sequence_tokenizer(
    name: str,
    examples: Iterable[Mapping[str, Any]] | None = None,
    *,
    text_form: str | None = None,
    num_merges: int | None = None,
) -> "PreTrainedTokenizerFast":
    """The tokenizer of a benchmark of sources and targets; `[PAD]` is token 0, and a text ends with `[EOS]`.

    The same examples in the same order give the same tokenizer. Padding is on the right.

    - `logical_inference_translation`: its tokens, which are known.
    - `cfq`: all words of the examples, the most frequent ones first.
    - `wmt14_en_de`: BPE. Of plain texts it merges bytes, so that it spells any text and `decode` gives it back; of
      texts that are tokenized already it merges characters of words, as subword-nmt does. Texts that are cut into BPE
      pieces already have these as words.

    Args:
        name: a benchmark.
        examples: those of the train split, and of it only, with `source` and `target`; not needed where tokens are
            known.
        text_form: for `wmt14_en_de`, as the parameter of `load_benchmark`; None: "plain".
        num_merges: for BPE; None: 32,764.

    Raises:
        ValueError: the benchmark has no targets, arguments that do not go together, or examples that are missing or
            give fewer merges.
    """
    benchmark = get_benchmark(name)
    info = benchmark.info
    if not info.target_column:
        raise ValueError(f"name={name!r} has no targets to write: use build_tokenizer({name!r})")
    if name != TRANSLATION and (text_form, num_merges) != (None, None):
        raise ValueError(f"name={name!r} is read word by word: leave text_form and num_merges out")
    if text_form not in (None, *TEXT_FORMS):
        raise ValueError(f"text_form={text_form!r}: expected one of {', '.join(TEXT_FORMS)}")
    if text_form == "bpe" and num_merges is not None:
        raise ValueError(f"num_merges={num_merges!r}: the texts are cut into pieces already: leave num_merges out")
    if info.vocabulary:
        return word_tokenizer(info.vocabulary, benchmark.token_pattern)
    if examples is None:
        raise ValueError(
            f"name={name!r}: its words are not known beforehand: use sequence_tokenizer({name!r}, examples) with "
            "the examples of the train split"
        )
    # an iterator would be empty the second time
    kept = list(examples) if isinstance(examples, Iterator) else examples

    def texts() -> Iterator[str]:
        """The texts of examples, source and target of each in turn."""
        return (example[column] for example in kept for column in info.text_columns)

    if name != TRANSLATION or text_form == "bpe":
        return word_tokenizer(_frequent_words(texts()))
    train = bytes_tokenizer if text_form in (None, "plain") else merges_tokenizer
    return train(texts, NUM_MERGES if num_merges is None else num_merges)


def _frequent_words(texts: Iterable[str]) -> list[str]:
    """All words, the most frequent ones first; words that are as frequent in the order of their characters."""
    counts = Counter(word for text in texts for word in text.split())
    if not counts:
        raise ValueError("examples have no words: give those of the train split")
    special = [word for word in SPECIAL_TOKENS.values() if word in counts]
    if special:
        raise ValueError(f"examples have the words {', '.join(special)}, which stand for special tokens: replace them")
    return sorted(counts, key=lambda word: (-counts[word], word))


def word_tokenizer(words: Sequence[str], pattern: str | None = None) -> "PreTrainedTokenizerFast":
    """A tokenizer whose tokens are words; an unknown one becomes `[UNK]`.

    Args:
        words: in the order of their ids, which come after those of the special tokens.
        pattern: regular expression of what is a word of its own even without space around it.
    """
    return complete(word_level(words, pattern), "seq2seq", split_special_tokens=False)


def bytes_tokenizer(texts: Callable[[], Iterable[str]], num_merges: int) -> "PreTrainedTokenizerFast":
    """A BPE tokenizer of bytes that is trained on texts; `decode` gives any text back.

    Raises:
        ValueError: the texts give fewer merges.
    """
    try:
        return train_bpe_tokenizer(texts(), len(SPECIAL_TOKENS) + _BYTES + num_merges, frame="seq2seq")
    except ValueError as error:
        raise ValueError(f"num_merges={num_merges}: the texts do not give as many ({error})") from error


def merges_tokenizer(texts: Callable[[], Iterable[str]], num_merges: int) -> "PreTrainedTokenizerFast":
    """A BPE tokenizer of the characters of words that is trained on texts; `decode` gives words and single spaces back.

    Raises:
        ValueError: the texts give fewer merges.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    words = {word for text in texts() for word in text.split()}
    # in order
    characters, endings = sorted(set().union(*words)), sorted({word[-1] for word in words})
    # the trainer would number the ends of words as it meets them, and it goes through words in no certain order
    first = [*SPECIAL_TOKENS.values(), *(character + _END_OF_WORD for character in endings)]
    size = len(first) + len(characters) + num_merges
    untrained = Tokenizer(models.BPE(end_of_word_suffix=_END_OF_WORD))
    untrained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=first, end_of_word_suffix=_END_OF_WORD, show_progress=False
    )
    untrained.train_from_iterator(texts(), trainer)
    learned = json.loads(untrained.to_str())["model"]
    missing = size - len(learned["vocab"])
    if missing > 0:
        raise ValueError(
            f"num_merges={num_merges}: the texts do not give as many ({num_merges - missing} only); ask for fewer, or "
            "give more texts"
        )
    tokenizer = Tokenizer(
        models.BPE(
            vocab=learned["vocab"],
            merges=[tuple(pair) for pair in learned["merges"]],
            unk_token=SPECIAL_TOKENS["unk_token"],
            end_of_word_suffix=_END_OF_WORD,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(suffix=_END_OF_WORD)
    # a text may hold the word "[PAD]"
    return complete(tokenizer, "seq2seq")

"""Tokenizers of users' texts: trained on these, or another model's.

    frame               one text            a pair                              padding
    "classification"    [BOS] a [EOS]       [BOS] a [EOS] [BOS] b [EOS]         right
    "language"          a                   a b                                 left
    "seq2seq"           a [EOS]             a [EOS] b [EOS]                     right

Those that are trained here have this frame, and types for the texts of a pair in "classification". Those of other
models keep their own, such as BERT's [CLS] a [SEP], and take the padding side alone.
"""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks.long_documents.tokenizers import byte_tokenizer, train_bpe_tokenizer
from ..benchmarks.special_tokens import SPECIAL_TOKENS, token_ids
from ..benchmarks.tokenizers import MODEL_INPUTS, ended, framed, word_level
from ..files import one_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TRAINED_KINDS = ("bpe", "words", "bytes")
PADDING_SIDES = {"classification": "right", "language": "left", "seq2seq": "right"}
TYPE_INPUT = "token_type_ids"
BPE_VOCAB_SIZE = 8000
# that of a model's config; memory for it is taken at once, and a process without as much is aborted
LARGEST_VOCAB_SIZE = 2**24
_BYTES = 256
# of a tokenizer, in a folder
_FILES = ("tokenizer*", "vocab*", "*.model")
_PUNCTUATION = r"[^\w\s]"
# where other models have no token of a role, the one that they use in its place
_OTHER_NAMES = {"bos_token": "cls_token", "eos_token": "sep_token"}


def train_tokenizer(
    kind: str, texts: Iterable[str], vocab_size: int | None = None, *, frame: str
) -> "PreTrainedTokenizerFast":
    """A tokenizer that is trained on texts; the same texts give the same tokenizer. `[PAD]` is token 0.

    - "bpe": bytes that often follow each other are merged (Sennrich et al., 2016). `decode` gives any text back.
    - "words": what stands between white space and punctuation, and each punctuation mark; the most frequent ones have
      a token, another one becomes `[UNK]`. Upper and lower case differ.
    - "bytes": each byte of UTF-8 is a token, V = 260. `decode` gives any text back.

    In a text, the names of special tokens are text like any other.

    Args:
        kind: "bpe", "words" or "bytes".
        texts: those of the train split, and of it only; not read for "bytes".
        vocab_size: V, the most tokens, special ones and bytes among them. None: 8,000 for "bpe", all for "words".
        frame: what is put around texts, see the module: "classification", "language" or "seq2seq".

    Raises:
        ValueError: an argument out of range, or no word in any of the texts.
    """
    if kind not in TRAINED_KINDS:
        raise ValueError(f"kind={kind!r}: expected one of {', '.join(TRAINED_KINDS)}")
    if kind == "bytes":
        if vocab_size is not None:
            raise ValueError(f"vocab_size={vocab_size!r}: the vocabulary of 'bytes' is fixed: leave vocab_size out")
        return _complete(byte_tokenizer().backend_tokenizer, frame)
    if kind == "words":
        from tokenizers import trainers

        _check_size(vocab_size, len(SPECIAL_TOKENS) + 1, "special tokens, a word")
        tokenizer = word_level((), _PUNCTUATION)
        # words that are as frequent in the order of their characters
        trainer = trainers.WordLevelTrainer(
            vocab_size=2**62 if vocab_size is None else vocab_size,
            special_tokens=list(SPECIAL_TOKENS.values()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        if tokenizer.get_vocab_size() == len(SPECIAL_TOKENS):
            raise ValueError("the texts to train the tokenizer on have no words: give texts that are not empty")
        return _complete(tokenizer, frame, of_bytes=False)
    _check_size(vocab_size, len(SPECIAL_TOKENS) + _BYTES, "special tokens, bytes")
    wanted = BPE_VOCAB_SIZE if vocab_size is None else vocab_size
    tokenizer = train_bpe_tokenizer(texts, wanted, at_most=True).backend_tokenizer
    if tokenizer.get_vocab_size() < wanted:
        warnings.warn(
            f"the texts give a vocabulary of {tokenizer.get_vocab_size()} tokens only, of vocab_size={wanted} wanted",
            stacklevel=2,
        )
    return _complete(tokenizer, frame)


def load_tokenizer(
    name: str, *, frame: str, revision: str | None = None, token: str | None = None
) -> "PreTrainedTokenizerBase":
    """The tokenizer of a model on the Hub or in a folder, made ready to train on; `save_pretrained` keeps all of it.

    It pads on the side of its frame. Without a padding token it takes its end-of-text token, which an attention mask
    tells apart, and says so in a warning. Without tokens for the begin and end of a text it takes BERT's [CLS] and
    [SEP], so that `pad_token_id`, `bos_token_id` and `eos_token_id` are those for a model's config; None where there is
    no such token. It returns `token_type_ids` for "classification" alone, and if it tells the texts of a pair apart.

    Args:
        name: a name on the Hub, or a folder.
        frame: "classification", "language" or "seq2seq".
        revision: a branch, tag or commit on the Hub.
        token: an access token of the Hub.

    Raises:
        ValueError: there is none, it cannot be had, or it does not suit: neither a padding nor an end-of-text token,
            or for "seq2seq" texts that do not end with the latter.
    """
    expected = f"; expected {', '.join(TRAINED_KINDS)}, a name on the Hub, or a folder with a tokenizer"
    tokenizer = read_tokenizer("tokenizer", name, revision, token, expected)
    for role in _OTHER_NAMES:
        if getattr(tokenizer, role) is None and token_of(tokenizer, role) is not None:
            setattr(tokenizer, role, token_of(tokenizer, role))
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(
                f"the tokenizer of {name} has neither a padding nor an end-of-text token, and batches need padding: "
                "give it a pad_token and save it, or take another one"
            )
        warnings.warn(
            f"the tokenizer of {name} has no padding token: padding with {tokenizer.eos_token!r}", stacklevel=2
        )
        tokenizer.pad_token = tokenizer.eos_token
    if frame == "seq2seq" and tokenizer("a")["input_ids"][-1:] != [tokenizer.eos_token_id]:
        raise ValueError(
            f"the tokenizer of {name} does not end a text with an end-of-text token, which a decoder needs to stop: "
            "take one that does, such as T5's, or train one on the texts"
        )
    has_types = frame == "classification" and _pair_types(tokenizer) > 1
    inputs = [*(input_ for input_ in tokenizer.model_input_names if input_ != TYPE_INPUT), *[TYPE_INPUT] * has_types]
    # `save_pretrained` writes attributes of the constructor alone
    for name, value in {"padding_side": PADDING_SIDES[frame], "model_input_names": inputs}.items():
        setattr(tokenizer, name, value)
        tokenizer.init_kwargs[name] = value
    return tokenizer


def with_plain_texts(tokenizer: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
    """The tokenizer, or one with its tokens that puts nothing around a text, so that a model goes on with a prompt."""
    probe = "a"
    if tokenizer(probe)["input_ids"] == tokenizer(probe, add_special_tokens=False)["input_ids"]:
        return tokenizer
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from ..benchmarks.byte_level import ByteLevelTokenizer

    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = None
    return (ByteLevelTokenizer if isinstance(tokenizer, ByteLevelTokenizer) else PreTrainedTokenizerFast)(
        tokenizer_object=backend,
        model_input_names=["input_ids", "attention_mask"],
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_max_length=tokenizer.model_max_length,
        split_special_tokens=tokenizer.split_special_tokens,
        chat_template=tokenizer.chat_template,
        clean_up_tokenization_spaces=False,
        **tokenizer.special_tokens_map,
    )


def num_token_types(tokenizer: "PreTrainedTokenizerBase") -> int:
    """How many `token_type_ids` a tokenizer gives to pairs: `type_vocab_size` of a model that embeds them; 0: none."""
    return _pair_types(tokenizer) if TYPE_INPUT in tokenizer.model_input_names else 0


def token_of(tokenizer: "PreTrainedTokenizerBase", role: str) -> str | None:
    """A tokenizer's token of a role, such as "eos_token", or the one that it has in its place; None without either."""
    token = getattr(tokenizer, role)
    return getattr(tokenizer, _OTHER_NAMES[role]) if token is None and role in _OTHER_NAMES else token


def unknown_token_id(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """The token that stands for whatever a tokenizer does not know; None if it knows every byte.

    Some of these name one token for all roles, such as GPT-2's end of text.
    """
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return None if tokenizer.unk_token_id in ends else tokenizer.unk_token_id


def read_tokenizer(
    argument: str, name: str, revision: str | None = None, token: str | None = None, expected: str = ""
) -> "PreTrainedTokenizerBase":
    """A tokenizer as it was saved; messages call it by `argument`, and end with what would be `expected`.

    Raises:
        ValueError: there is none, or it does not load.
    """
    from transformers import AutoTokenizer

    place = os.path.expanduser(name)
    if os.path.isdir(place):
        if not any(found for pattern in _FILES for found in Path(place).glob(pattern)):
            raise ValueError(f"{argument}={name!r}: the folder has no tokenizer")
    elif name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ValueError(f"{argument}={name!r}: there is no such folder")
    try:
        # code in the repository would be offered to be run
        return AutoTokenizer.from_pretrained(place, revision=revision or "main", token=token, trust_remote_code=False)
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        raise ValueError(f"{argument}={name!r} does not load: {one_line(error).rstrip('.')}{expected}") from error


def _check_size(vocab_size: int | None, smallest: int, what: str) -> None:
    if vocab_size is not None and not smallest <= vocab_size <= LARGEST_VOCAB_SIZE:
        raise ValueError(
            f"vocab_size={vocab_size!r}: expected an integer from {smallest} ({what}) to {LARGEST_VOCAB_SIZE}"
        )


def _complete(tokenizer: "Tokenizer", frame: str, of_bytes: bool = True) -> "PreTrainedTokenizerFast":
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    from ..benchmarks.byte_level import ByteLevelTokenizer

    if frame != "language":
        tokenizer.post_processor = framed(token_ids(())) if frame == "classification" else ended()
    if frame == "classification" and of_bytes:
        # a span that a model finds begins with its first word, not with the space before it
        trimmed = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
        tokenizer.post_processor = processors.Sequence([trimmed, tokenizer.post_processor])
    return (ByteLevelTokenizer if of_bytes else PreTrainedTokenizerFast)(
        tokenizer_object=tokenizer,
        model_input_names=[name for name in MODEL_INPUTS if frame == "classification" or name != TYPE_INPUT],
        padding_side=PADDING_SIDES[frame],
        clean_up_tokenization_spaces=False,
        # a text may hold the word "[PAD]"
        split_special_tokens=True,
        **SPECIAL_TOKENS,
    )


def _pair_types(tokenizer: "PreTrainedTokenizerBase") -> int:
    return 1 + max(tokenizer("a", "b", return_token_type_ids=True)[TYPE_INPUT])


def load_saved_tokenizer(name: str, **options: Any) -> Any:
    """The tokenizer of a checkpoint.

    Raises:
        ValueError: it has none, or a damaged one.
    """
    from transformers import AutoTokenizer

    if Path(name).is_dir() and not (Path(name) / "tokenizer_config.json").is_file():
        raise ValueError(f"{name} has no tokenizer, and examples are text: save one beside the model")
    try:
        return AutoTokenizer.from_pretrained(name, **options)
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        raise ValueError(f"the tokenizer of {name} does not load: {one_line(error)}") from error

"""Tokenizers of users' texts: trained on these, or another model's.

Those that are trained here have the frame of their task, see `benchmarks.tokenizers`, and types for the texts of a pair
in "classification". Those of other models keep their own, such as BERT's [CLS] a [SEP], and take the padding side
alone.
"""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks.tokenizers import (
    PADDING_SIDES,
    SPECIAL_TOKENS,
    TYPE_INPUT,
    byte_tokenizer,
    complete,
    train_bpe_tokenizer,
    word_level,
)
from ..utils import one_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TRAINED_KINDS = ("bpe", "words", "bytes")
BPE_VOCAB_SIZE = 8000
# that of a model's config; memory for it is taken at once, and a process without as much is aborted
LARGEST_VOCAB_SIZE = 2**24
BYTES = 256
# of a tokenizer, in a folder
FILES = ("tokenizer*", "vocab*", "*.model")
PUNCTUATION = r"[^\w\s]"
# where other models have no token of a role, the one that they use in its place
OTHER_NAMES = {"bos_token": "cls_token", "eos_token": "sep_token"}


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
        frame: what is put around texts: "classification", "language" or "seq2seq".

    Raises:
        ValueError: an argument out of range, or no word in any of the texts.
    """
    if kind not in TRAINED_KINDS:
        raise ValueError(f"kind={kind!r}: expected one of {', '.join(TRAINED_KINDS)}")
    if kind == "bytes":
        if vocab_size is not None:
            raise ValueError(f"vocab_size={vocab_size!r}: 'bytes' have a fixed vocabulary: leave vocab_size out")
        return byte_tokenizer(frame)
    smallest = len(SPECIAL_TOKENS) + (1 if kind == "words" else BYTES)
    if vocab_size is not None and not smallest <= vocab_size <= LARGEST_VOCAB_SIZE:
        raise ValueError(f"vocab_size={vocab_size!r}: expected an integer from {smallest} to {LARGEST_VOCAB_SIZE}")
    if kind == "bpe":
        wanted = BPE_VOCAB_SIZE if vocab_size is None else vocab_size
        tokenizer = train_bpe_tokenizer(texts, wanted, at_most=True, frame=frame)
        if len(tokenizer) < wanted:
            warnings.warn(
                f"the texts give a vocabulary of {len(tokenizer)} tokens only, of vocab_size={wanted} wanted",
                stacklevel=2,
            )
        return tokenizer
    from tokenizers import trainers

    words = word_level((), PUNCTUATION)
    # words that are as frequent in the order of their characters
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size or 2**62, special_tokens=list(SPECIAL_TOKENS.values()), show_progress=False
    )
    words.train_from_iterator(texts, trainer)
    if words.get_vocab_size() == len(SPECIAL_TOKENS):
        raise ValueError("the texts to train the tokenizer on have no words: give texts that are not empty")
    return complete(words, frame)


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
    for role in OTHER_NAMES:
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
    if frame == "seq2seq":
        require_end(tokenizer)
    has_types = frame == "classification" and pair_types(tokenizer) > 1
    inputs = [*(input_ for input_ in tokenizer.model_input_names if input_ != TYPE_INPUT), *[TYPE_INPUT] * has_types]
    # `save_pretrained` writes attributes of the constructor alone
    for attribute, value in {"padding_side": PADDING_SIDES[frame], "model_input_names": inputs}.items():
        setattr(tokenizer, attribute, value)
        tokenizer.init_kwargs[attribute] = value
    return tokenizer


def require_end(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raise a ValueError for a tokenizer that does not put its end-of-text token after a text."""
    if tokenizer("a")["input_ids"][-1:] != [tokenizer.eos_token_id]:
        raise ValueError(
            f"the tokenizer of {tokenizer.name_or_path} does not end a text with an end-of-text token, which a decoder "
            "needs to stop: take one that does, such as T5's, or train one on the texts"
        )


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
    names = ("padding_side", "truncation_side", "model_max_length", "split_special_tokens", "chat_template")
    return (ByteLevelTokenizer if isinstance(tokenizer, ByteLevelTokenizer) else PreTrainedTokenizerFast)(
        tokenizer_object=backend,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{name: getattr(tokenizer, name) for name in names},
        **tokenizer.special_tokens_map,
    )


def num_token_types(tokenizer: "PreTrainedTokenizerBase") -> int:
    """How many `token_type_ids` a tokenizer gives to pairs: `type_vocab_size` of a model that embeds them; 0: none."""
    return pair_types(tokenizer) if TYPE_INPUT in tokenizer.model_input_names else 0


def pair_types(tokenizer: "PreTrainedTokenizerBase") -> int:
    return 1 + max(tokenizer("a", "b", return_token_type_ids=True)[TYPE_INPUT])


def token_of(tokenizer: "PreTrainedTokenizerBase", role: str) -> str | None:
    """A tokenizer's token of a role, such as "eos_token", or the one that it has in its place; None without either."""
    token = getattr(tokenizer, role)
    return getattr(tokenizer, OTHER_NAMES[role]) if token is None and role in OTHER_NAMES else token


def unknown_token_id(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """The token that stands for whatever a tokenizer does not know; None if it knows every byte.

    Some of these name one token for all roles, such as GPT-2's end of text.
    """
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return None if tokenizer.unk_token_id in ends else tokenizer.unk_token_id


def read_tokenizer(
    argument: str, name: str, revision: str | None = None, token: str | None = None, expected: str = "", **options: Any
) -> "PreTrainedTokenizerBase":
    """A tokenizer as it was saved; messages call it by `argument`, if it is one, and end with what would be `expected`.

    Raises:
        ValueError: there is none, or it does not load.
    """
    from transformers import AutoTokenizer

    place, label = os.path.expanduser(name), f"{argument}={name!r}" if argument else f"the tokenizer of {name}"
    if os.path.isdir(place) and not any(path for pattern in FILES for path in Path(place).glob(pattern)):
        raise ValueError(f"{label}: the folder has no tokenizer, and examples are text: save one beside the model")
    try:
        # code in the repository would be offered to be run
        options = {"trust_remote_code": False, **options}
        return AutoTokenizer.from_pretrained(place, revision=revision or "main", token=token, **options)
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        raise ValueError(f"{label} does not load: {one_line(error).rstrip('.')}{expected}") from error


def load_saved_tokenizer(name: str, **options: Any) -> Any:
    """The tokenizer of a checkpoint.

    Raises:
        ValueError: it has none, or a damaged one.
    """
    return read_tokenizer("", name, **options)

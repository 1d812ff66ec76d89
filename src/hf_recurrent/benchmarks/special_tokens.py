"""The tokens that every tokenizer of a benchmark has before its vocabulary."""

from collections.abc import Sequence

SPECIAL_TOKENS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}


def token_ids(vocabulary: Sequence[str]) -> dict[str, int]:
    """The ids of a benchmark's tokens, and of the special tokens before them."""
    return {token: i for i, token in enumerate((*SPECIAL_TOKENS.values(), *vocabulary))}

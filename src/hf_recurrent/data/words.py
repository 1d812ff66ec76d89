"""Lists of words, and which tokens are of which word: a tokenizer reads words with a space between them, as a text.

Shapes: S tokens of an example, W words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .columns import value_of


def words_of(row: Mapping[str, Any], column: str) -> list[str]:
    """The words of an example. Raises a ValueError, which does not name the row, if they are none."""
    words = value_of(row, column)
    if not isinstance(words, list) or not words:
        raise ValueError(f"{column} is {words!r:.60}: expected a list of words, as files of JSON and Parquet have them")
    for number, word in enumerate(words, 1):
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"{column} has {word!r:.60} as word {number}: expected a text that is not empty")
    return words


def words_of_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """The number of the word that each token (S,) is of, -1 for none; a token of several is of the last.

    Args:
        offsets: the characters of each token in the words with a space between them.
    """
    owners = [-1] * (sum(map(len, words)) + len(words))
    start = 0
    for number, word in enumerate(words):
        owners[start : start + len(word)] = [number] * len(word)
        start += len(word) + 1
    return [max(owners[start:end], default=-1) for start, end in offsets]


def first_tokens(word_ids: Sequence[int]) -> dict[int, int]:
    """Number of a word -> place of its first token, of the words that have one, by the words of tokens (S,)."""
    before, found = -1, {}
    for place, number in enumerate(word_ids):
        if number > before:
            found[number] = place
        before = max(before, number)
    return found

"""Which tokens are of which word: a tokenizer reads words with a space between them, as it reads a text.

Shapes: S tokens of an example, W words.
"""

from collections.abc import Sequence


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

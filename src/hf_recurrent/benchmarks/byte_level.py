"""The class of tokenizers at byte level, in which a space is a part of the word after it, or a token of its own."""

import json
from typing import Any

from tokenizers import Encoding
from transformers import BatchEncoding, PreTrainedTokenizerFast


class ByteLevelTokenizer(PreTrainedTokenizerFast):
    """Reads `is_split_into_words=True` as the text of these words with a space between them.

    `PreTrainedTokenizerFast` would join the words without one, and nothing would tell. Offsets are those in each word,
    and a token of white space alone is of no word. `AutoTokenizer` finds this class after `import hf_recurrent`;
    without the package it takes `PreTrainedTokenizerFast`, which gives the same tokens of texts.
    """

    def _encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> BatchEncoding:
        if not options.get("is_split_into_words"):
            return super()._encode_plus(text, text_pair, **options)
        found = super()._encode_plus(spaced(text), spaced(text_pair), **options)
        for encoding in found.encodings:
            forget_spaces(encoding)
        if "offset_mapping" in found:
            offsets = [encoding.offsets for encoding in found.encodings]
            tensors, ids = options.get("return_tensors"), found["input_ids"]
            of_one = tensors is None and not (ids and isinstance(ids[0], list))
            found.update(BatchEncoding({"offset_mapping": offsets[0] if of_one else offsets}, tensor_type=tensors))
        return found


def spaced(words: Any) -> Any:
    """Words, or lists of words at any depth, with a space before each but the first of a list."""
    if not isinstance(words, (list, tuple)):
        return words
    if any(isinstance(part, (list, tuple)) for part in words):
        return type(words)(map(spaced, words))
    return [*words[:1], *(" " + word for word in words[1:])]


def forget_spaces(encoding: Encoding) -> None:
    """Let the offsets of `spaced` words be those of the words, and tokens of white space alone be of none."""
    # there is no other way to change an encoding
    state = json.loads(encoding.__getstate__())
    for token, word in enumerate(state["words"]):
        if word is not None:
            start, end = (max(place - (word > 0), 0) for place in state["offsets"][token])
            state["offsets"][token] = start, end
            state["words"][token] = word if start < end else None
    encoding.__setstate__(json.dumps(state).encode())

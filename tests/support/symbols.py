"""Pixels for the tiny models, and what they read of them."""

import numpy as np

from hf_recurrent.analysis.explain import Explanation
from hf_recurrent.analysis.explain.explanation import pictures_of
from hf_recurrent.benchmarks.tokenizers import SPECIAL_TOKENS, symbol_tokenizer
from support.families import BY_NAME, VOCAB_SIZE

# the tiny models know 24 words, of which four are special
BRIGHTEST = VOCAB_SIZE - len(SPECIAL_TOKENS) - 1
SIDE = 4


def pixel_tokenizer():
    return symbol_tokenizer([str(value) for value in range(BRIGHTEST + 1)], None)


def picture(seed=0, side=SIDE):
    """(side, side) values of pixels."""
    return np.random.default_rng(seed).integers(0, BRIGHTEST + 1, (side, side))


def spelled(pixels):
    return " ".join(map(str, pixels.ravel()))


def texts_of(name, side=SIDE):
    """What the model of a variant reads: a picture, or a pair of which the second is smaller."""
    pair = (spelled(picture(1, side - 1)),) if BY_NAME[name].siamese else ()
    return spelled(picture(0, side)), *pair


def made(*pixels, **changes):
    """An explanation of squares of pixels, of a fixed depth, with attention from the first token, but for `changes`."""
    tokenizer = pixel_tokenizer()
    inputs = tokenizer(*map(spelled, pixels), return_tensors="pt")
    length = inputs["input_ids"].shape[1]
    fields = {"texts": np.zeros(length, dtype=int), "readers": np.arange(length) == 0}
    fields |= {"attention": np.full((3, 2, length, length), 1 / length), "pictures": pictures_of(tokenizer, inputs)}
    return Explanation(["?"] * length, "yes", 0.75, **{**fields, **changes})

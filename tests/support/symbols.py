"""Pixels and bytes for the tiny models, and what they read of them."""

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_recurrent.analysis.explain import Explanation
from hf_recurrent.analysis.explain.canvas import canvas_of
from hf_recurrent.benchmarks.special_tokens import SPECIAL_TOKENS, token_ids
from hf_recurrent.benchmarks.tokenizers import MODEL_INPUTS, framed, framed_byte_tokenizer
from support.families import BY_NAME, VOCAB_SIZE, make_model

# the tiny models know 24 words, of which four are special
BRIGHTEST = VOCAB_SIZE - len(SPECIAL_TOKENS) - 1
SIDE = 4


def pixel_tokenizer():
    vocabulary = token_ids([str(value) for value in range(BRIGHTEST + 1)])
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = framed(vocabulary)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=list(MODEL_INPUTS), **SPECIAL_TOKENS)


def picture(seed=0, side=SIDE):
    """(side, side) values of pixels."""
    return np.random.default_rng(seed).integers(0, BRIGHTEST + 1, (side, side))


def spelled(pixels):
    return " ".join(map(str, pixels.ravel()))


def texts_of(name, side=SIDE):
    """What the model of a variant reads: a picture, or a pair of which the second is smaller."""
    pair = (spelled(picture(1, side - 1)),) if BY_NAME[name].siamese else ()
    return spelled(picture(0, side)), *pair


def byte_model(name):
    """A tiny model that reads bytes."""
    model = make_model(BY_NAME[name])
    torch.manual_seed(0)
    model.resize_token_embeddings(len(framed_byte_tokenizer()), mean_resizing=False)
    return model


def made(canvas, **changes):
    """An explanation of a canvas, of a fixed depth and without attention, but for the `changes`."""
    length = sum(map(len, canvas.columns)) + 2 * len(canvas.columns)
    fields = {"reader": "it", "chunks": np.zeros(length, dtype=int), "canvas": canvas}
    return Explanation(["?"] * length, "yes", 0.75, **{**fields, **changes})


def made_canvas(*texts):
    """Of pictures, arrays of pixels; or of byte strings, one character a byte."""
    tokenizer = pixel_tokenizer()
    if isinstance(texts[0], np.ndarray):
        return canvas_of(tokenizer, tokenizer(*map(spelled, texts), return_tensors="pt"))
    tokenizer = framed_byte_tokenizer()
    framed_texts = [[2, *(4 + byte for byte in text), 3] for text in texts]
    ids = [token for text in framed_texts for token in text]
    types = [number for number, text in enumerate(framed_texts) for _ in text]
    return canvas_of(tokenizer, {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([types])})

"""Small corpora, and documents read one at a time, token by token: what an evaluation must agree with."""

import math

import numpy as np
import torch

from hf_recurrent.data.segments import DocumentReader, TokenDocuments
from support.families import LANGUAGE_VARIANTS, VOCAB_SIZE

STREAMING = [variant.name for variant in LANGUAGE_VARIANTS if variant.constant_cache and variant.chunking != "count"]
SEGMENT_LENGTH = 8
# one of a single token, one as long as a segment, one that ends with the first token of a segment
LENGTHS = (21, 1, 8, 17, 5)


def make_documents(lengths=LENGTHS, seed=0):
    generator = np.random.default_rng(seed)
    return TokenDocuments([generator.integers(4, VOCAB_SIZE, length) for length in lengths])


def make_reader(documents, batch_size=2, segment_length=SEGMENT_LENGTH, **options):
    return DocumentReader(documents, batch_size, segment_length, **options)


def losses_token_by_token(model, ids, reset_every=None, reset=None):
    """Bits (tokens - 1,) that a model needs for each token of a document but the first.

    Every `reset_every` tokens the cache is forgotten, or changed by `reset(cache)`.
    """
    bits, cache = [], None
    with torch.no_grad():
        for place in range(len(ids) - 1):
            if reset_every and place and place % reset_every == 0:
                cache = None if reset is None else reset(cache)
            token = torch.tensor([[int(ids[place])]])
            outputs = model(token, past_key_values=cache, use_cache=True)
            cache = outputs.past_key_values
            shares = outputs.logits[0, -1].double().log_softmax(-1)
            bits.append(-shares[int(ids[place + 1])].item() / math.log(2))
    return bits

"""Small corpora for tests of readers."""

import random

from hf_recurrent.documents import TokenDocuments


def corpus(*lengths: int, seed: int = 0, vocab_size: int = 90) -> TokenDocuments:
    """Documents of random ids from 3 on."""
    rng = random.Random(seed)
    return TokenDocuments([[rng.randrange(3, vocab_size) for _ in range(length)] for length in lengths])

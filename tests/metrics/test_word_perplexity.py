"""The conversion to perplexity per word."""

import pytest

from hf_recurrent.metrics import word_perplexity

# words of PG19's test split, and tokens of the paper's vocabulary of 32,000 (section 4.6)
PG19_TOKENS, PG19_WORDS = 10_523_460, 6_966_499


@pytest.mark.parametrize(("bits", "perplexity"), [(3.39, 34.80), (3.36, 33.72), (3.32, 32.34)])
def test_word_perplexity_is_the_paper_s(bits, perplexity):
    assert word_perplexity(bits, PG19_TOKENS, PG19_WORDS) == pytest.approx(perplexity, abs=0.005)

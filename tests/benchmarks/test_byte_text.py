"""Any bytes as text, and back; and what the tokenizer of bytes makes of such texts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hf_recurrent.benchmarks.byte_text import decode_bytes, encode_text
from hf_recurrent.benchmarks.tokenizers import framed_byte_tokenizer

# characters beside and among those that stand for bytes, and bytes of which such characters are made
ODD = ["\U0010ff7f", "\U0010ff80", "\U0010ffbf", "\U0010ffc0", "\U0010ffff", "\U000fffff", "\U00100000", "é", "\x00"]
PARTS = st.sampled_from([character.encode() for character in ODD] + [b"\xf4", b"\x8f", b"\xbe", b"\xbf", b"\x80", b"a"])
ANY = st.one_of(st.binary(max_size=40), st.lists(PARTS, max_size=10).map(b"".join))


@given(ANY)
@example(bytes(range(256)))
def test_any_bytes_come_back(content):
    text = decode_bytes(content)
    assert encode_text(text) == content
    # what can be written to files
    assert text.encode().decode() == text


def test_text_stays_as_it_is():
    codes = [*range(0xD800), *range(0xE000, 0x10FF80, 13), 0x10FF7F]
    text = "".join(map(chr, codes))
    assert decode_bytes(text.encode()) == text


def test_what_stands_for_a_byte():
    assert decode_bytes(b"caf\xe9!") == "caf\U0010ffe9!"
    assert decode_bytes("aé".encode()[:-1]) == "a\U0010ffc3"
    # a text of its own that has such a character
    assert decode_bytes("\U0010ff80".encode()) == "\U0010fff4\U0010ff8f\U0010ffbe\U0010ff80"
    assert decode_bytes("\U0010ff7f".encode()) == "\U0010ff7f"
    assert encode_text("\U0010ff80\U0010ffff") == b"\x80\xff"


@pytest.fixture(scope="module")
def tokenizer():
    return framed_byte_tokenizer()


def test_each_byte_is_a_token(tokenizer):
    @given(ANY)
    @example(bytes(range(256)))
    @example("\U0010fff5".encode())
    def check(content):
        assert tokenizer(decode_bytes(content))["input_ids"] == [2, *(4 + byte for byte in content), 3]

    check()

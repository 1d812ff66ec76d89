"""The forms of a text to translate, and the way from one to another.

plain       Ein "Vor-Ort"-Test.
tokenized   Ein &quot; Vor @-@ Ort &quot; @-@ Test .      as Moses' tokenizer writes it with -a
bpe         Ein &quot; Vor @-@ Ort &quot; @-@ Te@@ st .   as subword-nmt does
"""

import re

TEXT_FORMS = ("plain", "tokenized", "bpe")

_CONTINUES = "@@"

# `&amp;` last: `&amp;quot;` stands for `&quot;`
_ESCAPES = (
    ("&#124;", "|"),
    ("&#91;", "["),
    ("&#93;", "]"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", '"'),
    ("&apos;", "'"),
    ("&amp;", "&"),
)
_HYPHEN = "@-@"
# signs of quotation by kind; of those that are neither opening nor closing, every second one closes
_QUOTES = {'"': '"', "'": "'", "„": "“", "“": "“", "”": "“", "«": "«", "»": "«"}
_OPENING, _CLOSING = ("„",), ("”",)
_ENDS = re.compile(r"[,.?!:;%)\]}…]+|'[^\W\d_]+")
_BEGINS = re.compile(r"[(\[{¿¡$£]+")


def join_pieces(text: str) -> str:
    """A text of BPE pieces as its words: a piece that ends with `@@` goes on in the next one.

    >>> join_pieces("Te@@ st .")
    'Test .'
    """
    return f"{text} ".replace(f"{_CONTINUES} ", "").rstrip(" ")


def count_words(text: str, text_form: str) -> int:
    """The number of words of a text: its parts between white space once pieces are joined."""
    return len((join_pieces(text) if text_form == "bpe" else text).split())


def detokenize(text: str) -> str:
    """A text as people write it, from its words as Moses' tokenizer writes them; what it lost is guessed.

    Spaces go where English and German have them. Straight quotation marks open and close in turn.

    >>> detokenize("Ein &quot; Vor @-@ Ort &quot; @-@ Test , it &apos;s said .")
    'Ein "Vor-Ort"-Test, it\'s said.'
    """
    for written, meant in _ESCAPES:
        text = text.replace(written, meant)
    pieces: list[str] = []
    opened: set[str] = set()
    after_space = False
    for word in text.split():
        attached_left, attached_right = _attachment(word, opened)
        if after_space and not attached_left:
            pieces.append(" ")
        pieces.append("-" if word == _HYPHEN else word)
        after_space = not attached_right
    return "".join(pieces)


def _attachment(word: str, opened: set[str]) -> tuple[bool, bool]:
    """Whether a word has no space before it, and none after it; `opened` are the quotations that have not ended."""
    if word == _HYPHEN:
        return True, True
    if word not in _QUOTES:
        return _ENDS.fullmatch(word) is not None, _BEGINS.fullmatch(word) is not None
    kind = _QUOTES[word]
    closes = word in _CLOSING or (word not in _OPENING and kind in opened)
    (opened.discard if closes else opened.add)(kind)
    return closes, not closes


def plain_text(text: str, text_form: str) -> str:
    """A text of any form as people write it.

    Raises ValueError for an unknown form.
    """
    if text_form not in TEXT_FORMS:
        raise ValueError(f"text_form={text_form!r}: expected one of {', '.join(TEXT_FORMS)}")
    if text_form == "plain":
        return text
    return detokenize(join_pieces(text) if text_form == "bpe" else text)

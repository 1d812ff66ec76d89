"""What must not be published: access tokens, and paths that disclose a machine or person."""

import base64
import re

# each starts with letters, by which it is found quickly among the bytes of weights
SECRETS = tuple(
    re.compile(pattern)
    for pattern in (
        rb"hf_(?<!\whf_)[A-Za-z0-9]{20,}",
        # behind any letter, as in a binary file, where it can be no word
        rb"hf_(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{30,}",
        rb"api_org_(?<!\wapi_org_)[A-Za-z0-9]{20,}",
        rb"gh[pousr]_(?<!\wgh._)[A-Za-z0-9]{30,}",
        rb"github_pat_\w{30,}",
        rb"sk-(?<!\wsk-)(?:(?:ant|proj|svcacct)-[\w-]{20,}|[A-Za-z0-9]{40,})",
        rb"glpat-(?<!\wglpat-)[\w-]{20,}",
        rb"pypi-AgE(?<!\wpypi-AgE)[\w-]{40,}",
        rb"xox[abeprs]-(?<!\wxox.-)[\w-]{20,}",
        rb"AIza(?<!\wAIza)[\w-]{35}",
        rb"AKIA(?<!\wAKIA)[A-Z0-9]{16}(?!\w)",
        rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
        # of the Hub, in an address or in UTF-16
        rb"hf(?:%5[Ff]|&#95;)[A-Za-z0-9]{20,}",
        rb"h\0f\0_\0(?:[A-Za-z0-9]\0){20,}",
    )
)
# "hf_" in base64, by its place among the three bytes that become four letters
BASE64 = re.compile(rb"(?:aGZf|[GWm2]hmX[w-z0-9+/]|oZl[89])[A-Za-z0-9+/]{24,}")
# the fewest bytes that one of these matches: AKIA and sixteen letters
SHORTEST = 20
# a path from the root with two parts or more, from a home folder, from a drive, or as a file URL;
# a slash after a word, a closing tag or another slash belongs to a URL, to HTML or to prose
LOCAL_PATH = re.compile(
    r"(?<![\w:/.<~*)\]-])/[A-Za-z_][\w.-]*/[\w.-]+|(?<![\w/.-])/+(?:home|Users)/+\w+|(?<![\w/])~/\w+|"
    r"\b[A-Z]:[\\/]+\w+|\b[a-z]:\\+[Uu]sers|\\\\\w+\\\w+|file://\S+"
)
# named, not shown: a message ends up in logs
TOKEN = "an access token: take it out, and revoke it"


def tokens(content) -> list[str]:
    """The problem of bytes (or a map of a file) that hold an access token or a private key; none where they do not."""
    if len(content) < SHORTEST:
        return []
    found = any(secret.search(content) for secret in SECRETS)
    return [TOKEN] if found or any(_decodes(match.group()) for match in BASE64.finditer(content)) else []


def _decodes(letters: bytes) -> bool:
    """Whether base64 from some place on stands for a token of the Hub."""
    # a B holds the first bits of the letter h where these stand in the letter before
    texts = (b"B" * before + letters for before in range(4))
    return any(SECRETS[0].search(base64.b64decode(text[: len(text) // 4 * 4])) for text in texts)


def disclosures(text: str) -> list[str]:
    """Local paths and access tokens in a text: they disclose the machine or person that it comes from."""
    # as every path has
    paths = LOCAL_PATH.finditer(text) if "/" in text or "\\" in text else ()
    problems = [f"a local path: {found.group()}" for found in paths]
    return problems + tokens(text.encode(errors="surrogatepass"))


def masked(text: str) -> str:
    """A text to show in a message, without the tokens in it."""
    content = text.encode(errors="surrogatepass")
    for secret in SECRETS:
        content = secret.sub(b"***", content)
    return content.decode(errors="replace")

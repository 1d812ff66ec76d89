"""The card's section on single examples of pixels or bytes: where steps are spent on them, and what is read of them."""

import math
import string
from collections.abc import Mapping
from typing import Any

from .words import percent

PIXELS = "pixels"
# that mean nothing in Markdown, even within a table or the text of a figure
LETTERS = set(string.ascii_letters + string.digits + string.punctuation) - set("`|[]\\")
WHAT_HALTS = {
    "token": "every {one} halts by itself",
    "chunk": "every chunk of {many} halts as a whole",
    "sentence": "each {whole} of the pair halts as a whole",
    "row": "all {many} halt together",
}


def one(picture: Mapping[str, Any]) -> str:
    """What a token is."""
    return "pixel" if picture["kind"] == PIXELS else "byte"


def names(picture: Mapping[str, Any]) -> list[str]:
    """Of each text, such as "picture 1"."""
    what = "picture" if picture["kind"] == PIXELS else "text"
    return [f"{what} {number}" for number in range(1, len(picture["sizes"]) + 1)]


def size_words(picture: Mapping[str, Any]) -> str:
    """Such as "a picture of 32 x 32 pixels"."""
    sizes = picture["sizes"]
    if picture["kind"] == PIXELS:
        told = [f"a picture of {math.isqrt(size)} x {math.isqrt(size)} pixels" for size in sizes]
    else:
        told = [f"a text of {size:,} byte{'s' if size > 1 else ''}" for size in sizes]
    return " and ".join(told)


def steps_words(picture: Mapping[str, Any]) -> str:
    """What halts, after how many steps."""
    if picture["unit"] is None:
        return "the depth is fixed"
    whole = "picture" if picture["kind"] == PIXELS else "text"
    halts = WHAT_HALTS[picture["unit"]].format(one=one(picture), many=picture["kind"], whole=whole)
    least, most = picture["least"], picture["most"]
    if least == most:
        return f"{halts}, here after {most} step{'' if most == 1 else 's'}"
    return f"{halts}, here after {least} to {most} steps, {picture['mean']:.2f} on average over {picture['kind']}"


def read_words(picture: Mapping[str, Any], read: Mapping[str, Any]) -> str:
    """The pixel or byte that is read most, as code where it is a letter; empty where nothing is read."""
    if read["place"] < 0:
        return ""
    which = f" of {names(picture)[read['text']]}" if len(picture["sizes"]) > 1 else ""
    if picture["kind"] == PIXELS:
        row, column = divmod(read["place"], math.isqrt(picture["sizes"][read["text"]]))
        return f"row {row}, column {column}{which}, of value {read['value']}"
    letter = chr(read["value"])
    letter = letter if letter in LETTERS else f"0x{read['value']:02x}"
    return f"byte {read['place']}{which}, `{letter}`"


def picture_words(picture: Mapping[str, Any]) -> str:
    """What is to be seen in the figure, in numbers and without brackets, which would end its text."""
    share = "" if picture["probability"] is None else f" with {percent(picture['probability'])}"
    parts = [
        f"{size_words(picture).capitalize()}: answered {picture['prediction']}{share}, right is {picture['answer']}",
        steps_words(picture),
    ]
    last = next((read for read in reversed(picture["reads"]) if read["place"] >= 0), None)
    if last is not None:
        number = picture["reads"].index(last) + 1
        part = f"in {picture['stage']} {number} the readout attends most to {read_words(picture, last)}"
        bright = "" if last["bright"] is None else f", and {last['bright']:.2f} times to pixels brighter than average"
        parts.append(f"{part}, {last['relative']:.2f} times an even share{bright}")
    return "; ".join(parts).replace("[", "(").replace("]", ")").replace("\n", " ")


def caption_words(picture: Mapping[str, Any]) -> str:
    """How to read the figure."""
    steps = {
        "token": f"how many steps each {one(picture)} takes",
        "chunk": "how many steps each chunk takes",
        "sentence": "with what probability each of the pair halts at each step",
        "row": "with what probability it halts at each step",
        None: "",
    }[picture["unit"]]
    attends = ""
    if picture["reader"] is not None and (picture["kind"] == PIXELS or picture["unit"] not in ("token", "chunk")):
        when = f"at each {picture['stage']}" if picture["kind"] == PIXELS else f"in the last {picture['stage']}"
        attends = f"how much the readout attends to each {one(picture)} {when}"
    return f"One test example: {' and '.join(part for part in (steps, attends) if part)}; darker is more."


FILTERS = {
    "caption_words": caption_words,
    "picture_names": names,
    "picture_words": picture_words,
    "picture_read_words": read_words,
    "picture_size_words": size_words,
    "picture_steps_words": steps_words,
}

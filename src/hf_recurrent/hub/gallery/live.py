"""The page of one checkpoint that looks into any input."""

import threading
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...analysis.explain.explanation import check_model
from ...analysis.explain.inside import look_inside
from ..card import read_card
from ..lint import CARD_FILE
from .page import joined, render

LIVE = "live_template.html"
LIVE_STYLES = ("base.css", "table.css", "inside.css", "page.css")
LIVE_SCRIPTS = ("inside.js",)
FIELDS = ("text", "text_pair")


class Live:
    """A checkpoint with its page.

    Raises:
        ValueError: a model that `explain` does not take.
    """

    def __init__(self, name: str, model: Any, tokenizer: Any):
        check_model(model)
        self.model = model
        self.tokenizer = tokenizer
        # a rule is set in the config that all passes read
        self.lock = threading.Lock()
        siamese, causal = model.config.capabilities.siamese, model.config.is_causal
        self.page = render(
            LIVE,
            title=f"Inside {Path(name).name or name}",
            texts=stored_texts(name),
            pairs=siamese or (not causal and getattr(model.config, "type_vocab_size", 0) > 0),
            style=Markup(joined(LIVE_STYLES)),
            script=Markup(joined(LIVE_SCRIPTS)),
        )

    def answer(self, request: Any) -> dict[str, Any]:
        """The inside of the text, or pair of texts, of a request, as plain data.

        Raises:
            ValueError: the request is none, or its text cannot be looked into.
        """
        if not isinstance(request, dict) or "text" not in request or not set(request) <= set(FIELDS):
            raise ValueError('the request is not {"text": ...}, with or without a "text_pair"')
        text, pair = request["text"], request.get("text_pair") or None
        with self.lock:
            return look_inside(self.model, self.tokenizer, text, pair).to_dict()


def stored_texts(name: str) -> tuple[str, str]:
    """The example of the card in a checkpoint folder, a text or a pair; empty texts without one."""
    if not (Path(name) / CARD_FILE).is_file():
        return "", ""
    example = read_card(name).example
    return example.text, example.text_pair or ""

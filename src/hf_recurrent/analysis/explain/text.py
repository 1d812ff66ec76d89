"""From a text to the tokens of a model, or to a message that says which word is in the way."""

from typing import Any

import torch

# more would be too small to see, and to print
MAX_TOKENS = 64
MAX_LISTED_WORDS = 40


def encode_text(
    model: Any, tokenizer: Any, text: str, text_pair: str | None = None, most_tokens: int | None = MAX_TOKENS
) -> dict[str, torch.Tensor]:
    """A text, or a pair of texts, as a batch of one.

    Raises:
        ValueError: a text without a word or with one that the tokenizer does not know, a pair where one text is
            expected or the other way round, or more than `most_tokens` tokens.
    """
    siamese = model.config.pair_encoding == "siamese"
    if siamese and text_pair is None:
        raise ValueError("text_pair is missing: this model compares two sentences, pass the second one (`--pair`)")
    if text_pair is not None and not siamese and model.config.is_causal:
        raise ValueError(f"text_pair is {text_pair!r}: a causal language model continues one text, leave it out")
    texts = {"text": text} if text_pair is None else {"text": text, "text_pair": text_pair}
    for name, value in texts.items():
        check_words(tokenizer, name, value)
    inputs = dict(tokenizer(*texts.values(), return_tensors="pt"))
    length = inputs["input_ids"].shape[1]
    if most_tokens is not None and length > most_tokens:
        raise ValueError(
            f"text has {length} tokens, special ones included, but only {most_tokens} can be drawn: pass a shorter one"
        )
    return inputs


def check_words(tokenizer: Any, name: str, text: str) -> None:
    """Raise a ValueError unless the text `name` is words that the tokenizer knows."""
    if not isinstance(text, str):
        raise ValueError(f"{name} is {text!r}: pass a text")
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    if not encoded["input_ids"]:
        raise ValueError(f"{name} is {text!r}: there is no word in it, pass an input of the task")
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown not in encoded["input_ids"]:
        return
    place = encoded["input_ids"].index(unknown)
    start, end = encoded["offset_mapping"][place]
    raise ValueError(
        f"{name}: word {place + 1} of it, {text[start:end]!r} at character {start + 1}, is not in the vocabulary of "
        f"this checkpoint{known_words(tokenizer)}"
    )


def known_words(tokenizer: Any) -> str:
    """The vocabulary as the end of a sentence, where it is short enough to help."""
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    words = [word for word in words if word not in tokenizer.all_special_tokens]
    return f"; it knows {' '.join(words)}" if 0 < len(words) <= MAX_LISTED_WORDS else ""

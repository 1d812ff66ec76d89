"""What rows of a source and a target have in common."""


def check_pair(source: str, target: str, place: str) -> None:
    """Raises ValueError, with the `place`, where one of two texts has no words: there is nothing to read or learn."""
    for name, text in (("source", source), ("target", target)):
        if not text.strip():
            raise ValueError(f"{place}: the {name} is empty: every row needs words on both sides; remove the pair")

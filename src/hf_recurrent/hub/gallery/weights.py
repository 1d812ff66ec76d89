"""What weight files hold, without loading them."""

import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

PICKLE_SUFFIXES = frozenset({".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"})
# torch.save writes zip archives; a bare pickle starts with the PROTO opcode and a protocol from 2 to 5
ZIP = b"PK\x03\x04"
PROTO, PROTOCOLS = 0x80, range(2, 6)


def count_parameters(path: Path) -> int:
    """Number of values in a safetensors file, from its header.

    Raises:
        ValueError: it is not a safetensors file.
    """
    try:
        with safe_open(path, "np") as weights:
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def is_pickle(path: Path) -> bool:
    """Whether a file is, or may contain, pickled objects: by its name or by how it starts."""
    if path.suffix in PICKLE_SUFFIXES:
        return True
    with path.open("rb") as file:
        start = file.read(9)
    # a safetensors file starts with the length of its header, which may look like a protocol
    if path.suffix == ".safetensors" and start[8:] == b"{":
        return False
    return start.startswith(ZIP) or (len(start) > 1 and start[0] == PROTO and start[1] in PROTOCOLS)

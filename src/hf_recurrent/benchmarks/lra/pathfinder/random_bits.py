"""Random numbers as a function of counters, so that what is drawn does not depend on what is drawn beside it.

The mixing function is that of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
2014): every counter is a stream's position, and its output the key of the next.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def subkeys(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:
    """The uint64 keys number `counters` (>= 0) below `keys`; both broadcast."""
    counters = np.asarray(counters).astype(np.uint64)
    # one-element arrays too: numpy warns when a scalar wraps around
    with np.errstate(over="ignore"):
        values = np.asarray(keys, dtype=np.uint64) + (counters + np.uint64(1)) * _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _FIRST
        values = (values ^ (values >> np.uint64(27))) * _SECOND
        return values ^ (values >> np.uint64(31))


def uniform(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:
    """Numbers from 0 to below 1."""
    return (subkeys(keys, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(keys: np.ndarray, counters: np.ndarray | int, bounds: np.ndarray | int) -> np.ndarray:
    """Whole numbers from 0 to below `bounds` (1 to 2**31), int64; the bias is below 2**-32 times the bound."""
    high = subkeys(keys, counters) >> np.uint64(32)
    return ((high * np.asarray(bounds).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)

"""Pathfinder drawings that a core makes in a second, by size and length of the contours.

    OMP_NUM_THREADS=1 python perf/pathfinder.py

Seconds are processor time of this process; the making of tables is not counted.
"""

import argparse
import time

import numpy as np

from hf_recurrent.benchmarks.lra.pathfinder.generate import generate
from hf_recurrent.benchmarks.lra.pathfinder.settings import SETTINGS, make_settings


def per_second(size: int, contour_length: int, number: int) -> tuple[float, float]:
    """Drawings a second, and attempts at the two long contours of each."""
    settings = make_settings(size, contour_length)
    generate(settings, np.arange(1, dtype=np.uint64))
    keys = np.arange(1, number + 1, dtype=np.uint64)
    start = time.process_time()
    pictures = generate(settings, keys)
    return number / (time.process_time() - start), float(pictures.attempts.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--contour-lengths", type=int, nargs="+", default=[6, 9, 14], help="of 32 x 32 pixels")
    parser.add_argument("--number", type=int, default=250, help="of drawings of 32 x 32 pixels; a fifth of larger ones")
    args = parser.parse_args()
    print(f"{'pixels':>10} {'contours':>9} {'drawings a second':>18} {'attempts':>9}")
    for size in args.sizes:
        for length in args.contour_lengths if size == min(SETTINGS) else [14]:
            number = args.number if size == min(SETTINGS) else max(1, args.number // 5)
            rate, attempts = per_second(size, length, number)
            print(f"{f'{size} x {size}':>10} {length:>9} {rate:>18.0f} {attempts:>9.0f}")


if __name__ == "__main__":
    main()

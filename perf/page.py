"""Draw docs/performance.md from the stored results.

python -m perf page
"""

from .stored import PAGE, page


def main(arguments: list[str]) -> None:
    if arguments:
        raise SystemExit(f"python -m perf page has no options, but was given {' '.join(arguments)}")
    PAGE.write_text(page(), encoding="utf-8")

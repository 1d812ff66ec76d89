"""Write the filled parts of all pages, and the drawings, anew.

python -m doc_parts
"""

from .drawings import DRAWINGS
from .filling import DOCS, filled, pages_with_parts


def main() -> None:
    for path in pages_with_parts():
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawing in DRAWINGS.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawing(), encoding="utf-8")


if __name__ == "__main__":
    main()

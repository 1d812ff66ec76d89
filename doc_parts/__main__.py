"""Write the filled parts of all pages, the drawings, and the public names for type checkers.

python -m doc_parts
"""

from .drawings import DRAWINGS
from .filling import DOCS, filled, pages_with_parts
from .public_names import STUB, stub


def main() -> None:
    for path in pages_with_parts():
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawing in DRAWINGS.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawing(), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")


if __name__ == "__main__":
    main()

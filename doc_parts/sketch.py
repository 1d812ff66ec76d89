"""Line drawings as SVG, on a white sheet, so that they can be read in light and dark pages."""

from html import escape

FILLS = {"in": "#eeeeee", "work": "#dbe7f5", "gate": "#fde7cf", "keep": "#dff0d8", "out": "#ffffff", "off": "#f6f6f6"}
INK, SOFT = "#333333", "#555555"
MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>'
)
LINE = 16


class Sketch:
    """A drawing of so many pixels; `alt` says in words what it shows."""

    def __init__(self, width: int, height: int, alt: str):
        self.width, self.height, self.alt = width, height, alt
        self.shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, label: str = "", kind: str = "work") -> None:
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{FILLS[kind]}" '
            f'stroke="{INK}"{" stroke-dasharray=" + chr(34) + "4 3" + chr(34) if kind == "off" else ""}/>'
        )
        lines = label.split("\n") if label else []
        for number, line in enumerate(lines):
            self.words(x + width / 2, y + height / 2 + 5 + LINE * (number - (len(lines) - 1) / 2), line)

    def words(self, x: float, y: float, text: str, anchor: str = "middle", soft: bool = False) -> None:
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{SOFT if soft else INK}">{escape(text)}</text>'
        )

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """A line through points, with a tip at the last."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.shapes.append(f'<polyline points="{path}" fill="none" stroke="{INK}"{dash} marker-end="url(#tip)"/>')

    def svg(self) -> str:
        body = "\n".join(self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'role="img" font-family="sans-serif" font-size="13">\n<title>{escape(self.alt)}</title>\n{MARKER}\n'
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n'
        )


def flow(
    alt: str,
    boxes: list[tuple[str, str]],
    loops: list[tuple[int, int, str]] = (),
    sides: list[tuple[int, int, str]] = (),
    notes: list[tuple[int, str]] = (),
) -> str:
    """Boxes from left to right.

    Args:
        boxes: label and kind of each.
        loops: (last, first, label) of arrows back above the boxes.
        sides: (from, to, label) of arrows below the boxes.
        notes: (box, text) below a box.
    """
    width, gap, top = 128, 24, 46 if loops else 16
    height = 16 + LINE * max(label.count("\n") + 1 for label, _ in boxes)
    below = 30 * len(sides) + (LINE * max((text.count("\n") + 1 for _, text in notes), default=0))
    sketch = Sketch(20 + len(boxes) * (width + gap) - gap + 20, top + height + below + 24, alt)
    left = [20 + number * (width + gap) for number in range(len(boxes))]
    for number, (label, kind) in enumerate(boxes):
        sketch.box(left[number], top, width, height, label, kind)
        if number:
            sketch.arrow((left[number] - gap, top + height / 2), (left[number] - 2, top + height / 2))
    for last, first, label in loops:
        start, end, up = left[last] + width - 18, left[first] + 18, top - 20
        sketch.arrow((start, top), (start, up), (end, up), (end, top - 2))
        sketch.words((start + end) / 2, up - 6, label, soft=True)
    bottom = top + height
    for number, text in notes:
        for line, words in enumerate(text.split("\n")):
            sketch.words(left[number] + width / 2, bottom + LINE * (line + 1), words, soft=True)
    down = bottom + (LINE * max((text.count("\n") + 1 for _, text in notes), default=0))
    for number, (start_box, end_box, label) in enumerate(sides):
        start, end, level = left[start_box] + width / 2, left[end_box] + width / 2, down + 22 + 30 * number
        sketch.arrow((start, bottom), (start, level), (end, level), (end, bottom + 2), dashed=True)
        sketch.words((start + end) / 2, level + 14, label, soft=True)
    return sketch.svg()

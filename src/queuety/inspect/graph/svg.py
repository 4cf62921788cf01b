"""A picture as SVG: one file without scripts, links or anything from elsewhere, readable in light and in dark.

All text goes through `_escaped`; nothing else of a workflow becomes part of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from queuety.inspect.graph.labels import plain
from queuety.inspect.graph.layout import ICON, PAD, ROW, Box, Layout, Line, corner, layout
from queuety.inspect.graph.layout import pixels as _n
from queuety.inspect.graph.model import Graph, Kind, Mark, Way
from queuety.inspect.graph.shapes import icon, outline
from queuety.inspect.graph.style import STYLE

MARGIN: Final = 16
_LONGEST: Final = 1_000
_RADIUS: Final = 7

_CLASSES: Final = {
    Mark.DONE: "qg-done",
    Mark.RUNNING: "qg-running",
    Mark.WAITING: "qg-waiting",
    Mark.PAUSED: "qg-paused",
    Mark.FAILED: "qg-failed",
    Mark.CANCELLED: "qg-cancelled",
    Mark.SKIPPED: "qg-skipped",
    Mark.NOT_REACHED: "qg-open",
}


def svg(graph: Graph) -> str:
    """The picture; ends with a newline."""
    placed = layout(graph)
    width, height = placed.width + 2 * MARGIN, placed.height + 2 * MARGIN
    told = ", ".join([*graph.lines, *graph.nodes[0].lines])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="qg" role="img" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}">',
        f"<title>{_escaped(graph.name)}</title>",
        f"<desc>{_escaped(told)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="qg-page" width="{_n(width)}" height="{_n(height)}"/>',
        f'<g transform="translate({MARGIN} {MARGIN})">',
        *_graph(placed),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _graph(placed: Layout) -> Iterator[str]:
    for line in placed.lines:
        yield from _way(line, is_run=placed.graph.is_run)
    for box in placed.boxes:
        yield from _node(box)


def _node(box: Box) -> Iterator[str]:
    node = box.node
    state = f" {_CLASSES[node.mark]}" if node.mark is not None else ""
    yield f'<g class="qg-node qg-kind-{_word(node.kind)}{state}">'
    whole = "\n".join(_escaped(text.whole) for text in box.texts)
    if whole:
        yield f"<title>{whole}</title>"
    yield from outline(box)
    x, y = box.x + PAD + 2, box.y + PAD + 11
    if node.kind == Kind.END:
        yield f'<text class="qg-detail" x="{_n(box.middle)}" y="{_n(box.y + 20)}" text-anchor="middle">end</text>'
    elif said := corner(node):
        yield _text("qg-kind", box.x + box.width - PAD, y - 1, said, ends=True)
    if node.kind in (Kind.UNDO, Kind.ON_CANCEL, Kind.ON_DEADLINE):
        y = box.y + 18
    for text in box.texts:
        if text.role == "fact" and node.mark is not None:
            yield icon(node.mark, x, y - 10)
            yield _text("qg-fact", x + ICON, y, text.shown)
        else:
            yield _text(f"qg-{text.role}", x, y, text.shown)
        y += ROW
    yield "</g>"
    if box.inner is not None:
        left, top = box.inner_at
        yield f'<g transform="translate({_n(left)} {_n(top)})">'
        yield from _graph(box.inner)
        yield "</g>"


def _way(line: Line, *, is_run: bool) -> Iterator[str]:
    edge = line.edge
    taken = " qg-taken" if edge.taken else " qg-untaken" if is_run and edge.way is not Way.SIDE else ""
    yield f'<g class="qg-way qg-{edge.way.value}{taken}">'
    yield f'<path d="{_rounded(line.points)}"/>'
    if edge.way is not Way.SIDE:
        yield f'<path class="qg-head" d="{_head(line.points)}"/>'
    if line.label:
        whole = f"<title>{_escaped(edge.label)}</title>" if edge.label else ""
        yield _text("qg-label", *line.label_at, line.label, ends=line.label_ends, before=whole)
    yield "</g>"


def _rounded(points: tuple[tuple[float, float], ...]) -> str:
    """The way as a path whose corners are round."""
    (x, y), *rest = points
    parts = [f"M{_n(x)} {_n(y)}"]
    for number, (to_x, to_y) in enumerate(rest):
        if number == len(rest) - 1:
            parts.append(f"L{_n(to_x)} {_n(to_y)}")
            break
        next_x, next_y = rest[number + 1]
        before = _towards((to_x, to_y), (x, y))
        after = _towards((to_x, to_y), (next_x, next_y))
        parts.append(f"L{_n(before[0])} {_n(before[1])}Q{_n(to_x)} {_n(to_y)} {_n(after[0])} {_n(after[1])}")
        x, y = to_x, to_y
    return "".join(parts)


def _towards(corner: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The point a little away from a corner, in the direction of another one."""
    (x, y), (to_x, to_y) = corner, other
    length = abs(to_x - x) + abs(to_y - y)
    part = min(_RADIUS, length / 2) / length if length else 0
    return x + (to_x - x) * part, y + (to_y - y) * part


def _head(points: tuple[tuple[float, float], ...]) -> str:
    """The arrow's head, at the last point, in the direction of the last stretch."""
    (from_x, from_y), (x, y) = points[-2], points[-1]
    if abs(x - from_x) > abs(y - from_y):
        back = -8 if x > from_x else 8
        return f"M{_n(x)} {_n(y)}l{back} -4.5v9z"
    back = -8 if y > from_y else 8
    return f"M{_n(x)} {_n(y)}l-4.5 {back}h9z"


def _text(role: str, x: float, y: float, shown: str, *, ends: bool = False, before: str = "") -> str:
    anchor = ' text-anchor="end"' if ends else ""
    return f'<text class="{role}" x="{_n(x)}" y="{_n(y)}"{anchor}>{before}{_escaped(shown)}</text>'


def _word(kind: str) -> str:
    """A kind as part of a class: one that this version does not know may be called anything."""
    return "".join(char for char in kind if char.isascii() and (char.isalnum() or char == "_"))[:40]


def _escaped(text: str) -> str:
    """The text as it may stand between tags and in quotes; what XML cannot hold is shown as an escape."""
    shown = plain(text[:_LONGEST]) + ("…" if len(text) > _LONGEST else "")
    return (
        shown.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
        .replace("'", "&#39;")
    )

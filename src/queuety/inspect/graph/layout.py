"""Where everything of a picture stands: steps below each other, what undoes them at their right, ways back at the left.

Numbers are pixels from the upper left corner of the graph's own box. Widths of text are estimated, generously: nothing
is measured, so that the same graph always gives the same picture.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from queuety.inspect.graph.describe import kind_called
from queuety.inspect.graph.labels import counted, plain
from queuety.inspect.graph.model import Edge, Graph, Kind, Node, Way

TITLE: Final = 14
LINE: Final = 12.5
SMALL: Final = 11
"""Sizes of text."""

ROW: Final = 18
"""How far lines of text stand apart."""

PAD: Final = 12
GAP: Final = 34
"""Between a node and the next one below."""

NARROWEST: Final = 200
WIDEST: Final = 340
SIDE_WIDEST: Final = 220
SIDE_GAP: Final = 36
LANE: Final = 20
LABEL_WIDEST: Final = 180
ICON: Final = 18
"""How much room the sign of a mark takes before its words."""

_NARROW: Final = frozenset("iljtfrI.,:;|!'`()[]{}/\\ ")
_WIDE: Final = frozenset("mwMW@%—…")
_SIDE: Final = frozenset({Kind.UNDO, Kind.ON_CANCEL, Kind.ON_DEADLINE})


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text: what is seen of it, and all of it. `role` is `title`, `detail` or `fact`."""

    role: str
    shown: str
    whole: str


@dataclass(frozen=True, slots=True)
class Box:
    """A node where it stands. `inner` is the picture within it, which begins at `inner_at`."""

    node: Node
    x: float
    y: float
    width: float
    height: float
    texts: tuple[Text, ...]
    inner: Layout | None = None
    inner_at: tuple[float, float] = (0, 0)

    @property
    def middle(self) -> float:
        """Where ways from above come in and ways below go out."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Line:
    """A way: the points that it goes through, at right angles, and where its label stands."""

    edge: Edge
    points: tuple[tuple[float, float], ...]
    label: str = ""
    label_at: tuple[float, float] = (0, 0)
    label_ends: bool = False
    """True where the label ends at its place instead of beginning there."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A graph with a place for everything."""

    graph: Graph
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def layout(graph: Graph) -> Layout:
    """The graph laid out; the cost is linear in its nodes, and in its ways but for those that share a height."""
    main = [node for node in graph.nodes if node.kind not in _SIDE]
    beside = _beside(graph)
    inners = {node.id: layout(node.inner) for node in main if node.inner is not None}
    width = _width_of(main, inners)
    lanes = _Lanes(graph, main)
    left = lanes.width
    boxes: list[Box] = []
    y = 0.0
    for node in main:
        box = _box(node, left, y, width, inners.get(node.id), graph)
        boxes.append(box)
        bottom = box.height
        side_y = y
        for other in beside.get(node.id, ()):
            side = _side_box(other, left + width + SIDE_GAP, side_y)
            boxes.append(side)
            side_y += side.height + 8
            bottom = max(bottom, side_y - 8 - y)
        y += bottom + GAP
    for other in beside.get("", ()):  # of a workflow within, which has no start that they could stand beside
        side = _side_box(other, left, y - GAP / 2)
        boxes.append(side)
        y += side.height + 8
    placed = {box.node.id: box for box in boxes}
    lines = [line for edge in graph.edges if (line := _line(edge, placed, lanes)) is not None]
    right = max((box.x + box.width for box in boxes), default=left)
    bottom = max((box.y + box.height for box in boxes), default=0.0)
    return Layout(graph, right, bottom, tuple(boxes), tuple(lines))


def text_width(text: str, size: float = LINE, *, is_bold: bool = False) -> float:
    """About how wide the text is."""
    em = sum(_em(char) for char in text)
    return em * size * (1.07 if is_bold else 1)


def fitted(text: str, width: float, size: float = LINE, *, is_bold: bool = False) -> str:
    """The text, plain, its end cut off where it would be wider."""
    shown = plain(text[:400])
    if text_width(shown, size, is_bold=is_bold) <= width and len(text) <= 400:
        return shown
    room, kept = width / size / (1.07 if is_bold else 1) - _em("…"), 0
    for char in shown:
        room -= _em(char)
        if room < 0:
            break
        kept += 1
    return shown[:kept].rstrip() + "…"


def _em(char: str) -> float:
    if char in _NARROW:
        return 0.37
    if char in _WIDE:
        return 0.98
    if char.isupper():
        return 0.74
    if char.isascii():
        return 0.62
    return 1.05 if unicodedata.east_asian_width(char) in "WFA" else 0.7


def pixels(number: float) -> str:
    """A number of pixels as it is written, to a tenth.

    >>> pixels(12), pixels(0.25), pixels(1_234_567.89)
    ('12', '0.2', '1234567.9')
    """
    return f"{number:.1f}".removesuffix(".0")


def _beside(graph: Graph) -> dict[str, list[Node]]:
    """What stands at the right of each node."""
    owner = {edge.target: edge.source for edge in graph.edges if edge.way is Way.SIDE}
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.kind in _SIDE:
            found.setdefault(owner.get(node.id, ""), []).append(node)
    return found


def _width_of(nodes: Iterable[Node], inners: dict[str, Layout]) -> float:
    """How wide the column is: as its widest node wants it."""
    wanted = [float(NARROWEST)]
    for node in nodes:
        lines = [text_width(line[:200]) for line in node.lines]
        lines.append(text_width(fact_line(node)[:200], is_bold=True) + ICON)
        title = text_width(node.name[:200], TITLE, is_bold=True) + _corner(node)
        inner = inners.get(node.id)
        wanted.append(min(max(title, *lines, 0) + 2 * PAD + 8, WIDEST))
        if inner is not None:
            wanted.append(inner.width + 2 * PAD + 4)
    return max(wanted)


def corner(node: Node) -> str:
    """What stands in the upper right corner: the step's index and kind."""
    if node.index is None or node.kind == Kind.LEFT_OUT:
        return ""
    kind = kind_called(node.kind)[:24]
    return kind if node.name == str(node.index) else f"{node.index} · {kind}"


def _corner(node: Node) -> float:
    said = corner(node)
    return text_width(said, SMALL) + 14 if said else 0


def fact_line(node: Node) -> str:
    """How the step stands, in words."""
    if node.mark is None or node.kind in (Kind.START, Kind.END):
        return ""
    return ", ".join([node.mark.value, *node.facts])


def _box(node: Node, x: float, y: float, width: float, inner: Layout | None, graph: Graph) -> Box:
    lines = [*node.lines, *graph.lines] if node.kind == Kind.START else list(node.lines)
    room = width - 2 * PAD - 4
    texts = [] if node.kind == Kind.END else [_text("title", node.name, room - _corner(node))]
    texts += [_text("detail", line, room) for line in lines]
    if fact := fact_line(node):
        texts.append(_text("fact", fact, room - ICON))
    height: float = 2 * PAD + ROW * max(len(texts), 1) - 4
    at = (0.0, 0.0)
    if node.kind == Kind.END:
        x, width, height = x + width / 2 - 30, 60, 30
    if inner is not None:
        at = (x + (width - inner.width) / 2, y + height + 4)
        height = height + inner.height + PAD + 4
    return Box(node, x, y, width, height, tuple(texts), inner, at)


def _side_box(node: Node, x: float, y: float) -> Box:
    fact = fact_line(node)
    wanted = max(text_width(node.name[:200]), text_width(fact, is_bold=True) + ICON) + 2 * PAD
    width = min(max(wanted, 90), SIDE_WIDEST)
    texts = [_text("detail", node.name, width - 2 * PAD)]
    if fact:
        texts.append(_text("fact", fact, width - 2 * PAD - ICON))
    return Box(node, x, y, width, 18 + ROW * len(texts) - 4, tuple(texts))


def _text(role: str, whole: str, room: float) -> Text:
    size = TITLE if role == "title" else LINE
    return Text(role, fitted(whole, room, size, is_bold=role != "detail"), plain(whole))


class _Lanes:
    """The ways that go by the left side, each in a lane in which no other one of the same height is.

    The shortest are nearest to the steps. A lane is as wide as the widest label that stands left of it.
    """

    def __init__(self, graph: Graph, main: Sequence[Node]) -> None:
        rank = {node.id: number for number, node in enumerate(main)}
        outer = [edge for edge in graph.edges if edge.way not in (Way.NEXT, Way.SIDE)]
        outer += [edge for edge in graph.edges if edge.way is Way.NEXT and rank[edge.target] != rank[edge.source] + 1]
        spans = sorted((self._span(edge, rank), number) for number, edge in enumerate(outer))
        lanes: list[list[tuple[int, int]]] = []
        widths: list[float] = []
        self._lane_of: dict[int, int] = {}
        for (_, low, high), number in spans:
            lane = next(
                (lane for lane, taken in enumerate(lanes) if all(high < a or b < low for a, b in taken)), len(lanes)
            )
            if lane == len(lanes):
                lanes.append([])
                widths.append(0.0)
            lanes[lane].append((low, high))
            label = label_of(outer[number])
            widths[lane] = max(widths[lane], min(text_width(label), LABEL_WIDEST) + 8 if label else 0)
            self._lane_of[id(outer[number])] = lane
        self._offsets = [LANE * (lane + 1) + sum(widths[:lane]) for lane in range(len(lanes))]
        self.width = LANE * len(lanes) + sum(widths) if lanes else 0.0

    @staticmethod
    def _span(edge: Edge, rank: dict[str, int]) -> tuple[int, int, int]:
        low, high = sorted((rank[edge.source], rank[edge.target]))
        return high - low, low, high

    def place(self, edge: Edge) -> float | None:
        """How far left of the steps the way goes; None for one that has no lane."""
        lane = self._lane_of.get(id(edge))
        return None if lane is None else self._offsets[lane]


def label_of(edge: Edge) -> str:
    """What is said of a way: what it depends on, and how often the run has gone it, if more than once."""
    label = plain(edge.label)
    if edge.taken > 1:
        times = counted(edge.taken, "time")
        return f"{label}, {times}" if label else times
    return label


def _line(edge: Edge, placed: dict[str, Box], lanes: _Lanes) -> Line | None:
    source, target = placed[edge.source], placed[edge.target]
    label = label_of(edge)
    if edge.way is Way.SIDE:
        y = target.y + target.height / 2
        return Line(edge, ((source.x + source.width, y), (target.x, y)))
    offset = lanes.place(edge)
    if offset is None:
        below = source.y + source.height
        return Line(
            edge,
            ((source.middle, below), (target.middle, target.y)),
            label,
            (source.middle + 8, below + GAP / 2 + 4),
        )
    x = lanes.width - offset
    out_y, in_y = _port(source, is_out=True), _port(target, is_out=False)
    points = ((source.x, out_y), (x, out_y), (x, in_y), (target.x, in_y))
    shown = fitted(label, LABEL_WIDEST) if label else ""
    return Line(edge, points, shown, (x - 5, (out_y + in_y) / 2 + 4), label_ends=True)


def _port(box: Box, *, is_out: bool) -> float:
    """At what height a way by the left side leaves the node, or comes to it."""
    height = min(box.height, 64)
    return box.y + height * (0.7 if is_out else 0.3)

"""The outline of each kind of node, and the sign of each mark, as shapes of SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from queuety.inspect.graph.layout import Box
from queuety.inspect.graph.layout import pixels as _n
from queuety.inspect.graph.model import Kind, Mark

_CUT: Final = 12
_STRIP: Final = 5


def outline(box: Box) -> Iterator[str]:
    """The shapes that the node's text stands on."""
    yield from _OUTLINES.get(box.node.kind, _plain)(box)
    if box.node.mark is not None and box.node.kind in _STRAIGHT:
        yield (
            f'<rect class="qg-strip" x="{_n(box.x)}" y="{_n(box.y + 10)}" width="{_STRIP}" '
            f'height="{_n(box.height - 20)}"/>'
        )


def icon(mark: Mark, x: float, y: float) -> str:
    """The sign of the mark, 12 pixels wide and high."""
    return f'<path class="qg-icon" transform="translate({_n(x)} {_n(y)})" d="{_ICONS[mark]}"/>'


def _plain(box: Box) -> Iterator[str]:
    yield _rect(box, 6)


def _round(box: Box) -> Iterator[str]:
    yield _rect(box, min(box.height / 2, 20), " qg-lined")


def _several(box: Box) -> Iterator[str]:
    """Two sheets behind: something for each of many."""
    for shift in (6, 3):
        yield (
            f'<rect class="qg-box qg-behind" x="{_n(box.x + shift)}" y="{_n(box.y + shift)}" width="{_n(box.width)}" '
            f'height="{_n(box.height)}" rx="6"/>'
        )
    yield _rect(box, 6)


def _beside(box: Box) -> Iterator[str]:
    """A bar at each side: things side by side."""
    yield _rect(box, 6)
    for x in (box.x + 7, box.x + box.width - 7):
        yield f'<path class="qg-bar" d="M{_n(x)} {_n(box.y)}v{_n(box.height)}"/>'


def _hexagon(box: Box) -> Iterator[str]:
    x, y, width, height = box.x, box.y, box.width, box.height
    yield _polygon(
        (x + _CUT, y),
        (x + width - _CUT, y),
        (x + width, y + height / 2),
        (x + width - _CUT, y + height),
        (x + _CUT, y + height),
        (x, y + height / 2),
    )


def _octagon(box: Box) -> Iterator[str]:
    x, y, right, bottom = box.x, box.y, box.x + box.width, box.y + box.height
    yield _polygon(
        (x + _CUT, y),
        (right - _CUT, y),
        (right, y + _CUT),
        (right, bottom - _CUT),
        (right - _CUT, bottom),
        (x + _CUT, bottom),
        (x, bottom - _CUT),
        (x, y + _CUT),
    )


def _frame(box: Box) -> Iterator[str]:
    yield _rect(box, 8, " qg-frame")


def _dashed(box: Box) -> Iterator[str]:
    yield _rect(box, 6, " qg-dashed")


_OUTLINES: Final[Mapping[str, Callable[[Box], Iterator[str]]]] = {
    Kind.START: _round,
    Kind.END: _round,
    Kind.LEFT_OUT: _dashed,
    Kind.UNDO: _dashed,
    Kind.ON_CANCEL: _dashed,
    Kind.ON_DEADLINE: _dashed,
    "parallel": _beside,
    "for_each": _several,
    "repeat": _hexagon,
    "delay": _round,
    "wait_for_signal": _octagon,
    "wait_for_workflows": _octagon,
    "run_workflow": _frame,
    "start_workflows": _frame,
}

_STRAIGHT: Final = frozenset({"single", "parallel", "for_each", "run_workflow", "start_workflows"})
"""Kinds whose left side has room for a strip in the colour of the mark; of the others the outline has it."""

_ICONS: Final = {
    Mark.DONE: "M1.5 6.5l3 3 6-7",
    Mark.RUNNING: "M3 1.5v9l7-4.5z",
    Mark.WAITING: "M6 1a5 5 0 1 1 0 10a5 5 0 1 1 0-10M6 3v3l2.5 1.5",
    Mark.PAUSED: "M3.5 2v8M8.5 2v8",
    Mark.FAILED: "M2 2l8 8M10 2l-8 8",
    Mark.CANCELLED: "M6 1a5 5 0 1 1 0 10a5 5 0 1 1 0-10M2.6 9.4l6.8-6.8",
    Mark.SKIPPED: "M2 2l4 4-4 4M6.5 2l4 4-4 4",
    Mark.NOT_REACHED: "M6 1.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 1 1 0-9",
}


def _rect(box: Box, radius: float, more: str = "") -> str:
    return (
        f'<rect class="qg-box{more}" x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" '
        f'height="{_n(box.height)}" rx="{_n(radius)}"/>'
    )


def _polygon(*points: tuple[float, float]) -> str:
    corners = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
    return f'<polygon class="qg-box qg-lined" points="{corners}"/>'

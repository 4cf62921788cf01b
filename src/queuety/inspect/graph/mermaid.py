"""A picture as a Mermaid flowchart, for pages that draw it: GitHub, GitLab, wikis.

Text stands in quotes with everything but plain letters as a character code, so that no name can end a quote, begin a
comment, a directive or a link, or be taken for markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from queuety.inspect.graph.labels import counted, short
from queuety.inspect.graph.model import Edge, Graph, Kind, Mark, Node, Way

_SHAPES: Final = {
    Kind.START: ('(["', '"])'),
    Kind.END: ('(["', '"])'),
    Kind.LEFT_OUT: ('["', '"]'),
    Kind.UNDO: ('>"', '"]'),
    Kind.ON_CANCEL: ('>"', '"]'),
    Kind.ON_DEADLINE: ('>"', '"]'),
    "parallel": ('[["', '"]]'),
    "for_each": ('[["', '"]]'),
    "repeat": ('{{"', '"}}'),
    "delay": ('("', '")'),
    "wait_for_signal": ('[/"', '"/]'),
    "wait_for_workflows": ('[/"', '"/]'),
}
_USUAL: Final = ('["', '"]')

_ARROWS: Final = {Way.NEXT: "-->", Way.BACK: "-->", Way.TIMEOUT: "-.->", Way.JUMP: "==>", Way.SIDE: "-.-"}

SIGNS: Final = {
    Mark.DONE: "✓",
    Mark.RUNNING: "▶",
    Mark.WAITING: "◔",
    Mark.PAUSED: "Ⅱ",
    Mark.FAILED: "✗",
    Mark.CANCELLED: "⊘",
    Mark.SKIPPED: "»",
    Mark.NOT_REACHED: "○",
}

_STYLES: Final = {
    Mark.DONE: ("done", "fill:#d7f0dd,stroke:#1a7f37,color:#0b3d1c"),
    Mark.RUNNING: ("running", "fill:#d5e8ff,stroke:#0969da,color:#0a3069,stroke-width:3px"),
    Mark.WAITING: ("waiting", "fill:#fff3c4,stroke:#9a6700,color:#4d2d00,stroke-width:3px"),
    Mark.PAUSED: ("paused", "fill:#ece4ff,stroke:#6639ba,color:#2e1461,stroke-width:3px"),
    Mark.FAILED: ("failed", "fill:#ffd9d6,stroke:#cf222e,color:#66070d,stroke-width:3px"),
    Mark.CANCELLED: ("cancelled", "fill:#eaeef2,stroke:#57606a,color:#24292f,stroke-width:3px"),
    Mark.SKIPPED: ("skipped", "fill:#eaeef2,stroke:#6e7781,color:#424a53,stroke-dasharray:4 3"),
    Mark.NOT_REACHED: ("open", "fill:#f6f8fa,stroke:#8c959f,color:#424a53"),
}
"""By mark, the class and how it looks. Each brings its own colour of text, so that it is readable on any page."""

_TAKEN: Final = "stroke:#1a7f37,stroke-width:3px"
_ALIKE: Final = {
    ord("\\"): "\N{SET MINUS}",
    ord("$"): "\N{FULLWIDTH DOLLAR SIGN}",
    ord("\N{LATIN SMALL LIGATURE FL}"): "fl",
}
"""What means something to Mermaid even as a character code (a line break, a formula), or is what it writes a code with
while it works, and what is shown for it."""

_PLAIN: Final = frozenset(" ,()=/:")
_LONGEST: Final = 60
_TITLE: Final = 24


def mermaid(graph: Graph) -> str:
    """The flowchart, a statement a line; ends with a newline."""
    edges = list(_all_edges(graph))
    lines = ["flowchart TD", *_body(graph, "    "), *(f"    {_edge(edge)}" for edge in edges)]
    if graph.is_run:
        lines += _classes(graph)
        taken = [str(number) for number, edge in enumerate(edges) if edge.taken]
        if taken:
            lines.append(f"    linkStyle {','.join(taken)} {_TAKEN}")
    return "\n".join(lines) + "\n"


def quoted(text: str, most: int = _LONGEST) -> str:
    """The text as it may stand between quotes: whatever is no letter, digit or harmless sign as a character code.

    >>> quoted('a "b" <i>'), quoted("1. x"), quoted("read_page-2")
    ('a #34;b#34; #60;i#62;', '1#46; x', 'read_page-2')
    """
    shown = short(text, most).translate(_ALIKE)
    return "".join(_quoted(shown, place) for place in range(len(shown)))


def _quoted(text: str, place: int) -> str:
    """The character at this place; between letters some signs mean nothing that would be markup elsewhere."""
    char, after = text[place], text[place + 1 : place + 2]
    if char == ":" and after.isalnum():
        return "\N{RATIO}"  # with a colon it may be read as the name of an icon
    if char.isalnum() or char in _PLAIN or (char in "_-." and after.isalnum() and text[:place][-1:].isalnum()):
        return char
    return f"#{ord(char)};"


def _body(graph: Graph, indent: str) -> Iterator[str]:
    """The nodes; a workflow within one is a subgraph below it, whose title has no room for more than its name."""
    for node in graph.nodes:
        opening, closing = _SHAPES.get(node.kind, _USUAL)
        yield f"{indent}{node.id}{opening}{_label(graph, node)}{closing}"
        if node.inner is not None:
            yield f'{indent}subgraph {node.id}_in["{quoted(node.inner.name, _TITLE)}"]'
            yield f"{indent}    direction TB"
            yield from _body(node.inner, f"{indent}    ")
            yield f"{indent}end"


def _label(graph: Graph, node: Node) -> str:
    """The lines of a node: what it is called, what it does, how it stands."""
    if node.kind == Kind.START:
        lines = [graph.name, *node.lines, *graph.lines]
        return "<br/>".join(quoted(line) for line in lines)
    name = [] if node.name == str(node.index) else [node.name]
    lines = [quoted(line) for line in [*name, *node.lines]]
    if node.mark is not None and node.kind != Kind.END:
        facts = "".join(f", {fact}" for fact in node.facts)
        lines.append(f"{SIGNS[node.mark]} {quoted(f'{node.mark}{facts}')}")
    return "<br/>".join(lines)


def _all_edges(graph: Graph) -> Iterator[Edge]:
    yield from graph.edges
    for node in graph.nodes:
        if node.inner is not None:
            yield Edge(node.id, f"{node.id}_in", Way.SIDE)
            yield from _all_edges(node.inner)


def _edge(edge: Edge) -> str:
    label = edge.label
    if edge.taken > 1:
        label = f"{label}, {counted(edge.taken, 'time')}" if label else counted(edge.taken, "time")
    said = f'|"{quoted(label)}"|' if label else ""
    return f"{edge.source} {_ARROWS[edge.way]}{said} {edge.target}"


def _classes(graph: Graph) -> Iterator[str]:
    by_mark: dict[Mark, list[str]] = {}
    for node in graph.all_nodes():
        if node.mark is not None:
            by_mark.setdefault(node.mark, []).append(node.id)
    for mark, ids in by_mark.items():
        name, look = _STYLES[mark]
        yield f"    classDef {name} {look}"
        yield f"    class {','.join(ids)} {name}"

"""A picture as an outline in plain text: a step a line, marks in brackets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from queuety.inspect.graph.labels import counted, plain, short
from queuety.inspect.graph.model import Edge, Graph, Kind, Mark, Node, Way

MARKS: Final = {
    Mark.DONE: "[x]",
    Mark.RUNNING: "[>]",
    Mark.WAITING: "[~]",
    Mark.PAUSED: "[=]",
    Mark.FAILED: "[!]",
    Mark.CANCELLED: "[/]",
    Mark.SKIPPED: "[-]",
    Mark.NOT_REACHED: "[ ]",
}

_WIDEST: Final = 32
"""How far to the right what a step does may begin."""

_LINE: Final = 160


def text(graph: Graph) -> str:
    """The outline: what it is, a line a step and what belongs to it below, what the marks mean; ends with a newline."""
    start = graph.nodes[0]
    lines = [f"{short(graph.name)}  {', '.join(map(plain, start.lines))}"]
    lines += [short(line, _LINE) for line in graph.lines]
    lines.append("")
    lines += _body(graph, "")
    used = {
        node.mark for node in graph.all_nodes() if node.mark is not None and node.kind not in (Kind.START, Kind.END)
    }
    if used:
        lines += ["", "  ".join(f"{sign} {mark}" for mark, sign in MARKS.items() if mark in used)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _body(graph: Graph, indent: str) -> Iterator[str]:
    steps = [node for node in graph.nodes if node.kind not in (Kind.START, Kind.END)]
    width = min(max((len(_head(node)) for node in steps if node.index is not None), default=0), _WIDEST)
    names = {node.id: node for node in graph.nodes}
    leads: dict[str, list[str]] = {}
    for edge in graph.edges:
        if (told := _lead(edge, names)) is not None:
            leads.setdefault(edge.source, []).append(told)
    for node in steps:
        sign = f"{MARKS[node.mark]} " if node.mark is not None else "    " if graph.is_run else ""
        below = f"{indent}{' ' * len(sign)}    "
        if node.kind == Kind.LEFT_OUT:
            yield f"{indent}{' ' * len(sign)}… {node.name} {' '.join(node.lines)}"
            continue
        if node.kind in (Kind.UNDO, Kind.ON_CANCEL, Kind.ON_DEADLINE):
            inset = "    " if node.kind == Kind.UNDO else ""
            yield short(f"{indent}{inset}{sign}{_with_facts(plain(node.name), node)}", _LINE)
            continue
        does = " · ".join(map(plain, node.lines))
        yield short(f"{indent}{sign}{_head(node):<{width}}  {_with_facts(does, node)}", _LINE)
        for told in leads.get(node.id, ()):
            yield f"{below}→ {told}"
        if node.inner is not None:
            yield from _body(node.inner, below)


def _head(node: Node) -> str:
    """The step's index and name; the name alone where it is the index."""
    name = short(node.name, 60)
    return name if name == str(node.index) else f"{node.index} {name}"


def _with_facts(said: str, node: Node) -> str:
    facts = ", ".join(map(plain, node.facts))
    return "  ".join(filter(None, (said, f"({facts})" if facts else "")))


def _lead(edge: Edge, names: dict[str, Node]) -> str | None:
    """A way that the step's own line does not tell."""
    if edge.way in (Way.NEXT, Way.SIDE):
        return None
    to = _head(names[edge.target]) if edge.target in names else ""
    times = f", {counted(edge.taken, 'time')}" if edge.taken else ""
    if edge.way is Way.JUMP:
        return f"jumped to {to}{times}"
    return (
        f"{plain(edge.label)} to {to}{times}" if edge.way is Way.TIMEOUT else f"back to {to}{times}" if times else None
    )

"""A workflow as a picture has it: nodes and the ways between them, nothing of how they are drawn.

Names stand here as they are; what draws them makes them fit for its format (`labels`). Ids are made of letters, digits
and `_`, and are the same for the same definition every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """How a step of a run stands, or a run itself."""

    DONE = "done"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    NOT_REACHED = "not reached"


class Kind(StrEnum):
    """What a node is that is no step; a step's node has the step's kind."""

    START = "start"
    END = "end"
    LEFT_OUT = "left_out"
    UNDO = "undo"
    ON_CANCEL = "on_cancel"
    ON_DEADLINE = "on_deadline"


class Way(StrEnum):
    """How one comes from one node to another: `next` by itself, `back` by a repeat, `timeout` when a wait is given up,
    `jump` as a run has done it, `side` is what may follow after the end."""

    NEXT = "next"
    BACK = "back"
    TIMEOUT = "timeout"
    JUMP = "jump"
    SIDE = "side"


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `kind` is a step's kind or one of `Kind`; `index` is the step's, 0-based, or the first one's left out.

    `lines` say what it does, `facts` how it stands in the run. `mark` is None where there is no run. `inner` is the
    workflow that the step runs or starts.
    """

    id: str
    kind: str
    name: str
    index: int | None = None
    lines: tuple[str, ...] = ()
    mark: Mark | None = None
    facts: tuple[str, ...] = ()
    inner: Graph | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one node to another, by their ids; `taken` counts how often the run has gone it."""

    source: str
    target: str
    way: Way
    label: str = ""
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow, its nodes in the order of its steps. `is_run` says that marks and `taken` mean something.

    The outermost one begins with a node `start` and ends with one `end`; a workflow within it has neither. Side nodes
    follow the node that they belong to, those of the run itself the start.
    """

    name: str
    lines: tuple[str, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    mark: Mark | None = None
    is_run: bool = False

    def all_nodes(self) -> Iterator[Node]:
        """Its nodes and those of the workflows in it, outer ones first."""
        for node in self.nodes:
            yield node
            if node.inner is not None:
                yield from node.inner.all_nodes()

"""From a definition, and a run of it, to the nodes and ways of its picture. Pure; nothing of a run is guessed.

What is drawn is bounded: of a long workflow the steps around where the run is, those at its beginning and its end; a
node says how many were left out. The cost is linear in the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from queuety.inspect.graph.describe import condition_of, what_it_does
from queuety.inspect.graph.labels import counted, duration, handler, listed
from queuety.inspect.graph.model import Edge, Graph, Kind, Mark, Node, Way
from queuety.inspect.graph.run import Child, RunFacts, StepFacts
from queuety.model import CleanupStatus, Definition, StepSpec, WorkflowStatus

DRAWN: Final = 200
"""Steps that are drawn at most, with those of the workflows within: Mermaid refuses more than 500 edges by itself."""

NESTED: Final = 6
"""How deep workflows are drawn within each other."""

_HELD: Final = frozenset({"delay", "wait_for_signal", "wait_for_workflows", "run_workflow"})
_MARKS: Final = {
    WorkflowStatus.RUNNING: Mark.RUNNING,
    WorkflowStatus.PAUSED: Mark.PAUSED,
    WorkflowStatus.WAITING_FOR_SIGNAL: Mark.WAITING,
    WorkflowStatus.WAITING_FOR_WORKFLOWS: Mark.WAITING,
    WorkflowStatus.COMPLETED: Mark.DONE,
    WorkflowStatus.FAILED: Mark.FAILED,
    WorkflowStatus.CANCELLED: Mark.CANCELLED,
}


def graph_of(definition: Definition, run: RunFacts | None = None, *, most: int = DRAWN) -> Graph:
    """The picture of the definition, or with `run` of that run of it; at most `most` steps are drawn."""
    return _Sketch(most).outermost(definition, run)


class _Sketch:
    """One picture in the making; `left` is how many steps it may still have."""

    def __init__(self, most: int) -> None:
        self.left = max(most, 1)

    def outermost(self, definition: Definition, run: RunFacts | None) -> Graph:
        nodes, edges = self._body(definition, run, "", 0)
        side, ties = _own_handlers(definition, run, "start")
        first = run.origin[1] if run is not None and run.origin is not None else 0
        chain = [node for node in nodes if node.index is not None]
        begins = [node for node in chain if node.index is not None and node.index <= first]
        to_end = 0
        if run is not None:
            to_end = sum(many for (_, target), many in run.moves.items() if target == len(definition.steps))
        start = Node("start", Kind.START, definition.name, lines=_about(definition))
        end = Node("end_", Kind.END, "end", mark=_of_end(run))
        begun = Edge("start", begins[-1].id, Way.NEXT, taken=int(run is not None))
        edges = [begun, *ties, *edges, Edge(chain[-1].id, "end_", Way.NEXT, taken=to_end)]
        return Graph(
            definition.name,
            _about_run(run),
            (start, *side, *nodes, end),
            tuple(edges),
            None if run is None else _MARKS[run.status],
            run is not None,
        )

    def _inner(self, definition: Definition, run: RunFacts | None, prefix: str, depth: int) -> Graph:
        nodes, edges = self._body(definition, run, prefix, depth)
        side, _ = _own_handlers(definition, run, "", prefix)
        mark = None if run is None else _MARKS[run.status]
        return Graph(definition.name, _about(definition), (*side, *nodes), tuple(edges), mark, run is not None)

    def _body(
        self, definition: Definition, run: RunFacts | None, prefix: str, depth: int
    ) -> tuple[list[Node], list[Edge]]:
        """The steps, each with what undoes it behind it, and the ways between them."""
        steps = definition.steps
        anchor = None if run is None else min(run.current_step, len(steps) - 1)
        shown = _chosen(len(steps), self.left, anchor)
        self.left -= sum(len(span) for span in shown)
        ids: dict[int, str] = {}
        nodes: list[Node] = []
        edges: list[Edge] = []
        for span in _with_gaps(shown, len(steps)):
            if not span.is_shown:
                gap = _left_out(span, prefix)
                ids.update(dict.fromkeys(span.indices, gap.id))
                nodes.append(gap)
                continue
            for index in span.indices:
                node = self._node(steps[index], index, run, prefix, depth)
                ids[index] = node.id
                nodes.append(node)
                undo = _undo(steps[index], node, run)
                if undo is not None:
                    nodes.append(undo)
                    edges.append(Edge(node.id, undo.id, Way.SIDE))
        return nodes, [*_ways(definition, run, ids), *edges]

    def _node(self, spec: StepSpec, index: int, run: RunFacts | None, prefix: str, depth: int) -> Node:
        own = f"{prefix}s{index}"
        mark = None if run is None else _mark(spec, index, run)
        child = run.children.get(index) if run is not None else None
        facts = () if run is None or mark is None else tuple(_facts_of(spec, index, run, mark, child))
        lines = what_it_does(spec)
        lines = () if lines == (spec.name,) else lines
        inner = None
        if spec.child is not None:
            within = child.run if child is not None else None
            described = spec.child if within is None else within.definition
            if self.left > 0 and depth < NESTED:
                inner = self._inner(described, within, f"{own}_", depth + 1)
            else:
                lines = (*lines, f"{counted(len(described.steps), 'step')}, left out here")
        return Node(own, spec.kind, spec.name, index, lines, mark, facts, inner)


@dataclass(frozen=True, slots=True)
class _Span:
    """Steps next to each other."""

    indices: range
    is_shown: bool


def _chosen(count: int, most: int, anchor: int | None) -> list[range]:
    """Which of so many steps are drawn: all, or the first, the last, and those around the anchor.

    >>> _chosen(5, 9, None), _chosen(100, 10, None), _chosen(100, 10, 50)
    ([range(0, 5)], [range(0, 8), range(98, 100)], [range(0, 4), range(48, 52), range(98, 100)])
    """
    if count <= most:
        return [range(count)]
    tail = most // 5
    around = 0 if anchor is None else most * 2 // 5
    head = max(most - tail - around, 1)
    wanted = [range(head), range(count - tail, count)]
    if anchor is not None:
        wanted.append(range(max(anchor - around // 2, 0), min(anchor - around // 2 + max(around, 1), count)))
    spans: list[range] = []
    for span in sorted((span for span in wanted if span), key=lambda span: span.start):
        if spans and span.start <= spans[-1].stop:
            spans[-1] = range(spans[-1].start, max(spans[-1].stop, span.stop))
        else:
            spans.append(span)
    return spans


def _with_gaps(shown: Sequence[range], count: int) -> Iterator[_Span]:
    """The steps that are shown and those between them, in order."""
    at = 0
    for span in shown:
        if at < span.start:
            yield _Span(range(at, span.start), is_shown=False)
        yield _Span(span, is_shown=True)
        at = span.stop
    if at < count:
        yield _Span(range(at, count), is_shown=False)


def _left_out(span: _Span, prefix: str) -> Node:
    first, last = span.indices[0], span.indices[-1]
    where = f"step {first}" if first == last else f"steps {first} to {last}"
    return Node(
        f"{prefix}gap{first}", Kind.LEFT_OUT, f"{counted(len(span.indices), 'step')} left out", first, (f"({where})",)
    )


def _ways(definition: Definition, run: RunFacts | None, ids: dict[int, str]) -> Iterator[Edge]:
    """The ways between the steps, in their order: those that the definition knows, then those that the run has gone."""
    steps = definition.steps
    index_of = {spec.name: index for index, spec in enumerate(steps)}
    left = {} if run is None else {move: many for move, many in run.moves.items() if max(move) < len(steps)}
    gone: dict[tuple[str, str], int] = {}
    for index, spec in enumerate(steps):
        for way, target, label in _leads(spec, index, index_of, len(steps)):
            source_id, target_id = ids[index], ids[target]
            taken = left.pop((index, target), 0)
            if source_id != target_id:
                yield Edge(source_id, target_id, way, label, taken)
    for (source, target), many in sorted(left.items()):
        if ids[source] != ids[target] or source == target:
            key = ids[source], ids[target]
            gone[key] = gone.get(key, 0) + many
    for (source_id, target_id), many in gone.items():
        yield Edge(source_id, target_id, Way.JUMP, "jumped", many)


def _leads(spec: StepSpec, index: int, index_of: dict[str, int], count: int) -> Iterator[tuple[Way, int, str]]:
    """Where a step leads by its definition."""
    if index + 1 < count:
        yield Way.NEXT, index + 1, ""
    target = index_of.get(spec.settings.get("target", ""))
    if target is not None:
        yield Way.BACK, target, condition_of(spec)
    target = index_of.get(spec.settings.get("on_timeout", ""))
    if target is not None and target != index + 1:
        yield Way.TIMEOUT, target, f"after {duration(spec.settings.get('timeout', 0))}"


def _undo(spec: StepSpec, node: Node, run: RunFacts | None) -> Node | None:
    if spec.compensation is None:
        return None
    mark: Mark | None = None
    facts: tuple[str, ...] = ()
    if run is not None and node.index is not None:
        own = run.step(node.index)
        mark = Mark.FAILED if own.not_undone else Mark.DONE if own.undone else Mark.NOT_REACHED
        if own.undone + own.not_undone > 1:
            facts = (counted(own.undone + own.not_undone, "time"),)
    return Node(f"{node.id}_undo", Kind.UNDO, f"undo: {handler(spec.compensation)}", mark=mark, facts=facts)


def _own_handlers(
    definition: Definition, run: RunFacts | None, tied_to: str, prefix: str = ""
) -> tuple[list[Node], list[Edge]]:
    """The run's own handlers, which run after its end, and what ties them to its start."""
    nodes = []
    for kind, ref, called in (
        (Kind.ON_CANCEL, definition.on_cancel, "on cancel"),
        (Kind.ON_DEADLINE, definition.on_deadline, "on deadline"),
    ):
        if ref is None:
            continue
        mark = None
        if run is not None:
            ended = run.cleaned.get(kind.value)
            mark = Mark.NOT_REACHED if ended is None else Mark.DONE if ended else Mark.FAILED
        nodes.append(Node(f"{prefix}{kind.value}", kind, f"{called}: {handler(ref)}", mark=mark))
    return nodes, [Edge(tied_to, node.id, Way.SIDE) for node in nodes]


def _mark(spec: StepSpec, index: int, run: RunFacts) -> Mark:
    """How the step stands. What was settled once is done, whatever came of the run since."""
    own = run.step(index)
    if run.status is WorkflowStatus.FAILED and index == run.failed_step:
        return Mark.FAILED
    if index == run.current_step and run.status is not WorkflowStatus.COMPLETED:
        if run.status is WorkflowStatus.RUNNING and spec.kind in _HELD:
            return Mark.WAITING
        return _MARKS[run.status]
    if own.settled:
        return Mark.SKIPPED if own.was_skipped else Mark.DONE
    if index > run.current_step:
        return Mark.NOT_REACHED
    began_before = run.origin is not None and index < run.origin[1]
    return Mark.DONE if began_before or run.is_pruned else Mark.SKIPPED


def _facts_of(spec: StepSpec, index: int, run: RunFacts, mark: Mark, child: Child | None) -> Iterator[str]:
    """What there is to say of the step beside its mark."""
    own = run.step(index)
    is_current = index == run.current_step and run.status is not WorkflowStatus.COMPLETED
    if is_current:
        yield from _of_visit(spec, own, run, mark)
    elif not own.settled and mark is Mark.DONE:
        yield "before the fork" if not run.is_pruned else "its history was pruned"
    if not is_current and own.parts:
        yield counted(own.parts, *(("item",) if spec.kind == "for_each" else ("branch", "branches"))) + " completed"
    if own.settled > 1:
        yield counted(own.settled, "time")
    if (back := run.loops.get(index, 0)) > 0:
        yield f"went back {counted(back, 'time')}"
    if own.failures and not (is_current and own.attempt == own.failures):
        yield counted(own.failures, "failed attempt")
    if child is not None:
        yield f"workflow {child.id}, {child.status.replace('_', ' ')}"


def _of_visit(spec: StepSpec, own: StepFacts, run: RunFacts, mark: Mark) -> Iterator[str]:
    """How far the step is at which the run stands."""
    kept = run.runtime
    if kept.get("entered") is False:
        yield "not begun"
    if spec.kind in ("for_each", "parallel"):
        if "total" in kept:
            thing = "items" if spec.kind == "for_each" else "branches"
            lost = f", {kept['failed']:,} failed" if kept.get("failed") else ""
            yield f"{kept.get('done', 0):,} of {kept['total']:,} {thing} done{lost}"
        if kept.get("reducing"):
            yield "putting them together"
    elif own.attempt:
        yield f"attempt {own.attempt + (mark is not Mark.FAILED)}"
    matched = kept.get("matched")
    if matched:
        yield f"has come: {listed([str(name) for name in matched], 'and')}"
    if isinstance(kept.get("ids"), list):
        yield f"waits for {counted(len(kept['ids']), 'workflow')}"
    if isinstance(kept.get("due_us"), int):
        yield f"until {_moment(kept['due_us'])}"


def _about(definition: Definition) -> tuple[str, ...]:
    """What holds for the whole workflow."""
    first = counted(len(definition.steps), "step")
    if definition.version is not None:
        first = f"{first}, version {definition.version}"
    facts = []
    if definition.deadline_s is not None:
        facts.append(f"within {duration(definition.deadline_s)}")
    if definition.compensates_on_failure:
        facts.append("undone on failure")
    return (first, ", ".join(facts)) if facts else (first,)


def _about_run(run: RunFacts | None) -> tuple[str, ...]:
    if run is None:
        return ()
    lines = [f"workflow {run.id}, {run.status.replace('_', ' ')}"]
    if run.origin is not None:
        lines.append(run.origin[0])
    if run.status is WorkflowStatus.FAILED and run.error_message:
        lines.append(run.error_message)
    if run.cleanup is not CleanupStatus.NONE:
        lines.append(f"cleaning up: {run.cleanup}")
    if run.is_pruned:
        lines.append("the first part of its history was pruned")
    return tuple(lines)


def _of_end(run: RunFacts | None) -> Mark | None:
    if run is None:
        return None
    return Mark.DONE if run.status is WorkflowStatus.COMPLETED else Mark.NOT_REACHED


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"

"""What there is to tell of a run in a picture, read from its row and counted over its history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from queuety.codec import decode
from queuety.define.wire import definition_from_json
from queuety.engine.pairing import counterpart
from queuety.errors import NotFoundError
from queuety.inspect.graph.run import Child, RunFacts, StepFacts
from queuety.model import CleanupStatus, Definition, Entry, WorkflowStatus
from queuety.store.queries import Record, definitions, graph
from queuety.store.queries.graph import Span
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

RUNS: Final = 30
"""How many runs are looked into for one picture: the run itself, its children and theirs."""

SPANS: Final = 100
"""How many stretches of the history are left out because the run went back over them; earlier ones count."""

MIGRATIONS: Final = 10
"""Through how many moves to other definitions the history is followed back."""

_CLEANED: Final = 20
_END: Final = 2**63 - 1


def run_facts(connection: Connection, tables: Tables, run_id: int) -> RunFacts | None:
    """The run, with the runs within it; None if there is none.

    A few statements for each of at most `RUNS`. Raises `NotFoundError` if its definition is gone, `DefinitionError` if
    this version cannot read it.
    """
    return _Reader(connection, tables).read(run_id)


class _Reader:
    """One picture's reads."""

    def __init__(self, connection: Connection, tables: Tables) -> None:
        self._connection = connection
        self._tables = tables
        self._left = RUNS
        self._known: dict[str, Definition] = {}

    def read(self, run_id: int) -> RunFacts | None:
        connection, tables = self._connection, self._tables
        row = graph.run(connection, tables, run_id)
        if row is None:
            return None
        self._left -= 1
        definition = self._definition(row["definition_hash"])
        turns = graph.turns(connection, tables, run_id)
        loops: Mapping[str, int] = decode(row["loops"]) if row["loops"] else {}
        facts = RunFacts(
            id=run_id,
            definition=replace(definition, name=row["name"]),
            status=WorkflowStatus(row["status"]),
            current_step=row["current_step"],
            failed_step=row["failed_step"],
            cleanup=CleanupStatus(row["cleanup"]),
            error_message=row["error_message"],
            runtime=(decode(row["runtime"]) if row["runtime"] else None) or {},
            loops={int(index): count for index, count in loops.items()},
            origin=_origin(turns),
            is_pruned=bool(turns) and turns[0]["seq"] > 1,
        )
        steps, moves = self._course(row, facts, turns)
        cleaned = self._cleaned(run_id) if facts.cleanup is not CleanupStatus.NONE else {}
        return replace(facts, steps=steps, moves=moves, cleaned=cleaned, children=self._children(run_id, definition))

    def _definition(self, hash_: str) -> Definition:
        if hash_ not in self._known:
            body = definitions.bodies(self._connection, self._tables, [hash_]).get(hash_)
            if body is None:
                raise NotFoundError(f"the definition {hash_} is not in the database; nothing can be drawn of it")
            self._known[hash_] = definition_from_json(decode(body), None)
        return self._known[hash_]

    def _course(
        self, row: Record, facts: RunFacts, turns: Sequence[Record]
    ) -> tuple[dict[int, StepFacts], dict[tuple[int, int], int]]:
        """What each step has behind it, and how the run went between them."""
        steps: dict[int, StepFacts] = {}
        moves: defaultdict[tuple[int, int], int] = defaultdict(int)
        without = _without(turns)
        last: int | None = None
        for within, index_of in self._stretches(facts.definition, turns):
            found = graph.counts(
                self._connection, self._tables, facts.id, visit=row["visit"], within=within, without=without
            )
            own = _steps(found)
            settled = [each for each in found if each["entry"] in graph.SETTLING]
            for index, own_facts in own.items():
                if (to := index_of(index)) is not None:
                    steps[to] = _together(steps.get(to), own_facts)
            for source, target, many in graph.moves(
                self._connection, self._tables, facts.id, within=within, without=without
            ):
                _count(moves, index_of(source), index_of(target), many)
            if settled:
                _count(moves, last, index_of(min(settled, key=lambda each: each["first"])["step_index"]))
                last = index_of(max(settled, key=lambda each: each["last"])["step_index"])
        _count(moves, last, facts.current_step)
        return steps, dict(moves)

    def _stretches(self, now: Definition, turns: Sequence[Record]) -> list[tuple[Span, _IndexOf]]:
        """The parts of the history under one definition each, oldest first, and which step of the present definition a
        step of theirs is."""
        migrations = [turn for turn in turns if turn["entry"] == Entry.MIGRATED]
        found: list[tuple[Span, _IndexOf]] = []
        index_of: _IndexOf = _itself
        upto, new = _END, now
        for turn in reversed(migrations[-MIGRATIONS:]):
            found.append(((turn["seq"], upto), index_of))
            told: Mapping[str, Any] = decode(turn["control"])["_migrated"]
            old = self._known_definition(told["from"])
            if old is None:
                return found[::-1]
            index_of = partial(_moved, old, new, told.get("step_map") or {}, index_of)
            upto, new = turn["seq"], old
        first = migrations[-MIGRATIONS - 1]["seq"] if len(migrations) > MIGRATIONS else 0
        return [((first, upto), index_of), *found[::-1]]

    def _known_definition(self, hash_: str) -> Definition | None:
        try:
            return self._definition(hash_)
        except NotFoundError:
            return None

    def _cleaned(self, run_id: int) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for row in graph.cleaned(self._connection, self._tables, run_id, limit=_CLEANED):
            name = (decode(row["control"]).get("_cleanup") or {}).get("handler") if row["control"] else None
            if name is not None and (row["entry"] == Entry.CLEANED or row["final"]):
                found.setdefault(name, row["entry"] == Entry.CLEANED)
        return found

    def _children(self, run_id: int, definition: Definition) -> dict[int, Child]:
        if not any(spec.kind == "run_workflow" for spec in definition.steps):
            return {}
        found: dict[int, Child] = {}
        for row in graph.children(self._connection, self._tables, run_id):
            run = self.read(row["id"]) if self._left > 0 else None
            found[row["parent_step"]] = Child(row["id"], WorkflowStatus(row["status"]), run)
        return found


_IndexOf = Callable[[int], "int | None"]
"""Which step of the present definition a step of an earlier one is; None for one that is not in it."""


def _itself(index: int) -> int | None:
    return index


def _moved(old: Definition, new: Definition, step_map: Mapping[str, str], after: _IndexOf, index: int) -> int | None:
    to = counterpart(old, new, step_map, index) if index < len(old.steps) else None
    return None if to is None else after(to)


def _count(moves: dict[tuple[int, int], int], source: int | None, target: int | None, many: int = 1) -> None:
    if source is not None and target is not None:
        moves[source, target] = moves.get((source, target), 0) + many


def _without(turns: Sequence[Record]) -> list[Span]:
    """The rows that count no more, because the run went back over them; as few stretches as they make."""
    spans: list[Span] = []
    for turn in turns:
        if turn["entry"] != Entry.REWOUND:
            continue
        low, high = decode(turn["control"])["_rewound"]["to_seq"], turn["seq"]
        while spans and spans[-1][1] >= low:
            low = min(low, spans.pop()[0])
        spans.append((low, high))
    return spans[-SPANS:]


def _steps(found: Iterable[Record]) -> dict[int, StepFacts]:
    """What the rows of each step come to."""
    rows: defaultdict[int, dict[str, Record]] = defaultdict(dict)
    for row in found:
        rows[row["step_index"]][row["entry"]] = row
    return {index: _facts(own) for index, own in rows.items()}


def _facts(rows: Mapping[str, Record]) -> StepFacts:
    def many(*entries: Entry, column: str = "many") -> int:
        return sum(int(rows[entry][column]) for entry in entries if entry in rows)

    settled = [row for entry, row in rows.items() if entry in graph.SETTLING]
    failed = rows.get(Entry.FAILED)
    return StepFacts(
        settled=sum(int(row["many"]) for row in settled),
        was_skipped=bool(settled) and max(settled, key=lambda row: int(row["last"]))["entry"] == Entry.SKIPPED,
        failures=many(Entry.FAILED),
        parts=many(Entry.BRANCH, Entry.ITEM),
        attempt=int(failed["attempt"] or 0) if failed is not None else 0,
        undone=many(Entry.CLEANED),
        not_undone=many(Entry.UNCLEANED, column="final"),
    )


def _together(earlier: StepFacts | None, later: StepFacts) -> StepFacts:
    """What an earlier stretch of the history and a later one have of a step."""
    if earlier is None:
        return later
    return StepFacts(
        settled=earlier.settled + later.settled,
        was_skipped=later.was_skipped if later.settled else earlier.was_skipped,
        failures=earlier.failures + later.failures,
        parts=earlier.parts + later.parts,
        attempt=later.attempt,
        undone=earlier.undone + later.undone,
        not_undone=earlier.not_undone + later.not_undone,
    )


def _origin(turns: Sequence[Record]) -> tuple[str, int] | None:
    """What the run began as, if it was forked off another one."""
    first = turns[0] if turns else None
    if first is None or first["entry"] != Entry.FORKED:
        return None
    told = decode(first["control"]).get("_forked") or {}
    return (f"forked from workflow {told['from']}", first["step_index"]) if "from" in told else None

"""The database's own plans of the hot statements: an index's range, nothing sorted, however much is stored.

Each statement is caught as it runs, with its parameters, on tables that are large enough and analysed, so that the
planner has a choice. `test_a_plan_that_sorts_or_scans_is_found_out` shows that these tests can fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from queuety.model import (
    AddWorkflow,
    AppendHistory,
    ClearChunks,
    Effect,
    Entry,
    Job,
    KeepGroup,
    KeepSignal,
    NewJob,
    Priority,
    Role,
    TellWatchers,
    UseSignals,
    Watch,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import NeedGroup, NeedParts, NeedSignals
from queuety.store import chunks, claims, leases, letters, load, settle, side, watchers
from queuety.store.door import Door, Tx
from queuety.store.facts import read_facts
from queuety.store.rows import Lease
from queuety.store.statements import CHUNK_COLUMNS
from tests.support.databases import Database
from tests.support.hands import SECOND, House, definition, new_job, pause_of, single

ROWS = 3_000
"""Of each sort: below some hundreds a planner reads the whole table whatever the indexes are."""


@dataclass(frozen=True)
class Plan:
    """What the database is going to do. `scans` names tables that it reads whole, `indexes` what it reads by."""

    indexes: frozenset[str]
    scans: bool
    sorts: bool
    text: str


def plan_of(tx: Tx, table: str, statement: str, parameters: Any) -> Plan:
    """The plan of this statement as this database tells it; only reading `table` whole counts as a scan."""
    kind = tx.dialect.name
    # A plan is made for what is asked; SKIP LOCKED and FOR UPDATE do not change which rows are read, or how.
    if kind == "sqlite":
        tx.cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        lines = [str(row[3]) for row in tx.cursor.fetchall()]
        return Plan(
            frozenset(name for line in lines for name in re.findall(r"INDEX (\w+)", line)),
            any(line.startswith(f"SCAN {table}") and "USING" not in line for line in lines),
            any("TEMP B-TREE" in line for line in lines),
            "\n".join(lines),
        )
    if kind == "postgresql":
        tx.cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
        answer = tx.cursor.fetchone()[0]
        tree = answer if isinstance(answer, list) else json.loads(answer)
        nodes = list(_nodes(tree))
        return Plan(
            frozenset(node["Index Name"] for node in nodes if "Index Name" in node),
            any(node.get("Node Type") == "Seq Scan" and node["Relation Name"] == table for node in nodes),
            any(node.get("Node Type") in ("Sort", "Incremental Sort") for node in nodes),
            json.dumps(tree, indent=1),
        )
    tx.cursor.execute(f"EXPLAIN FORMAT=JSON {statement}", parameters)
    # MariaDB quotes the text of a condition in it without escaping what is quoted there.
    tree = json.loads(tx.cursor.fetchone()[0].replace("'%\"_used\"%'", "'%_used%'"))
    nodes = list(_nodes(tree))
    tables = [node for node in nodes if "access_type" in node]
    return Plan(
        frozenset(str(node["key"]) for node in tables if "key" in node),
        any(node["access_type"] in ("ALL", "index") and node["table_name"] == table for node in tables),
        any("filesort" in node or node.get("using_filesort") for node in nodes),
        json.dumps(tree, indent=1),
    )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def plans_of(door: Door, table: str, unit: Callable[[Tx], Any]) -> list[Plan]:
    """The plans of all statements on this table that the unit makes; it is rolled back."""
    caught: list[tuple[str, Any]] = []

    class Caught(Exception):
        pass

    class Cursor:
        def __init__(self, cursor: Any) -> None:
            self._cursor = cursor

        def execute(self, statement: str, parameters: Any = ()) -> Any:
            caught.append((statement, parameters))
            return self._cursor.execute(statement, parameters)

        def executemany(self, statement: str, rows: Any) -> Any:
            caught.append((statement, rows[0]))
            return self._cursor.executemany(statement, rows)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

    def catching(tx: Tx) -> None:
        plain = tx.cursor
        tx.cursor = Cursor(plain)
        unit(tx)
        tx.cursor = plain
        name = getattr(tx.tables, table).name
        found.extend(
            plan_of(tx, name, statement, parameters)
            for statement, parameters in caught
            if re.search(rf"\b(FROM|UPDATE) {name}\b", statement)
        )
        raise Caught

    found: list[Plan] = []
    with pytest.raises(Caught):
        door.write(catching)
    assert found, "no statement on that table"
    return found


@pytest.fixture
def crowded(database: Database) -> Iterator[House]:
    """Thousands of jobs of each sort in a few queues, runs in each status, timers near and far; analysed."""
    with House(database.url) as house:
        now_us = house.clock.us

        def jobs() -> Iterator[NewJob]:
            for number in range(ROWS):
                yield new_job(queue=f"q{number % 3}", due_us=now_us - number, role=Role.JOB)
            for number in range(ROWS):
                yield new_job(queue=f"q{number % 3}", due_us=now_us + (number + 1) * SECOND)

        house.add(*jobs())
        house.dispatch_many(definition(pause_of(3600)), [{}] * ROWS)
        house.dispatch_many(definition(single(queue="steps")), [{}] * 200)
        house.door.write(lambda tx: _age(tx, now_us))
        house.door.write(analyse)
        yield house


def _age(tx: Tx, now_us: int) -> None:
    """Most of the jobs are done, some are held; most runs have ended, a few timers are due."""
    jobs, workflows, inbox = tx.statements.jobs, tx.statements.workflows, tx.statements.inbox
    tx.cursor.execute(
        f"UPDATE {jobs} SET phase = 'completed', completed_us = {now_us} WHERE phase = 'ready' AND id % 3 = 0 "
        "AND workflow_id IS NULL"
    )
    tx.cursor.execute(
        f"UPDATE {jobs} SET phase = 'leased', token = id, owner = id % 7, attempts = 1, "
        f"wake_us = {now_us} - 5 + id % 30000 WHERE phase = 'ready' AND id % 9 = 1"
    )
    tx.cursor.execute(f"UPDATE {jobs} SET phase = 'suspect' WHERE phase = 'ready' AND id % 50 = 2")
    tx.cursor.execute(f"UPDATE {workflows} SET status = 'completed' WHERE id % 20 <> 0")
    tx.cursor.execute(f"UPDATE {inbox} SET due_us = {now_us} - 7 WHERE id % 100 = 0")


def analyse(tx: Tx, *names: str) -> None:
    for table in (getattr(tx.tables, name) for name in names or ("jobs", "workflows", "inbox", "history")):
        head = "ANALYZE TABLE" if tx.dialect.name == "mysql" else "ANALYZE"
        tx.cursor.execute(f"{head} {table.name}")
        if tx.dialect.name == "mysql":
            tx.cursor.fetchall()


def test_the_hot_statements_read_a_range_of_their_index(crowded: House) -> None:
    """One test, so that the tables are filled once: the message names the statement."""
    tables, now_us = crowded.door.tables, crowded.clock.us
    prefix = f"ix_{tables.prefix}"
    ready, wake, due = (f"{prefix}{name}" for name in ("jobs_ready", "jobs_wake", "inbox_due"))
    lease = Lease(1, 1, now_us + 30 * SECOND)

    hot: dict[str, tuple[str, str, Callable[[Tx], Any]]] = {
        "claim": ("jobs", ready, lambda tx: claims.claim(tx, ["q1"], 10, lease, now_us=now_us)),
        "claim of suspects": (
            "jobs",
            ready,
            lambda tx: claims.claim_suspect(tx, ["q1", "q2", "q0"], lease, now_us=now_us),
        ),
        "promotion": ("jobs", wake, lambda tx: claims.promote(tx, now_us=now_us + 20 * SECOND, limit=10)),
        "leases that have ended": ("jobs", wake, lambda tx: leases.ended(tx, now_us=now_us, limit=10)),
        "renewal": (
            "jobs",
            wake if crowded.door.dialect.name != "mysql" else ready,
            lambda tx: claims.renew(tx, [3], now_us + 30 * SECOND),
        ),
        "what is due": ("inbox", due, lambda tx: load.due_workflows(tx, now_us, 10)),
        "probe": ("jobs", ready, lambda tx: claims.probe(tx, ["q1", "q2"])),
    }
    wrong = []
    for name, (table, index, unit) in hot.items():
        plans = plans_of(crowded.door, table, unit)
        plan = plans[0]  # what follows in some of them is by the keys that it has found
        if plan.scans or plan.sorts:
            wrong.append(f"{name}: scans {plan.scans}, sorts {plan.sorts}\n{plan.text}")
        if index not in plan.indexes:
            wrong.append(f"{name}: reads by {sorted(plan.indexes)} instead of {index}\n{plan.text}")
    assert not wrong, "\n\n".join(wrong)


@pytest.fixture
def coordinated(database: Database) -> Iterator[House]:
    """Thousands of signals, watchers, chunks, items and children, most of them of a few runs; analysed."""
    with House(database.url) as house:
        job = Job(7, Role.STEP, "default", Priority.LOW, "tests:item", 1, 3, 7, 0, 0, branch=0)
        effects: list[Effect] = []
        for number in range(ROWS):
            run, seq = number % 30, number // 30 + 1
            effects.append(KeepSignal(run, seq, f"s{number % 7}", {}, 1))
            effects.append(Watch(run, 10_000 + seq, 1))
            effects.append(KeepGroup(run, f"g{seq}", (1, 2)))
            effects.append(AppendHistory(run, seq, Entry.ITEM, 1, number + 1, replace(job, id=number), visit=1))
            workflow = Workflow(
                20_000 + number, "child", "", WorkflowStatus.RUNNING, 0, 1, 1, 0, {}, 1, parent_id=run or None
            )
            effects.append(AddWorkflow(workflow, {}))
        house.door.write(lambda tx: settle.write(tx, settle.Plan.of(effects), {}))
        rows = [(number % 30, 1, -1, number // 30, "1", 1) for number in range(ROWS)]
        add = house.door.dialect.bulk.insert(house.door.tables.chunks, CHUNK_COLUMNS)
        house.door.write(lambda tx: add(tx.cursor, rows))
        house.door.write(lambda tx: analyse(tx, "signals", "groups", "watchers", "chunks", "history", "workflows"))
        yield house


def _primary(house: House, table: str) -> str:
    """What a plan calls the index of the table's primary key; SQLite numbers those that it makes by itself."""
    name = getattr(house.door.tables, table).name
    kind = house.door.dialect.name
    return {"sqlite": f"sqlite_autoindex_{name}_1", "postgresql": f"{name}_pkey", "mysql": "PRIMARY"}[kind]


def test_what_steps_ask_for_is_read_by_the_key_of_their_run(coordinated: House) -> None:
    house = coordinated
    by_name = f"ix_{house.door.tables.prefix}signals_name"
    by_parent = f"ix_{house.door.tables.prefix}workflows_parent"
    ended = [TellWatchers(3, 5)]

    def children(tx: Tx) -> None:
        tx.cursor.execute(f"SELECT id FROM {tx.statements.workflows} WHERE parent_id = 5 ORDER BY id DESC LIMIT 10")

    hot: dict[str, tuple[str, str, Callable[[Tx], Any]]] = {
        "signals of a name": ("signals", by_name, lambda tx: read_facts(tx, {3: [NeedSignals("s1", 2, 5)]})),
        "use of a signal": (
            "signals",
            _primary(house, "signals"),
            lambda tx: side.write(tx, [UseSignals(3, (9,)), UseSignals(4, (9,))]),
        ),
        "end of a stream": ("chunks", _primary(house, "chunks"), lambda tx: side.write(tx, [ClearChunks(3, 1, None)])),
        "a group": ("groups", _primary(house, "groups"), lambda tx: read_facts(tx, {3: [NeedGroup("g7")]})),
        "parts": ("history", _primary(house, "history"), lambda tx: read_facts(tx, {3: [NeedParts(1, 80)]})),
        "watchers of a run": ("watchers", _primary(house, "watchers"), lambda tx: letters.send(tx, (), (), ended)),
        "a page of watchers": (
            "watchers",
            _primary(house, "watchers"),
            lambda tx: watchers.stale_watchers(tx, (3, 10_040), 5, now_us=1),
        ),
        "chunks": ("chunks", _primary(house, "chunks"), lambda tx: chunks.existing(tx, 3, 1, None)),
        "children": ("workflows", by_parent, children),
    }
    wrong = []
    for name, (table, index, unit) in hot.items():
        plan = plans_of(house.door, table, unit)[0]
        if plan.scans or (plan.sorts and name not in ("watchers of a run", "chunks")):  # these read all that they sort
            wrong.append(f"{name}: scans {plan.scans}, sorts {plan.sorts}\n{plan.text}")
        if index not in plan.indexes:
            wrong.append(f"{name}: reads by {sorted(plan.indexes)} instead of {index}\n{plan.text}")
    assert not wrong, "\n\n".join(wrong)


def test_a_plan_that_sorts_or_scans_is_found_out(crowded: House) -> None:
    def sorting(tx: Tx) -> None:
        tx.cursor.execute(
            f"SELECT id FROM {tx.statements.jobs} WHERE phase = 'ready' ORDER BY created_us, attempts LIMIT 5"
        )

    def scanning(tx: Tx) -> None:
        tx.cursor.execute(f"SELECT id FROM {tx.statements.jobs} WHERE handler = 'nobody'")

    assert plans_of(crowded.door, "jobs", sorting)[0].sorts
    assert plans_of(crowded.door, "jobs", scanning)[0].scans

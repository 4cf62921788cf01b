"""The database's own plans of what is read of the past and deleted of it: by a key or an index, never a whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuety.model import JobStatus, WorkflowStatus
from queuety.model.needs import (
    NeedBelongings,
    NeedOpenJobs,
    NeedPast,
    NeedUndo,
    NeedUsedSignals,
    NeedWatching,
)
from queuety.store import artifacts, prune, purge, tags
from queuety.store.door import Tx
from queuety.store.facts import read_facts
from queuety.store.past import states_at
from queuety.store.purge import Place
from queuety.store.statements import ARTIFACT_COLUMNS
from tests.store.test_plans import ROWS, analyse, plans_of
from tests.support.databases import Database
from tests.support.hands import House, definition, new_job, single

RUNS = 1_500
"""Of which most have completed, some have failed, and a few go on."""

LONG = 50
"""How many of them have a history of some length."""


PURGED = ("workflows", "jobs", "inbox", "history", "checkpoints", "artifacts", "tags", "watchers", "signals")

Unit = Callable[[Tx], Any]


@pytest.fixture
def aged(database: Database) -> Iterator[House]:
    """Thousands of runs of all sorts with what belongs to them, and thousands of plain jobs; analysed."""
    with House(database.url) as house:
        house.dispatch_many(definition(single(), single("two")), [{}] * RUNS)
        house.add(*(new_job() for _ in range(ROWS)))
        house.door.write(lambda tx: fill(tx, house.clock.us))
        names = ("jobs", "workflows", "inbox", "history", "checkpoints", "artifacts", "tags", "signals", "watchers")
        house.door.write(lambda tx: analyse(tx, *names))
        yield house


def fill(tx: Tx, now_us: int) -> None:
    workflows, jobs, bulk = tx.statements.workflows, tx.statements.jobs, tx.dialect.bulk
    tx.cursor.execute(f"SELECT id FROM {workflows} ORDER BY id")
    ids = [row[0] for row in tx.cursor.fetchall()]
    ended = f"completed_us = {now_us} - 1000000 * id, created_us = 5"
    tx.cursor.execute(f"UPDATE {workflows} SET status = 'completed', {ended} WHERE id % 10 > 1")
    tx.cursor.execute(f"UPDATE {workflows} SET status = 'failed', failed_us = 5 WHERE id % 10 = 1")
    tx.cursor.execute(f"UPDATE {workflows} SET version = 60, state_version = 60, visit = 60, current_step = 1")
    tx.cursor.execute(f"UPDATE {workflows} SET parent_id = id - 1 WHERE id % 100 = 7")
    tx.cursor.execute(
        f"UPDATE {jobs} SET phase = 'completed', completed_us = {now_us} - id WHERE workflow_id IS NULL AND id % 3 > 0"
    )
    tx.cursor.execute(f"UPDATE {jobs} SET phase = 'buried', completed_us = {now_us} - id WHERE workflow_id IS NOT NULL")
    columns = ("run_id", "seq", "entry", "at_us", "token", "step_index", "visit", "final", "changed", "control")
    history = [
        (run, seq, "resumed", now_us - run, 0, 0, seq, 0, "{}", '{"_used":[1]}' if seq == 9 else None)
        for run in ids[:LONG]
        for seq in range(1, 61)
    ]
    bulk.insert(tx.tables.history, columns)(tx.cursor, history)
    tx.statements.keep_checkpoints(tx.cursor, [(run, seq, "{}") for run in ids for seq in (20, 40)])
    tx.statements.add_tags(tx.cursor, [(tag, run) for run in ids for tag in ("red", "blue")])
    kept = {"name": "a", "kind": "text", "metadata": "{}", "created_us": 1, "updated_us": 1}
    rows = [tuple({"workflow_id": run, **kept}.get(name) for name in ARTIFACT_COLUMNS) for run in ids]
    tx.statements.keep_artifacts(tx.cursor, rows)
    tx.statements.add_inbox(tx.cursor, [(10**7 + run, run, now_us + run, "timer", 1, None) for run in ids])
    tx.statements.add_signals(tx.cursor, [(run, 1, "go", "{}", 1) for run in ids])
    tx.statements.keep_watchers(tx.cursor, [(run, 10**6 + run, 1) for run in ids])


def wrong_with(house: House, hot: dict[str, tuple[str, Unit]], *, sorts: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with the plans of all statements on these tables; `sorts` may sort what they have read."""
    found: list[str] = []
    for name, (table, unit) in hot.items():
        for plan in plans_of(house.door, table, unit):
            if plan.scans or (plan.sorts and name not in sorts):
                found.append(f"{name}: scans {plan.scans}, sorts {plan.sorts}\n{plan.text}")
    return found


def test_what_is_read_of_the_past_and_purged_goes_by_keys_and_indexes(
    aged: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, so that the tables are filled once: the message names the statement. Of few rows at a time: for many
    out of so few a planner rightly reads them all."""
    monkeypatch.setattr(purge, "FAILED_AT_ONCE", 3)
    wrong = [*recalled(aged), *purged(aged), *pruned(aged)]
    assert not wrong, "\n\n".join(wrong)


def recalled(aged: House) -> Iterator[str]:
    ids = [row["id"] for row in aged.rows("workflows")]
    run = ids[3]

    def asking(*needs: Any) -> Unit:
        return lambda tx: read_facts(tx, {run: list(needs)})

    yield from wrong_with(
        aged,
        {
            "a settled step": ("history", asking(NeedPast(0))),
            "an entered step": ("history", asking(NeedPast(0, is_entry=True), NeedPast(1, is_entry=True))),
            "undo": ("history", asking(NeedUndo(50, (0,)))),
            "used signals": ("history", asking(NeedUsedSignals(3))),
            "open jobs": ("jobs", asking(NeedOpenJobs())),
            "watching": ("watchers", asking(NeedWatching(tuple(ids[:3]), 1))),
            "signals": ("signals", asking(NeedBelongings())),
            "states": ("checkpoints", lambda tx: states_at(tx, [(each, 30) for each in ids[:3]])),
            "deltas": ("history", lambda tx: states_at(tx, [(each, 30) for each in ids[:3]])),
            "artifacts": ("artifacts", lambda tx: artifacts.listed(tx, run, with_content=True)),
            "an artifact": ("artifacts", lambda tx: artifacts.get(tx, run, "a")),
            "keys": ("artifacts", lambda tx: artifacts.keys(tx, ids[:3])),
            "tags": ("tags", lambda tx: tags.of(tx, ids[:3])),
        },
        sorts=("open jobs", "keys", "signals", "a settled step", "an entered step", "undo"),
    )


def purged(aged: House) -> Iterator[str]:
    now_us, prefix = aged.clock.us, f"ix_{aged.door.tables.prefix}"
    over = (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)
    ids = [row["id"] for row in aged.rows("workflows")]
    middle = Place(moment_us=now_us - 1_000_000 * ids[1000], last_id=ids[1000], read_us=now_us)
    failed = Place(is_at_failed=True, last_id=ids[1000], read_us=now_us)

    def runs(place: Place) -> Unit:
        statuses = (WorkflowStatus.FAILED,) if place.is_at_failed else over
        return lambda tx: purge.purge_runs(tx, before_us=now_us, statuses=statuses, after=place, limit=3)

    def jobs(tx: Tx) -> Any:
        place = Place(moment_us=now_us - 2 * RUNS - 200, last_id=0)
        return purge.purge_plain_jobs(tx, before_us=now_us, statuses=(JobStatus.COMPLETED,), after=place, limit=3)

    hot: dict[str, tuple[str, Unit]] = {f"{table} of ended runs": (table, runs(middle)) for table in PURGED}
    hot |= {f"{table} of failed runs": (table, runs(failed)) for table in PURGED}
    hot |= {"plain jobs": ("jobs", jobs), "history of plain jobs": ("history", jobs)}
    yield from wrong_with(aged, hot, sorts=tuple(name for name in hot if name.startswith("workflows")))
    for name, table, unit, index in (
        ("ended runs", "workflows", runs(middle), "workflows_done"),
        ("failed runs", "workflows", runs(failed), "workflows_status"),
        ("plain jobs", "jobs", jobs, "jobs_done"),
    ):
        plan = plans_of(aged.door, table, unit)[0]
        if plan.indexes != {prefix + index} or plan.sorts:
            yield f"page of {name}: {plan.text}"
    if not any(f"{prefix}watchers_waiter" in plan.indexes for plan in plans_of(aged.door, "watchers", runs(middle))):
        yield "who watched is not found by an index"


def pruned(aged: House) -> Iterator[str]:
    now_us = aged.clock.us

    def unit(tx: Tx) -> Any:
        return prune.prune_history(tx, before_us=now_us, after_id=None, limit=3, may_prune=lambda _: True)

    first, *rest = plans_of(aged.door, "history", unit)
    if first.indexes != {f"ix_{aged.door.tables.prefix}history_at"} or first.sorts:
        yield f"is anything old: {first.text}"  # MySQL calls the first row of an index a scan of it
    yield from (f"history of a pruning: {plan.text}" for plan in rest if plan.scans or plan.sorts)
    yield from wrong_with(aged, {f"{table} of a pruning": (table, unit) for table in ("workflows", "checkpoints")})

"""Runs that are over and have something of their own in every table, and passes that purge them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import update

from queuety.model import KeepGroup, KeepSignal, LetterKind, Role, Send, Watch, WorkflowStatus
from queuety.store import artifacts, purge, settle, tags
from queuety.store.door import Tx
from queuety.store.purge import Place, Purged
from tests.support.hands import House, definition, new_job

OVER = (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)
ALL = (*OVER, WorkflowStatus.FAILED)
DAY = 86_400


def purged(
    house: House,
    *,
    statuses: Collection[WorkflowStatus] = ALL,
    before_us: int | None = None,
    after: Place | None = None,
    limit: int = 100,
) -> Purged:
    """One call."""
    before = house.clock.us if before_us is None else before_us
    return house.door.write(
        lambda tx: purge.purge_runs(tx, before_us=before, statuses=statuses, after=after, limit=limit)
    )


def passed(house: House, **more: Any) -> int:
    """One pass; how many runs are gone."""
    count, after = 0, None
    while True:
        found = purged(house, after=after, **more)
        count, after = count + found.count, found.after
        if after is None:
            return count


def there(house: House) -> list[int]:
    return [row["id"] for row in house.rows("workflows")]


def completed(house: House, count: int = 1, *, key: str | None = None) -> list[int]:
    """Runs that have completed now; the clock is then a second later."""
    runs = [house.dispatch(definition(), key=key)] if key else house.dispatch_many(definition(), [{}] * count)
    hand = house.hand()
    hand.work()
    house.clock.advance(1)
    return runs


OWNED = (
    *("workflows", "jobs", "history", "inbox", "signals", "groups", "watchers", "chunks"),
    *("checkpoints", "artifacts", "tags"),
)


def furnish(house: House, run: int, *, jobs: int = 1, chunks: int = 2, signals: int = 2) -> None:
    """Something of the run in every table."""
    later = house.clock.us + DAY * 1_000_000

    def unit(tx: Tx) -> None:
        effects: list[Any] = [KeepSignal(run, 1000 + number, "go", {}, 1) for number in range(signals)]
        effects += [KeepGroup(run, "a", (900, 901)), Send(run, LetterKind.TIMER, later, None, 9)]
        effects += [Send(run, LetterKind.DEADLINE, later), Watch(800, run, 1), Watch(run, 10**9, 1)]
        settle.write(tx, settle.Plan.of(effects), {})
        tx.statements.keep_checkpoints(tx.cursor, [(run, 1, "{}")])
        tags.add(tx, [(run, "red"), (run, "blue")])
        for key in ("x", "y"):
            artifacts.put(
                tx, run, key, kind="t", content="c", data=None, metadata="{}", step_index=0, now_us=1, is_fenced=True
            )
        rows = [(run, 1 + number % 3, number % 2, number, "1", 1) for number in range(chunks)]
        tx.dialect.bulk.insert(tx.tables.chunks, ("workflow_id", "visit", "branch", "number", "content", "at_us"))(
            tx.cursor, rows
        )

    house.door.write(unit)
    buried = house.add(
        *(new_job(role=Role.STEP, workflow_id=run, step_index=0, visit=1) for _ in range(jobs)),
        new_job(role=Role.CLEANUP, workflow_id=run),
    )
    table = house.door.tables.jobs
    house.door.write(
        lambda tx: tx.connection.execute(
            update(table).where(table.c.id.in_(buried)).values(phase="buried", completed_us=5)
        )
    )


def owned_by(house: House, run: int) -> dict[str, int]:
    """How many rows of each table say that they are this run's."""
    owner = {"workflows": "id", "history": "run_id", "checkpoints": "run_id"}
    found = {table: len(house.rows(table, **{owner.get(table, "workflow_id"): run})) for table in OWNED}
    return found | {"waits": len(house.rows("watchers", waiter_id=run))}

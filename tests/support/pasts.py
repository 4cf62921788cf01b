"""Runs with a long past, written through the store without anybody having worked on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from queuety.model import AppendHistory, Entry, SaveWorkflow, State, WorkflowStatus
from queuety.model.deltas import fold
from queuety.store import load, settle
from queuety.store.load import Runs
from queuety.store.tx import Tx
from tests.support.hands import House

Change = tuple[State, tuple[str, ...]]
"""What a row sets and removes."""


def counted(number: int) -> Change:
    """What the row `number` changes: a counter, and a key that comes and goes."""
    return {"n": number, **({"odd": number} if number % 2 else {})}, () if number % 2 else ("odd",)


def live(
    house: House,
    run: int,
    rows: int,
    *,
    change: Callable[[int], Change] = counted,
    visits: bool = True,
    at_once: int = 100,
    **row: Any,
) -> None:
    """So many rows more in the history of the run, each of a step that has settled, `at_once` in a transaction.

    The run stands where it stood, some visits later (with `visits`). `row` are more fields of the rows.
    """

    def unit(tx: Tx, count: int) -> None:
        held = load.lock(tx, Runs(), [run], waiting=True)
        was = now = held[run].workflow
        written: list[AppendHistory] = []
        for seq in range(was.version + 1, was.version + count + 1):
            changed, removed = change(seq)
            usual: dict[str, Any] = {
                "entry": Entry.RESUMED,
                "at_us": tx.now_us(),
                "token": 0,
                "step_index": now.current_step,
                "visit": now.visit,
            }
            written.append(AppendHistory(run, seq, **(usual | row), changed=changed, removed=removed))
            state = fold(now.state, [(changed, removed)])
            more = 1 if visits else 0
            now = replace(now, version=seq, state=state, visit=now.visit + more, transitions=now.transitions + more)
        settle.write(tx, settle.Plan.of([*written, SaveWorkflow(now, was)]), held)

    for _ in range(rows // at_once):
        house.door.write(lambda tx: unit(tx, at_once))
    if rows % at_once:
        house.door.write(lambda tx: unit(tx, rows % at_once))


def tell(house: House, run: int, *rows: dict[str, Any], **changes: Any) -> None:
    """Rows of the history, each by its fields (`entry`, and what else it has), and then these changes of the run.

    Rows are of the run's step and visit unless they say otherwise.
    """

    def unit(tx: Tx) -> None:
        held = load.lock(tx, Runs(), [run], waiting=True)
        was = held[run].workflow
        state = was.state
        written: list[AppendHistory] = []
        for seq, row in enumerate(rows, was.version + 1):
            usual = {"at_us": tx.now_us(), "token": 0, "step_index": was.current_step, "visit": was.visit}
            written.append(AppendHistory(run, seq, **(usual | row)))
            state = fold(state, [(row.get("changed") or {}, row.get("removed") or ())])
        now = replace(was, version=was.version + len(rows), state=state, **changes)
        settle.write(tx, settle.Plan.of([*written, SaveWorkflow(now, was)]), held)

    house.door.write(unit)


def end(house: House, runs: Iterable[int], status: WorkflowStatus = WorkflowStatus.COMPLETED) -> None:
    """Ends these runs as if it had happened by itself: without a row, without work, at this moment."""
    now_us = house.clock.us

    def unit(tx: Tx) -> None:
        held = load.lock(tx, Runs(), runs, waiting=True)
        saves = []
        for each in held.values():
            was = each.workflow
            is_failed = status is WorkflowStatus.FAILED
            now = replace(
                was,
                status=status,
                current_step=was.total_steps if status is WorkflowStatus.COMPLETED else was.current_step,
                completed_us=None if is_failed else now_us,
                failed_us=now_us if is_failed else None,
                cancelled_us=now_us if status is WorkflowStatus.CANCELLED else None,
            )
            saves.append(SaveWorkflow(now, was))
        settle.write(tx, settle.Plan.of(saves), held)
        jobs = tx.statements.jobs
        tx.statements.change_among(tx.cursor, f"DELETE FROM {jobs}", "workflow_id", sorted(held))

    house.door.write(unit)

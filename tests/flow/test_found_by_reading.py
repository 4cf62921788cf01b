"""Faults that a reader of the code suspected, each with what shows it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, errors, step, workflow
from queuety.model import ErrorKind
from queuety.store import facts
from queuety.store.door import Tx
from queuety.testing import ManualClock
from tests.support.flowing import status_of, working

State = dict[str, Any]


@step
def fine(state: State) -> State:
    return {"fine": True}


def without_definition(app: Queuety, name: str) -> Queuety:
    """The application as a new process sees it once that definition is gone."""

    def forget(tx: Tx) -> None:
        tx.cursor.execute(f"DELETE FROM {tx.tables.definitions.name} WHERE name = '{name}'")

    app.door.write(forget)
    app.definitions._known.clear()
    return app


def test_who_waits_for_a_run_that_cannot_be_decided_hears_of_its_end(app: Queuety) -> None:
    lost = app.workflow("lost").wait_for_signal("never").dispatch()
    waiter = app.workflow("waiter").wait_for_workflows([lost], mode="any").dispatch()
    without_definition(app, "lost").run_until_idle()
    assert status_of(app, lost).status is WorkflowStatus.FAILED
    assert status_of(app, waiter).error_kind == ErrorKind.WAIT_UNSATISFIABLE


def test_a_cancelled_parent_cleans_up_though_its_failed_child_cannot_be_decided(app: Queuety) -> None:
    child = workflow("child").wait_for_signal("never")
    parent = app.workflow("parent").run_workflow("child", child).on_cancel(fine).dispatch()
    app.run_until_idle()
    app.cancel_workflow(parent)
    without_definition(app, "child").run_until_idle()
    assert status_of(app, parent).compensation_status == "completed"


@step
def heavy(state: State) -> State:
    return {"heavy": True}


@pytest.fixture
def refusing(app: Queuety, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Queuety:
    """A store that cannot write what a run takes over from another, for a reason that nobody has foreseen."""
    from queuety.store import settle

    write = settle.write

    def refuse(tx: Any, plan: Any, *more: Any, **options: Any) -> Any:
        if any(row.job is None and "heavy" in (row.changed or {}) for row in plan.history):
            raise RuntimeError("the disk is made of cheese")
        return write(tx, plan, *more, **options)

    monkeypatch.setattr("queuety.worker.turn.write", refuse)
    caplog.set_level(logging.CRITICAL, "queuety.worker")
    return app


@pytest.mark.parametrize("how", ["run_until_idle", "worker"])
def test_letters_whose_consequence_cannot_be_written_fail_their_run_and_no_other(refusing: Queuety, how: str) -> None:
    """MySQL's packet held no two dependencies' states at once: no worker got past their letters."""
    app = refusing
    dependency = app.workflow("dependency").then(heavy).dispatch()
    guilty = app.workflow("guilty").wait_for_workflow(dependency).dispatch()
    other = app.workflow("other").then(fine).dispatch()
    innocent = [app.workflow("innocent").wait_for_workflow(other, "other").then(fine).dispatch() for _ in range(3)]
    if how == "worker":
        with working(app):
            failed = app.wait(guilty, 30)
            assert [app.wait(run, 30).status for run in innocent] == [WorkflowStatus.COMPLETED] * 3
    else:
        app.run_until_idle()
        failed = status_of(app, guilty)
        assert [status_of(app, run).status for run in innocent] == [WorkflowStatus.COMPLETED] * 3
    assert failed.status is WorkflowStatus.FAILED
    assert "cheese" in (failed.error_message or "")
    assert failed.failed_step == 0


def test_a_wait_for_many_signals_reads_them_together(app: Queuety, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time, each cost the whole decision anew: the last of a thousand signals took 23 s."""
    reads: list[int] = []
    read_facts = facts.read_facts

    def counted(tx: Tx, asked: Any, **options: Any) -> Any:
        reads.append(len(asked))
        return read_facts(tx, asked, **options)

    monkeypatch.setattr("queuety.commands.deciding.read_facts", counted)
    names = [f"signal {number}" for number in range(120)]
    run = app.workflow("w").wait_for_signals(names, result_key="got").dispatch()
    for name in names:
        app.signal(run, name, {"name": name})
    assert status_of(app, run).state == {"got": {name: {"name": name} for name in names}}
    assert len(reads) == 1


def test_a_letter_that_is_no_json_holds_up_nobody_else(app: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "queuety.worker")
    first = app.workflow("first").then(fine).dispatch()
    unheard = app.workflow("unheard").wait_for_workflow(first).dispatch()
    second = app.workflow("second").wait_for_workflow(first).then(fine).dispatch()

    def spoil(tx: Tx) -> None:
        tx.cursor.execute(
            f"UPDATE {tx.statements.inbox} SET body = '{{no JSON' WHERE id IN (SELECT least.id FROM "
            f"(SELECT MIN(id) AS id FROM {tx.statements.inbox}) AS least)"
        )

    app.door.write(spoil)
    app.run_until_idle()
    assert status_of(app, second).status is WorkflowStatus.COMPLETED
    app.cancel_workflow(unheard)


def test_a_definition_that_is_no_json_holds_up_nobody_else(app: Queuety, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "queuety.worker")
    app.workflow("spoilt").delay(seconds=0).then(fine).dispatch()
    other = app.workflow("other").then(fine).dispatch()
    bodies: list[str] = []

    def spoil(tx: Tx) -> None:
        table, p = tx.tables.definitions.name, tx.statements.parameter
        tx.cursor.execute(f"SELECT body FROM {table} WHERE name = 'spoilt'")
        bodies.append(tx.cursor.fetchone()[0])
        tx.cursor.execute(f"UPDATE {table} SET body = {p} WHERE name = 'spoilt'", ["{no JSON"])

    def mend(tx: Tx) -> None:
        table, p = tx.tables.definitions.name, tx.statements.parameter
        tx.cursor.execute(f"UPDATE {table} SET body = {p} WHERE name = 'spoilt'", bodies)

    app.door.write(spoil)
    app.definitions._known.clear()
    app.run_until_idle()
    assert status_of(app, other).status is WorkflowStatus.COMPLETED
    app.door.write(mend)


def test_an_item_cannot_stand_where_its_index_does(app: Queuety) -> None:
    with pytest.raises(errors.DefinitionError, match="start_item_index holds the item's index"):
        app.workflow("w").start_workflows("items", workflow("c").then(fine), payload_key="start_item_index")


def test_states_too_large_to_be_read_together_fail_the_wait(app: Queuety, monkeypatch: pytest.MonkeyPatch) -> None:
    """All were read before they were found to be too much: a worker died of it, and the next one too."""
    monkeypatch.setattr(facts, "STATES_AT_ONCE", 10_000)
    wait = app.workflow("w").then(fine).wait_for_workflows("ids", result_key="got")
    ids = app.dispatch_many(app.workflow("d").then(fine), [{"text": "x" * 1_000}] * 10)
    app.run_until_idle()
    nine, ten = wait.dispatch({"ids": ids[:9]}), wait.dispatch({"ids": ids})
    app.run_until_idle()
    assert status_of(app, nine).status is WorkflowStatus.COMPLETED
    assert status_of(app, ten).error_kind == ErrorKind.CONSTRAINT_VIOLATION
    assert "the states of the 10 workflows" in (status_of(app, ten).error_message or "")


def test_a_wish_to_be_told_that_was_overtaken_by_a_later_one_changes_nothing(app: Queuety, clock: ManualClock) -> None:
    """A letter that an old worker had put off was opened after the next visit's: the run was told for the wrong one."""
    quick = app.workflow("quick").then(fine).dispatch()
    slow = app.workflow("slow").wait_for_signal("go").dispatch()
    waiter = app.workflow("waiter").wait_for_workflows([slow, quick], mode="any").wait_for_workflow(slow).dispatch()

    def put_off(tx: Tx) -> None:
        tx.cursor.execute(f"UPDATE {tx.statements.inbox} SET due_us = due_us + 15000000 WHERE workflow_id = {slow}")

    app.door.write(put_off)
    app.run_until_idle()
    assert status_of(app, waiter).current_step == 1
    clock.advance(seconds=15)
    app.run_until_idle()
    app.signal(slow, "go")
    app.run_until_idle()
    assert status_of(app, waiter).status is WorkflowStatus.COMPLETED

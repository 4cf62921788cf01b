"""Faults that a reader of the code suspected, each with what shows it."""

from __future__ import annotations

from typing import Any

from queuety import Queuety, WorkflowStatus, step, workflow
from queuety.model import ErrorKind
from queuety.store.door import Tx
from tests.support.flowing import status_of

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

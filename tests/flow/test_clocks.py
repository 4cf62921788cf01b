"""Workers whose clock stands still, or is set back: what is due all the same is seen as soon as ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, step
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check

State = dict[str, Any]

BEGIN_US = 1_767_225_600_000_000
HOUR_US = 3_600_000_000

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
def waits(state: State) -> State:
    note("began")
    let_go.wait(30)
    return {}


class SetBack:
    """A clock that somebody sets; it stands in between."""

    def __init__(self) -> None:
        self.us = BEGIN_US

    def now_us(self) -> int:
        return self.us


def test_a_letter_reaches_its_run_while_the_clock_stands_and_the_worker_is_busy(
    app: Queuety, clock: ManualClock
) -> None:
    """Somebody cancels a run; its child, whose step is in hand, was told only once the clock was moved."""
    run = app.workflow("w").run_workflow("child", app.workflow("c").then(waits)).dispatch()
    (child,) = app.list_workflows(parent_id=run)
    with working(app):
        until(lambda: notes == ["began"])
        app.cancel_workflow(run)
        until(lambda: status_of(app, child.id).status is WorkflowStatus.CANCELLED, within_s=10)
        let_go.set()


def test_what_comes_due_after_the_clock_was_set_back_does_not_wait_until_it_has_caught_up(database: Database) -> None:
    clock = SetBack()
    with Queuety(database.url, clock=clock) as app, working(app):
        first = app.workflow("w").delay(seconds=1).dispatch()
        clock.us += 1_000_000
        assert app.wait(first, 10).status is WorkflowStatus.COMPLETED
        clock.us -= HOUR_US
        second = app.workflow("w").delay(seconds=1).dispatch()
        clock.us += 1_000_000
        assert app.wait(second, 10).status is WorkflowStatus.COMPLETED
    with Queuety(database.url) as app:
        check(app.door)

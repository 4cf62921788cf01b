"""Two people, or a person and a clock, that want contrary things of waiting runs in the same instant.

What each is told when its call returns is what has become of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from queuety import Queuety, WaitMode, WorkflowStatus, errors, step
from queuety.errors import InvalidStateError
from queuety.model import CleanupStatus, StepSpec
from queuety.testing import ManualClock
from queuety.worker.maintain import recover
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of
from tests.support.hands import House, definition, failed, single
from tests.support.invariants import check
from tests.support.waking import Field, at_once, faults, pairs_of

pytestmark = pytest.mark.timeout(3600)

State = dict[str, Any]
COMPLETED, CANCELLED, FAILED = WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED, WorkflowStatus.FAILED


@pytest.fixture
def field(database: Database, clock: ManualClock) -> Iterator[Field]:
    """By a clock that stands; nobody works unless a test says so."""
    notes.clear()
    made = Field(database.url, clock)
    yield made
    made.drain()
    check(made.app.door)
    made.close()


@step
def work(state: State) -> State:
    return {"worked": True}


@step
def late(state: State) -> State:
    return {"late": True}


@step
def tidy(state: State) -> None:
    note("tidied")


@step(max_attempts=1)
def fails_until_mended(state: State) -> State:
    if "mended" not in notes:
        raise ValueError("no luck")
    return {"mended": True}


def outcomes(results: list[Any]) -> list[str]:
    return [type(result).__name__ if isinstance(result, Exception) else "done" for result in results]


def test_a_signal_and_a_cancellation(field: Field, rounds: int) -> None:
    """H1: cancel says it cancelled, or refuses, and the run is what it said."""
    tells, cancels = field.side(), field.side()
    for run in field.app.dispatch_many(field.app.workflow("w").wait_for_signal("go"), [{}] * pairs_of(rounds)):
        results = at_once(partial(tells.signal, run, "go"), partial(cancels.cancel_workflow, run))
        assert faults(results, InvalidStateError) == []
        assert outcomes(results)[0] == "done", "a sender is never refused"
        assert status_of(field.app, run).status is (CANCELLED if results[1] is None else COMPLETED)


def test_an_approval_and_a_rejection(field: Field, rounds: int) -> None:
    one, other = field.side(), field.side()
    builder = field.app.workflow("w").wait_for_decision("yes", "no").then(work)
    for run in field.app.dispatch_many(builder, [{}] * pairs_of(rounds)):
        results = at_once(
            partial(one.approve_workflow, run, {"by": "one"}), partial(other.reject_workflow, run, {"by": "other"})
        )
        assert faults(results) == []
        state = status_of(field.app, run)
        decision: Any = state.state["decision"]
        assert (state.status, state.current_step) == (WorkflowStatus.RUNNING, 1)
        assert decision in (
            {"outcome": "approved", "signal": "yes", "data": {"by": "one"}},
            {"outcome": "rejected", "signal": "no", "data": {"by": "other"}},
        )
        # The other answer is kept, or came too late to know what the step listened for.
        (left,) = field.rows("signals", workflow_id=run)
        assert left["name"] in ({"no", "rejected"} if decision["outcome"] == "approved" else {"yes", "approval"})


def test_two_approvals_of_one_question(field: Field, rounds: int) -> None:
    sides = [field.side(), field.side()]
    builder = field.app.workflow("w").wait_for_approval().wait_for_approval(result_key="again", name="again")
    for run in field.app.dispatch_many(builder, [{}] * pairs_of(rounds)):
        results = at_once(*(partial(app.approve_workflow, run, {"n": n}) for n, app in enumerate(sides)))
        assert faults(results) == []
        state: Any = status_of(field.app, run)
        assert state.status is COMPLETED
        assert sorted((state.state["approval"]["n"], state.state["again"]["n"])) == [0, 1]


def test_two_cancellations_of_one_run_that_another_waits_for(field: Field, rounds: int) -> None:
    sides = [field.side(), field.side()]
    builder = field.app.workflow("w").wait_for_signal("go").on_cancel(tidy)
    for run in field.app.dispatch_many(builder, [{}] * max(3, pairs_of(rounds) // 5)):
        waiter = field.app.workflow("waiter").wait_for_workflow(run).dispatch()
        field.drain()
        notes.clear()
        results = at_once(*(partial(app.cancel_workflow, run) for app in sides))
        assert sorted(outcomes(results)) == ["InvalidStateError", "done"]
        field.drain()
        assert (status_of(field.app, waiter).status, notes) == (FAILED, ["tidied"])


def test_a_signal_and_its_timeout(field: Field, clock: ManualClock, rounds: int) -> None:
    """G14: one of them ends the wait. A signal that was too late is kept, one that was not is used."""
    tells, one, other = field.side(), field.side(), field.side()
    builder = (
        field.app.workflow("w")
        .wait_for_signal("go", "got", timeout=5, on_timeout="late")
        .then(work)
        .wait_for_signal("end")
        .then(late, "late")
    )
    ways = set()
    for _ in range(pairs_of(rounds)):
        run = builder.dispatch()
        clock.advance(seconds=5)
        results = at_once(partial(tells.signal, run, "go", {"n": run}), one.run_until_idle, other.run_until_idle)
        assert faults(results) == []
        field.drain()
        state = status_of(field.app, run)
        signals = field.rows("signals", workflow_id=run)
        if "got" in state.state:
            assert (state.state, signals) == ({"got": {"n": run}, "worked": True}, [])
            field.app.signal(run, "end")
        else:
            assert (state.status, state.state, len(signals)) == (COMPLETED, {"late": True}, 1)
        ways.add("got" in state.state)
        assert [event.event for event in field.app.workflow_timeline(run)].count("workflow_resumed") <= 2
    assert ways


def test_a_cancellation_and_a_timeout(field: Field, clock: ManualClock, rounds: int) -> None:
    cancels, works = field.side(), field.side()
    builder = field.app.workflow("w").wait_for_signal("go", timeout=5).on_cancel(tidy)
    for _ in range(max(3, pairs_of(rounds) // 5)):
        run = builder.dispatch()
        clock.advance(seconds=5)
        notes.clear()
        assert faults(at_once(partial(cancels.cancel_workflow, run), works.run_until_idle)) == []
        field.drain()
        assert (status_of(field.app, run).status, notes) == (CANCELLED, ["tidied"]), "a failed run can be cancelled too"


def test_a_child_ends_while_its_parent_is_cancelled(field: Field, rounds: int) -> None:
    """H2, H4: the parent is what `cancel` said, and nothing of it or of its child is left open."""
    ends, cancels, works = field.side(), field.side(), field.side()
    child = field.app.workflow("child").wait_for_signal("go").on_cancel(tidy)
    builder = field.app.workflow("parent").run_workflow("child", child).on_cancel(tidy)
    for parent in field.app.dispatch_many(builder, [{}] * pairs_of(rounds)):
        (found,) = field.app.list_workflows(parent_id=parent)
        notes.clear()
        results = at_once(
            partial(ends.signal, found.id, "go"), works.run_until_idle, partial(cancels.cancel_workflow, parent)
        )
        assert faults(results, InvalidStateError) == []
        field.drain()
        above, below = status_of(field.app, parent), status_of(field.app, found.id)
        if results[2] is None:
            assert above.status is CANCELLED
            assert above.compensation_status is CleanupStatus.COMPLETED
            assert below.status in (COMPLETED, CANCELLED)
            assert len(notes) == (2 if below.status is CANCELLED else 1)
        else:
            assert (above.status, below.status, notes) == (COMPLETED, COMPLETED, [])


def test_parent_and_child_and_their_step_are_cancelled(field: Field, rounds: int) -> None:
    """H2: a cancellation of a step while its run was cancelled wedged it for ever."""
    sides = [field.side() for _ in range(4)]
    grandchild = field.app.workflow("grandchild").wait_for_signal("go")
    child = field.app.workflow("child").run_workflow("grandchild", grandchild)
    builder = field.app.workflow("parent").run_workflow("child", child)
    for parent in field.app.dispatch_many(builder, [{}] * max(3, pairs_of(rounds) // 5)):
        (below,) = field.app.list_workflows(parent_id=parent)
        (lowest,) = field.app.list_workflows(parent_id=below.id)
        family = (parent, below.id, lowest.id)
        acts = [partial(app.cancel_workflow, run) for app, run in zip(sides, (*family, parent), strict=True)]
        results = at_once(*acts)
        assert faults(results, InvalidStateError) == []
        field.drain()
        assert [status_of(field.app, run).status for run in family[1:]] == [CANCELLED] * 2
        # One that fails with its cancelled child before its own turn comes can be cancelled as well.
        assert status_of(field.app, parent).status is CANCELLED


def test_parent_and_child_are_retried(field: Field, rounds: int) -> None:
    """Never a second active child; the parent goes on with the one that is left."""
    above, below = field.side(), field.side()
    child = field.app.workflow("child").then(fails_until_mended)
    builder = field.app.workflow("parent").run_workflow("child", child).then(work)
    for _ in range(max(3, pairs_of(rounds) // 2)):
        notes.clear()
        parent = builder.dispatch()
        field.drain()
        (found,) = field.app.list_workflows(parent_id=parent)
        assert (status_of(field.app, parent).status, found.status) == (FAILED, FAILED)
        note("mended")
        results = at_once(partial(above.retry_workflow, parent), partial(below.retry_workflow, found.id))
        assert faults(results, InvalidStateError) == []
        assert None in results
        field.drain()
        children = field.app.list_workflows(parent_id=parent)
        assert [one.status for one in children] == [COMPLETED]
        state = status_of(field.app, parent)
        assert (state.status, state.state) == (COMPLETED, {"mended": True, "worked": True})


def test_a_waiter_and_what_it_waits_for_are_retried(field: Field, rounds: int) -> None:
    one, other = field.side(), field.side()
    for _ in range(max(3, pairs_of(rounds) // 2)):
        notes.clear()
        run = field.app.workflow("w").then(fails_until_mended).dispatch()
        waiter = field.app.workflow("waiter").wait_for_workflow(run, "got").dispatch()
        field.drain()
        assert status_of(field.app, waiter).status is FAILED
        note("mended")
        results = at_once(partial(one.retry_workflow, run), partial(other.retry_workflow, waiter), field.drain)
        assert faults(results) == []
        field.drain()
        if status_of(field.app, waiter).status is FAILED:  # it looked before the other one went on
            field.app.retry_workflow(waiter)
            field.drain()
        assert (status_of(field.app, waiter).status, status_of(field.app, run).status) == (COMPLETED, COMPLETED)


def test_a_pause_and_a_signal(field: Field, rounds: int) -> None:
    """A waiting run cannot be paused; one that goes on can."""
    tells, pauses = field.side(), field.side()
    builder = field.app.workflow("w").wait_for_signal("go", "got").then(work)
    for run in field.app.dispatch_many(builder, [{}] * pairs_of(rounds)):
        results = at_once(partial(tells.signal, run, "go"), partial(pauses.pause_workflow, run))
        assert faults(results, InvalidStateError) == []
        state = status_of(field.app, run)
        assert state.current_step == 1
        assert state.status is (WorkflowStatus.PAUSED if results[1] is None else WorkflowStatus.RUNNING)


def test_all_that_are_waited_for_end_at_once(field: Field, rounds: int) -> None:
    """H14: the waiter goes on once."""
    sides = [field.side() for _ in range(4)]
    held = field.app.workflow("held").wait_for_signal("go")
    for _ in range(max(3, pairs_of(rounds) // 5)):
        four = field.app.dispatch_many(held, [{}] * 4)
        waiters = [
            field.app.workflow("w")
            .wait_for_workflows(four, mode, quorum=2 if mode is WaitMode.QUORUM else None)
            .dispatch()
            for mode in WaitMode
        ]
        field.drain()
        results = at_once(*(partial(app.signal, run, "go") for app, run in zip(sides, four, strict=True)), field.drain)
        assert faults(results) == []
        field.drain()
        for waiter in waiters:
            assert status_of(field.app, waiter).status is COMPLETED
            events = [event.event for event in field.app.workflow_timeline(waiter)]
            assert events == ["workflow_waiting", "workflow_resumed"]


def test_two_reapers_and_a_late_worker_at_the_last_attempt(database: Database, rounds: int) -> None:
    """H10: a dependant was started twice when two found that the attempts were used up."""
    with (
        House(database.url) as house,
        House(database.url, clock=house.clock) as one,
        House(database.url, clock=house.clock) as other,
    ):
        for _ in range(max(3, pairs_of(rounds) // 5)):
            run = house.dispatch(definition(single(max_attempts=1)))
            settings = {"workflows": [run], "mode": "any", "keyed": True}
            waiter = house.dispatch(definition(StepSpec("wait_for_workflows", "wait", settings=settings)))
            hand = house.hand(lease_s=5)
            hand.turn(looks_around=True)
            (job,) = hand.claim()
            house.clock.advance(6)
            results = at_once(
                partial(hand.turn, failed(job, is_final=True)),
                partial(recover, one.door, one.definitions),
                partial(recover, other.door, other.definitions),
            )
            assert faults(results) == []
            house.clock.advance(6)
            recover(house.door, house.definitions)  # each may have found the run locked by another
            assert len(house.rows("inbox", workflow_id=waiter)) == 1, "told once"
            hand.turn(looks_around=True)
            assert [row["entry"] for row in house.rows("history", run_id=waiter)] == ["waiting", "failed"]
            assert house.row("workflows", id=run)["status"] == "failed"
            check(house.door)


def test_who_comes_too_late_is_told_what_the_run_is(field: Field) -> None:
    run = field.app.workflow("w").wait_for_signal("go").dispatch()
    sides: list[Queuety] = [field.side() for _ in range(4)]
    results = at_once(*(partial(app.cancel_workflow, run) for app in sides))
    refused = [result for result in results if isinstance(result, errors.InvalidStateError)]
    assert len(refused) == 3
    assert {str(error).split(";")[0] for error in refused} == {f"workflow {run} is already cancelled"}

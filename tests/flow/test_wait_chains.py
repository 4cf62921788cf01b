"""Runs that wait for runs that wait; what is deleted, retried or cancelled while others wait for it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select

from queuety import Queuety, WaitMode, WorkflowStatus, step
from queuety.worker import maintain
from tests.support.flowing import note, notes, status_of, until, working

State = dict[str, Any]
ANY, QUORUM = WaitMode.ANY, WaitMode.QUORUM
COMPLETED, FAILED = WorkflowStatus.COMPLETED, WorkflowStatus.FAILED
WAITING = WorkflowStatus.WAITING_FOR_WORKFLOWS


@step(max_attempts=1)
def ends(state: State) -> State:
    if state.get("fails"):
        raise ValueError("no luck")
    return {"ended": True}


@step(max_attempts=1)
def ends_once_mended(state: State) -> State:
    if "mended" not in notes:
        raise ValueError("not yet")
    return {"ended": True}


@step
def tidy(state: State) -> None:
    note("tidied")


def held(app: Queuety, count: int = 1) -> list[int]:
    """Runs that end with their signal `go`."""
    return app.dispatch_many(app.workflow("held").wait_for_signal("go").then(ends), [{}] * count)


def finish(app: Queuety, *runs: int, fails: bool = False) -> None:
    for run in runs:
        app.signal(run, "go", {"fails": fails})
        app.run_until_idle()


def failed(app: Queuety) -> int:
    """A run that has failed, and completes when it is mended."""
    run = app.workflow("failed").then(ends_once_mended).dispatch()
    app.run_until_idle()
    assert status(app, run) is FAILED
    return run


def mend(app: Queuety, run: int) -> None:
    note("mended")
    app.retry_workflow(run)
    app.run_until_idle()
    assert status(app, run) is COMPLETED


def run_of(app: Queuety, workflows: Any, mode: WaitMode = WaitMode.ALL, **more: Any) -> int:
    run = app.workflow("waiter").wait_for_workflows(workflows, mode, "got", **more).dispatch()
    app.run_until_idle()
    return run


def status(app: Queuety, run: int) -> WorkflowStatus:
    return status_of(app, run).status


def deleted(app: Queuety, run: int) -> None:
    """The run is gone, as if somebody had purged it; who waits for it was not told, what was sent to it lies there."""
    tables = app.door.tables

    def unit(tx: Any) -> None:
        for table in (tables.jobs, tables.signals):
            tx.connection.execute(delete(table).where(table.c.workflow_id == run))
        tx.connection.execute(delete(tables.history).where(tables.history.c.run_id == run))
        tx.connection.execute(delete(tables.workflows).where(tables.workflows.c.id == run))

    app.door.write(unit)


def swept(app: Queuety) -> None:
    """What a worker does once a minute, and then what follows."""
    maintain.tell_again(app.door)
    app.run_until_idle()


# chains


def test_a_chain_of_waiters_goes_on_link_by_link(app: Queuety) -> None:
    (first,) = held(app)
    chain = [first]
    for _ in range(8):
        chain.append(app.workflow("link").wait_for_workflow(chain[-1], "before").dispatch())
    app.run_until_idle()
    assert {status(app, run) for run in chain[1:]} == {WAITING}
    finish(app, first)
    assert {status(app, run) for run in chain} == {COMPLETED}
    state: Any = status_of(app, chain[-1]).state
    for _ in range(8):
        state = state["before"]
    assert state == {"fails": False, "ended": True}


def test_a_failure_runs_down_a_chain_of_waiters(app: Queuety) -> None:
    (first,) = held(app)
    second = run_of(app, [first])
    third = run_of(app, [second])
    either = run_of(app, [second, *held(app)], ANY)
    finish(app, first, fails=True)
    assert [status(app, run) for run in (second, third, either)] == [FAILED, FAILED, WAITING]
    message = status_of(app, third).error_message or ""
    assert f"workflow {second} has failed (step 'wait_for_workflows_0' of workflow {second} waits in vain" in message


def test_many_wait_for_one(app: Queuety) -> None:
    (one,) = held(app)
    waiters = app.dispatch_many(app.workflow("waiter").wait_for_workflow(one), [{"n": n} for n in range(450)])
    app.run_until_idle()
    finish(app, one)
    found = app.list_workflows(name="waiter", limit=450)
    assert {state.id for state in found} == set(waiters)
    assert {state.status for state in found} == {COMPLETED}


def test_one_waits_for_many(app: Queuety) -> None:
    many = app.dispatch_many(app.workflow("held").wait_for_signal("go"), [{}] * 210)
    run = run_of(app, many)
    for other in many:
        app.signal(other, "go")
    app.run_until_idle()
    got: Any = status_of(app, run).state["got"]
    assert list(got) == [str(other) for other in many]


def test_two_that_wait_for_each_other_wait_until_one_is_cancelled(app: Queuety) -> None:
    builder = app.workflow("knot").wait_for_signal("other").wait_for_workflow("other")
    one, other = builder.dispatch(), builder.dispatch()
    app.signal(one, "other", {"other": other})
    app.signal(other, "other", {"other": one})
    app.run_until_idle()
    assert [status(app, run) for run in (one, other)] == [WAITING, WAITING]
    app.cancel_workflow(one)
    app.run_until_idle()
    assert status(app, other) is FAILED


def test_a_child_can_be_waited_for_by_others_than_its_parent(app: Queuety) -> None:
    child = app.workflow("child").wait_for_signal("go").then(ends)
    parent = app.workflow("parent").run_workflow("child", child).dispatch()
    (found,) = app.list_workflows(parent_id=parent)
    run = run_of(app, [found.id])
    finish(app, found.id)
    assert [status(app, one) for one in (parent, run)] == [COMPLETED, COMPLETED]


def test_a_waiter_that_is_cancelled_hears_of_nothing_more(app: Queuety) -> None:
    (one,) = held(app)
    run = run_of(app, [one])
    app.cancel_workflow(run)
    was = status_of(app, run)
    finish(app, one)
    assert status_of(app, run) == was


# what is retried


def test_a_retried_waiter_looks_again_from_scratch(app: Queuety) -> None:
    other = failed(app)
    run = app.workflow("w").wait_for_workflow(other, "got").dispatch()
    assert status(app, run) is FAILED
    app.retry_workflow(run)
    assert status(app, run) is FAILED, "what it waits for has still failed"
    mend(app, other)
    assert status(app, run) is FAILED, "this alone does not revive the waiter"
    app.retry_workflow(run)
    assert (status(app, run), status_of(app, run).state) == (COMPLETED, {"got": {"ended": True}})


def test_a_waiter_that_is_retried_while_its_dependency_goes_on_waits_again(app: Queuety) -> None:
    (one,) = held(app)
    other = failed(app)
    run = run_of(app, [one, other])
    assert status(app, run) is FAILED
    mend(app, other)
    app.retry_workflow(run)
    app.run_until_idle()
    assert status(app, run) is WAITING
    finish(app, one)
    assert status(app, run) is COMPLETED


def test_a_dependency_that_fails_and_completes_after_all_wakes_any_and_quorum(app: Queuety) -> None:
    """The moment it completes, and not with the end of another or with the next sweep."""
    one, two, never = app.workflow("w").then(ends_once_mended).dispatch(), *held(app, 2)
    either = app.workflow("w").wait_for_workflows([one, two, never], ANY, "got").dispatch()
    quorum = app.workflow("w").wait_for_workflows([one, two, never], QUORUM, "got", quorum=2).dispatch()
    app.run_until_idle()
    assert [status(app, run) for run in (one, either, quorum)] == [FAILED, WAITING, WAITING]
    late = run_of(app, [one, two, never], ANY)
    assert status(app, late) is WAITING
    mend(app, one)
    assert [status(app, run) for run in (either, quorum, late)] == [COMPLETED, WAITING, COMPLETED]
    assert status_of(app, either).state["got"] == {str(one): {"ended": True}}
    finish(app, two)
    assert status(app, quorum) is COMPLETED


def test_a_dependency_that_fails_again_and_is_then_cancelled_is_lost(app: Queuety) -> None:
    one, (other,) = failed(app), held(app)
    run = run_of(app, [one, other], ANY)
    app.retry_workflow(one)
    app.run_until_idle()
    assert (status(app, one), status(app, run)) == (FAILED, WAITING)
    app.cancel_workflow(one)
    app.run_until_idle()
    assert (status(app, run), rows(app, "watchers")) == (WAITING, [(other, run, 1)])
    finish(app, other, fails=True)
    assert status(app, run) is FAILED


# what is gone


def test_a_dependency_that_is_deleted_is_lost_as_soon_as_somebody_looks(app: Queuety) -> None:
    """H11: a parent waited for ever when its child was removed."""
    one, other, never = held(app, 3)
    both, either, alone = run_of(app, [one, other]), run_of(app, [one, never], ANY), run_of(app, [one])
    deleted(app, one)
    swept(app)
    assert [status(app, run) for run in (both, either, alone)] == [FAILED, WAITING, FAILED]
    assert f"workflow {one} is not there" in (status_of(app, alone).error_message or "")
    finish(app, never)
    assert status(app, either) is COMPLETED


def test_a_dependency_that_is_deleted_before_it_is_asked_is_answered_for(app: Queuety) -> None:
    (one,) = held(app)
    run = app.workflow("w").wait_for_workflow(one).dispatch()
    deleted(app, one)
    app.run_until_idle()
    assert status(app, run) is FAILED


def test_a_failed_dependency_that_is_deleted_is_still_lost(app: Queuety) -> None:
    one, never = held(app, 2)
    run = run_of(app, [one, never], ANY)
    finish(app, one, fails=True)
    deleted(app, one)
    swept(app)
    assert status(app, run) is WAITING
    finish(app, never)
    assert status(app, run) is COMPLETED
    assert not rows(app, "watchers")


def test_a_waiter_that_is_deleted_hurts_nobody(app: Queuety) -> None:
    (one,) = held(app)
    run = run_of(app, [one])
    other = run_of(app, [one])
    deleted(app, run)
    finish(app, one)
    assert status(app, other) is COMPLETED
    assert not rows(app, "watchers")
    assert not rows(app, "inbox")


def rows(app: Queuety, table: str) -> list[tuple[Any, ...]]:
    with app.door.reading() as connection:
        return [tuple(row) for row in connection.execute(select(getattr(app.door.tables, table)))]


# while no worker is up


def test_a_cancellation_while_no_worker_is_up_reaches_everybody_once_one_is(app: Queuety) -> None:
    """H5: it was only broadcast, and forgotten."""
    child = app.workflow("child").wait_for_signal("go").on_cancel(tidy)
    parent = app.workflow("parent").run_workflow("child", child).on_cancel(tidy).dispatch()
    waiter = app.workflow("waiter").wait_for_workflow(parent).dispatch()
    (found,) = app.list_workflows(parent_id=parent)
    app.cancel_workflow(parent)
    assert [status(app, run) for run in (parent, waiter)] == [WorkflowStatus.CANCELLED, WAITING]
    with working(app):
        until(lambda: notes == ["tidied", "tidied"] and status(app, waiter) is FAILED)
    assert status(app, found.id) is WorkflowStatus.CANCELLED


# by a worker


def test_a_worker_carries_a_chain_through_without_a_word_from_anybody(app: Queuety) -> None:
    one = app.workflow("w").then(ends).then(ends, "again").dispatch()
    two = app.workflow("w").wait_for_workflow(one).then(ends).dispatch()
    three = app.workflow("w").wait_for_workflows([two, one]).then(ends).dispatch()
    with working(app):
        until(lambda: status(app, three) is COMPLETED)


def test_whoever_waits_for_the_end_of_a_wait_is_told(app: Queuety) -> None:
    (one,) = held(app)
    run = run_of(app, [one])
    with working(app):
        app.signal(one, "go", {})
        assert app.wait(run, timeout=30).status is COMPLETED

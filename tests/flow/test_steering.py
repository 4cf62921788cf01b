"""What people do to runs, and in which status they may: see, list, wait, pause, resume, retry, cancel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from queuety import Compensation, JobStatus, Queuety, Step, WorkflowStatus, bind, current, errors, step
from queuety.model import CleanupStatus
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of, until, working

State = dict[str, Any]
UNKNOWN = 987_654_321

gates: dict[str, threading.Event] = {"let go": threading.Event()}


@step
def first(state: State) -> State:
    note("first")
    return {"first": True}


@step
def second(state: State) -> State:
    note("second")
    return {"second": True}


@step(max_attempts=1)
def fails_until_mended(state: State) -> State:
    note(f"tried {current().attempt}")
    if "mended" not in notes:
        raise ValueError("broken")
    return {"worked": current().attempt}


@step
def waits(state: State) -> State:
    note("began")
    gates["let go"].wait(30)
    return {"waited": True}


@step
def clean_up(state: State) -> State:
    note(("cleaned", dict(state)))
    return {"ignored": True}


class Undo(Compensation):
    def handle(self, state: State) -> object:
        note(("undone", dict(state)))
        return {1, 2}


class Tidy(Step):
    def __init__(self, word: str = "tidied") -> None:
        self.word = word

    async def handle(self, state: State) -> object:
        note((self.word, dict(state)))
        return 7


@step(backoff=[30])
def clean_up_in_vain(state: State) -> None:
    note("in vain")
    raise OSError("the bucket is gone")


@pytest.fixture(autouse=True)
def gate() -> Any:
    gates["let go"] = threading.Event()
    yield
    gates["let go"].set()


def running(app: Queuety) -> int:
    return app.workflow("w").then(first).then(second).dispatch({"a": 1})


def paused(app: Queuety) -> int:
    run = running(app)
    app.pause_workflow(run)
    return run


def completed(app: Queuety) -> int:
    run = app.workflow("w").delay().dispatch({"a": 1})
    app.run_until_idle()
    return run


def failed(app: Queuety) -> int:
    run = app.workflow("w").then(fails_until_mended).dispatch({"a": 1})
    app.run_until_idle()
    return run


def cancelled(app: Queuety) -> int:
    run = running(app)
    app.cancel_workflow(run)
    return run


OPERATIONS = ("pause_workflow", "resume_workflow", "retry_workflow", "cancel_workflow")
ALLOWED: dict[tuple[Callable[[Queuety], int], str], WorkflowStatus] = {
    (running, "pause_workflow"): WorkflowStatus.PAUSED,
    (running, "cancel_workflow"): WorkflowStatus.CANCELLED,
    (paused, "resume_workflow"): WorkflowStatus.RUNNING,
    (paused, "cancel_workflow"): WorkflowStatus.CANCELLED,
    (failed, "retry_workflow"): WorkflowStatus.RUNNING,
    (failed, "cancel_workflow"): WorkflowStatus.CANCELLED,
}
SAYS = {
    "pause_workflow": "paused",
    "resume_workflow": "resumed",
    "retry_workflow": "retried",
    "cancel_workflow": "cancelled",
}


@pytest.mark.parametrize("make", [running, paused, completed, failed, cancelled])
def test_every_operation_is_done_where_the_status_allows_it_and_refused_elsewhere_changing_nothing(
    app: Queuety, make: Callable[[Queuety], int]
) -> None:
    for operation in OPERATIONS:
        run = make(app)
        before = status_of(app, run), app.workflow_timeline(run), app.list_jobs(workflow_id=run)
        expected = ALLOWED.get((make, operation))
        if expected is not None:
            assert getattr(app, operation)(run) is None
            assert status_of(app, run).status is expected
            continue
        with pytest.raises(errors.InvalidStateError) as refusal:
            getattr(app, operation)(run)
        assert (status_of(app, run), app.workflow_timeline(run), app.list_jobs(workflow_id=run)) == before
        message = str(refusal.value)
        assert f"workflow {run} " in message
        assert make.__name__ in message
        assert SAYS[operation] in message
        if operation == "cancel_workflow":
            assert f"already {make.__name__}" in message


def test_an_unknown_id_is_an_error_for_every_operation_and_nothing_for_those_that_look(app: Queuety) -> None:
    for operation in (*OPERATIONS, "wait"):
        with pytest.raises(errors.NotFoundError, match=str(UNKNOWN)):
            getattr(app, operation)(UNKNOWN)
    assert app.workflow_status(UNKNOWN) is None
    assert app.job_status(UNKNOWN) is None
    assert app.workflow_timeline(UNKNOWN) == []
    assert app.list_jobs(workflow_id=UNKNOWN) == []
    with pytest.raises(LookupError):
        app.pause_workflow(-1)


def test_a_paused_run_finishes_its_step_and_starts_no_other_until_it_is_resumed(app: Queuety) -> None:
    run = paused(app)
    assert app.run_until_idle() == 1
    held = status_of(app, run)
    assert (held.status, held.current_step, held.state) == (WorkflowStatus.PAUSED, 1, {"a": 1, "first": True})
    assert app.run_until_idle() == 0
    app.resume_workflow(run)
    assert app.run_until_idle() == 1
    assert (notes, status_of(app, run).status) == (["first", "second"], WorkflowStatus.COMPLETED)
    events = [event.event for event in app.workflow_timeline(run)]
    assert events == [
        "workflow_paused",
        "step_started",
        "step_completed",
        "workflow_resumed",
        "step_started",
        "step_completed",
    ]


def test_a_resume_before_the_step_has_run_makes_no_second_job(app: Queuety) -> None:
    run = paused(app)
    app.resume_workflow(run)
    assert len(app.list_jobs(workflow_id=run)) == 1
    assert app.run_until_idle() == 2
    assert notes == ["first", "second"]


def test_a_run_paused_during_its_last_step_completes(app: Queuety) -> None:
    run = app.workflow("w").then(first).dispatch()
    app.pause_workflow(run)
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_step_that_fails_while_its_run_is_paused_fails_the_run(app: Queuety) -> None:
    run = app.workflow("w").then(fails_until_mended).dispatch()
    app.pause_workflow(run)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.FAILED


def test_a_failed_run_goes_on_at_the_step_that_failed_with_fresh_attempts(app: Queuety) -> None:
    run = app.workflow("w").then(first).then(fails_until_mended).then(second).dispatch()
    app.run_until_idle()
    broken = status_of(app, run)
    assert (broken.status, broken.failed_step, broken.current_step) == (WorkflowStatus.FAILED, 1, 1)
    assert (broken.error_message, broken.compensation_status) == ("broken", CleanupStatus.NONE)
    (buried, *_) = app.list_jobs(workflow_id=run, status="buried")
    assert buried.error_message == "broken"
    note("mended")
    app.retry_workflow(run)
    again = status_of(app, run)
    assert (again.status, again.error_message, again.error_kind, again.failed_step, again.failed_at) == (
        WorkflowStatus.RUNNING,
        None,
        None,
        None,
        None,
    )
    assert app.run_until_idle() == 2
    assert status_of(app, run).state == {"first": True, "worked": 1, "second": True}
    assert notes == ["first", "tried 1", "mended", "tried 1", "second"]


def test_two_who_retry_one_run_at_once_start_its_step_once(app: Queuety) -> None:
    run = failed(app)
    note("mended")
    refusals: list[BaseException] = []
    barrier = threading.Barrier(4)

    def retry() -> None:
        barrier.wait()
        try:
            app.retry_workflow(run)
        except errors.InvalidStateError as error:
            refusals.append(error)

    threads = [threading.Thread(target=retry) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refusals) == 3
    assert app.run_until_idle() == 1


def test_a_cancelled_run_has_no_work_left_and_its_handler_runs_as_a_durable_job(
    app: Queuety, clock: ManualClock
) -> None:
    run = app.workflow("w").then(first).then(second).on_cancel(clean_up).dispatch({"a": 1})
    app.run_until_idle(max_jobs=1)
    app.cancel_workflow(run)
    done = status_of(app, run)
    assert (done.status, done.cancelled_at, done.completed_at) == (WorkflowStatus.CANCELLED, clock.now, clock.now)
    assert done.compensation_status is CleanupStatus.PENDING
    assert notes == ["first"], "the handler ran inside cancel_workflow"
    (buried,) = app.list_jobs(workflow_id=run, status="buried")
    assert buried.error_message == "Workflow cancelled"
    assert app.list_jobs(workflow_id=run, status="pending") == []
    (cleanup, *_) = app.list_jobs(workflow_id=run, status="pending", cleanup=True)
    assert cleanup.handler.endswith(":clean_up")
    assert app.run_until_idle() == 1
    after = status_of(app, run)
    assert notes == ["first", ("cleaned", {"a": 1, "first": True})]
    assert (after.compensation_status, after.state) == (CleanupStatus.COMPLETED, {"a": 1, "first": True})
    assert after.status is WorkflowStatus.CANCELLED
    assert [event.event for event in app.workflow_timeline(run)][-3:] == [
        "workflow_cancelled",
        "cleanup_started",
        "cleanup_completed",
    ]


@pytest.mark.parametrize(("handler", "word"), [(Undo, "undone"), (Tidy, "tidied"), (bind(Tidy, word="swept"), "swept")])
def test_what_a_class_that_cleans_up_returns_is_ignored_whatever_it_is(app: Queuety, handler: Any, word: str) -> None:
    run = app.workflow("w").then(first).on_cancel(handler).dispatch({"a": 1})
    app.cancel_workflow(run)
    assert app.run_until_idle() == 1
    assert notes == [(word, {"a": 1})]
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED


def test_a_handler_that_fails_to_clean_up_is_repeated_and_never_undoes_the_cancellation(
    app: Queuety, clock: ManualClock
) -> None:
    run = app.workflow("w").max_attempts(2).then(first).on_cancel(clean_up_in_vain).dispatch()
    app.cancel_workflow(run)
    for _ in range(3):
        app.run_until_idle()
        clock.advance(seconds=60)
    state = status_of(app, run)
    assert notes == ["in vain"] * 2
    assert (state.status, state.compensation_status) == (WorkflowStatus.CANCELLED, CleanupStatus.FAILED)


def test_a_run_without_such_a_handler_has_nothing_to_compensate(app: Queuety) -> None:
    assert status_of(app, cancelled(app)).compensation_status is CleanupStatus.NONE
    assert app.run_until_idle() == 0


def test_a_failed_run_does_not_call_on_cancel_but_may_be_cancelled_afterwards(app: Queuety) -> None:
    run = app.workflow("w").then(fails_until_mended).on_cancel(clean_up).dispatch({"a": 1})
    app.run_until_idle()
    assert app.run_until_idle() == 0
    app.cancel_workflow(run)
    assert status_of(app, run).error_message == "broken"
    app.run_until_idle()
    assert notes[-1] == ("cleaned", {"a": 1})
    with pytest.raises(errors.InvalidStateError):
        app.retry_workflow(run)


def test_what_a_step_returns_after_its_run_was_cancelled_is_discarded(app: Queuety) -> None:
    run = app.workflow("w").then(waits).then(second).dispatch({"a": 1})
    with working(app):
        until(lambda: notes == ["began"])
        app.cancel_workflow(run)
        gates["let go"].set()
    state = status_of(app, run)
    assert (state.status, state.state, notes) == (WorkflowStatus.CANCELLED, {"a": 1}, ["began"])
    (job,) = app.list_jobs(workflow_id=run)
    assert job.status is JobStatus.BURIED


def test_runs_are_listed_newest_first_by_status_name_and_page(app: Queuety) -> None:
    runs = [app.workflow(name).then(first).dispatch({"n": n}) for n, name in enumerate("aabAa")]
    app.pause_workflow(runs[1])
    app.cancel_workflow(runs[4])
    everything = app.list_workflows()
    assert [state.id for state in everything] == runs[::-1]
    assert everything[0] == status_of(app, runs[4])
    assert [state.id for state in app.list_workflows(limit=2)] == runs[:2:-1]
    assert [state.id for state in app.list_workflows(before_id=runs[2])] == runs[1::-1]
    assert [state.id for state in app.list_workflows("paused")] == [runs[1]]
    assert [state.id for state in app.list_workflows(WorkflowStatus.RUNNING, name="a")] == [runs[0]]
    assert app.list_workflows(limit=0) == []
    for bad in ({"status": "asleep"}, {"limit": -1}):
        with pytest.raises(errors.DefinitionError):
            app.list_workflows(**bad)


def test_waiting_ends_with_the_run_or_with_its_time(app: Queuety) -> None:
    run = app.workflow("w").then(first).dispatch()
    with pytest.raises(errors.WaitTimeout, match=f"workflow {run} is still running"):
        app.wait(run, timeout=0.02)
    with pytest.raises(errors.DefinitionError):
        app.wait(run, timeout=-1)
    with working(app):
        assert app.wait(run, timeout=30).status is WorkflowStatus.COMPLETED
    assert app.wait(run, timeout=0).state == {"first": True}
    assert app.wait(cancelled(app)).status is WorkflowStatus.CANCELLED


def test_a_status_tells_version_key_and_times(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").version(" 2026-01 ").idempotency_key(" order-1 ").then(first).dispatch()
    clock.advance(seconds=5)
    state = status_of(app, run)
    assert (state.definition_version, state.idempotency_key) == ("2026-01", "order-1")
    assert (clock.now - state.created_at).total_seconds() == 5
    assert state.started_at == state.created_at
    assert len(state.definition_hash) == 64
    assert (state.waiting_for, state.wait_type, state.wait_mode, state.wait_details) == (None, None, None, None)
    assert (state.parent_workflow_id, state.deadline_at, state.artifact_count) == (None, None, 0)

"""`run_workflow`: a run within the run."""

from __future__ import annotations

from typing import Any

import pytest

from queuety.engine.decide import start
from queuety.engine.kinds import run_workflow
from queuety.errors import DefinitionError
from queuety.model import (
    Cancel,
    ChildRevived,
    ChildSettled,
    CleanupStatus,
    Definition,
    Due,
    Entry,
    LetterKind,
    Pause,
    Resume,
    RetryRun,
    Send,
    Signalled,
    StartRun,
    StepSpec,
    WorkflowStatus,
)
from queuety.model.needs import NeedStanding
from tests.unit.reference import flow, then
from tests.unit.stage import Stage

CHILD = Definition("child", (then("work"),), hash="c" * 64)
DONE, BROKEN, GONE_ON, ENDED = (
    WorkflowStatus.COMPLETED,
    WorkflowStatus.FAILED,
    WorkflowStatus.RUNNING,
    WorkflowStatus.CANCELLED,
)


def within(child: Definition | None = CHILD) -> StepSpec:
    return StepSpec("run_workflow", "w", child=child)


def parked(*after: StepSpec) -> Stage:
    """A run that is parked on its child 1000."""
    stage = Stage(flow(then("first"), within(), *after), {"x": 1})
    stage.succeed({"y": 2})
    return stage


def settle(stage: Stage, status: WorkflowStatus, state: dict[str, Any] | None = None, **how: Any) -> None:
    """Let the child end like this and say so."""
    child = (stage.workflow.runtime or {})["child"]
    stage.stands(child, status, state, **how)
    stage.tell(ChildSettled(child, status, is_clean=True))


def test_the_child_starts_with_the_public_state_and_the_run_is_parked_on_it() -> None:
    stage = parked()
    assert stage.started == [StartRun(1000, CHILD, {"x": 1, "y": 2}, 41, 1)]
    run = stage.workflow
    assert (run.status, run.current_step, run.runtime, stage.branches()) == ("running", 1, {"child": 1000}, [])


def test_the_childs_state_is_merged_and_the_run_goes_on() -> None:
    stage = parked(then("end"))
    settle(stage, DONE, {"y": 3, "z": 4})
    run = stage.workflow
    assert (run.state, run.current_step, run.transitions, run.runtime) == ({"x": 1, "y": 3, "z": 4}, 2, 2, None)
    assert stage.told_of() == [(Entry.COMPLETED, None), (Entry.RESUMED, None)]


def test_as_a_last_step_it_completes_the_run() -> None:
    stage = parked()
    settle(stage, DONE)
    assert (stage.workflow.status, stage.workflow.state) == ("completed", {"x": 1, "y": 2})


def test_a_child_that_failed_fails_the_run_with_its_own_message() -> None:
    stage = parked(then("end"))
    settle(stage, BROKEN, error="no way")
    run = stage.workflow
    assert (run.status, run.error_kind, run.error_message, run.failed_step) == ("failed", "ChildFailed", "no way", 1)
    assert (run.runtime, stage.sent) == ({"child": 1000}, []), "it has ended by itself and is not told to"


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (BROKEN, "ChildFailed", "child workflow 1000 failed"),
        (ENDED, "ChildCancelled", "child workflow 1000 was cancelled"),
        (None, "ChildCancelled", "child workflow 1000 is not there any more"),
    ],
)
def test_a_child_without_a_message_is_named(status: WorkflowStatus | None, kind: str, message: str) -> None:
    stage = parked()
    if status is None:
        del stage.others[1000]
        stage.tell(ChildSettled(1000, ENDED, is_clean=True))
    else:
        settle(stage, status)
    run = stage.workflow
    assert (run.status, run.error_kind, run.error_message, stage.sent) == ("failed", kind, message, [])


def test_what_counts_is_how_the_child_stands_and_not_what_the_letter_says() -> None:
    stage = parked()
    stage.tell(
        ChildSettled(1000, BROKEN, is_clean=True)
    )  # it was retried meanwhile, and its letters overtook each other
    assert stage.workflow.status == "running"
    stage.stands(1000, DONE, {"z": 1})
    stage.tell(ChildRevived(1000))
    assert stage.workflow.status == "running", "a run that goes on does not listen for a child that was revived"
    stage.tell(ChildSettled(1000, BROKEN, is_clean=True))
    assert (stage.workflow.status, stage.workflow.state["z"]) == ("completed", 1)


def test_news_of_another_run_mean_nothing() -> None:
    stage = parked()
    stage.stands(7, BROKEN)
    assert stage.tell(ChildSettled(7, BROKEN, is_clean=True)) == []
    stage.tell(Signalled("hello", {}, 900))
    assert (stage.workflow.status, stage.workflow.runtime) == ("running", {"child": 1000})


def test_a_pause_lets_the_child_be_merged_and_holds_what_follows() -> None:
    stage = parked(then("end"))
    stage.command(Pause())
    settle(stage, DONE, {"z": 1})
    run = stage.workflow
    assert (run.status, run.current_step, run.state["z"], stage.branches()) == ("paused", 2, 1, [])
    stage.command(Resume())
    assert stage.branches() == [None]


def test_a_resume_does_not_start_a_second_child() -> None:
    stage = parked()
    stage.command(Pause())
    stage.command(Resume())
    assert len(stage.started) == 1


def test_a_late_child_does_not_change_a_run_that_has_ended() -> None:
    stage = parked()
    stage.command(Cancel())
    assert stage.sent == [Send(1000, LetterKind.CANCEL, 0, {"parent": 41})]
    stage.stands(1000, DONE, {"z": 1})
    stage.tell(ChildSettled(1000, DONE, is_clean=True))
    assert (stage.workflow.status, stage.workflow.state) == ("cancelled", {"x": 1, "y": 2})


# retry


def test_a_retry_asks_a_failed_child_to_go_on() -> None:
    stage = parked()
    settle(stage, BROKEN, error="no way")
    stage.now_us = 5
    stage.command(RetryRun())
    assert stage.sent == [Send(1000, LetterKind.RETRY, 5, {"parent": 41})]
    assert (stage.workflow.status, stage.workflow.runtime, len(stage.started)) == ("running", {"child": 1000}, 1)
    stage.tell(Signalled("hello", {}, 900))
    assert stage.workflow.status == "running", "the child has not read its letter, and is no reason to fail again"
    stage.stands(1000, GONE_ON)
    stage.tell(ChildRevived(1000))
    settle(stage, DONE, {"z": 1})
    assert (stage.workflow.status, stage.workflow.state["z"]) == ("completed", 1)


@pytest.mark.parametrize(
    ("status", "cleanup"),
    [(ENDED, CleanupStatus.NONE), (BROKEN, CleanupStatus.PENDING), (BROKEN, CleanupStatus.COMPLETED)],
)
def test_a_retry_replaces_a_child_that_cannot_go_on(status: WorkflowStatus, cleanup: CleanupStatus) -> None:
    stage = parked()
    settle(stage, status, cleanup=cleanup, is_compensated=status is BROKEN)
    stage.command(RetryRun())
    assert stage.started[1:] == [StartRun(1001, CHILD, {"x": 1, "y": 2}, 41, 1)]
    assert (stage.workflow.runtime, stage.sent) == ({"child": 1001}, [])
    stage.tell(ChildSettled(1000, status, is_clean=True))
    assert (stage.workflow.ledger, stage.workflow.runtime) == (None, {"child": 1001})
    assert stage.tell(ChildSettled(1000, status, is_clean=True)) == [], "the first child means nothing any more"


def test_a_retry_asks_a_child_to_go_on_whose_end_was_only_told_of() -> None:
    """Its deadline's handler was called, and somebody may retry it: never two of them."""
    stage = parked()
    settle(stage, BROKEN, cleanup=CleanupStatus.COMPLETED)
    stage.command(RetryRun())
    assert (stage.started[1:], stage.workflow.runtime) == ([], {"child": 1000})
    assert [one.kind for one in stage.sent] == [LetterKind.RETRY]


def test_a_retry_replaces_a_child_that_is_gone() -> None:
    stage = parked()
    settle(stage, ENDED)
    del stage.others[1000]
    stage.command(RetryRun())
    assert stage.workflow.runtime == {"child": 1001}


@pytest.mark.parametrize("status", [status for status in WorkflowStatus if not status.is_terminal])
def test_a_retry_never_starts_a_second_child_beside_one_that_goes_on(status: WorkflowStatus) -> None:
    stage = parked()
    settle(stage, BROKEN, error="no way")
    stage.stands(1000, status)  # somebody has retried it, and its letter is on the way
    stage.command(RetryRun())
    assert (stage.workflow.status, stage.workflow.runtime) == ("running", {"child": 1000})
    assert (len(stage.started), stage.sent) == (1, [])


def test_a_retry_takes_what_a_child_has_brought_meanwhile() -> None:
    stage = parked(then("end"))
    settle(stage, BROKEN, error="no way")
    stage.stands(1000, DONE, {"z": 1})
    stage.command(RetryRun())
    assert (stage.workflow.current_step, stage.workflow.state["z"]) == (2, 1)


def test_a_run_follows_a_child_that_somebody_has_retried() -> None:
    stage = parked()
    settle(stage, BROKEN, error="no way")
    stage.stands(1000, GONE_ON)
    stage.tell(ChildRevived(1000))
    assert (stage.workflow.status, stage.workflow.error_message) == ("running", None)
    settle(stage, DONE)
    assert stage.workflow.status == "completed"


def test_a_run_that_follows_too_late_fails_as_the_child_has_again() -> None:
    stage = parked()
    settle(stage, BROKEN, error="no way")
    stage.stands(1000, BROKEN, error="again")
    stage.tell(ChildRevived(1000))
    assert (stage.workflow.status, stage.workflow.error_message) == ("failed", "again")


# what happens in one turn


def test_a_child_that_is_only_being_started_is_not_looked_for() -> None:
    stage = Stage(flow(then("first"), within()))
    first, cancelled = stage.success({}), stage.commanded(Cancel())
    stage.tell(first, Due(2), cancelled)
    assert not [need for need in stage.asked if isinstance(need, NeedStanding)]
    assert [run.workflow_id for run in stage.started] == [1000]
    assert stage.sent == [Send(1000, LetterKind.CANCEL, 0, {"parent": 41})]
    assert stage.workflow.status == "cancelled"


def test_a_loop_runs_a_child_per_round() -> None:
    stage = Stage(flow(within(), then("again")))
    for number in range(3):
        settle(stage, DONE, {"round": number})
        assert (len(stage.started), stage.workflow.state["round"]) == (number + 1, number)
        stage.succeed({"_next_step": "w"})
    assert [run.payload for run in stage.started] == [{}, {"round": 0}, {"round": 1}, {"round": 2}]


def test_it_has_no_jobs_and_needs_a_definition() -> None:
    stage = Stage(flow(then("a")))
    with pytest.raises(DefinitionError, match="'run_workflow', which has no jobs"):
        run_workflow.task(within(), stage.take(None), {})
    with pytest.raises(DefinitionError, match="step 'w' of workflow 41 has no definition to run"):
        start(41, flow(within(child=None)), {}, now_us=0)

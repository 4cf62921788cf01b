"""A run made again from its export: as it was, in whatever database, and going on from there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from queuety import Queuety, WorkflowStatus
from queuety.testing import ManualClock
from tests.support.exports import passed
from tests.support.flowing import status_of
from tests.support.invariants import check
from tests.support.standings import HARD, STORIES, fails, undo, work


def replayed(app: Queuety, run: int, **more: Any) -> int:
    """The same run once more, in the same database."""
    return app.replay_workflow(passed(app.export_workflow(run)), **more)


def rows(app: Queuety, run: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = app.export_workflow(run)["events"]
    return events


def entries(app: Queuety, run: int) -> list[str]:
    return [row["entry"] for row in rows(app, run)]


KEPT = ("status", "state", "current_step", "total_steps", "error_message", "error_kind", "failed_step", "tags")


def test_each_run_stands_where_it_stood_and_goes_on_to_its_end(app: Queuety, clock: ManualClock) -> None:
    """Each kind of step enters anew and does its work; only what is waited for has to come once more."""
    runs: dict[str, int] = {}
    for name, tell in STORIES.items():
        was = status_of(app, tell(app, clock))
        runs[name] = replayed(app, was.id)
        now = status_of(app, runs[name])
        assert {field: getattr(now, field) for field in KEPT} == {field: getattr(was, field) for field in KEPT}
        assert list(now.state) == list(was.state)
        assert now.name == f"{was.name}_replay_{round(clock.now.timestamp())}"
        assert (now.idempotency_key, now.parent_workflow_id, now.deadline_at) == (None, None, None)
        if was.status is WorkflowStatus.PAUSED:
            app.resume_workflow(now.id)
        app.signal(now.id, "go", {"n": 1})
        if not was.status.is_terminal and name != "waiting_for_workflows":
            app.cancel_workflow(was.id)
    check(app.door)
    for _ in range(3):
        app.run_until_idle()
        for child in app.list_workflows(status="waiting_for_signal", limit=100):
            app.signal(child.id, (child.waiting_for or [""])[0], {})
        clock.advance(hours=1)
    app.run_until_idle()
    ended = {name: status_of(app, run) for name, run in runs.items()}
    open_ones = {
        name: state for name, state in ended.items() if not name.startswith(("failed", "cancelled", "over_its"))
    }
    assert {name: state.status.value for name, state in open_ones.items() if state.status.value != "completed"} == {}
    assert ended["streaming"].state["written"] == ["a", None, {"n": 1.0}, "d"]
    assert ended["over_items"].state["all"]["succeeded"] == 3
    assert ended["reducing"].state["count"] == 2
    assert ended["looping"].state == {"worked": 3}
    assert ended["looping_by_key"].state == {"worked": 3}
    assert ended["waiting_for_signals"].state["got"]["one"] == {"n": 1.0, "emoji": "😀"}


def test_chunks_are_handed_to_the_step_that_goes_on(app: Queuety, clock: ManualClock) -> None:
    run = replayed(app, STORIES["streaming"](app, clock))
    chunks = app.export_workflow(run)["chunks"]
    assert [(chunk["visit"], chunk["number"], chunk["content"]) for chunk in chunks] == [
        (3, 0, "a"),
        (3, 1, None),
        (3, 2, {"n": 1.0}),
    ]
    assert list(app.export_workflow(run)["workflow"]["state"]) == ["worked"]


def test_a_waiting_run_waits_again_and_can_be_signalled(app: Queuety, clock: ManualClock) -> None:
    run = replayed(app, STORIES["waiting_for_signals"](app, clock))
    state = status_of(app, run)
    assert (state.waiting_for, (state.wait_details or {})["matched"]) == (["one", "go"], ["one"])
    app.signal(run, "go", {"n": 2})
    assert status_of(app, run).state == {"got": {"one": {"n": 1.0, "emoji": "😀"}, "go": {"n": 2}}}
    assert [signal["name"] for signal in app.export_workflow(run)["signals"]] == ["other"]


def test_a_wait_has_its_whole_time_again(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", timeout=60).dispatch()
    clock.advance(seconds=50)
    new = replayed(app, run)
    clock.advance(seconds=50)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.FAILED
    assert status_of(app, new).status is WorkflowStatus.WAITING_FOR_SIGNAL


def test_a_parked_run_starts_a_child_of_its_own(app: Queuety, clock: ManualClock) -> None:
    run = STORIES["parked_on_a_child"](app, clock)
    new = replayed(app, run)
    (child,) = app.list_workflows(parent_id=run)
    (other,) = app.list_workflows(parent_id=new)
    assert child.id != other.id
    app.cancel_workflow(new)
    app.run_until_idle()
    assert status_of(app, child.id).status is WorkflowStatus.RUNNING or status_of(app, child.id).waiting_for
    assert status_of(app, other.id).status is WorkflowStatus.CANCELLED


def test_a_failed_run_is_retried_without_the_other_ones_child(app: Queuety, clock: ManualClock) -> None:
    """The child that its runtime names belongs to the other run, or here to somebody else altogether."""
    run = STORIES["failed_with_its_child"](app, clock)
    new = replayed(app, run)
    (child,) = app.list_workflows(parent_id=run)
    app.retry_workflow(new, with_state={"mended": True})
    app.run_until_idle()
    assert status_of(app, new).status is WorkflowStatus.COMPLETED
    assert status_of(app, child.id).status is WorkflowStatus.FAILED
    assert status_of(app, run).status is WorkflowStatus.FAILED


def test_a_retry_runs_only_the_items_that_had_not_succeeded(app: Queuety, clock: ManualClock) -> None:
    run = replayed(app, STORIES["failed_over_items"](app, clock))
    done = entries(app, run).count("item")
    app.retry_workflow(run, with_state={"mended": True})
    assert app.run_until_idle() == 3 - done
    assert status_of(app, run).state["all"]["succeeded"] == 3


def test_nothing_is_cleaned_up_twice(app: Queuety, clock: ManualClock) -> None:
    """What the other run still has to undo it undoes; the copy says that nothing of it was done here."""
    run = STORIES["cancelled_and_not_yet_clean"](app, clock)
    new = replayed(app, run)
    assert status_of(app, new).compensation_status.value == "failed"
    assert rows(app, new)[-1]["control"]["_replayed"]["compensation_status"] == "pending"
    assert {job.status.value for job in app.list_jobs(workflow_id=new, cleanup=True)} == {"completed"}
    app.run_until_idle()
    assert status_of(app, run).compensation_status.value == "completed"
    assert status_of(app, new).compensation_status.value == "failed"


def test_who_and_from_what_stands_in_the_history(app: Queuety, clock: ManualClock) -> None:
    run = STORIES["completed"](app, clock)
    was = status_of(app, run)
    new = replayed(app, run, actor="Ann", reason="look at it")
    row = rows(app, new)[-1]
    assert row["entry"] == "replayed"
    assert row["seq"] == app.export_workflow(new)["workflow"]["version"]
    assert row["control"] == {
        "_by": {"actor": "Ann", "reason": "look at it"},
        "_replayed": {
            "source_workflow_id": run,
            "source_status": "completed",
            "definition_version": "v2",
            "definition_hash": was.definition_hash,
            "idempotency_key": "once",
        },
    }


def test_the_key_still_names_the_first_run(app: Queuety, clock: ManualClock) -> None:
    run = STORIES["completed"](app, clock)
    replayed(app, run)
    assert STORIES["completed"](app, clock) == run


def test_what_happened_can_be_gone_back_to(app: Queuety, clock: ManualClock) -> None:
    run = replayed(app, STORIES["completed"](app, clock))
    app.rewind_workflow(run, 0)
    assert status_of(app, run).state == {"steady": True, **HARD}
    fork = app.fork_workflow(run, 2)
    assert status_of(app, fork).state == {"steady": True, **HARD, "filed": True}
    app.run_until_idle()
    assert status_of(app, run).status is status_of(app, fork).status is WorkflowStatus.COMPLETED
    assert status_of(app, run).state == status_of(app, fork).state


def test_a_rewind_beyond_the_replay_gives_signals_back(app: Queuety) -> None:
    builder = app.workflow("w").then(work).wait_for_signal("go", result_key="got").then(work).wait_for_signal("end")
    run = builder.dispatch()
    app.run_until_idle()
    app.signal(run, "go", {"n": 1})
    app.run_until_idle()
    new = replayed(app, run)
    app.rewind_workflow(new, 0)
    app.run_until_idle()
    assert status_of(app, new).state == {"worked": 2, "got": {"n": 1}}


def test_a_long_name_is_cut(app: Queuety) -> None:
    run = app.workflow("n" * 255).wait_for_signal("go").dispatch()
    name = status_of(app, replayed(app, run)).name
    assert len(name) == 255
    assert name.endswith(f"n_replay_{int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())}")


def test_a_replay_of_a_replay_is_one_too(app: Queuety, clock: ManualClock) -> None:
    run = STORIES["backing_off"](app, clock)
    third = replayed(app, replayed(app, run))
    assert entries(app, third) == ["completed", "failed", "replayed", "replayed"]
    clock.advance(hours=1)
    app.run_until_idle()
    clock.advance(hours=1)
    app.run_until_idle()
    assert status_of(app, third).state == {"worked": 1, "stood": True}


def test_a_compensated_step_is_undone_by_the_copy_if_it_is_cancelled(app: Queuety) -> None:
    run = app.workflow("w").then(work).compensate_with(undo).wait_for_signal("go").dispatch()
    app.run_until_idle()
    new = replayed(app, run)
    app.cancel_workflow(new)
    app.run_until_idle()
    assert status_of(app, new).compensation_status.value == "completed"
    assert entries(app, new)[-1] == "cleaned"


def test_a_child_is_replayed_without_its_parent(app: Queuety) -> None:
    child = app.workflow("inner").then(fails)
    run = app.workflow("outer").run_workflow("inner", child).dispatch()
    app.run_until_idle()
    (inner,) = app.list_workflows(parent_id=run)
    new = replayed(app, inner.id)
    app.retry_workflow(new, with_state={"mended": True})
    app.run_until_idle()
    assert status_of(app, new).status is WorkflowStatus.COMPLETED
    assert status_of(app, run).status is WorkflowStatus.FAILED


def test_an_old_run_is_not_gone_at_once(app: Queuety, clock: ManualClock) -> None:
    """Retention counts from the replay. When the other one ended stands in the history."""
    run = STORIES["completed"](app, clock)
    data = passed(app.export_workflow(run))
    clock.advance(days=30)
    new = app.replay_workflow(data)
    assert app.purge_workflows(7) == 1
    state = status_of(app, new)
    assert (state.created_at.isoformat(), state.completed_at) == (
        data["workflow"]["created_at"][:19] + "+00:00",
        clock.now,
    )
    assert rows(app, new)[-2]["at"] == data["events"][-1]["at"]
    clock.advance(days=8)
    assert app.purge_workflows(7) == 1
    assert app.workflow_status(new) is None


@pytest.mark.parametrize("is_over", [True, False])
def test_a_pruned_run_is_replayed_with_what_is_left(app: Queuety, clock: ManualClock, is_over: bool) -> None:
    builder = app.workflow("w").then(work).delay(days=10).then(work)
    run = (builder if is_over else builder.wait_for_signal("go")).dispatch({"n": 1})
    app.run_until_idle()
    clock.advance(days=10)
    app.run_until_idle()
    assert app.prune_history(5) == 1
    data = passed(app.export_workflow(run))
    assert [row["seq"] for row in data["events"]][:2] == [2, 3]
    assert [row["seq"] for row in data["checkpoints"]] == ([] if is_over else [1])
    new = app.replay_workflow(data)
    assert status_of(app, new).state == {"n": 1, "worked": 2}
    for step in range(3):
        assert app.workflow_state_at(new, step) == app.workflow_state_at(run, step)
    app.signal(new, "go")
    assert status_of(app, new).status is WorkflowStatus.COMPLETED


def test_a_long_run_is_folded_from_states_on_the_way(memory: Queuety) -> None:
    """The copy has them too: no earlier state is far from one."""
    run = memory.workflow("w").then(work, "again").repeat_until("again", "worked", 150).dispatch()
    memory.run_until_idle()
    new = replayed(memory, run)
    kept = memory.door.tables.checkpoints
    with memory.door.reading() as connection:
        found = connection.execute(select(kept.c.seq, kept.c.state).where(kept.c.run_id == new)).all()
    assert [tuple(row) for row in found] == [(256, '{"worked":128}')]
    assert memory.workflow_state_at(new, 0) == {"worked": 150}
    memory.rewind_workflow(new, 0, with_state={"worked": 140})
    memory.run_until_idle()
    assert status_of(memory, new).state == {"worked": 150}

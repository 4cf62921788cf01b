"""`run_workflow`: a run within the run, which waits for it and takes what it brings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import JobStatus, Priority, Queuety, WorkflowState, WorkflowStatus, bind, errors, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.model import CleanupStatus, ErrorKind
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.stories import ended, jobs_of, story

State = dict[str, Any]

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
def put(state: State, *, key: str, value: Any = True) -> State:
    note(key)
    return {key: value}


@step
def steers(state: State) -> State:
    return {"own": sorted(state), "_next_step": "last", "_hidden": 1}


@step(max_attempts=1)
def fails_until_mended(state: State) -> State:
    note("tried")
    if "mended" not in notes:
        raise ValueError("the child is broken")
    return {"mended": True}


@step
def waits(state: State) -> State:
    note("began")
    let_go.wait(30)
    return {"waited": True}


@step
def clean(state: State, *, whose: str) -> None:
    note(f"cleaned {whose}")


@step
def cannot_clean(state: State) -> None:
    note("cannot clean")
    raise OSError("the bucket is gone")


@step
def double(state: State, item: int, index: int) -> State:
    return {"twice": 2 * item}


@step
def count(state: State) -> State:
    return {"n": state.get("n", 0) + 1}


def within(app: Queuety, child: WorkflowBuilder) -> WorkflowBuilder:
    """A run that does something, runs the child, and does something more."""
    return (
        app.workflow("parent").then(bind(put, key="before")).run_workflow("child", child).then(bind(put, key="after"))
    )


def only_child(app: Queuety, run: int) -> WorkflowState:
    (child,) = app.list_workflows(parent_id=run)
    return child


def tower(app: Queuety, floors: int, last: Any, *, cleaned: bool = False) -> WorkflowBuilder:
    """A run within a run within a run …; the innermost one does the last thing, or waits. The outermost is number 0."""
    built = workflow(f"floor {floors}")
    built = built.delay(hours=1) if last is None else built.then(last)
    for number in reversed(range(floors)):
        if cleaned:
            built.on_cancel(bind(clean, whose=str(number + 1)))
        outside = app.workflow(f"floor {number}") if number == 0 else workflow(f"floor {number}")
        built = outside.then(bind(put, key=f"in {number}")).run_workflow(f"floor {number + 1}", built)
        built.then(bind(put, key=f"out {number}"))
    return built.on_cancel(bind(clean, whose="0")) if cleaned else built


def floors_of(app: Queuety, run: int) -> list[WorkflowState]:
    """The run, its child, the child's child …"""
    found = [status_of(app, run)]
    while children := app.list_workflows(parent_id=found[-1].id):
        found.append(children[0])
    return found


def test_the_child_begins_with_the_public_state_and_what_it_ends_with_is_merged(app: Queuety) -> None:
    child = (
        app.workflow("any name")
        .version("v7")
        .then(steers)
        .then(bind(put, key="skipped"))
        .then(bind(put, key="x", value=[2]), name="last")
    )
    run = within(app, child).dispatch({"x": 1, "y": {"deep": 1}})
    app.run_until_idle(max_jobs=1)
    parked, inside = status_of(app, run), only_child(app, run)
    assert (parked.status, parked.current_step) == (WorkflowStatus.RUNNING, 1)
    assert jobs_of(app, run, JobStatus.PENDING) == []
    assert (inside.name, inside.parent_workflow_id, inside.parent_step_index) == ("child", run, 1)
    assert (inside.state, inside.definition_version) == ({"x": 1, "y": {"deep": 1}, "before": True}, "v7")
    done = ended(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    assert done.state == {
        "x": [2],
        "y": {"deep": 1},
        "before": True,
        "own": ["before", "x", "y"],
        "after": True,
    }
    assert notes == ["before", "x", "after"]
    assert story(app, run) == ["step_completed 0", "workflow_resumed 1", "step_completed 2"]
    assert only_child(app, run).status is WorkflowStatus.COMPLETED


def test_as_the_only_step_the_child_completes_the_run(app: Queuety) -> None:
    run = app.workflow("w").run_workflow("child", app.workflow("c").then(bind(put, key="a"))).dispatch({"b": 1})
    done = ended(app, run)
    assert (done.status, done.state, done.current_step) == (WorkflowStatus.COMPLETED, {"b": 1, "a": True}, 1)


def test_five_runs_within_each_other_end_from_the_inside_out(app: Queuety) -> None:
    run = tower(app, 5, bind(put, key="top")).dispatch({"given": 0})
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert notes == [*(f"in {n}" for n in range(5)), "top", *(f"out {n}" for n in reversed(range(5)))]
    assert [floor.name for floor in floors_of(app, run)] == [f"floor {n}" for n in range(6)]
    assert status_of(app, run).state == {"given": 0, **dict.fromkeys(notes, True)}


def test_runs_that_do_nothing_but_run_another_start_and_end_together(app: Queuety) -> None:
    built = workflow("innermost").delay()
    for number in range(5):
        built = workflow(f"around {number}").run_workflow(f"child {number}", built)
    run = app.dispatch_workflow(built, {"a": 1})
    assert (ended(app, run).status, len(floors_of(app, run))) == (WorkflowStatus.COMPLETED, 6)


def test_what_the_childs_builder_says_holds_for_the_child(app: Queuety) -> None:
    child = (
        app.workflow("c").on_queue("special").with_priority(Priority.URGENT).max_attempts(9).idempotency_key("once")
    ).then(bind(put, key="a"))
    runs = [app.workflow("w").run_workflow("child", child).dispatch() for _ in range(2)]
    for run in runs:
        inside = only_child(app, run)
        assert inside.idempotency_key is None
        (job,) = jobs_of(app, inside.id)
        assert (job.queue, job.priority, job.max_attempts) == ("special", Priority.URGENT, 9)


def test_a_child_that_fails_fails_the_runs_around_it_with_its_message(app: Queuety) -> None:
    run = tower(app, 3, fails_until_mended, cleaned=True).dispatch()
    app.run_until_idle()
    floors = floors_of(app, run)
    assert [floor.status for floor in floors] == [WorkflowStatus.FAILED] * 4
    assert [floor.error_kind for floor in floors] == [ErrorKind.CHILD_FAILED] * 3 + [ErrorKind.STEP_FAILED]
    assert {floor.error_message for floor in floors} == {"the child is broken"}
    assert [floor.failed_step for floor in floors] == [1, 1, 1, 0]
    assert not [word for word in notes if word.startswith(("cleaned", "out"))]


def test_a_child_that_is_cancelled_fails_the_run(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(waits)).dispatch()
    app.run_until_idle(max_jobs=1)
    child = only_child(app, run).id
    app.cancel_workflow(child)
    failed = ended(app, run)
    assert (failed.status, failed.error_kind, failed.failed_step) == ("failed", ErrorKind.CHILD_CANCELLED, 1)
    assert str(child) in (failed.error_message or "")


def test_a_cancelled_run_takes_its_children_with_it_and_the_innermost_cleans_up_first(app: Queuety) -> None:
    run = tower(app, 3, None, cleaned=True).dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    assert status_of(app, run).status is WorkflowStatus.CANCELLED
    app.run_until_idle()
    floors = floors_of(app, run)
    assert [floor.status for floor in floors] == [WorkflowStatus.CANCELLED] * 4
    assert notes[3:] == ["cleaned 3", "cleaned 2", "cleaned 1", "cleaned 0"]
    assert [floor.compensation_status for floor in floors] == [CleanupStatus.COMPLETED] * 4


def test_a_child_that_cannot_clean_up_does_not_keep_its_parent_from_it(app: Queuety, clock: ManualClock) -> None:
    child = app.workflow("c").max_attempts(2).delay(hours=1).on_cancel(cannot_clean)
    run = within(app, child).on_cancel(bind(clean, whose="parent")).dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert status_of(app, run).compensation_status is CleanupStatus.PENDING
    clock.advance(minutes=1)
    app.run_until_idle()
    assert notes == ["before", "cannot clean", "cannot clean", "cleaned parent"]
    assert only_child(app, run).compensation_status is CleanupStatus.FAILED
    assert status_of(app, run).compensation_status is CleanupStatus.COMPLETED


def test_a_child_whose_step_is_in_hand_is_cancelled_with_its_parent_and_its_result_discarded(
    database: Database,
) -> None:
    with Queuety(database.url) as app:
        run = within(app, app.workflow("c").then(waits).then(bind(put, key="c"))).dispatch({"a": 1})
        with working(app):
            until(lambda: "began" in notes)
            app.cancel_workflow(run)
            child = only_child(app, run).id
            until(lambda: status_of(app, child).status is WorkflowStatus.CANCELLED)
            let_go.set()
        assert (status_of(app, child).state, app.run_until_idle()) == ({"a": 1, "before": True}, 0)
        check(app.door)


def test_a_child_that_completes_after_its_parent_was_cancelled_does_not_change_it(app: Queuety) -> None:
    """A turn settles the child's last step before it opens the parent's letter: the child is done, the parent not."""
    run = within(app, app.workflow("c").then(waits)).on_cancel(bind(clean, whose="parent")).dispatch()
    app.run_until_idle(max_jobs=1)

    def cancel_while_it_runs() -> None:
        until(lambda: "began" in notes)
        app.cancel_workflow(run)
        let_go.set()

    thread = threading.Thread(target=cancel_while_it_runs)
    thread.start()
    app.run_until_idle()
    thread.join()
    done, child = status_of(app, run), only_child(app, run)
    assert (done.status, done.state, done.current_step) == (WorkflowStatus.CANCELLED, {"before": True}, 1)
    assert child.status is WorkflowStatus.COMPLETED
    assert (notes, done.compensation_status) == (["before", "began", "cleaned parent"], CleanupStatus.COMPLETED)


def test_a_retried_child_takes_the_runs_around_it_along(app: Queuety) -> None:
    run = tower(app, 3, fails_until_mended).dispatch()
    app.run_until_idle()
    note("mended")
    app.retry_workflow(floors_of(app, run)[-1].id)
    done = ended(app, run)
    assert (done.status, done.error_message, done.error_kind) == (WorkflowStatus.COMPLETED, None, None)
    assert (notes[-3:], done.state["mended"]) == (["out 2", "out 1", "out 0"], True)
    assert len(floors_of(app, run)) == 4


def test_a_retried_run_has_its_failed_children_go_on_down_to_the_one_that_had_failed(app: Queuety) -> None:
    run = tower(app, 3, fails_until_mended).dispatch()
    app.run_until_idle()
    before = [floor.id for floor in floors_of(app, run)]
    app.retry_workflow(run)
    assert ended(app, run).status is WorkflowStatus.FAILED
    note("mended")
    app.retry_workflow(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert [floor.id for floor in floors_of(app, run)] == before, "another child was started"
    assert (notes.count("tried"), notes.count("in 2")) == (3, 1)


def test_a_retried_run_replaces_a_child_that_was_cancelled(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(bind(put, key="c"))).dispatch()
    app.run_until_idle(max_jobs=1)
    first = only_child(app, run).id
    app.cancel_workflow(first)
    assert ended(app, run).status is WorkflowStatus.FAILED
    app.retry_workflow(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    second, *rest = app.list_workflows(parent_id=run)
    assert ([child.id for child in rest], second.status) == ([first], WorkflowStatus.COMPLETED)
    assert notes == ["before", "c", "after"]


def test_a_run_that_was_cancelled_after_its_childs_failure_does_not_follow_the_child(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(fails_until_mended)).dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    note("mended")
    child = only_child(app, run).id
    app.retry_workflow(child)
    app.run_until_idle()
    assert status_of(app, child).status is WorkflowStatus.COMPLETED
    assert (status_of(app, run).status, "after" in notes) == (WorkflowStatus.CANCELLED, False)


def test_a_paused_run_takes_what_the_child_brings_and_waits_before_the_next_step(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(bind(put, key="c"))).dispatch()
    app.run_until_idle(max_jobs=1)
    app.pause_workflow(run)
    held = ended(app, run)
    assert (held.status, held.current_step, held.state) == (WorkflowStatus.PAUSED, 2, {"before": True, "c": True})
    app.resume_workflow(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert notes == ["before", "c", "after"]


def test_a_run_paused_and_resumed_beside_its_child_starts_no_second_one(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(bind(put, key="c"))).dispatch()
    app.run_until_idle(max_jobs=1)
    for _ in range(3):
        app.pause_workflow(run)
        app.resume_workflow(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert (len(app.list_workflows(parent_id=run)), notes) == (1, ["before", "c", "after"])


def test_a_run_paused_before_its_child_starts_it_once_it_is_resumed(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(bind(put, key="c"))).dispatch()
    app.pause_workflow(run)
    assert (ended(app, run).current_step, app.list_workflows(parent_id=run)) == (1, [])
    app.resume_workflow(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED


def test_a_paused_child_holds_its_parent(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(bind(put, key="c")).then(bind(put, key="d"))).dispatch()
    app.run_until_idle(max_jobs=1)
    child = only_child(app, run).id
    app.pause_workflow(child)
    assert ended(app, run).status is WorkflowStatus.RUNNING
    app.resume_workflow(child)
    assert (ended(app, run).status, notes) == (WorkflowStatus.COMPLETED, ["before", "c", "d", "after"])


def test_every_lap_of_a_loop_has_a_child_of_its_own(app: Queuety) -> None:
    child = app.workflow("c").then(count)
    run = app.workflow("w").run_workflow("lap", child, step_name="lap").repeat_until("lap", "n", 3).dispatch()
    assert ended(app, run).state == {"n": 3}
    assert [inside.state for inside in app.list_workflows(parent_id=run)] == [{"n": 3}, {"n": 2}, {"n": 1}]


def test_children_with_items_branches_loops_and_waits_bring_all_they_have(app: Queuety) -> None:
    child = (
        app.workflow("c")
        .for_each("items", double, result_key="doubled")
        .parallel([bind(put, key="p"), bind(put, key="q")])
        .then(count, name="lap")
        .repeat_until("lap", "n", 4)
        .wait_for_signal("go", result_key="went")
    )
    run = within(app, child).dispatch({"items": [1, 2]})
    app.run_until_idle()
    inside = only_child(app, run)
    assert (inside.status, status_of(app, run).status) == (WorkflowStatus.WAITING_FOR_SIGNAL, WorkflowStatus.RUNNING)
    app.signal(inside.id, "go", {"now": True})
    done = ended(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    doubled = done.state["doubled"]
    assert isinstance(doubled, dict)
    assert [entry["output"]["twice"] for entry in doubled["results"]] == [2, 4]
    assert (done.state["p"], done.state["q"], done.state["n"], done.state["went"]) == (True, True, 4, {"now": True})


def test_a_waiting_child_is_cancelled_with_its_parent_and_takes_no_signal_any_more(app: Queuety) -> None:
    run = within(app, app.workflow("c").wait_for_signal("go")).dispatch()
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    child = only_child(app, run)
    app.signal(child.id, "go", {"x": 1})
    app.run_until_idle()
    assert (status_of(app, child.id).status, status_of(app, child.id).state) == ("cancelled", {"before": True})


def test_children_of_many_runs_are_their_own(app: Queuety) -> None:
    """One of twenty is cancelled; the others do not hear of it."""
    builder = within(app, app.workflow("c").then(bind(put, key="c")))
    runs = app.dispatch_many(builder, [{"number": number} for number in range(20)])
    app.run_until_idle(max_jobs=20)
    app.cancel_workflow(runs[7])
    app.run_until_idle()
    statuses = [status_of(app, run).status for run in runs]
    assert statuses == ["completed"] * 7 + ["cancelled"] + ["completed"] * 12
    assert [status_of(app, run).state["number"] for run in runs] == list(range(20))
    assert {only_child(app, run).state["number"] for run in runs} == set(range(20))


def test_a_finished_parent_refuses_what_its_status_forbids_whatever_its_child_was(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(bind(put, key="c"))).dispatch()
    app.run_until_idle()
    for operation in (app.pause_workflow, app.resume_workflow, app.retry_workflow, app.cancel_workflow):
        for one in (run, only_child(app, run).id):
            with pytest.raises(errors.InvalidStateError):
                operation(one)


def test_a_paused_run_whose_child_fails_has_failed_and_goes_on_with_it(app: Queuety) -> None:
    run = within(app, app.workflow("c").then(fails_until_mended)).dispatch()
    app.run_until_idle(max_jobs=1)
    app.pause_workflow(run)
    failed = ended(app, run)
    assert (failed.status, failed.error_kind) == (WorkflowStatus.FAILED, ErrorKind.CHILD_FAILED)
    note("mended")
    app.retry_workflow(only_child(app, run).id)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert notes == ["before", "tried", "mended", "tried", "after"]


def test_a_paused_run_that_is_cancelled_takes_its_child_with_it(app: Queuety) -> None:
    run = tower(app, 2, None, cleaned=True).dispatch()
    app.run_until_idle()
    app.pause_workflow(run)
    app.pause_workflow(floors_of(app, run)[1].id)
    app.cancel_workflow(run)
    app.run_until_idle()
    assert {floor.status for floor in floors_of(app, run)} == {WorkflowStatus.CANCELLED}
    assert notes[2:] == ["cleaned 2", "cleaned 1", "cleaned 0"]


def test_a_child_that_starts_nothing_but_fails_at_once_fails_its_parent_with_it(app: Queuety) -> None:
    """Its first step is left or fails as it is entered: in the very transaction that starts it."""
    run = within(app, app.workflow("c").for_each("nothing", double, mode="first_success")).dispatch()
    failed = ended(app, run)
    assert (failed.status, failed.error_kind, failed.failed_step) == ("failed", ErrorKind.CHILD_FAILED, 1)
    assert only_child(app, run).error_kind is ErrorKind.FOR_EACH_UNSATISFIABLE
    app.retry_workflow(run)
    assert ended(app, run).status is WorkflowStatus.FAILED
    assert len(app.list_workflows(parent_id=run)) == 1


def test_a_state_that_is_large_goes_down_and_comes_up(app: Queuety) -> None:
    payload = {f"key {number}": "x" * 10_000 for number in range(30)}
    run = tower(app, 3, bind(put, key="top", value="y" * 100_000)).dispatch(payload)
    state = ended(app, run).state
    assert {key: state[key] for key in payload} == payload
    assert (state["top"], state["out 0"]) == ("y" * 100_000, True)

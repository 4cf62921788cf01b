"""Changing a workflow while its runs are under way: which of them could move, moving them, moving them back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, current, errors, step
from queuety.define.builder import WorkflowBuilder
from queuety.engine.migrating import Move, MoveVerdict
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working

State = dict[str, Any]
UNKNOWN = 987_654_321


def noting(name: str) -> Callable[[State], State]:
    def handler(state: State) -> State:
        note((state.get("n"), name))
        return {name: state.get(name, 0) + 1}

    handler.__qualname__ = handler.__name__ = f"handler_{name}"
    return handler


handler_a, handler_b, handler_c = step(noting("a")), step(noting("b")), step(noting("c"))
handler_d, handler_x, handler_y = step(noting("d")), step(noting("x")), step(noting("y"))


@step(max_attempts=1)
def breaks(state: State) -> State:
    note((state.get("n"), "breaks"))
    raise ValueError("broken")


@step(max_attempts=1)
def charges(state: State) -> State:
    note(current().idempotency_key)
    if len(notes) == 1:
        raise ValueError("no answer")
    return {"charged": True}


@step
def undo_a(state: State) -> None:
    note((state.get("n"), "undo a"))


@step
def undo_b(state: State) -> None:
    note((state.get("n"), "undo b"))


def old_of(app: Queuety) -> WorkflowBuilder:
    return app.workflow("order").then(handler_a, "a").then(handler_b, "b").then(handler_c, "c").version("1")


def new_of(app: Queuety) -> WorkflowBuilder:
    built = app.workflow("order").then(handler_x, "x").then(handler_a, "a").then(handler_b, "b")
    return built.then(handler_y, "y").then(handler_c, "c").version("2")


def keys(app: Queuety, run: int) -> list[str]:
    return sorted(status_of(app, run).state)


# one run


def test_a_run_goes_on_under_the_new_definition(app: Queuety) -> None:
    run = old_of(app).dispatch()
    app.run_until_idle(max_jobs=1)
    was = status_of(app, run)
    move = app.migrate_workflow(run, new_of(app), actor="ann", reason="y is needed")
    moved = "step 'b' starts over in a new visit: it has moved from 1 to 2; it is past step 'x', new there"
    assert move == Move(MoveVerdict.SAFE, moved, 2)
    now = status_of(app, run)
    assert (was.definition_version, now.definition_version) == ("1", "2")
    assert (now.status, now.current_step, now.current_step_name, now.total_steps) == ("running", 2, "b", 5)
    assert now.state == was.state
    app.run_until_idle()
    assert (status_of(app, run).status, keys(app, run)) == (WorkflowStatus.COMPLETED, ["a", "b", "c", "y"])
    assert notes == [(None, name) for name in "abyc"]


def test_another_process_reads_the_definition_from_the_database(
    app: Queuety, database: Database, clock: ManualClock
) -> None:
    with Queuety(database.url, clock=clock) as worker:
        run = old_of(app).dispatch()
        worker.run_until_idle(max_jobs=1)
        app.migrate_workflow(run, new_of(app))
        assert worker.run_until_idle() == 3
        assert keys(worker, run) == ["a", "b", "c", "y"]


def test_a_dry_run_only_tells(app: Queuety) -> None:
    run = old_of(app).dispatch()
    before = status_of(app, run)
    assert app.migrate_workflow(run, new_of(app), dry_run=True).to_step == 1
    assert status_of(app, run) == before
    assert [version.version for version in app.workflow_diff("order").versions] == ["1"], "not even the definition"
    app.cancel_workflow(run)
    told = app.migrate_workflow(run, new_of(app), dry_run=True)
    assert (told.verdict, told.reason) == (MoveVerdict.BLOCKED, "it is cancelled")


def test_a_migration_is_undone_by_one_back(app: Queuety) -> None:
    run = old_of(app).dispatch()
    app.run_until_idle(max_jobs=1)
    before = status_of(app, run)
    app.migrate_workflow(run, new_of(app))
    app.migrate_workflow(run, before.definition_hash[:8])
    now = status_of(app, run)
    assert (now.definition_hash, now.current_step, now.total_steps, now.state) == (
        before.definition_hash,
        before.current_step,
        before.total_steps,
        before.state,
    )
    app.run_until_idle()
    assert (status_of(app, run).status, keys(app, run)) == (WorkflowStatus.COMPLETED, ["a", "b", "c"])


def test_a_wait_and_a_delay_go_on_as_they_were(app: Queuety, clock: ManualClock) -> None:
    def built(*before: Any) -> WorkflowBuilder:
        builder = app.workflow("patient")
        for handler in before:
            builder.then(handler)
        return (
            builder.wait_for_signal("go", step_name="w", timeout=90)
            .delay(minutes=1, step_name="d")
            .then(handler_a, "a")
        )

    run = built().dispatch()
    clock.advance(seconds=80)
    assert app.migrate_workflow(run, built(handler_x)).keeps_visit
    app.signal(run, "go")
    assert status_of(app, run).current_step_name == "d"
    clock.advance(seconds=59)
    assert app.migrate_workflow(run, built(handler_x, handler_y)).keeps_visit
    assert app.run_until_idle() == 0
    clock.advance(seconds=1)
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_failed_run_is_moved_to_what_mends_it_and_retried(app: Queuety) -> None:
    run = app.workflow("order").then(handler_a, "a").then(breaks, "b").then(handler_c, "c").dispatch()
    app.run_until_idle()
    move = app.migrate_workflow(run, new_of(app))
    assert (move.to_step, move.keeps_visit) == (2, False)
    found = status_of(app, run)
    assert (found.status, found.failed_step, found.error_message) == ("failed", 2, "broken")
    app.retry_workflow(run)
    app.run_until_idle()
    assert (status_of(app, run).status, keys(app, run)) == (WorkflowStatus.COMPLETED, ["a", "b", "c", "y"])


def test_what_is_tried_again_at_another_place_has_the_same_key(app: Queuety) -> None:
    """Or a payment service would charge it twice."""
    run = app.workflow("payment").then(charges, "charge").dispatch()
    app.run_until_idle()
    assert app.migrate_workflow(run, app.workflow("payment").then(handler_x).then(charges, "charge")).keeps_visit
    app.retry_workflow(run)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    assert len(notes) == 2
    assert len(set(notes)) == 1


def test_a_paused_run_is_moved_between_two_steps(app: Queuety) -> None:
    run = old_of(app).dispatch()
    app.pause_workflow(run)
    app.run_until_idle()
    assert app.migrate_workflow(run, new_of(app)).reason == "step 'b' has not begun; it is past step 'x', new there"
    assert status_of(app, run).status is WorkflowStatus.PAUSED
    app.resume_workflow(run)
    app.run_until_idle()
    assert keys(app, run) == ["a", "b", "c", "y"]


def test_a_child_keeps_its_definition_until_it_is_moved_itself(app: Queuety) -> None:
    def parent(child: WorkflowBuilder) -> WorkflowBuilder:
        return app.workflow("parent").run_workflow("order", child, "inner").then(handler_d, "d")

    run = parent(old_of(app)).dispatch()
    (child,) = app.list_workflows(parent_id=run)
    assert app.migrate_workflow(run, parent(new_of(app))).keeps_visit
    app.run_until_idle(max_jobs=1)
    assert app.migrate_workflows("order", "2").done == [child.id]
    app.run_until_idle()
    assert keys(app, run) == ["a", "b", "c", "d", "y"]


def test_what_was_settled_under_another_definition_is_undone_by_it(app: Queuety) -> None:
    def built(builder: WorkflowBuilder, last: Any) -> WorkflowBuilder:
        return builder.then(last, "last").compensate_on_failure()

    started = app.workflow("trip").then(handler_a, "a").compensate_with(undo_a).then(handler_b, "b")
    run = built(started, handler_c).dispatch()
    app.run_until_idle(max_jobs=1)
    changed = app.workflow("trip").then(handler_x, "x").then(handler_b, "b").compensate_with(undo_b)
    app.migrate_workflow(run, built(changed, breaks))
    app.run_until_idle()
    assert [word for _, word in notes] == ["a", "b", "breaks", "undo b", "undo a"]
    assert status_of(app, run).compensation_status == "completed"
    with pytest.raises(errors.InvalidStateError, match="what follows from that has begun"):
        app.migrate_workflow(run, old_of_trip(app))


def old_of_trip(app: Queuety) -> WorkflowBuilder:
    return app.workflow("trip").then(handler_a, "a").then(breaks, "last")


def test_a_run_that_is_over_its_time_gets_more(app: Queuety, clock: ManualClock) -> None:
    def built(seconds: int) -> WorkflowBuilder:
        return app.workflow("hurried").wait_for_signal("go", step_name="w").must_complete_within(seconds=seconds)

    run = built(60).dispatch()
    began = status_of(app, run).created_at
    clock.advance(seconds=50)
    app.migrate_workflow(run, built(120))
    deadline = status_of(app, run).deadline_at
    assert deadline is not None
    assert (deadline - began).total_seconds() == 120
    clock.advance(seconds=60)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.WAITING_FOR_SIGNAL
    with pytest.raises(errors.InvalidStateError, match="there a run has 100 s from its start, and those are over"):
        app.migrate_workflow(run, built(100))
    clock.advance(seconds=10)
    app.run_until_idle()
    assert status_of(app, run).error_kind == "DeadlineExceeded"


def test_a_handler_that_was_renamed_is_found_by_its_old_name(app: Queuety) -> None:
    """Nothing has to be moved for that."""
    app.register("shop.old:fetch", handler_a)
    step_of_before = {"type": "single", "name": "fetch", "handler": "shop.old:fetch"}
    run = app.dispatch_definition({"name": "renamed", "steps": [step_of_before]})
    assert app.run_until_idle() == 1
    assert keys(app, run) == ["a"]


# what is refused


def test_what_cannot_be_moved_says_what_to_do_and_changes_nothing(app: Queuety) -> None:
    run = old_of(app).dispatch()
    app.run_until_idle(max_jobs=1)
    renamed = app.workflow("order").then(handler_a, "a").then(handler_b, "b2")
    before = (status_of(app, run), app.workflow_timeline(run))
    with pytest.raises(errors.InvalidStateError) as refused:
        app.migrate_workflow(run, renamed)
    assert str(refused.value).startswith(f"workflow {run} ('order') cannot be moved to definition ")
    assert "needs_map: there is no step 'b' (step 'b2' does the same); say in the step map" in str(refused.value)
    assert (status_of(app, run), app.workflow_timeline(run)) == before
    assert app.migrate_workflow(run, renamed, {"b": "b2"}).keeps_visit
    app.run_until_idle()
    assert keys(app, run) == ["a", "b"]


def test_versions_and_maps_that_there_are_not(app: Queuety) -> None:
    run = old_of(app).dispatch()
    new = new_of(app)
    with pytest.raises(errors.NotFoundError, match="no definition of workflow 'order' has the version 'nine'"):
        app.migrate_workflow(run, "nine")
    with pytest.raises(errors.NotFoundError, match="no workflow has the id"):
        app.migrate_workflow(UNKNOWN, new)
    with pytest.raises(errors.NotFoundError, match="no definition of a workflow named 'nothing' is stored"):
        app.workflow_diff("nothing")
    with pytest.raises(errors.DefinitionError, match="that is a definition of workflow 'other', not of 'order'"):
        app.migrate_workflow(run, app.workflow("other").then(handler_a))
    with pytest.raises(errors.DefinitionError, match="no version has a step 'q'; there are 'a', "):
        app.migrate_workflow(run, new, {"q": "a"})
    with pytest.raises(errors.DefinitionError, match="has no step 'q'; there are 'a', 'b', 'c', 'x', 'y'"):
        app.migrate_workflow(run, new, {"a": "q"})
    with pytest.raises(errors.DefinitionError, match="to=7"):
        app.migrate_workflow(run, 7)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidStateError, match="it is under this definition already"):
        app.migrate_workflow(run, old_of(app))
    app.workflow("order").then(handler_a).version("1").dispatch()
    with pytest.raises(errors.DefinitionError, match="'1' is meant by 2 definitions of 'order'"):
        app.migrate_workflow(run, "1")


# many runs


def test_many_are_moved_and_one_that_cannot_be_stops_no_other(app: Queuety) -> None:
    runs = [old_of(app).dispatch({"n": number}) for number in range(5)]
    gone = app.workflow("order").then(handler_a, "a").then(handler_d, "d").dispatch()
    app.run_until_idle(max_jobs=6)
    app.cancel_workflow(runs[0])
    other = app.workflow("other").then(handler_a, "a").dispatch()
    plan = app.migrate_workflows("order", new_of(app), dry_run=True)
    assert (plan.done, plan.dry_run) == (runs[1:], True)
    report = app.migrate_workflows("order", new_of(app), limit=2)
    assert (report.done, report.refused, report.dry_run) == (runs[1:3], {}, False)
    report = app.migrate_workflows("order", "2", ids=[*runs, gone, other, UNKNOWN])
    assert report.done == runs[3:]
    assert report.refused == {
        runs[0]: "blocked: it is cancelled",
        runs[1]: "blocked: it is under this definition already",
        runs[2]: "blocked: it is under this definition already",
        gone: "needs_map: there is no step 'd'; say in the step map which one it is, or at which one to go on",
        other: "blocked: it is no run of workflow 'order'",
        UNKNOWN: f"blocked: no workflow has the id {UNKNOWN}",
    }
    assert app.migrate_workflows("order", "2", {"d": "c"}).done == [gone]
    assert app.migrate_workflows("order", "2").done == []
    app.run_until_idle()
    assert [status_of(app, run).status for run in (*runs[1:], gone)] == [WorkflowStatus.COMPLETED] * 5


def test_the_difference_is_told_with_every_open_run(app: Queuety, clock: ManualClock) -> None:
    runs = [old_of(app).dispatch(), old_of(app).dispatch()]
    app.run_until_idle(max_jobs=2)
    clock.advance(seconds=1)
    hotfix = app.workflow("order").then(handler_a, "a").version("0").dispatch()
    found = app.workflow_diff("order", new_of(app), "1")
    assert [(one.version, one.open_runs, one.stored_at is None) for one in found.versions] == [
        ("2", 0, True),
        ("0", 1, False),
        ("1", 2, False),
    ]
    (change,) = found.changes
    assert [(one.fate, one.name, one.to_name) for one in change.steps] == [("added", None, "x"), ("added", None, "y")]
    assert [(one.workflow_id, one.verdict, one.current_step_name, one.to_step_name) for one in found.runs] == [
        (run, "safe", "b", "b") for run in runs
    ]
    assert not found.has_more_runs
    assert app.workflow_diff("order", limit=1).has_more_runs
    assert [one.workflow_id for one in app.workflow_diff("order", "1").runs] == [hotfix]
    with pytest.raises(errors.DefinitionError, match="name two versions"):
        app.workflow_diff("order", "1", "1")


# at the same time


def test_of_two_who_move_a_run_one_is_late(app: Queuety) -> None:
    runs = [old_of(app).dispatch() for _ in range(10)]
    new = new_of(app)
    app.migrate_workflows("order", new, ids=runs[:1])
    said: Counter[str] = Counter()
    lock, start = threading.Lock(), threading.Barrier(2)

    def move() -> None:
        start.wait(30)
        for run in runs[1:]:
            try:
                app.migrate_workflow(run, "2")
                word = "moved"
            except errors.InvalidStateError as error:
                word = str(error).rpartition(": ")[2]
            with lock:
                said[word] += 1

    both = [threading.Thread(target=move) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert said == {"moved": 9, "it is under this definition already": 9}
    app.run_until_idle()
    assert {tuple(keys(app, run)) for run in runs} == {("a", "b", "c", "y")}


def test_runs_are_moved_while_workers_run_them(database: Database) -> None:
    """Whoever comes first, each step of each run is run once, and none is left out."""
    with Queuety(database.url) as app, Queuety(database.url) as operator:
        runs = app.dispatch_many(old_of(app), [{"n": number} for number in range(200)])
        moved = list(operator.migrate_workflows("order", new_of(operator), limit=10).done)
        with working(app, concurrency=8), working(operator, concurrency=8):
            while True:
                report = operator.migrate_workflows("order", "2")
                moved += report.done
                if not report.done and not report.refused:
                    break
            until(lambda: not operator.list_workflows(status="running", limit=1))
        assert len(moved) == len(set(moved))
        ran = Counter(notes)
        assert set(ran.values()) == {1}, "a step was run twice"
        for number, run in enumerate(runs):
            state = status_of(app, run)
            names = {name for n, name in ran if n == number}
            assert (state.status, state.definition_version) == ("completed", "2" if run in moved else "1")
            assert state.state == {"n": number, **dict.fromkeys(names, 1)}
            assert {"a", "b", "c"} <= names
            assert names >= {"a", "b", "c", "y"} if number < 10 else names >= {"a", "b", "c"}

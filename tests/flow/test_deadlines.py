"""A run has until its deadline, whatever it does by then; afterwards its handler is called, once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from queuety import Queuety, WorkflowStatus, bind, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.model import CleanupStatus, ErrorKind
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.stories import ended, story

State = dict[str, Any]

gates: dict[str, threading.Event] = {"let go": threading.Event()}


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    gates["let go"] = threading.Event()
    yield
    gates["let go"].set()


@step
def put(state: State, *, key: str) -> State:
    note(key)
    return {key: True}


@step
def holds(state: State) -> State:
    note("began")
    gates["let go"].wait(30)
    return {"held": True}


@step
def item(state: State, item: int, index: int) -> State:
    gates["let go"].wait(30)
    return {}


@step(max_attempts=5, backoff=[60])
def breaks(state: State) -> None:
    raise ValueError("broken")


@step(max_attempts=1)
def breaks_for_good(state: State) -> None:
    raise ValueError("broken")


@step
def says(state: State, *, word: str) -> None:
    note((word, dict(state)))


@step(max_attempts=9)
def cannot(state: State) -> None:
    note("cannot")
    raise OSError("no")


def within_ten(app: Queuety) -> WorkflowBuilder:
    return app.workflow("w").must_complete_within(seconds=10).on_deadline(bind(says, word="late"))


def letters(app: Queuety, run: int) -> list[str]:
    """The kinds of letters that lie for the run."""
    inbox = app.door.tables.inbox
    with app.door.reading() as connection:
        return list(connection.execute(select(inbox.c.kind).where(inbox.c.workflow_id == run)).scalars())


def is_late(app: Queuety, run: int) -> bool:
    state = status_of(app, run)
    found = (state.status, state.error_message, state.error_kind)
    return found == (WorkflowStatus.FAILED, "Deadline exceeded", ErrorKind.DEADLINE_EXCEEDED)


PARKED: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
    "a step that runs": lambda w: w.then(holds),
    "a step that is tried again later": lambda w: w.then(breaks),
    "branches": lambda w: w.parallel([holds, breaks]),
    "items": lambda w: w.for_each("items", item),
    "a delay": lambda w: w.delay(hours=1),
    "a signal": lambda w: w.wait_for_signal("go"),
    "a signal with a time-out": lambda w: w.wait_for_signal("go", timeout=3600),
    "another run": lambda w: w.wait_for_workflow("other"),
    "a child": lambda w: w.run_workflow("child", workflow("child").delay(hours=1)),
}


@pytest.mark.parametrize("what", PARKED)
def test_a_run_that_has_not_ended_by_its_deadline_fails_whatever_it_does(
    app: Queuety, clock: ManualClock, what: str
) -> None:
    other = app.workflow("other").wait_for_signal("never").dispatch()
    builder = within_ten(app).then(bind(put, key="a")) if "run" not in what.split() else within_ten(app)
    run = PARKED[what](builder.on_queue("slow")).dispatch({"other": other, "items": [1, 2]})
    app.run_until_idle("default")
    if "step that runs" not in what and what not in ("branches", "items"):
        app.run_until_idle()
    before = status_of(app, run)
    assert not before.status.is_terminal
    assert before.deadline_at == before.created_at + timedelta(seconds=10)
    clock.advance(seconds=9.999)
    assert app.check_deadlines() == 0
    assert status_of(app, run).status is before.status
    clock.advance(seconds=0.001)
    assert app.check_deadlines() == 1
    late = status_of(app, run)
    assert is_late(app, run)
    assert (late.failed_at, late.failed_step, late.waiting_for) == (clock.now, before.current_step, None)
    assert app.list_jobs(workflow_id=run, status="pending") == []
    assert app.check_deadlines() == 0
    app.run_until_idle()
    assert [word for word in notes if isinstance(word, tuple)] == [("late", before.state)]
    after = status_of(app, run)
    assert (after.status, after.compensation_status) == (WorkflowStatus.FAILED, CleanupStatus.COMPLETED)
    assert app.run_until_idle() == 0
    for child in app.list_workflows(parent_id=run):
        assert child.status is WorkflowStatus.CANCELLED


def test_what_a_step_returns_after_the_deadline_is_discarded(database: Database, clock: ManualClock) -> None:
    with Queuety(database.url, clock=clock) as app:
        run = within_ten(app).then(holds).dispatch({"a": 1})
        with working(app):
            until(lambda: notes == ["began"])
            clock.advance(seconds=10)
            app.check_deadlines()
            gates["let go"].set()
            until(lambda: status_of(app, run).compensation_status is CleanupStatus.COMPLETED)
        assert is_late(app, run)
        assert notes == ["began", ("late", {"a": 1})]
        assert status_of(app, run).state == {"a": 1}
        check(app.door)


def test_a_run_that_completes_at_the_very_moment_is_not_late(app: Queuety, clock: ManualClock) -> None:
    """Its last job is settled before the letter that would tell of the deadline is read, or the run has ended."""
    run = within_ten(app).then(bind(put, key="a")).dispatch()
    clock.advance(seconds=9)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    clock.advance(seconds=100)
    assert app.check_deadlines() == 0
    app.run_until_idle()
    assert (status_of(app, run).status, notes, letters(app, run)) == (WorkflowStatus.COMPLETED, ["a"], [])


def test_a_run_completes_or_is_late_where_both_happen_at_once_and_never_both(
    database: Database, clock: ManualClock, rounds: int
) -> None:
    with Queuety(database.url, clock=clock) as app, Queuety(database.url, clock=clock) as other:
        builder = within_ten(app).wait_for_signal("go").then(bind(put, key="done"))
        runs = []
        with working(app), working(other):
            for _ in range(rounds + 2):
                run = builder.dispatch()
                clock.advance(seconds=9.99)
                sender = threading.Thread(target=app.signal, args=(run, "go"))
                sender.start()
                clock.advance(seconds=0.01)
                other.check_deadlines()
                sender.join()
                until(lambda run=run: is_over(app, run))  # type: ignore[misc]
                runs.append(run)
        for run in runs:
            events = story(app, run)
            assert is_late(app, run) == any(event.startswith("cleanup_completed") for event in events), events
            assert is_late(app, run) != (status_of(app, run).status is WorkflowStatus.COMPLETED)
        check(app.door)


def is_over(app: Queuety, run: int) -> bool:
    state = status_of(app, run)
    return state.status.is_terminal and state.compensation_status is not CleanupStatus.PENDING


def test_nothing_is_left_of_a_deadline_that_means_nothing_any_more(app: Queuety) -> None:
    completed = within_ten(app).then(bind(put, key="a")).dispatch()
    cancelled = within_ten(app).wait_for_signal("go").dispatch()
    assert letters(app, completed) == letters(app, cancelled) == ["deadline"]
    app.run_until_idle()
    app.cancel_workflow(cancelled)
    assert letters(app, completed) == letters(app, cancelled) == []
    assert notes == ["a"]


def test_the_handler_is_called_after_the_steps_were_undone_with_the_state_at_the_end(
    app: Queuety, clock: ManualClock
) -> None:
    builder = within_ten(app).compensate_on_failure().on_cancel(bind(says, word="cancelled"))
    for key in "ab":
        builder.then(bind(put, key=key)).compensate_with(bind(says, word=f"undo {key}"))
    run = builder.wait_for_signal("go").dispatch({"n": 1})
    app.run_until_idle()
    clock.advance(seconds=10)
    app.run_until_idle()
    assert notes[2:] == [
        ("undo b", {"n": 1, "a": True, "b": True}),
        ("undo a", {"n": 1, "a": True}),
        ("late", {"n": 1, "a": True, "b": True}),
    ]
    app.cancel_workflow(run)
    app.run_until_idle()
    assert notes[5:] == [("cancelled", {"n": 1, "a": True, "b": True})]


def test_without_compensate_on_failure_only_the_handler_is_called(app: Queuety, clock: ManualClock) -> None:
    run = within_ten(app).then(bind(put, key="a")).compensate_with(bind(says, word="undo")).delay(hours=1).dispatch()
    app.run_until_idle()
    clock.advance(seconds=10)
    app.run_until_idle()
    assert notes == ["a", ("late", {"a": True})]
    app.fork_workflow(run)
    app.retry_workflow(run)
    assert status_of(app, run).compensation_status is CleanupStatus.NONE
    assert (app.check_deadlines(), is_late(app, run)) == (1, True), "its time is still over"
    app.run_until_idle("default")
    assert notes == ["a", *[("late", {"a": True})] * 2]


def test_a_handler_that_fails_never_undoes_the_failure(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").max_attempts(2).must_complete_within(seconds=10).on_deadline(cannot).delay(hours=1)
    started = run.dispatch()
    clock.advance(seconds=10)
    for _ in range(3):
        app.run_until_idle()
        clock.advance(seconds=5)
    assert (notes, is_late(app, started)) == (["cannot"] * 2, True)
    assert status_of(app, started).compensation_status is CleanupStatus.FAILED


def test_a_paused_run_is_spared_until_it_is_resumed(app: Queuety, clock: ManualClock) -> None:
    run = within_ten(app).then(bind(put, key="a")).then(bind(put, key="b")).dispatch()
    app.pause_workflow(run)
    clock.advance(seconds=100)
    assert app.check_deadlines() == 0
    app.run_until_idle()
    paused = status_of(app, run)
    assert (paused.status, paused.current_step, notes) == (WorkflowStatus.PAUSED, 1, ["a"])
    app.resume_workflow(run)
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    app.run_until_idle()
    assert is_late(app, run)
    assert notes[-1] == ("late", {"a": True})
    assert notes.count("b") == 0


def test_a_paused_run_that_ends_with_its_last_step_is_not_late(app: Queuety, clock: ManualClock) -> None:
    run = within_ten(app).then(bind(put, key="a")).dispatch()
    app.pause_workflow(run)
    clock.advance(seconds=100)
    app.check_deadlines()
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert (notes, letters(app, run)) == (["a"], [])


def test_a_run_that_is_paused_and_resumed_before_its_deadline_still_has_it(app: Queuety, clock: ManualClock) -> None:
    definition = within_ten(app).then(bind(put, key="a")).definition()
    definition["steps"][0]["delay"] = 3600
    run = app.dispatch_definition(definition)
    app.pause_workflow(run)
    clock.advance(seconds=5)
    app.resume_workflow(run)
    clock.advance(seconds=5)
    assert app.check_deadlines() == 1
    assert is_late(app, run)


def test_a_retry_does_not_move_the_deadline_and_fails_again(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").must_complete_within(seconds=10).delay(hours=1).dispatch()
    clock.advance(seconds=10)
    assert app.check_deadlines() == 1
    deadline = status_of(app, run).deadline_at
    app.retry_workflow(run)
    again = status_of(app, run)
    assert (again.status, again.deadline_at) == (WorkflowStatus.RUNNING, deadline)
    assert app.check_deadlines() == 1
    assert is_late(app, run)
    app.complete_step(run)
    assert (status_of(app, run).status, letters(app, run)) == (WorkflowStatus.COMPLETED, [])


def test_a_run_that_failed_before_its_deadline_still_has_it_once_it_is_retried(
    app: Queuety, clock: ManualClock
) -> None:
    early = within_ten(app).then(breaks_for_good).dispatch()
    late = within_ten(app).then(breaks_for_good).dispatch()
    app.run_until_idle()
    app.retry_workflow(early)
    clock.advance(seconds=60)
    assert app.check_deadlines() == 1, "a failed run is not late"
    assert status_of(app, late).error_message == "broken"
    app.retry_workflow(late)
    assert app.check_deadlines() == 1
    assert is_late(app, early)
    assert is_late(app, late)


def test_a_fork_has_a_deadline_of_its_own(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").must_complete_within(seconds=10).wait_for_signal("go").dispatch()
    clock.advance(seconds=6)
    other = app.fork_workflow(run)
    assert status_of(app, other).deadline_at == clock.now + timedelta(seconds=10)
    clock.advance(seconds=4)
    assert app.check_deadlines() == 1
    assert is_late(app, run)
    third = app.fork_workflow(run)
    assert status_of(app, third).status is WorkflowStatus.WAITING_FOR_SIGNAL
    clock.advance(seconds=6)
    assert app.check_deadlines() == 1
    assert (is_late(app, other), is_late(app, third)) == (True, False)


def test_a_rewound_run_keeps_its_deadline(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").must_complete_within(seconds=10).then(bind(put, key="a")).delay(hours=1).dispatch()
    app.run_until_idle()
    clock.advance(seconds=10)
    assert app.check_deadlines() == 1
    app.rewind_workflow(run, 0)
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    assert app.check_deadlines() == 1
    assert is_late(app, run)


class Hasty(ManualClock):
    """A clock by which the next second has come whenever somebody looks."""

    looks = 0

    def now_us(self) -> int:
        self.looks += 1
        assert self.looks < 200, "there is no end to it"
        self.advance(seconds=1)
        return super().now_us()


def test_a_loop_that_is_due_again_at_once_is_left_to_the_workers(memory_url: str) -> None:
    with Queuety(memory_url, clock=Hasty()) as app:
        run = app.workflow("w").delay(seconds=1).repeat_until("delay_0", "done", True).dispatch()
        late = app.workflow("w").must_complete_within(seconds=1).delay(hours=1).dispatch()
        assert app.check_deadlines() == 1
        assert (is_late(app, late), status_of(app, run).status) == (True, WorkflowStatus.RUNNING)


def test_a_step_that_is_skipped_past_the_deadline_fails_at_the_next_one(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").must_complete_within(seconds=10).delay(hours=1).delay(hours=1).dispatch()
    clock.advance(seconds=10)
    app.check_deadlines()
    app.skip_step(run)
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    assert app.check_deadlines() == 1
    assert (is_late(app, run), status_of(app, run).failed_step) == (True, 1)


def test_a_child_that_is_late_fails_its_parent_and_a_late_parent_ends_its_child(
    app: Queuety, clock: ManualClock
) -> None:
    child = workflow("child").must_complete_within(seconds=5).delay(hours=1).on_deadline(bind(says, word="child late"))
    run = app.workflow("parent").run_workflow("child", child).dispatch()
    clock.advance(seconds=5)
    app.run_until_idle()
    parent = status_of(app, run)
    assert (parent.status, parent.error_kind) == (WorkflowStatus.FAILED, ErrorKind.CHILD_FAILED)
    assert parent.error_message == "Deadline exceeded"
    assert notes == [("child late", {})]


def test_eight_workers_that_see_a_deadline_at_once_call_its_handler_once(
    database: Database, clock: ManualClock
) -> None:
    apps = [Queuety(database.url, clock=clock) for _ in range(4)]
    try:
        app = apps[0]
        builder = within_ten(app).wait_for_signal("never")
        runs = app.dispatch_many(builder, [{"n": number} for number in range(16)])
        found: list[int] = []
        gate = threading.Barrier(4)

        def look(by: Queuety) -> None:
            gate.wait(30)
            found.append(by.check_deadlines())

        with working(apps[0]), working(apps[1]), working(apps[2]), working(apps[3]):
            clock.advance(seconds=10)
            threads = [threading.Thread(target=look, args=(by,)) for by in apps]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            until(lambda: all(is_over(app, run) for run in runs))
        assert sum(found) <= len(runs)
        assert sorted(state["n"] for _, state in notes) == list(range(16))
        assert all(is_late(app, run) for run in runs)
        check(app.door)
    finally:
        for each in apps:
            each.close()


def test_many_that_are_late_are_counted_and_those_on_time_are_not(app: Queuety, clock: ManualClock) -> None:
    late = app.dispatch_many(app.workflow("w").must_complete_within(minutes=1).delay(hours=1), [{}] * 30)
    app.dispatch_many(app.workflow("w").must_complete_within(days=1).delay(hours=1), [{}] * 5)
    app.dispatch_many(app.workflow("w").delay(hours=1), [{}] * 5)
    clock.advance(minutes=1)
    assert app.check_deadlines() == 30
    assert all(is_late(app, run) for run in late)
    assert app.check_deadlines() == 0

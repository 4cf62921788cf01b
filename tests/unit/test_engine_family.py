"""Parents, children and watchers: who is told what of a run's end, once, and what each makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuety.engine import facts, kinds
from queuety.engine.derail import derailed
from queuety.engine.jobs import no_task
from queuety.engine.protocol import Fail, Leave, Run, Stay, Verdict
from queuety.errors import InvalidStateError
from queuety.model import (
    Cancel,
    ChildRevived,
    ChildSettled,
    CleanupStatus,
    Definition,
    Due,
    Entry,
    ErrorInfo,
    ErrorKind,
    Event,
    KeepSignal,
    LetterKind,
    Pause,
    Resume,
    RetryRun,
    Send,
    Signalled,
    StartRun,
    StepSpec,
    Subscribed,
    TellWatchers,
    Told,
    Watch,
    WorkflowStatus,
)
from tests.unit.reference import SECOND, delay, flow, then
from tests.unit.several import UNDO, Several

WATCHER = 90
"""A run that is only written to."""


class Nested:
    """A step that is parked on a child run, as plain as can be: it looks how the child stands."""

    NAME = "nested"
    task = staticmethod(no_task)

    def enter(self, run: Run) -> Verdict:
        if run.is_retry and run.workflow.runtime is not None:
            child = run.workflow.runtime["child"]
            return Stay((Send(child, LetterKind.RETRY, run.now_us, {"parent": run.workflow.id}),), run.workflow.runtime)
        assert run.spec.child is not None
        (child,) = facts.ids(run, 1)
        started = StartRun(child, run.spec.child, run.workflow.state, run.workflow.id, run.workflow.current_step)
        return Stay((started,), {"child": child})

    def resume(self, run: Run, event: Event) -> Verdict:
        kept = run.workflow.runtime
        if kept is None or not isinstance(event, ChildSettled | ChildRevived):
            return Stay(runtime=kept)
        (how,) = facts.standing(run, (kept["child"],)).values()
        if how.status is WorkflowStatus.COMPLETED:
            return Leave(facts.states(run, (kept["child"],))[kept["child"]])
        if how.status.is_terminal:
            is_failed = how.status is WorkflowStatus.FAILED
            kind = ErrorKind.CHILD_FAILED if is_failed else ErrorKind.CHILD_CANCELLED
            return Fail(ErrorInfo(how.error_message or "cancelled", str(kind), kind=kind))
        return Stay(runtime=kept)


class Fragile:
    """A step without a job that does on entry what it is told: fail, be left, or stand still until news come."""

    NAME = "fragile"
    task = staticmethod(no_task)

    def __init__(self) -> None:
        self.does = "fail"

    def enter(self, run: Run) -> Verdict:
        if self.does == "leave":
            return Leave({"done": True})
        return self._fail() if self.does == "fail" else Stay(runtime={"stands": True})

    def resume(self, run: Run, event: Event) -> Verdict:
        return self._fail() if isinstance(event, Due) else Stay(runtime=run.workflow.runtime)

    def _fail(self) -> Fail:
        return Fail(ErrorInfo("no good", "WaitUnsatisfiable", kind=ErrorKind.WAIT_UNSATISFIABLE))


@pytest.fixture(autouse=True)
def fragile(monkeypatch: pytest.MonkeyPatch) -> Fragile:
    made = Fragile()
    monkeypatch.setitem(kinds.KINDS, "nested", Nested())
    monkeypatch.setitem(kinds.KINDS, "fragile", made)
    return made


def nested(child: Definition, name: str = "n") -> StepSpec:
    return StepSpec("nested", name, child=child)


BREAKABLE = flow(StepSpec("fragile", "f"))


def family(child: Definition | None = None, *rest: StepSpec, **options: Any) -> Several:
    """Run 1 is parked on its child 2, which is about to do its only step."""
    world = Several()
    world.start(1, flow(nested(child or flow(then("c"))), *rest, **options))
    assert (world[1].runtime, world[2].parent_id, world[2].parent_step) == ({"child": 2}, 1, 0)
    return world


def three_deep(*, undone: tuple[bool, bool, bool] = (False, False, False)) -> Several:
    """Runs 1, 2, 3, each parked on the next; those that are `undone` have something to clean up."""
    first, second, third = (UNDO if one else None for one in undone)
    inmost = flow(then("c"), on_cancel=third)
    world = Several()
    world.start(1, flow(nested(flow(nested(inmost), on_cancel=second)), then("end"), on_cancel=first))
    return world


def statuses(world: Several) -> list[str]:
    return [str(paper.workflow.status) for paper in world.runs.values()]


# watchers


def test_a_run_that_is_going_keeps_its_watchers_in_mind() -> None:
    world = Several()
    world.start(41, flow(then("a")))
    assert world.tell(41, Subscribed(WATCHER, 3))[0] == Watch(41, WATCHER, 3)
    assert (world[41].is_watched, world[41].version, world[41].status) == (True, 1, "running")
    assert [row.entry for row in world.runs[41].rows] == [Entry.NOTED]
    assert world.tell(41, Subscribed(WATCHER + 1, 1))[0] == Watch(41, WATCHER + 1, 1)
    assert world[41].version == 2, "the row is written each time: what ends the run elsewhere must collide with it"
    effects = world.succeed(41)
    assert effects.count(TellWatchers(41, 0, is_done=True)) == 1
    assert [(letter.to, letter.body, letter.visit) for letter in world.letters] == [
        (WATCHER, {"id": 41, "is_done": True}, 3),
        (WATCHER + 1, {"id": 41, "is_done": True}, 1),
    ]


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_a_run_that_is_over_tells_at_once(how: str) -> None:
    world = Several()
    world.start(41, flow(then("a")))
    {"completed": world.succeed, "failed": world.fail}.get(how, lambda run: world.command(run, Cancel()))(41)
    before = world[41]
    assert before.status == how
    effects = world.tell(41, Subscribed(WATCHER, 3))
    assert effects[0] == Send(WATCHER, LetterKind.SETTLED, 0, {"id": 41}, 3)
    if how == "failed":
        assert effects[1] == Watch(41, WATCHER, 3), "it may be retried, and end again"
        assert (world[41].is_watched, world[41].status) == (True, "failed")
    else:
        assert (effects[1:], world[41] is before) == ([], True)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda world: world.command(41, Pause()),
        lambda world: world.succeed(41),
        lambda world: world.signal(41, "go"),
    ],
)
def test_watchers_are_told_of_a_cancellation_once(prepare: Callable[[Several], object]) -> None:
    world = Several()
    world.start(41, flow(then("a"), delay("d", 9), on_cancel=UNDO))
    prepare(world)
    world.tell(41, Subscribed(WATCHER, 1))
    world.command(41, Cancel())
    world.clean(41)
    assert world.told == [TellWatchers(41, 0)]


def test_a_failed_run_keeps_its_watchers_until_it_is_over_for_good() -> None:
    for last in (world_succeeds, world_gives_up):
        world = Several()
        world.start(41, flow(then("a")))
        world.tell(41, Subscribed(WATCHER, 1))
        world.fail(41)
        assert (world.told, world.runs[41].watchers) == ([TellWatchers(41, 0, forgets=False)], {WATCHER: 1})
        last(world)
        is_done = last is world_succeeds
        assert (world.told[1:], world.runs[41].watchers) == ([TellWatchers(41, 0, is_done=is_done)], {})
        told = {"id": 41, "is_done": True} if is_done else {"id": 41}
        assert world.sent(LetterKind.SETTLED, WATCHER) == [{"id": 41}, told]


def world_succeeds(world: Several) -> None:
    world.command(41, RetryRun())
    world.succeed(41)


def world_gives_up(world: Several) -> None:
    world.command(41, Cancel())


def test_nobody_is_told_who_has_not_asked() -> None:
    world = Several()
    world.start(41, flow(then("a")))
    world.succeed(41)
    assert (world.told, world.letters) == ([], [])


def test_one_who_asks_in_the_turn_that_ends_the_run_is_told() -> None:
    for first in (True, False):
        world = Several()
        world.start(41, flow(delay("d", 1)))
        world.now_us = SECOND
        events: list[Event] = [Subscribed(WATCHER, 1), Due(1)]
        world.tell(41, *(events if first else reversed(events)))
        assert [body["id"] for body in world.sent(LetterKind.SETTLED, WATCHER)] == [41]


def test_one_who_asks_between_two_failures_of_one_turn_is_told(fragile: Fragile) -> None:
    world = Several()
    world.start(41, BREAKABLE)
    fragile.does = "stand"
    world.tell(41, Told(RetryRun(), 1), Subscribed(WATCHER, 1), Due(1))
    assert world[41].status is WorkflowStatus.FAILED
    assert world.sent(LetterKind.SETTLED, WATCHER) == [{"id": 41}]


def test_a_run_that_fails_a_second_time_tells_all_a_second_time() -> None:
    world = Several()
    world.start(41, flow(then("a")))
    world.tell(41, Subscribed(WATCHER, 1))
    world.fail(41)
    world.command(41, RetryRun())
    world.tell(41, Subscribed(WATCHER + 1, 1))
    world.fail(41)
    assert world.sent(LetterKind.SETTLED, WATCHER) == [{"id": 41}, {"id": 41}]
    assert world.sent(LetterKind.SETTLED, WATCHER + 1) == [{"id": 41}]


# a child ends


def test_the_parent_goes_on_with_the_state_of_a_child_that_completed() -> None:
    world = family(None, then("b"))
    world.succeed(2, {"x": 1})
    assert world.sent(LetterKind.CHILD, 1) == [{"id": 2, "status": "completed", "is_clean": True}]
    world.deliver()
    assert (world[1].status, world[1].current_step, world[1].state) == ("running", 1, {"x": 1})
    assert world.entries(1) == ["resumed"]


def test_the_parent_fails_with_its_child() -> None:
    world = family()
    world.fail(2)
    world.deliver()
    run = world[1]
    assert (run.status, run.error_kind, run.error_message) == ("failed", ErrorKind.CHILD_FAILED, "boom")
    assert world.sent(LetterKind.CANCEL, 2) == [], "a child that is over is not told to end"


def test_the_parent_fails_when_its_child_is_cancelled() -> None:
    world = family(flow(then("c"), on_cancel=UNDO))
    world.command(2, Cancel())
    world.deliver()
    assert (world[1].status, world[1].error_kind) == ("failed", ErrorKind.CHILD_CANCELLED)
    before = world[1]
    world.clean(2)
    assert [letter["is_clean"] for letter in world.sent(LetterKind.CHILD, 1)] == [False, True]
    world.deliver()
    assert world[1] is before


def test_a_paused_parent_takes_the_state_and_enters_nothing() -> None:
    world = family(None, then("b"))
    world.command(1, Pause())
    world.succeed(2, {"x": 1})
    world.deliver()
    assert (world[1].status, world[1].current_step, world[1].state) == ("paused", 1, {"x": 1})
    assert world.runs[1].jobs == []
    world.command(1, Resume())
    assert len(world.runs[1].jobs) == 1


def test_resuming_a_parked_parent_starts_no_second_child() -> None:
    world = family()
    world.command(1, Pause())
    world.command(1, Resume())
    assert list(world.runs) == [1, 2]


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_a_parent_that_is_over_is_not_changed_by_its_child(how: str) -> None:
    world = family()
    world.command(1, Cancel())
    world.runs[2].letters.clear()  # the child has not yet heard of it
    {"completed": world.succeed, "failed": world.fail}.get(how, lambda run: world.command(run, Cancel()))(2)
    world.deliver()
    run = world[1]
    assert (run.status, run.state, run.current_step, run.runtime) == ("cancelled", {}, 0, None)


def test_news_of_a_run_that_is_not_the_child_mean_nothing() -> None:
    world = family()
    for event in (ChildSettled(7, WorkflowStatus.COMPLETED, True), ChildRevived(7)):
        assert world.tell(1, event) == []
    world.fail(2)
    world.deliver()
    assert world.tell(1, ChildRevived(7)) == []


def test_a_child_that_ends_as_it_starts_tells_its_parent() -> None:
    world = family(flow(delay("d", 0)), then("b"))
    assert world[2].status is WorkflowStatus.COMPLETED
    assert world.sent(LetterKind.CHILD, 1) == [{"id": 2, "status": "completed", "is_clean": True}]
    world.deliver()
    assert world[1].current_step == 1


def test_a_child_that_fails_as_it_starts_tells_its_parent() -> None:
    world = family(BREAKABLE)
    assert world.sent(LetterKind.CHILD, 1) == [{"id": 2, "status": "failed", "is_clean": True}]
    world.deliver()
    assert (world[1].status, world[1].error_message) == ("failed", "no good")


def test_one_who_asks_for_a_run_that_ended_as_it_started_is_told() -> None:
    world = Several()
    world.start(41, flow(delay("d", 0)))
    world.tell(41, Subscribed(WATCHER, 2))
    assert world.sent(LetterKind.SETTLED, WATCHER) == [{"id": 41}]


@pytest.mark.parametrize("backwards", [False, True])
def test_the_end_goes_up_three_levels(backwards: bool) -> None:
    world = three_deep()
    world.succeed(3, {"x": 1})
    world.deliver(backwards=backwards)
    assert statuses(world) == ["running", "completed", "completed"]
    assert (world[1].current_step, world[1].state) == (1, {"x": 1})
    assert [len(world.sent(LetterKind.CHILD, run_id)) for run_id in (1, 2)] == [1, 1]


# retries


def test_a_child_that_is_retried_takes_its_parents_with_it() -> None:
    world = three_deep()
    world.fail(3)
    world.deliver()
    assert statuses(world) == ["failed", "failed", "failed"]
    world.command(3, RetryRun())
    assert world.sent(LetterKind.REVIVED, 2) == [{"id": 3}]
    world.deliver()
    assert statuses(world) == ["running", "running", "running"]
    assert [world[run_id].error_kind for run_id in (1, 2)] == [None, None]
    assert [world[run_id].runtime for run_id in (1, 2)] == [{"child": 2}, {"child": 3}]
    world.succeed(3, {"x": 1})
    world.deliver()
    assert world[1].state == {"x": 1}
    assert world.entries(1) == ["failed", "retried", "resumed"]


def test_a_child_that_is_retried_before_its_failure_was_heard_leaves_the_parent_be() -> None:
    world = family()
    world.fail(2)
    world.command(2, RetryRun())
    world.deliver()
    assert (world[1].status, world[1].version, list(world.runs)) == ("running", 0, [1, 2])
    world.succeed(2)
    world.deliver()
    assert world[1].status is WorkflowStatus.COMPLETED


def test_a_parent_that_failed_for_another_reason_is_not_revived() -> None:
    world = family(None, then("b"))
    world.succeed(2)
    world.deliver()
    world.fail(1)
    assert world.tell(1, ChildRevived(2)) == []


def test_a_parked_parent_that_failed_for_another_reason_is_not_revived() -> None:
    world = family()
    world.write(1, derailed(world[1], ErrorInfo("unreadable", "DefinitionError"), now_us=0))
    assert world[1].runtime == {"child": 2, "awaits": True}
    assert world.tell(1, ChildRevived(2)) == []


def test_a_retry_of_the_outermost_goes_down_to_the_one_that_failed() -> None:
    world = three_deep()
    world.fail(3)
    world.deliver()
    world.command(1, RetryRun())
    world.deliver()
    assert statuses(world) == ["running", "running", "running"]
    assert len(world.runs[3].jobs) == 1
    world.succeed(3)
    world.deliver()
    assert statuses(world) == ["running", "completed", "completed"]
    assert (world[1].current_step, list(world.runs)) == (1, [1, 2, 3])


def test_a_child_that_fails_again_as_it_is_told_to_go_on_says_so() -> None:
    world = family(BREAKABLE)
    world.deliver()
    world.command(1, RetryRun())
    assert world[1].status is WorkflowStatus.RUNNING
    world.deliver()
    assert statuses(world) == ["failed", "failed"]
    assert world.entries(2) == ["failed", "retried", "failed"]
    assert len(world.sent(LetterKind.CHILD, 1)) == 2


def test_a_child_that_fails_again_in_the_turn_in_which_it_was_told_to_go_on_says_so(fragile: Fragile) -> None:
    world = family(BREAKABLE)
    world.deliver()
    world.command(1, RetryRun())
    fragile.does = "stand"
    world.runs[2].letters.clear()
    world.tell(2, Told(RetryRun(), 1), Due(1))
    world.deliver()
    assert statuses(world) == ["failed", "failed"]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_child_that_completes_as_it_is_retried_takes_its_parent_along(fragile: Fragile, backwards: bool) -> None:
    world = family(BREAKABLE, then("b"))
    world.deliver()
    fragile.does = "leave"
    world.command(2, RetryRun())
    assert len(world.sent(LetterKind.REVIVED, 1)) == 1
    if backwards:
        world.runs[1].letters.reverse()
    world.deliver()
    assert (world[1].status, world[1].current_step, world[1].state) == ("running", 1, {"done": True})


def test_a_child_that_completes_as_it_is_told_to_go_on_says_so(fragile: Fragile) -> None:
    world = family(BREAKABLE, then("b"))
    world.deliver()
    fragile.does = "leave"
    world.command(1, RetryRun())
    world.deliver()
    assert (world[1].current_step, world[1].state) == (1, {"done": True})
    assert [letter["status"] for letter in world.sent(LetterKind.CHILD, 1)] == ["failed", "completed"]


def test_those_who_watch_are_told_when_a_retry_completes_at_once(fragile: Fragile) -> None:
    world = Several()
    world.start(41, BREAKABLE)
    fragile.does = "stand"
    world.command(41, RetryRun())
    world.tell(41, Subscribed(WATCHER, 1))
    world.tell(41, Due(1))
    fragile.does = "leave"
    world.command(41, RetryRun())
    assert world[41].status is WorkflowStatus.COMPLETED
    assert world.told == [TellWatchers(41, 0, forgets=False), TellWatchers(41, 0, is_done=True)]


def test_a_child_that_cannot_go_on_says_how_it_stands() -> None:
    world = family()
    world.command(2, Cancel())
    before = world[2]
    standing = Send(1, LetterKind.CHILD, 0, {"id": 2, "status": "cancelled", "is_clean": True})
    assert world.tell(2, Told(RetryRun(), 1)) == [standing]
    assert world[2] is before


def test_a_child_that_is_going_already_has_nothing_to_say() -> None:
    world = family()
    assert world.tell(2, Told(RetryRun(), 1)) == []
    world.command(2, Pause())
    assert world.tell(2, Told(RetryRun(), 1)) == []


# cancellations


def test_cancelling_the_outermost_cancels_all_and_cleans_up_from_within() -> None:
    world = three_deep(undone=(True, True, True))
    world.command(1, Cancel())
    assert (world[1].runtime, world[1].cleanup) == ({"child": 2, "awaits": True}, CleanupStatus.PENDING)
    world.deliver()
    assert statuses(world) == ["cancelled"] * 3
    for inner, outer in ((3, 2), (2, 1)):
        assert [len(world.runs[run_id].jobs) for run_id in (inner, outer)] == [1, 0]
        world.clean(inner)
        world.deliver()
    assert (len(world.runs[1].jobs), world[1].runtime) == (1, None)
    world.clean(1)
    assert [world[run_id].cleanup for run_id in (1, 2, 3)] == [CleanupStatus.COMPLETED] * 3


@pytest.mark.parametrize("undone", [(True, False, True), (True, False, False)])
def test_a_run_with_nothing_to_clean_up_passes_on_that_its_child_is_clean(undone: tuple[bool, bool, bool]) -> None:
    world = three_deep(undone=undone)
    world.command(1, Cancel())
    world.deliver()
    if undone[2]:
        assert world.runs[1].jobs == []
        world.clean(3)
        world.deliver()
    assert [len(world.runs[run_id].jobs) for run_id in (1, 2, 3)] == [1, 0, 0]
    said = [letter["is_clean"] for letter in world.sent(LetterKind.CHILD, 1)]
    assert said == [False, True]


def test_a_cancelled_parent_cleans_up_even_if_its_child_was_over() -> None:
    world = family(on_cancel=UNDO)
    world.succeed(2)
    world.command(1, Cancel())
    assert world.runs[1].jobs == []
    world.open(1)
    assert len(world.runs[1].jobs) == 1
    world.deliver()
    world.clean(1)
    assert world[1].cleanup is CleanupStatus.COMPLETED


def test_a_child_that_is_over_answers_that_it_cannot_be_cancelled() -> None:
    world = family()
    world.fail(2)
    before = world[2]
    standing = Send(1, LetterKind.CHILD, 0, {"id": 2, "status": "failed", "is_clean": True})
    assert world.tell(2, Told(Cancel(), 1)) == [standing]
    assert world[2] is before


def test_a_child_that_is_told_twice_to_end_ends_once() -> None:
    world = family(flow(then("c"), on_cancel=UNDO))
    world.tell(2, Told(Cancel(), 1), Told(Cancel(), 1))
    assert world.entries(2) == ["cancelled"]
    assert len(world.runs[2].jobs) == 1


def test_a_clean_up_begins_once_however_often_the_child_reports() -> None:
    world = family(on_cancel=UNDO)
    world.command(1, Cancel())
    world.deliver()
    for _ in range(2):
        world.tell(1, ChildSettled(2, WorkflowStatus.CANCELLED, True))
    assert len(world.runs[1].jobs) == 1


def test_an_unclean_child_is_waited_for_whatever_overtakes() -> None:
    """The letter that says clean arrives before the one that says cancelled."""
    world = family(flow(then("c"), on_cancel=UNDO), on_cancel=UNDO)
    world.command(1, Cancel())
    world.open(2)
    world.clean(2)
    world.runs[1].letters.reverse()
    world.deliver()
    assert len(world.runs[1].jobs) == 1


def test_a_run_that_waits_for_its_childs_clean_up_cannot_be_cancelled_or_retried_again() -> None:
    world = three_deep(undone=(True, True, True))
    world.command(1, Cancel())
    for command in (Cancel(), RetryRun(), Pause(), Resume()):
        with pytest.raises(InvalidStateError, match="cannot be"):
            world.command(1, command)


def test_a_parent_that_fails_for_a_reason_of_its_own_ends_its_child() -> None:
    world = three_deep()
    world.tell(1, Subscribed(WATCHER, 1))
    world.write(1, derailed(world[1], ErrorInfo("unreadable", "DefinitionError"), now_us=0))
    assert world.sent(LetterKind.SETTLED, WATCHER) == [{"id": 1}]
    world.deliver()
    assert statuses(world) == ["failed", "cancelled", "cancelled"]


# signals


def state_of(world: Several, status: str) -> None:
    """Bring run 41 (`a`, then a delay) to this status."""
    if status == "paused":
        world.command(41, Pause())
    elif status == "delayed":
        world.succeed(41)
    elif status == "completed":
        world.succeed(41)
        world.fire(41)
    elif status == "failed":
        world.fail(41)
    elif status == "cancelled":
        world.command(41, Cancel())


@pytest.mark.parametrize("status", ["running", "paused", "delayed", "completed", "failed", "cancelled"])
def test_a_signal_is_kept_in_every_status_and_changes_nothing_else(status: str) -> None:
    world = Several()
    world.start(41, flow(then("a"), delay("d", 5)))
    state_of(world, status)
    before = world[41]
    effects = world.tell(41, Signalled("go", {"n": 1, "_": 2}, 777))
    seq = before.version + 1
    assert effects[0] == KeepSignal(41, seq, "go", {"n": 1, "_": 2}, world.now_us)
    row = world.runs[41].rows[-1]
    assert (row.seq, row.entry, row.token, row.changed) == (seq, Entry.SIGNALLED, 777, None)
    assert row.control == {"_signal": {"name": "go", "payload": {"n": 1, "_": 2}}}
    after = world[41]
    assert after.version == seq
    assert (after.status, after.state, after.runtime, after.visit, after.current_step) == (
        before.status,
        before.state,
        before.runtime,
        before.visit,
        before.current_step,
    )
    assert len(effects) == 3, "the signal, its row, the version"


def test_a_signal_to_a_child_that_has_ended_tells_its_parent_nothing() -> None:
    world = family()
    world.succeed(2)
    letters = len(world.letters)
    world.signal(2, "go")
    assert len(world.letters) == letters


def test_signals_keep_the_order_in_which_they_came() -> None:
    world = Several()
    world.start(41, flow(then("a")))
    world.tell(41, *(Signalled("go", {"n": number}, 700 + number) for number in range(5)))
    assert [(signal.seq, signal.payload["n"]) for signal in world.runs[41].signals] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 3),
        (5, 4),
    ]

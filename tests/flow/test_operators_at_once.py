"""Two people who want something of one run in the same instant, or one of them while a worker settles its step.

Never do both have it where one must be refused, and the history shows one order of it, in which the state came about.
Two answers to one question, and a cancellation beside other things, are met in `tests/crash/test_at_once.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, bind, current, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.errors import InvalidStateError, SnapshotMissingError
from queuety.model import Command, CompleteStep, PatchState, Rewind, SkipStep
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of
from tests.support.hands import House, definition, single, succeeded
from tests.support.invariants import check
from tests.support.waking import Field, at_once, faults

State = dict[str, Any]
Verb = Callable[[Queuety, int], object]


@step
def put(state: State, *, key: str) -> State:
    return {key: state.get(key, 0) + 1}


@step(max_attempts=1)
def breaks_unless_mended(state: State) -> State:
    if not state.get("mended"):
        raise ValueError("broken")
    return {"worked": True}


@step
def tidy(state: State) -> None:
    note(current().workflow_id)


@pytest.fixture
def field(database: Database, clock: ManualClock) -> Iterator[Field]:
    """Applications with connections of their own; nobody works unless a test says so."""
    made = Field(database.url, clock)
    yield made
    made.drain()
    check(made.app.door)
    made.close()


def steps(builder: WorkflowBuilder, *keys: str) -> WorkflowBuilder:
    for key in keys:
        builder.then(bind(put, key=key), name=key)
    return builder


def new() -> WorkflowBuilder:
    return workflow("w").on_cancel(tidy)


MAKERS: dict[str, Callable[[], WorkflowBuilder]] = {
    "running": lambda: steps(new(), "a", "b", "c"),
    "paused": lambda: steps(new(), "a", "b", "c"),
    "failed": lambda: steps(new().delay(step_name="a").then(breaks_unless_mended, name="break"), "b"),
    "waiting": lambda: steps(new().delay(step_name="a").wait_for_signal("go", step_name="wait"), "b"),
    "delayed": lambda: steps(new().delay(hours=1, step_name="a"), "b"),
    "completed": lambda: steps(new(), "a", "b"),
}


def made(field: Field, what: str, count: int) -> list[int]:
    """So many runs that stand like this."""
    runs = [field.app.dispatch_workflow(MAKERS[what]()) for _ in range(count)]
    if what in ("failed", "completed"):
        field.drain()
    if what == "paused":
        for run in runs:
            field.app.pause_workflow(run)
    return runs


def retry(app: Queuety, run: int) -> None:
    app.retry_workflow(run)


def resume(app: Queuety, run: int) -> None:
    app.resume_workflow(run)


def pause(app: Queuety, run: int) -> None:
    app.pause_workflow(run)


def cancel(app: Queuety, run: int) -> None:
    app.cancel_workflow(run)


def rewind(app: Queuety, run: int) -> None:
    app.rewind_workflow(run, "a")


def hurry(app: Queuety, run: int) -> None:
    app.run_now(run)


def fork(app: Queuety, run: int) -> object:
    return app.fork_workflow(run)


def skip(step: str) -> Verb:
    return lambda app, run: app.skip_step(run, step)


def complete(step: str) -> Verb:
    return lambda app, run: app.complete_step(run, {"by": "hand"}, step)


def patch(**changes: Any) -> Verb:
    return lambda app, run: app.patch_state(run, changes)


def outcome(result: object) -> str:
    return "refused" if isinstance(result, InvalidStateError) else "done"


ONE_WINS: dict[str, tuple[str, Verb, Verb]] = {
    "retry and retry": ("failed", retry, retry),
    "skip and skip": ("running", skip("a"), skip("a")),
    "complete and complete": ("running", complete("a"), complete("a")),
    "complete and skip": ("running", complete("a"), skip("a")),
    "skip and skip a wait": ("waiting", skip("wait"), skip("wait")),
    "complete and skip what failed": ("failed", complete("break"), skip("break")),
    "complete and skip in a paused run": ("paused", complete("a"), skip("a")),
    "resume and resume": ("paused", resume, resume),
    "pause and pause": ("running", pause, pause),
    "cancel and cancel": ("waiting", cancel, cancel),
    "cancel and cancel what failed": ("failed", cancel, cancel),
    "run now and run now": ("delayed", hurry, hurry),
    "run now and skip": ("delayed", hurry, skip("a")),
}


def test_of_two_who_want_what_only_one_can_have_one_is_refused(field: Field, rounds: int) -> None:
    sides = field.side(), field.side()
    for pair, (what, one, other) in ONE_WINS.items():
        notes.clear()
        runs = made(field, what, min(rounds, 40))
        for run in runs:
            before = status_of(field.app, run)
            results = at_once(partial(one, sides[0], run), partial(other, sides[1], run))
            assert faults(results, InvalidStateError) == [], pair
            assert sorted(map(outcome, results)) == ["done", "refused"], pair
            after = status_of(field.app, run)
            if "complete" in pair:
                is_completed = results[0] is None or pair == "complete and complete"
                assert ("by" in after.state) == is_completed, pair
            if "skip" in pair or "complete" in pair:
                assert after.current_step == before.current_step + 1, pair
            told = [row for row in field.rows("history", run_id=run) if row["token"] and row["job_id"] is None]
            assert len(told) == (2 if what == "paused" else 1), pair
            assert len(field.app.list_jobs(workflow_id=run, status="pending")) <= 1, pair
        field.drain()
        assert Counter(notes) == (dict.fromkeys(runs, 1) if "cancel" in pair else {}), pair


BOTH: dict[str, tuple[str, Verb, Verb, set[tuple[str, str, str, int]]]] = {
    "rewind and cancel": (
        "waiting",
        rewind,
        cancel,
        {("done", "done", "cancelled", 1), ("refused", "done", "cancelled", 1)},
    ),
    "rewind and cancel what is over": (
        "completed",
        rewind,
        cancel,
        {("done", "done", "cancelled", 1), ("done", "refused", "running", 1)},
    ),
    "retry and cancel": (
        "failed",
        retry,
        cancel,
        {("done", "done", "cancelled", 1), ("refused", "done", "cancelled", 1)},
    ),
    "skip and cancel": (
        "running",
        skip("a"),
        cancel,
        {("done", "done", "cancelled", 1), ("refused", "done", "cancelled", 0)},
    ),
    "run now and cancel": (
        "delayed",
        hurry,
        cancel,
        {("done", "done", "cancelled", 1), ("refused", "done", "cancelled", 0)},
    ),
    "resume and cancel": (
        "paused",
        resume,
        cancel,
        {("done", "done", "cancelled", 0), ("refused", "done", "cancelled", 0)},
    ),
    "skip and retry": (
        "failed",
        skip("break"),
        retry,
        {("done", "done", "running", 2), ("done", "refused", "running", 2)},
    ),
    "rewind and retry": (
        "failed",
        rewind,
        retry,
        {("done", "done", "running", 1), ("done", "refused", "running", 1)},
    ),
    "pause and complete": ("running", pause, complete("a"), {("done", "done", "paused", 1)}),
    "resume and complete": ("paused", resume, complete("a"), {("done", "done", "running", 1)}),
    "rewind and rewind": ("waiting", rewind, rewind, {("done", "done", "waiting_for_signal", 1)}),
    "fork and rewind": ("waiting", fork, rewind, {("done", "done", "waiting_for_signal", 1)}),
    "fork and cancel": (
        "waiting",
        fork,
        cancel,
        {("done", "done", "cancelled", 1), ("refused", "done", "cancelled", 1)},
    ),
    "fork and skip": ("waiting", fork, skip("wait"), {("done", "done", "running", 2)}),
    "patch and patch": ("waiting", patch(x=1, both=1), patch(y=2, both=2), {("done", "done", "waiting_for_signal", 1)}),
    "patch and complete": ("waiting", patch(x=1, by=1), complete("wait"), {("done", "done", "running", 2)}),
    "patch and rewind": ("waiting", patch(x=1), rewind, {("done", "done", "waiting_for_signal", 1)}),
    "patch and cancel": (
        "waiting",
        patch(x=1),
        cancel,
        {("done", "done", "cancelled", 1), ("refused", "done", "cancelled", 1)},
    ),
}


def test_what_two_want_comes_one_after_the_other_in_either_order(field: Field, rounds: int) -> None:
    sides = field.side(), field.side()
    for pair, (what, one, other, allowed) in BOTH.items():
        notes.clear()
        cancelled = []
        for run in made(field, what, min(rounds, 40)):
            results = at_once(partial(one, sides[0], run), partial(other, sides[1], run))
            assert faults(results, InvalidStateError) == [], pair
            after = status_of(field.app, run)
            found = (*map(outcome, results), after.status.value, after.current_step)
            assert found in allowed, pair
            if after.status is WorkflowStatus.CANCELLED:
                cancelled.append(run)
            if pair.startswith("patch") and results[0] is None:
                assert_patched(pair, dict(after.state), field.rows("history", run_id=run))
            if isinstance(results[0], int):
                forked = status_of(field.app, results[0])
                assert (forked.current_step, forked.state) in ((1, {}), (2, {}))
            assert len(field.app.list_jobs(workflow_id=run, status="pending")) <= 1, pair
        field.drain()
        assert Counter(notes) == dict.fromkeys(cancelled, 1), pair


def assert_patched(pair: str, state: State, rows: list[dict[str, Any]]) -> None:
    """The state is what the later of the two has left, by the order in which the history tells of them."""
    entries = [row["entry"] for row in rows if row["token"]]
    if pair == "patch and patch":
        last = 1 if '"x"' in rows[-1]["changed"] else 2
        assert state == {"x": 1, "y": 2, "both": last}
    elif pair == "patch and complete":
        assert state == {"x": 1, "by": "hand" if entries == ["patched", "completed"] else 1}
    elif pair == "patch and rewind":
        assert state == ({} if entries == ["patched", "rewound"] else {"x": 1})
    else:
        assert (state, entries) == ({"x": 1}, ["patched", "cancelled"])


COMMANDS: dict[str, Command] = {
    "skip": SkipStep(2),
    "complete": CompleteStep({"by": "hand"}, 2),
    "rewind": Rewind(0),
    "patch": PatchState({"x": "patch", "shared": "patch"}),
}


def test_a_worker_that_settles_a_step_in_that_instant_has_its_output_merged_once_or_not_at_all(
    database: Database, rounds: int
) -> None:
    """Never after the operator's word: what it returns then is late."""
    with House(database.url) as house, House(database.url, clock=house.clock) as desk:
        desk.door.write(lambda tx: tx.reserve(1))
        what = definition(*(single(name) for name in "abc"))
        for _ in range(min(rounds, 40) + 1):
            for command, asked in COMMANDS.items():
                run = house.dispatch(what)
                hand = house.hand()
                (job,) = hand.claim()
                (work,) = hand.turn(succeeded(job, {"a": 1}), slots=1).works
                output = {"out": 1, "shared": "step"}
                results = at_once(partial(hand.turn, succeeded(work.job, output)), partial(desk.steer, run, asked))
                assert faults(results, InvalidStateError) == []
                hand.turn(*results[0].carried)  # it has found the run locked, and settles the step in its next turn
                state, row = house.state(run), house.row("workflows", id=run)
                entries = [row["entry"] for row in house.rows("history", run_id=run)][1:]
                if command == "patch":
                    assert entries in (["patched", "completed"], ["completed", "patched"])
                    last = "step" if entries[-1] == "completed" else "patch"
                    assert state == {"a": 1, "out": 1, "x": "patch", "shared": last}
                elif command == "rewind":
                    assert entries in (["completed", "rewound"], ["rewound"])
                    assert (state, row["current_step"]) == ({"a": 1}, 1)
                elif isinstance(results[1], InvalidStateError):
                    assert entries == ["completed"]
                    assert (state, row["current_step"]) == ({"a": 1, **output}, 2)
                else:
                    assert entries == ["skipped" if command == "skip" else "completed"]
                    assert (state, row["current_step"]) == ({"a": 1} | ({} if command == "skip" else {"by": "hand"}), 2)
                check(house.door)
                house.clear()


@step(max_attempts=1)
def moody(state: State) -> State:
    if random.random() < 0.2:
        raise ValueError("no luck")
    return {"laps": state.get("laps", 0) + 1}


@step
def branch(state: State, *, key: str) -> State:
    return {key: state.get("laps", 0)}


@step
def item(state: State, item: Any, index: int) -> State:
    return {"of": item}


def test_whatever_three_people_do_beside_two_workers_nothing_is_broken(database: Database, rounds: int) -> None:
    """Each does to any of the runs whatever comes to mind; what is left goes on and ends."""
    field = Field(database.url)
    child = steps(workflow("child").then(moody).delay(seconds=0.01), "x").on_cancel(tidy)
    builder = (
        workflow("w")
        .then(moody, name="a")
        .compensate_with(tidy)
        .parallel([bind(branch, key="left"), bind(branch, key="right")])
        .for_each("items", item, "out")
        .wait_for_signal("go", result_key="got")
        .delay(seconds=0.02)
        .run_workflow("child", child)
        .repeat_until("a", "laps", 3)
        .on_cancel(tidy)
    )
    acts: list[Verb] = [
        pause,
        resume,
        resume,
        retry,
        retry,
        rewind,
        hurry,
        lambda app, run: app.skip_step(run),
        lambda app, run: app.complete_step(run, {"laps": 5}),
        lambda app, run: app.patch_state(run, {"laps": 0}),
        lambda app, run: app.rewind_workflow(run, random.randrange(6)),
        lambda app, run: app.signal(run, "go", {"n": 1}),
        lambda app, run: app.signal(run, "go", {"n": 2}),
        lambda app, run: app.fork_workflow(run, 2),
    ]

    def meddle(app: Queuety, runs: list[int], dice: random.Random) -> list[Exception]:
        found: list[Exception] = []
        for _ in range(10 * min(rounds, 40)):
            try:
                dice.choice(acts)(app, dice.choice(runs))
            except (InvalidStateError, SnapshotMissingError):
                continue
            except Exception as error:
                found.append(error)
        return found

    runs = [field.app.dispatch_workflow(builder, {"items": [1, 2, 3], "laps": 0}) for _ in range(4)]
    with field.workers(2):
        people = [partial(meddle, field.side(), runs, random.Random(seed)) for seed in range(3)]
        assert at_once(*people) == [[], [], []]
    check(field.app.door)
    with field.workers(2):
        family = field.app.list_workflows(limit=1000)
        for state in family:
            if not state.status.is_terminal and state.parent_workflow_id is None:
                try:
                    field.app.cancel_workflow(state.id)
                except InvalidStateError:
                    continue
        field.wait_for("w")
        field.wait_for("child")
    field.drain()
    check(field.app.door)
    field.close()

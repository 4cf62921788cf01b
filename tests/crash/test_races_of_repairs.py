"""A repair, or a purge, and whoever wants something of the same run at the same moment: one of them has it, wholly."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from queuety import Queuety, WaitMode, WorkflowStatus, errors, step
from queuety.errors import InvalidStateError, NotFoundError
from queuety.model import (
    Cancel,
    Command,
    CompleteStep,
    Definition,
    Fork,
    HandlerRef,
    Job,
    Migrate,
    PatchState,
    RetryRun,
    Rewind,
    SkipStep,
)
from queuety.testing import ManualClock
from queuety.worker.outcome import Outcome
from queuety.worker.retain import delete_all, runs_ended
from tests.crash.test_races import Arena, finish, settle, steering, unexpected
from tests.support.databases import Database
from tests.support.hands import definition, failed, single, succeeded
from tests.support.invariants import check
from tests.support.waking import Field, at_once, faults

pytestmark = pytest.mark.timeout(3600)

State = dict[str, Any]

# A repair, and a worker that settles the step


def undone(name: str) -> Any:
    return replace(single(name, backoff=(0.0,)), compensation=HandlerRef("tests:undo"))


SAGA = definition(undone("one"), undone("two"), undone("three"), compensates_on_failure=True, name="saga")
PLAIN = definition(single("one"), single("two"), single("three"), name="plain")
LONGER = definition(single("zero"), single("one"), single("two"), single("three"), single("four"), name="plain")
ENDING = definition(single("one"), single("two"), name="ending")

RETURNS: Callable[[Job], Outcome] = lambda job: succeeded(job, {"two": 1})  # noqa: E731
BREAKS: Callable[[Job], Outcome] = lambda job: failed(job, "broken", is_final=True)  # noqa: E731

AT_TWO = 2
"""The visit in which the second step is."""


COMMANDS: dict[str, Command] = {
    "skip": SkipStep(AT_TWO),
    "complete": CompleteStep({"by hand": 1}, AT_TWO),
    "rewind": Rewind("one", {"again": 1}),
    "patch": PatchState({"two": "patched"}),
    "retry": RetryRun({"again": 1}),
    "fork": Fork(0),
    "cancel": Cancel(),
    "migrate": Migrate(LONGER),
}
ROWS = {"skip": "skipped", "rewind": "rewound", "patch": "patched", "retry": "retried", "fork": "forked"}
ROWS |= {"cancel": "cancelled", "migrate": "migrated"}
"""What each writes into the history, beside `complete`, which writes what a worker does."""


@pytest.fixture
def arena(database: Database) -> Iterator[Arena]:
    made = Arena(database.url)
    yield made
    check(made.house.door)
    made.close()


def at_the_second_step(arena: Arena, hand: Any, what: Definition) -> tuple[int, Job]:
    run = arena.house.dispatch(what)
    (first,) = hand.claim()
    _, (job,) = settle(hand, succeeded(first, {"one": 1}), slots=1)
    return run, job


def asked(arena: Arena, name: str) -> Command:
    command = COMMANDS[name]
    return Fork(arena.house.door.write(lambda tx: tx.reserve(1))[0]) if isinstance(command, Fork) else command


def entries(arena: Arena, run: int) -> list[str]:
    return [row["entry"] for row in arena.house.rows("history", run_id=run)]


@pytest.mark.parametrize("comes", [RETURNS, BREAKS], ids=["returns", "breaks"])
def test_a_repair_against_a_result(arena: Arena, comes: Any, rounds: int) -> None:
    """H1: never both, never half; whoever is refused is told."""
    ours, theirs = arena.side(), arena.side()
    arena.house.definitions.ensure(arena.house.door, LONGER)
    for name in COMMANDS:
        for _ in range(max(rounds // 3, 1)):
            what = PLAIN if name == "migrate" else random.choice([SAGA, PLAIN, ENDING])
            hand = ours.hand()
            run, job = at_the_second_step(arena, hand, what)
            settled, refused = arena.clash(
                lambda hand=hand, job=job: settle(hand, comes(job), slots=1),  # type: ignore[misc]
                steering(theirs, run, asked(arena, name)),
            )
            assert unexpected([settled, refused], InvalidStateError) == []
            check(arena.house.door)
            is_both_or_neither(arena, run, name, was_settled=not settled[0], was_refused=refused is not None)
            for claimed in settled[1]:
                settle(hand, succeeded(claimed))
            finish(arena)
            ends(arena, run, name)
            arena.house.clear()


def is_both_or_neither(arena: Arena, run: int, name: str, *, was_settled: bool, was_refused: bool) -> None:
    """Whether what both were told agrees with what the history says."""
    told = entries(arena, run)
    by_worker = sum(
        row["job_id"] is not None and row["step_index"] == 1 for row in arena.house.rows("history", run_id=run)
    )
    assert by_worker == was_settled, told
    by_caller = ROWS[name] in told if name in ROWS else "by hand" in arena.house.state(run)
    assert by_caller != was_refused, (name, told)
    if name in ("skip", "complete"):
        # The step is left by one of the two. One that has failed may still be left by hand, unless it is undone.
        left = [row for row in arena.house.rows("history", run_id=run) if row["visit"] == AT_TWO]
        assert sum(row["entry"] in ("completed", "skipped") for row in left) <= 1, told
        assert was_settled or not was_refused
    elif name in ("patch", "rewind"):
        assert was_settled or not was_refused
    elif name == "retry":
        assert was_settled


def ends(arena: Arena, run: int, name: str) -> None:
    """What the end must be, whichever came first."""
    row, state = arena.house.row("workflows", id=run), arena.house.state(run)
    told = entries(arena, run)
    assert row["cleanup"] in ("none", "completed")
    if row["status"] == "failed":
        assert told.count("failed") == 1
        assert "retried" not in told
    if name == "cancel" and "cancelled" in told:
        assert row["status"] == "cancelled"
    if "rewound" in told:
        assert state["again"] == 1
    if "forked" in told:
        others = [other for other in arena.house.rows("workflows") if other["id"] != run]
        assert [other["current_step"] for other in others if other["status"] == "completed"] in (
            [row["total_steps"]],
            [],
        )
        assert len(others) == 1
    if row["cleanup"] == "completed":
        undone = [cleaned["step_index"] for cleaned in arena.house.rows("history", run_id=run, entry="cleaned")]
        assert undone == sorted(undone, reverse=True)
        assert len(set(undone)) == len(undone)


# A purge, and everything else


@step(max_attempts=1)
def luck(state: State) -> State:
    if random.random() < 0.3:
        raise ValueError("no luck")
    return {"n": state.get("n", 0) + 1}


@step
def undo(state: State) -> None: ...


@pytest.fixture
def field(database: Database, clock: ManualClock) -> Iterator[Field]:
    made = Field(database.url, clock)
    yield made
    made.close()


ALL = [WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED, WorkflowStatus.FAILED]


def purge_all(app: Queuety) -> int:
    """Everything that has ended by now, however young it is."""
    return delete_all(app.door, runs_ended(app.door.now_us() + 1, ALL))


def start_some(app: Queuety, known: list[int]) -> list[int]:
    """Runs of several kinds, some of which wait for ones that may be purged at any moment."""
    child = app.workflow("child").then(luck).compensate_with(undo)
    waited: Any = random.sample(known, min(len(known), 3)) or [1]
    mode = random.choice([WaitMode.ALL, WaitMode.ANY])
    builders = [
        app.workflow("short").then(luck),
        app.workflow("saga").then(luck).compensate_with(undo).then(luck).compensate_on_failure(),
        app.workflow("parent").then(luck).run_workflow("child", child).then(luck).on_cancel(undo),
        app.workflow("waiter").wait_for_workflows(waited, mode=mode).then(luck),
        app.workflow("late waiter").then(luck).wait_for_workflows("others", mode=mode),
        app.workflow("group").start_workflows("items", child, group_key="g").wait_for_workflow_group("g"),
    ]
    return [app.dispatch_workflow(builder, {"others": waited, "items": [1, 2]}) for builder in builders]


def mend(app: Queuety, run: int) -> int | None:
    """Something that somebody may ask of a run; another one's id if it is a fork."""
    asked = random.randrange(6)
    if asked == 0:
        app.retry_workflow(run)
    elif asked == 1:
        app.rewind_workflow(run, 0)
    elif asked == 2:
        return app.fork_workflow(run, at_step=random.choice([None, 0]))
    elif asked == 3:
        app.cancel_workflow(run)
    elif asked == 4:
        app.skip_step(run)
    else:
        app.patch_state(run, {"patched": True})
    return None


def test_a_purge_against_everything(field: Field, rounds: int) -> None:
    """H11: whoever waits for one that vanishes is told; what is mended lives on whole, or is not there any more."""
    known: list[int] = []
    stop = threading.Event()
    answers: list[str] = []

    def purging(app: Queuety) -> int:
        count = 0
        while not stop.is_set():
            count += purge_all(app)
        return count

    def working(app: Queuety) -> int:
        count = 0
        while not stop.is_set():
            count += app.run_until_idle(max_jobs=5)
        return count

    def calling(app: Queuety) -> None:
        try:
            for number in range(100 * rounds):
                if number >= 2 * rounds and set(answers) > {"done"}:  # now one was first, now the other
                    break
                known.extend(start_some(app, known[-20:]))
                for run in random.sample(known[-30:], 5):
                    try:
                        made = mend(app, run)
                    except (NotFoundError, InvalidStateError, errors.SnapshotMissingError) as error:
                        answers.append(type(error).__name__)
                    else:
                        answers.append("done")
                        known.extend([] if made is None else [made])
        finally:
            stop.set()

    sides = [field.side() for _ in range(5)]
    acts = (purging, purging, working, working, calling)
    results = at_once(*(lambda act=act, side=side: act(side) for act, side in zip(acts, sides, strict=True)))  # type: ignore[misc]
    assert faults(results) == []
    check(field.app.door)
    field.drain()
    check(field.app.door)
    assert [run for run in field.app.list_workflows(limit=1000) if not run.status.is_terminal] == []
    assert results[0] + results[1] > 0
    assert results[2] + results[3] > 0
    assert set(answers) > {"done"}
    purge_all(field.app)
    assert left_in(field.app) == {}


def left_in(app: Queuety) -> dict[str, int]:
    """How many rows are left that belong to runs, by table."""
    tables = app.door.tables
    kept = {tables.ids.name, tables.definitions.name}
    counts: dict[str, int] = {}
    with app.door.reading() as connection:
        for table in tables.metadata.sorted_tables:
            found = connection.execute(select(func.count()).select_from(table)).scalar_one()
            if found and table.name not in kept:
                counts[table.name.removeprefix(tables.prefix)] = found
    return counts

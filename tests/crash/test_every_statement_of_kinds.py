"""Every transaction of steps that have many jobs, that wait, that start other runs: broken at every statement.

Each story is told once undisturbed. Then its transaction is broken before each statement, while committing and after;
the process that made it goes on, or is never heard of again. From there workers alone go on, and it must end the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from queuety.codec import decode
from queuety.commands.signals import send_signal
from queuety.engine.kinds import for_each
from queuety.errors import StoreUnavailable
from queuety.model import (
    Branch,
    Cancel,
    Command,
    Definition,
    HandlerRef,
    LetterKind,
    Options,
    Pause,
    Resume,
    RetryRun,
    Send,
    Span,
    StepSpec,
    Succeeded,
)
from queuety.store import settle
from queuety.store.settle import Plan
from queuety.worker.maintain import recover, tell_again
from queuety.worker.outcome import Outcome, Work
from queuety.worker.streaming import StoredChunks
from tests.support.databases import Database
from tests.support.hands import BEGIN_US, definition, failed, succeeded
from tests.support.invariants import OPEN, check
from tests.support.scenes import Action, Scene, Worker, app_of, dump, scene_of

NEVER = 1_000_000
PATIENCE_S = 20.0
"""How long a connection that was cut may hold its locks at the server."""

QUICK = Options(max_attempts=5, backoff=(0.0,))
TEXT = ["a", "b", "c", "d"]


def handled(name: str) -> HandlerRef:
    return HandlerRef(f"tests:{name}")


def step(name: str = "then", handler: str = "then") -> StepSpec:
    return StepSpec("single", name, handled(handler), QUICK)


def parallel(*handlers: str) -> StepSpec:
    return StepSpec("parallel", "side by side", branches=tuple(Branch(handled(one), QUICK) for one in handlers))


def each(mode: str = "all", *, reducer: bool = False, **more: Any) -> StepSpec:
    settings = {"items_key": "items", "result_key": "out", "mode": mode, **more}
    return StepSpec(
        "for_each", "each", handled("item"), QUICK, settings, reducer=handled("reduce") if reducer else None
    )


def signals(*names: str, mode: str = "all", **more: Any) -> StepSpec:
    settings = {"names": list(names), "mode": mode, "result_key": "heard", **more}
    return StepSpec("wait_for_signal", "hear", settings=settings)


def others(workflows: Any, mode: str = "all") -> StepSpec:
    settings = {"workflows": workflows, "mode": mode, "result_key": "others", "keyed": True}
    return StepSpec("wait_for_workflows", "await", settings=settings)


def group(mode: str = "all") -> StepSpec:
    settings = {"group": "all of them", "mode": mode, "result_key": "others", "keyed": True}
    return StepSpec("wait_for_workflows", "await", settings=settings)


CHILD = definition(step(), name="child", on_cancel=handled("undo"))


def starting() -> StepSpec:
    settings = {
        "items_key": "items",
        "result_key": "started",
        "payload_key": "item",
        "inherit_state": True,
        "group": "all of them",
    }
    return StepSpec("start_workflows", "start", settings=settings, child=CHILD)


def nested(child: Definition = CHILD) -> StepSpec:
    return StepSpec("run_workflow", "nest", child=child)


def answer(scene: Scene, work: Work) -> Outcome:
    """What the handler of this work returns, whoever runs it and however often."""
    job = work.job
    name = (work.ref.name if work.ref else job.handler).removeprefix("tests:")
    if name == "item":
        return succeeded(job, {"of": work.arguments[0]})
    if name == "reduce":
        return succeeded(job, {"sum": work.arguments[0]["succeeded"]})
    if name == "asks":
        return succeeded(job, {"_matched": len(work.state["laps"]) >= 3})
    if name == "lap":
        return succeeded(job, {"laps": [*work.state.get("laps", []), "lap"]})
    if name == "fails":
        return failed(job, "cannot be", is_final=True)
    if name == "streams":
        return streamed(scene, work)
    return succeeded(job, {} if name == "undo" else {f"{name} {job.branch}": "done"})


def streamed(scene: Scene, work: Work) -> Outcome:
    """A streaming attempt: what was kept before, and the rest."""
    job = work.job
    kept = StoredChunks(scene.seen.door, lease_s=30)
    found = kept.existing(job)
    assert found == TEXT[: len(found)]
    for number in range(len(found), len(TEXT)):
        kept.append(job, number, TEXT[number])
    return Succeeded(job, {"text": "".join(TEXT)}, Span(BEGIN_US, BEGIN_US, 7), tuple(TEXT))


def work_on(scene: Scene, *, until_idle: bool = True) -> None:
    """Workers alone, until there is nothing that any of them could do; what the dead held they get in time."""
    hand = scene.seen.hand()
    deadline = time.monotonic() + PATIENCE_S
    outcomes: list[Outcome] = []
    while True:
        made = hand.turn(*outcomes, slots=0 if outcomes else 10, looks_around=True)
        if not made.works and not made.carried and not outcomes:
            made = hand.turn(alone=True)
        outcomes = [*made.carried, *(answer(scene, work) for work in made.works)]
        if outcomes or made.has_more or made.has_more_due:
            continue
        told = tell_again(scene.seen.door).told
        if not (told or is_open(scene)):
            return
        scene.seen.clock.advance(31)
        recover(scene.seen.door, scene.seen.definitions)
        assert time.monotonic() < deadline, scene.seen.dump(without=("ids", "definitions", "history"))


def is_open(scene: Scene) -> bool:
    """Whether somebody has something to do, now or later."""
    return bool(scene.seen.rows("inbox")) or any(row["phase"] in OPEN for row in scene.seen.rows("jobs"))


Ending = list[tuple[Any, ...]]

OPEN_TO_CHANCE = ("job_id", "winner")
"""Who claims first among equals is decided by ids, of which each door draws its own."""


def ending(scene: Scene) -> Ending:
    """How everything stands, without what differs from time to time: ids are numbered in their order."""
    runs = scene.seen.rows("workflows")
    # Each door draws its own ids: what they say of the order is not the same from time to time.
    runs.sort(key=lambda row: (row["name"], decode(row["payload"]).get("start_item_index", -1), row["id"]))
    numbers = {row["id"]: number for number, row in enumerate(runs)}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(plain_id(key)): plain(inner) for key, inner in value.items() if key not in OPEN_TO_CHANCE}
        return [plain(inner) for inner in value] if isinstance(value, list) else plain_id(value)

    def plain_id(value: Any) -> Any:
        as_number = int(value) if isinstance(value, str) and value.isdecimal() else value
        return f"run {numbers[as_number]}" if type(as_number) is int and as_number in numbers else value

    found: Ending = []
    for row in runs:
        kept = [signal["payload"] for signal in scene.seen.rows("signals", workflow_id=row["id"])]
        chunked = [chunk["content"] for chunk in scene.seen.rows("chunks", workflow_id=row["id"])]
        watching = sorted(numbers[other["waiter_id"]] for other in scene.seen.rows("watchers", workflow_id=row["id"]))
        standing = (row["name"], row["status"], row["current_step"], row["visit"], row["cleanup"], row["error_kind"])
        parent = numbers.get(row["parent_id"])
        found.append((*standing, parent, plain(scene.seen.state(row["id"])), kept, chunked, watching))
    return found


@dataclass(frozen=True)
class Story:
    """What is told: `act` makes the transaction through the broken door, and may be called again after it has failed.

    `then` is what happens afterwards, undisturbed, once workers have nothing more to do. With `may_die` the act is a
    worker's and may be lost with its process: others make up for it, and it ends the same. Not so what a caller asks
    for, nor where the others may be quicker with something else.
    """

    act: Action
    then: Callable[[], object] = field(default=lambda: None)
    may_die: bool = True


Prepare = Callable[[Scene], Story]
STORIES: dict[str, Prepare] = {}


def story(prepare: Prepare) -> Prepare:
    STORIES[prepare.__name__.strip("_").replace("_", "-")] = prepare
    return prepare


@pytest.fixture(autouse=True)
def few_items_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_each, "ITEMS_AT_ONCE", 2)


def held(scene: Scene, worker: Worker, *, most: int = 100) -> list[Work]:
    """What a worker claims that nobody disturbs; what is due is opened first."""
    made = worker.hand.make(worker.hand.order(slots=most, looks_around=True), door=scene.seen.door)
    return list(made.works)


def settling(scene: Scene, run: Definition, payload: dict[str, Any], *, at: int = 0, before: int = 0) -> Story:
    """One of the jobs of a run's present step is settled, after `before` others of them; `at` counts those left."""
    scene.seen.dispatch(run, payload)
    return settling_claimed(scene, at=at, before=before)


def settling_claimed(scene: Scene, *, at: int = 0, before: int = 0) -> Story:
    worker = Worker(scene)
    works = held(scene, worker)
    first = [answer(scene, work) for work in works[:before]]
    if first:
        worker.hand.make(worker.hand.order(first), door=scene.seen.door)
    return Story(worker.turning(answer(scene, works[before + at])))


def hearing(scene: Scene) -> Action:
    """A turn that opens what is due, through the broken door."""
    return Worker(scene).turning(looks_around=True)


def tell(scene: Scene, run: int, name: str, payload: dict[str, Any]) -> Action:
    return lambda: send_signal(scene.door, scene.house.definitions, run, name, payload)


def said(scene: Scene, run: int, name: str = "go", **payload: Any) -> None:
    send_signal(scene.seen.door, scene.seen.definitions, run, name, payload)


# Steps with many jobs


@story
def _a_branch(scene: Scene) -> Story:
    return settling(scene, definition(parallel("a", "b", "c"), step()), {})


@story
def _the_last_branch(scene: Scene) -> Story:
    return settling(scene, definition(parallel("a", "b", "c"), step()), {}, before=2)


@story
def _a_branch_that_fails(scene: Scene) -> Story:
    return replace(settling(scene, definition(parallel("a", "fails", "c"), step()), {}, at=1), may_die=False)


@story
def _two_branches_of_a_turn(scene: Scene) -> Story:
    scene.seen.dispatch(definition(parallel("a", "b", "c"), step()))
    worker = Worker(scene)
    one, two, _ = held(scene, worker)
    return Story(worker.turning(answer(scene, one), answer(scene, two), slots=10, looks_around=True))


@story
def _an_item(scene: Scene) -> Story:
    return settling(scene, definition(each(), step()), {"items": ["x", "y"]})


@story
def _the_last_item_with_a_reducer(scene: Scene) -> Story:
    return settling(scene, definition(each(reducer=True), step()), {"items": ["x", "y"]}, before=1)


@story
def _the_reducer(scene: Scene) -> Story:
    scene.seen.dispatch(definition(each(reducer=True), step()), {"items": ["x"]})
    worker = Worker(scene)
    (item,) = held(scene, worker)
    worker.hand.make(worker.hand.order([answer(scene, item)]), door=scene.seen.door)
    return settling_claimed(scene)


@story
def _the_first_item_that_succeeds(scene: Scene) -> Story:
    """The others are in hand and superseded; who has them learns that they are late."""
    return settling(scene, definition(each("first_success"), step()), {"items": ["x"]})


@story
def _an_item_that_settles_a_quorum(scene: Scene) -> Story:
    scene.seen.dispatch(definition(each("quorum", quorum=2), step()), {"items": ["x", "x", "x"]})
    return settling_claimed(scene, before=1)


@story
def _more_items_by_a_timer(scene: Scene) -> Story:
    scene.seen.dispatch(definition(each(), step()), {"items": ["x", "y", "z", "u", "v"]})
    return Story(hearing(scene))


@story
def _another_lap(scene: Scene) -> Story:
    settings = {"until": True, "target": "lap"}
    scene.seen.dispatch(definition(step("lap", "lap"), StepSpec("repeat", "again", handled("asks"), QUICK, settings)))
    worker = Worker(scene)
    (lap,) = held(scene, worker)
    worker.hand.make(worker.hand.order([answer(scene, lap)]), door=scene.seen.door)
    return settling_claimed(scene)


# Waits


@story
def _a_wait_is_entered(scene: Scene) -> Story:
    run = scene.seen.dispatch(definition(step(), signals("go", "on"), step("end")))
    story = settling_claimed(scene)

    def then() -> None:
        said(scene, run, "on", of="on")
        said(scene, run, "go", of="go")

    return Story(story.act, then)


@story
def _a_wait_with_a_time_out_is_entered(scene: Scene) -> Story:
    wait = signals("go", timeout=60, on_timeout="end")
    return settling(scene, definition(step(), wait, step("never"), step("end")), {})


@story
def _a_wait_is_over_when_it_is_entered(scene: Scene) -> Story:
    once_more = replace(signals("go", result_key="again"), name="once more")
    run = scene.seen.dispatch(definition(step(), signals("go"), once_more, step("end")))
    said(scene, run, which="first")
    story = settling_claimed(scene)
    return Story(story.act, lambda: said(scene, run, which="second"))


@story
def _a_wait_is_over_by_its_time(scene: Scene) -> Story:
    scene.seen.dispatch(definition(signals("go", timeout=60), step()))
    scene.seen.clock.advance(61)
    return Story(hearing(scene))


def _told(name: str, *before: Command, early: str | None = None, **payload: Any) -> None:
    """A signal comes to a run that waits for it, works, or is paused."""

    def prepare(scene: Scene) -> Story:
        what = definition(signals("go", "on"), step()) if name == "waiting" else definition(step(), signals("go", "on"))
        run = scene.seen.dispatch(what)
        for command in before:
            scene.seen.steer(run, command)
        if early is not None:
            said(scene, run, early, of="early")

        def then() -> None:
            if before:
                scene.seen.steer(run, Resume())
            if early is None:
                said(scene, run, "on", of="late")

        return Story(tell(scene, run, "go", {"of": "broken"}), then, may_die=False)

    STORIES[f"a-signal-to-one-that-is-{name}{'-for-the-last' if early else ''}"] = prepare


_told("waiting")
_told("waiting", early="on")
_told("running")
_told("running", early="on")
_told("paused", Pause())


@story
def _a_signal_nobody_waits_for(scene: Scene) -> Story:
    run = scene.seen.dispatch(definition(step()))
    work_on(scene)
    return Story(tell(scene, run, "go", {"of": "nobody"}), may_die=False)


@story
def _others_are_asked_to_tell(scene: Scene) -> Story:
    first, second = scene.seen.dispatch_many(CHILD, [{}, {}])
    scene.seen.dispatch(definition(step(), others([first, second]), step("end"), name="waits"))
    worker = Worker(scene)
    *_, own = held(scene, worker)
    return Story(worker.turning(answer(scene, own)))


def waiting_for(scene: Scene, count: int = 1, mode: str = "all") -> tuple[Worker, list[Work]]:
    """Runs in hand, and one that waits for all of them and has told them so."""
    runs = scene.seen.dispatch_many(definition(step(), name="awaited"), [{}] * count)
    for name in ("waits", "waits too"):
        scene.seen.dispatch(definition(others(runs, mode), step("end"), name=name))
    worker = Worker(scene)
    works = held(scene, worker)
    return worker, works


@story
def _a_letter_that_asks_to_be_told(scene: Scene) -> Story:
    runs = scene.seen.dispatch_many(definition(step(), name="awaited"), [{}, {}])
    scene.seen.dispatch(definition(others(runs), step("end"), name="waits"))
    return Story(hearing(scene))


@story
def _the_end_of_one_that_is_awaited(scene: Scene) -> Story:
    worker, (work,) = waiting_for(scene)
    return Story(worker.turning(answer(scene, work)))


@story
def _the_failure_of_one_that_is_awaited(scene: Scene) -> Story:
    worker, (work, _) = waiting_for(scene, 2, mode="any")
    return Story(worker.turning(failed(work.job, "no", is_final=True)), may_die=False)


@story
def _the_news_that_another_has_ended(scene: Scene) -> Story:
    worker, (work,) = waiting_for(scene)
    worker.hand.make(worker.hand.order([answer(scene, work)]), door=scene.seen.door)
    return Story(hearing(scene))


# Runs that start others


@story
def _three_runs_are_started(scene: Scene) -> Story:
    run = definition(step(), starting(), group(), step("end"), name="starts")
    return settling(scene, run, {"items": ["x", "y", "z"], "of": "mine"})


@story
def _a_child_is_started(scene: Scene) -> Story:
    return settling(scene, definition(step(), nested(), step("end"), name="parent"), {"of": "mine"})


@story
def _a_child_ends(scene: Scene) -> Story:
    return settling(scene, definition(nested(), step("end"), name="parent"), {"of": "mine"})


@story
def _a_parent_hears_of_its_child_s_end(scene: Scene) -> Story:
    scene.seen.dispatch(definition(nested(), step("end"), name="parent"))
    worker = Worker(scene)
    (work,) = held(scene, worker)
    worker.hand.make(worker.hand.order([answer(scene, work)]), door=scene.seen.door)
    return Story(hearing(scene))


FAMILY = definition(
    nested(definition(nested(CHILD), name="middle", on_cancel=handled("undo"))),
    step("end"),
    name="parent",
    on_cancel=handled("undo"),
)


@story
def _a_family_is_cancelled(scene: Scene) -> Story:
    run = scene.seen.dispatch(FAMILY)
    return Story(lambda: scene.house.steer(run, Cancel()), may_die=False)


@story
def _a_child_hears_that_it_is_cancelled(scene: Scene) -> Story:
    scene.seen.steer(scene.seen.dispatch(FAMILY), Cancel())
    return Story(hearing(scene), may_die=False)


@story
def _a_grandchild_is_clean(scene: Scene) -> Story:
    scene.seen.steer(scene.seen.dispatch(FAMILY), Cancel())
    for _ in range(2):
        scene.seen.hand().turn(looks_around=True)
    return settling_claimed(scene)


@story
def _a_parent_hears_that_its_child_is_clean(scene: Scene) -> Story:
    scene.seen.steer(scene.seen.dispatch(definition(nested(), name="parent", on_cancel=handled("undo"))), Cancel())
    scene.seen.hand().turn(looks_around=True)
    worker = Worker(scene)
    (undo,) = held(scene, worker)
    worker.hand.make(worker.hand.order([answer(scene, undo)]), door=scene.seen.door)
    return Story(hearing(scene))


def failed_family(scene: Scene) -> tuple[int, int]:
    """A parent that has failed because its child has; their ids."""
    parent = scene.seen.dispatch(definition(nested(definition(step(), name="child")), step("end"), name="parent"))
    worker = Worker(scene)
    (work,) = held(scene, worker)
    worker.hand.make(worker.hand.order([failed(work.job, is_final=True)]), door=scene.seen.door)
    work_on(scene)
    assert scene.seen.row("workflows", id=parent)["status"] == "failed"
    assert work.job.workflow_id is not None
    return parent, work.job.workflow_id


@story
def _a_parent_is_retried(scene: Scene) -> Story:
    parent, _ = failed_family(scene)
    return Story(lambda: scene.house.steer(parent, RetryRun()), may_die=False)


@story
def _a_child_hears_that_it_is_retried(scene: Scene) -> Story:
    parent, _ = failed_family(scene)
    scene.seen.steer(parent, RetryRun())
    return Story(hearing(scene))


@story
def _a_child_is_retried(scene: Scene) -> Story:
    _, child = failed_family(scene)
    return Story(lambda: scene.house.steer(child, RetryRun()), may_die=False)


@story
def _a_parent_hears_that_its_child_goes_on(scene: Scene) -> Story:
    _, child = failed_family(scene)
    scene.seen.steer(child, RetryRun())
    return Story(hearing(scene))


@story
def _a_family_is_dispatched(scene: Scene) -> Story:
    """Runs that begin with others, all in the caller's one transaction."""
    run = definition(starting(), parallel("a", "b"), nested(), name="parent")
    app = app_of(scene)
    return Story(lambda: app._start(run, {"items": ["x", "y"]}, None, None), may_die=False)


# Streams


def streaming(scene: Scene, *, kept: int) -> tuple[Worker, Work]:
    """A stream in hand of which so many chunks are kept."""
    scene.seen.dispatch(definition(step("stream", "streams"), step()))
    worker = Worker(scene)
    (work,) = held(scene, worker)
    for number in range(kept):
        StoredChunks(scene.seen.door, lease_s=30).append(work.job, number, TEXT[number])
    return worker, work


@story
def _a_chunk_is_kept(scene: Scene) -> Story:
    _, work = streaming(scene, kept=1)
    return Story(lambda: StoredChunks(scene.door, lease_s=30).append(work.job, 1, TEXT[1]))


@story
def _a_chunk_of_a_branch_is_kept(scene: Scene) -> Story:
    scene.seen.dispatch(definition(parallel("streams", "a", "streams"), step()))
    works = held(scene, Worker(scene))
    return Story(lambda: StoredChunks(scene.door, lease_s=30).append(works[2].job, 0, TEXT[0]))


@story
def _a_stream_is_settled(scene: Scene) -> Story:
    worker, work = streaming(scene, kept=2)
    return Story(worker.turning(streamed(scene, work)))


@story
def _a_stream_breaks_off(scene: Scene) -> Story:
    worker, work = streaming(scene, kept=2)
    return Story(worker.turning(failed(work.job, "the line is dead")))


# Runs that are not there


def delete(scene: Scene, run: int) -> None:
    """As a purge does: the run is gone, and whoever writes to it finds nobody."""
    tables = scene.seen.door.tables

    def unit(tx: Any) -> None:
        for table, key in ((tables.workflows, "id"), (tables.jobs, "workflow_id"), (tables.history, "run_id")):
            tx.connection.execute(table.delete().where(table.c[key] == run))

    scene.seen.door.write(unit)


@story
def _one_that_is_gone_is_asked_to_tell(scene: Scene) -> Story:
    gone = scene.seen.dispatch(definition(step(), name="gone"))
    scene.seen.dispatch(definition(others([gone]), step(), name="waits"))
    delete(scene, gone)
    return Story(hearing(scene))


@story
def _a_child_that_is_gone_is_told_to_end(scene: Scene) -> Story:
    parent = scene.seen.dispatch(definition(nested(), step("end"), name="parent", on_cancel=handled("undo")))
    (child,) = (row["id"] for row in scene.seen.rows("workflows", parent_id=parent))
    scene.seen.steer(parent, Cancel())
    delete(scene, child)
    return Story(hearing(scene))


@story
def _a_letter_to_one_that_is_gone(scene: Scene) -> Story:
    scene.seen.dispatch(definition(step()))
    gone = scene.seen.dispatch(definition(step(), name="gone"))
    delete(scene, gone)
    letter = Send(gone, LetterKind.SETTLED, BEGIN_US, {"id": gone}, 1)
    scene.seen.door.write(lambda tx: settle.write(tx, Plan.of([letter]), {}))
    return Story(hearing(scene))


@story
def _the_sweep_tells_those_who_were_not_told(scene: Scene) -> Story:
    gone = scene.seen.dispatch(definition(step(), name="gone"))
    scene.seen.dispatch(definition(others([gone]), step(), name="waits"))
    held(scene, Worker(scene))
    delete(scene, gone)
    return Story(lambda: tell_again(scene.door))


# The tests


def prepared(scene: Scene, prepare: Prepare) -> Story:
    """The story from its beginning."""
    scene.door.on_statement = None
    scene.seen.clear()
    return prepare(scene)


def ended(scene: Scene, story: Story) -> Ending:
    """How it ends: workers go on alone, then what follows happens, and they go on."""
    scene.door.on_statement = None
    work_on(scene)
    check(scene.seen.door)
    story.then()
    work_on(scene)
    check(scene.seen.door)
    return ending(scene)


def as_it_should(scene: Scene, prepare: Prepare) -> tuple[list[str], Ending]:
    """The statements of the act when nothing breaks, and how the story ends."""
    scene.seen.door.write(lambda tx: tx.reserve(1000))  # no id may be taken for a number of the story
    story = prepared(scene, prepare)
    statements = scene.break_at(NEVER)
    story.act()
    assert statements[-2:] == ["COMMIT", "COMMITTED"]
    return statements, ended(scene, story)


Point = int | str
"""Where a story is broken: before the statement of this number, or before the first of this text."""


def impatient_points(name: str, kind: str, last: int, *, all_of_them: bool) -> Iterator[tuple[Point, bool]]:
    """Where to break a transaction that is not repeated, and whether who makes it goes on afterwards.

    Usually at some statements, which differ from story to story, and always at the COMMIT.
    """
    step = 4 if kind == "sqlite" else 12
    for number in range(last - 1) if all_of_them else range(len(name) % min(step, last), last - 1, step):
        yield number, number % 2 == 0
        if all_of_them:
            yield number, number % 2 == 1
    for point in ("COMMIT", "COMMITTED") if all_of_them or kind == "sqlite" else ("COMMIT",):
        yield point, False
        if all_of_them:
            yield point, True


@pytest.mark.parametrize("name", STORIES)
def test_a_story_that_breaks_ends_as_it_would_have(database: Database, name: str, rounds: int) -> None:
    break_everywhere(database, name, STORIES[name], rounds)


def break_everywhere(database: Database, name: str, prepare: Prepare, rounds: int) -> None:
    """Tells the story with its transaction broken, once at each of the points that `impatient_points` names."""
    with scene_of(database, patient=False) as scene:
        statements, expected = as_it_should(scene, prepare)
        last, is_thorough = len(statements) - 1, rounds > 10
        for point, survives in impatient_points(name, database.kind, last, all_of_them=is_thorough):
            tell_broken(scene, prepare, point, expected, survives=survives)
        scene.be(patient=True)
        for number in range(last - 1) if is_thorough else ():
            tell_repeated(scene, prepare, number, expected)
        for point in ("COMMIT", "COMMITTED"):
            tell_repeated(scene, prepare, point, expected)


def tell_broken(scene: Scene, prepare: Prepare, point: Point, expected: Ending, *, survives: bool) -> None:
    """The transaction is not repeated: who makes it is told that it failed and does it again, or is dead."""
    story = prepared(scene, prepare)
    survives = survives or not story.may_die
    before = dump(scene)
    said = scene.break_at(point)
    with suppress(StoreUnavailable):
        story.act()
    scene.door.on_statement = None
    where = broken_at(said, point)
    is_done = dump(scene) != before
    assert not is_done or where in (None, "COMMITTED"), f"broken before {where}"
    if survives and (story.may_die or not is_done):
        story.act()
    assert ended(scene, story) == expected, f"broken before {where}, {'alive' if survives else 'dead'}"


def tell_repeated(scene: Scene, prepare: Prepare, point: Point, expected: Ending) -> None:
    """The transaction is repeated, also where its outcome is unknown: lost (COMMIT) or done (COMMITTED)."""
    story = prepared(scene, prepare)
    said = scene.break_at(point)
    story.act()
    assert ended(scene, story) == expected, f"broken before {broken_at(said, point)}"


def broken_at(said: list[str], point: Point) -> str | None:
    """The statement that was broken; None if it did not come to that: the first time definitions are read too."""
    if isinstance(point, str):
        assert point in said
        return point
    return said[point] if point < len(said) else None

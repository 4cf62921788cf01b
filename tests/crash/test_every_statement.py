"""A connection that breaks before any statement of any transaction, while committing, or after: as if nothing happened.

Every kind of transaction is made again and again, each time broken one statement later. If it gives up, the database
is as before (or, once committed, as after); done again, it completes, and nothing is doubled. If it may persist, it
completes by itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from queuety import Queuety
from queuety.errors import InvalidStateError, StoreUnavailable
from queuety.model import Cancel, Definition, HandlerRef, Pause, Resume, RetryRun, StepSpec
from queuety.store import claims, queues
from queuety.worker.maintain import give_back_of_dead, recover, renew
from queuety.worker.outcome import Returned, Unhandled
from tests.support.databases import Database
from tests.support.hands import Dump, definition, failed, new_job, pause_of, single, succeeded
from tests.support.invariants import check
from tests.support.scenes import Action, Scene, Worker, app_of, dump, scene_of

CHAIN = definition(single("one", backoff=(0.0,)), single("two", backoff=(0.0,)))
WITH_DELAY = definition(single("one"), pause_of(60), single("two"), name="slow")
WITH_CLEANUP = definition(single("one"), name="tidy", on_cancel=HandlerRef("tests:clean"))

NEVER = 1_000_000
"""No transaction has so many statements."""


@dataclass(frozen=True)
class Kind:
    """A kind of transaction: what is there before it, and what must be there once it was made.

    `prepare` works with a house that nothing breaks and gives back the action, which uses the scene's broken door, and
    what to check at the end.
    """

    name: str
    prepare: Callable[[Scene], tuple[Action, Callable[[], None]]]

    def __str__(self) -> str:
        return self.name


KINDS: list[Kind] = []


def kind(prepare: Callable[[Scene], tuple[Action, Callable[[], None]]]) -> Any:
    KINDS.append(Kind(prepare.__name__.strip("_").replace("_", "-"), prepare))
    return prepare


def no_check() -> None:
    """What `check` has seen is enough."""


# Turns


@kind
def _settle_and_claim_the_next(scene: Scene) -> tuple[Action, Callable[[], None]]:
    run = scene.seen.dispatch(CHAIN, {"n": 1})
    worker = Worker(scene)
    (job,) = worker.claimed()
    act = worker.until_claimed(1, worker.turning(succeeded(job, {"a": 1}), slots=1))

    def verify() -> None:
        assert scene.seen.state(run) == {"n": 1, "a": 1}
        assert [each.step_index for each in worker.works] == [1]
        assert scene.seen.row("jobs")["token"] == worker.works[0].token
        assert (len(worker.settled), worker.lost) == (1, [])

    return act, verify


@kind
def _settle_without_claiming(scene: Scene) -> tuple[Action, Callable[[], None]]:
    run = scene.seen.dispatch(CHAIN)
    worker = Worker(scene)
    (job,) = worker.claimed()

    def verify() -> None:
        assert scene.seen.state(run) == {"a": 1}
        assert scene.seen.row("jobs")["phase"] == "ready"
        assert worker.lost == []

    return worker.turning(succeeded(job, {"a": 1})), verify


@kind
def _settle_a_batch_in_which_one_is_late(scene: Scene) -> tuple[Action, Callable[[], None]]:
    """The first of the batch writes nothing: it must not be what an unknown COMMIT is judged by."""
    late, good = scene.seen.dispatch_many(CHAIN, [{}, {}])
    (plain,) = scene.seen.add(new_job(max_attempts=1))
    worker = Worker(scene)
    jobs = {job.workflow_id or job.id: job for job in worker.claimed()}
    scene.seen.steer(late, Cancel())
    act = worker.turning(succeeded(jobs[late]), succeeded(jobs[good], {"a": 1}), failed(jobs[plain]))

    def verify() -> None:
        assert scene.seen.state(good) == {"a": 1}
        assert scene.seen.row("jobs", id=plain)["phase"] == "buried"
        # Nothing is called refused that was stored.
        assert {outcome.job.workflow_id for outcome in worker.lost} <= {late}

    return act, verify


@kind
def _complete(scene: Scene) -> tuple[Action, Callable[[], None]]:
    run = scene.seen.dispatch(definition(single()), {"text": "x" * 5000})
    worker = Worker(scene)
    (job,) = worker.claimed()

    def verify() -> None:
        assert scene.seen.row("workflows", id=run)["status"] == "completed"
        assert scene.seen.rows("jobs") == []

    return worker.turning(succeeded(job, {"a": 1})), verify


@kind
def _retry(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.dispatch(CHAIN)
    worker = Worker(scene)
    (job,) = worker.claimed()

    def verify() -> None:
        assert (scene.seen.row("jobs")["phase"], scene.seen.row("jobs")["attempts"]) == ("ready", 1)

    return worker.turning(failed(job)), verify


@kind
def _fail(scene: Scene) -> tuple[Action, Callable[[], None]]:
    run = scene.seen.dispatch(CHAIN)
    worker = Worker(scene)
    (job,) = worker.claimed()

    def verify() -> None:
        assert scene.seen.row("workflows", id=run)["status"] == "failed"
        assert scene.seen.row("jobs")["phase"] == "buried"

    return worker.turning(failed(job, is_final=True)), verify


@kind
def _plain_jobs(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.add(new_job(), new_job(), new_job(max_attempts=1))
    worker = Worker(scene)
    one, two, three = worker.claimed()

    def verify() -> None:
        assert [row["phase"] for row in scene.seen.rows("jobs")] == ["completed", "delayed", "buried"]
        assert len(scene.seen.rows("history")) == 3

    return worker.turning(succeeded(one), failed(two), failed(three)), verify


@kind
def _set_a_timer(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.dispatch(WITH_DELAY)
    worker = Worker(scene)
    (job,) = worker.claimed()

    def verify() -> None:
        assert len(scene.seen.rows("inbox")) == 1
        assert scene.seen.rows("jobs") == []

    return worker.turning(succeeded(job), slots=1), verify


@kind
def _fire_a_timer(scene: Scene) -> tuple[Action, Callable[[], None]]:
    run = scene.seen.dispatch(WITH_DELAY)
    worker = Worker(scene)
    (job,) = worker.claimed()
    worker.hand.make(worker.hand.order([succeeded(job)]), door=scene.seen.door)
    scene.seen.clock.advance(61)
    act = worker.until_claimed(1, worker.turning(slots=1, looks_around=True))

    def verify() -> None:
        assert scene.seen.rows("inbox") == []
        assert [each.step_index for each in worker.works] == [2]
        assert scene.seen.row("workflows", id=run)["visit"] == 3

    return act, verify


@kind
def _claim(scene: Scene) -> tuple[Action, Callable[[], None]]:
    added = scene.seen.add(new_job(), new_job(), new_job())
    scene.seen.dispatch(CHAIN)
    worker = Worker(scene)
    act = worker.until_claimed(3, worker.turning(slots=3))

    def verify() -> None:
        assert [job.id for job in worker.works] == added
        assert [row["attempts"] for row in scene.seen.rows("jobs", phase="leased")] == [1, 1, 1]

    return act, verify


@kind
def _promote_and_claim(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.add(new_job(due_us=scene.seen.clock.us + 5), new_job(due_us=scene.seen.clock.us + 6))
    scene.seen.clock.advance(1)
    worker = Worker(scene)
    act = worker.until_claimed(2, worker.turning(slots=2, looks_around=True))

    def verify() -> None:
        assert [job.attempt for job in worker.works] == [1, 1]

    return act, verify


@kind
def _give_back_and_put_off(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.add(new_job(), new_job())
    worker = Worker(scene)
    one, two = worker.claimed()

    def verify() -> None:
        rows = scene.seen.rows("jobs")
        assert [(row["phase"], row["attempts"]) for row in rows] == [("ready", 0), ("delayed", 0)]

    return worker.turning(Returned(one), Unhandled(two, "no such module")), verify


@kind
def _claim_a_suspect(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.add(new_job(), new_job())
    dead = Worker(scene)
    dead.claimed()
    give_back_of_dead(scene.seen.door, scene.seen.definitions, dead.hand.owner)
    worker = Worker(scene)
    turning = worker.turning(alone=True)

    def act() -> None:
        until = time.monotonic() + 10
        while not worker.works:
            assert time.monotonic() < until
            turning()

    def verify() -> None:
        assert len(worker.works) == 1
        assert sorted(row["phase"] for row in scene.seen.rows("jobs")) == ["leased", "suspect"]

    return act, verify


@kind
def _clean_up(scene: Scene) -> tuple[Action, Callable[[], None]]:
    run = scene.seen.dispatch(WITH_CLEANUP)
    scene.seen.steer(run, Cancel())
    worker = Worker(scene)
    (job,) = worker.claimed()

    def verify() -> None:
        assert scene.seen.row("workflows", id=run)["cleanup"] == "completed"

    return worker.turning(succeeded(job)), verify


# Dispatches


FORM: dict[str, Any] = {"name": "form", "steps": [{"type": "delay", "name": "wait", "seconds": 60}]}


@kind
def _dispatch(scene: Scene) -> tuple[Action, Callable[[], None]]:
    app = app_of(scene)
    got: list[int] = []

    def verify() -> None:
        assert [row["id"] for row in scene.seen.rows("workflows")] == got

    return lambda: got.append(app.dispatch_definition(FORM, {"n": 1})), verify


@kind
def _dispatch_with_a_key(scene: Scene) -> tuple[Action, Callable[[], None]]:
    app = app_of(scene)
    got: list[int] = []

    def verify() -> None:
        assert [row["id"] for row in scene.seen.rows("workflows")] == got

    return lambda: got.append(app.dispatch_definition(FORM, {"n": 1}, idempotency_key="k")), verify


@kind
def _dispatch_with_a_key_that_is_taken(scene: Scene) -> tuple[Action, Callable[[], None]]:
    app = app_of(scene)
    first = Queuety(scene.seen.url, clock=scene.seen.clock)
    run = first.dispatch_definition(FORM, idempotency_key="k")
    first.close()
    got: list[int] = []

    def verify() -> None:
        assert got == [run] == [row["id"] for row in scene.seen.rows("workflows")]

    return lambda: got.append(app.dispatch_definition(FORM, {"n": 1}, idempotency_key="k")), verify


@kind
def _dispatch_many(scene: Scene) -> tuple[Action, Callable[[], None]]:
    app = app_of(scene)
    builder = app.workflow("bulk").delay(seconds=60)
    got: list[int] = []

    def verify() -> None:
        assert [row["id"] for row in scene.seen.rows("workflows")] == got
        assert len(got) == 5

    return lambda: got.extend(app.dispatch_many(builder, [{"n": number} for number in range(5)])), verify


# Commands


def _steered(what: Definition, command: Any, status: str, *before: Any) -> Kind:
    def prepare(scene: Scene) -> tuple[Action, Callable[[], None]]:
        run = scene.seen.dispatch(what)
        if isinstance(command, RetryRun):
            worker = Worker(scene)
            (job,) = worker.claimed()
            worker.hand.make(worker.hand.order([failed(job, is_final=True)]), door=scene.seen.door)
        for each in before:
            scene.seen.steer(run, each)

        def verify() -> None:
            assert scene.seen.row("workflows", id=run)["status"] == status

        return lambda: scene.house.steer(run, command), verify

    name = f"{type(command).__name__.lower()}-{what.name}"
    return Kind(name, prepare)


KINDS += [
    _steered(CHAIN, Pause(), "paused"),
    _steered(CHAIN, Resume(), "running", Pause()),
    _steered(CHAIN, RetryRun(), "running"),
    _steered(CHAIN, Cancel(), "cancelled"),
    _steered(WITH_CLEANUP, Cancel(), "cancelled"),
    _steered(definition(StepSpec("delay", "wait", settings={"seconds": 9}), name="wait"), Cancel(), "cancelled"),
]


# Chores


@kind
def _recover_one_that_was_alone(scene: Scene) -> tuple[Action, Callable[[], None]]:
    run = scene.seen.dispatch(CHAIN)
    Worker(scene).claimed()
    scene.seen.clock.advance(31)

    def act() -> None:
        until = time.monotonic() + 10
        recover(scene.door, scene.house.definitions)
        while not scene.seen.rows("history"):  # the run was locked by the connection that died
            assert time.monotonic() < until
            scene.seen.clock.advance(1)
            recover(scene.door, scene.house.definitions)

    def verify() -> None:
        assert [row["entry"] for row in scene.seen.rows("history", run_id=run)] == ["failed"]
        assert (scene.seen.row("jobs")["phase"], scene.seen.row("jobs")["attempts"]) == ("ready", 1)

    return act, verify


@kind
def _recover_several(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.dispatch_many(CHAIN, [{}, {}])
    Worker(scene).claimed()
    scene.seen.clock.advance(31)

    def verify() -> None:
        assert [(row["phase"], row["attempts"]) for row in scene.seen.rows("jobs")] == [("suspect", 0)] * 2

    return lambda: recover(scene.door, scene.house.definitions), verify


@kind
def _give_back_of_the_dead(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.dispatch_many(CHAIN, [{}, {}])
    dead = Worker(scene)
    dead.claimed()

    def verify() -> None:
        assert [(row["phase"], row["attempts"]) for row in scene.seen.rows("jobs")] == [("suspect", 0)] * 2

    return lambda: give_back_of_dead(scene.door, scene.house.definitions, dead.hand.owner), verify


@kind
def _renew(scene: Scene) -> tuple[Action, Callable[[], None]]:
    scene.seen.add(new_job(), new_job())
    worker = Worker(scene)
    worker.claimed()
    scene.seen.clock.advance(10)

    def verify() -> None:
        ends = {row["wake_us"] - scene.seen.clock.us for row in scene.seen.rows("jobs")}
        assert ends == {30_000_000}

    return lambda: renew(scene.door, [worker.hand.owner], lease_s=30), verify


@kind
def _pause_a_queue(scene: Scene) -> tuple[Action, Callable[[], None]]:
    name = f"q{secrets.randbelow(10**9)}"

    def verify() -> None:
        assert scene.seen.door.read(claims.paused_queues) == {name}
        assert scene.seen.row("queues", name=name)["changes"] == 1

    return lambda: scene.door.write(lambda tx: queues.pause(tx, name)), verify


def made(scene: Scene, what: Kind, number: int) -> tuple[list[str], Action, Callable[[], None], Dump]:
    """The kind prepared from nothing, to be broken at this statement."""
    scene.door.on_statement = None
    scene.seen.clear()
    act, verify = what.prepare(scene)
    before = dump(scene)
    return scene.break_at(number), act, verify, before


@pytest.mark.parametrize("what", KINDS, ids=str)
def test_what_is_broken_leaves_nothing_and_completes_when_done_again(database: Database, what: Kind) -> None:
    with scene_of(database, patient=False) as scene:
        number = 0
        while True:
            said, act, verify, before = made(scene, what, number)
            outcome: BaseException | None = None
            try:
                act()
            except StoreUnavailable as error:
                outcome = error
            scene.door.on_statement = None
            if len(said) <= number:
                assert outcome is None
                break
            where = said[number]
            if outcome is not None and where != "COMMITTED":
                assert dump(scene) == before, f"broken before {where}"
                act()
            elif outcome is not None:
                # Done, and nobody was told. Doing it again is refused or changes nothing.
                with suppress(InvalidStateError):
                    act() if is_repeatable(what) else None
            check(scene.seen.door)
            if where != "COMMITTED" or is_repeatable(what):
                verify()
            number += 1
        assert number >= 3
        verify()


def is_repeatable(what: Kind) -> bool:
    """Whether somebody who was not told of the end may ask again: a dispatch without a key starts another run."""
    return what.name not in ("dispatch", "dispatch-many", "dispatch-with-a-key", "claim-a-suspect") and (
        "claim" not in what.name and "timer" not in what.name and "settle" not in what.name
    )


@pytest.mark.parametrize("what", KINDS, ids=str)
def test_what_is_broken_once_completes_by_itself(database: Database, what: Kind, rounds: int) -> None:
    """Also where the COMMIT's outcome is unknown, whether it was lost (COMMIT) or done (COMMITTED)."""
    with scene_of(database, patient=True) as scene:

        def broken_at(number: int) -> list[str]:
            said, act, verify, _ = made(scene, what, number)
            act()
            scene.door.on_statement = None
            check(scene.seen.door)
            verify()
            return said

        said = broken_at(NEVER)
        assert said[-2:] == ["COMMIT", "COMMITTED"]
        last = len(said) - 1
        usual = sorted({0, last // 2, last - 2, last - 1, last})
        for number in range(last + 1) if rounds > len(said) else usual:
            broken_at(number)

"""Streaming steps as users see them: chunks are read while they come, none is lost, none comes twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from queuety import Queuety, StreamingStep, WorkflowStatus, bind, current, errors, step
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import PATIENCE_S, note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.remote import remote_worker

State = dict[str, Any]

permits = threading.Semaphore(0)
"""One for each chunk that `Permitted` may yield."""


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    while permits.acquire(blocking=False):
        pass
    yield
    permits.release(1000)


@pytest.fixture
def elsewhere(app: Queuety, database: Database, clock: ManualClock) -> Iterator[Queuety]:
    """Another application on the same database, with connections of its own."""
    with Queuety(database.url, clock=clock) as made:
        yield made


@pytest.fixture
def readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


class Spelled(StreamingStep):
    """Yields what is to be said, piece by piece; an attempt that began earlier fails before each of `fails_at`."""

    def __init__(self, key: str = "text") -> None:
        self.key = key

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        note(list(existing_chunks))
        for number in range(len(existing_chunks), len(state[self.key])):
            if number in state.get("fails_at", ()) and number > len(existing_chunks):
                raise OSError(f"the line broke before {number}")
            yield state[self.key][number]

    def on_complete(self, chunks: list[Any], state: State) -> State:
        return {f"{self.key} as it came": chunks}

    def config(self) -> State:
        return {"backoff": [1]}


class SpelledAsync(StreamingStep):
    async def stream(self, state: State, existing_chunks: list[Any]) -> AsyncIterator[Any]:
        note(list(existing_chunks))
        for number in range(len(existing_chunks), len(state["text"])):
            if number in state.get("fails_at", ()) and number > len(existing_chunks):
                raise OSError(f"the line broke before {number}")
            await asyncio.sleep(0)
            yield state["text"][number]

    async def on_complete(self, chunks: list[Any], state: State) -> State:
        await asyncio.sleep(0)
        return {"text as it came": chunks}

    def config(self) -> State:
        return {"backoff": [1]}


class SpelledAlone(Spelled):
    def config(self) -> State:
        return {"max_attempts": 1}


class Permitted(StreamingStep):
    """Yields each piece once it may."""

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        attempt = current().attempt
        note(("began", attempt, list(existing_chunks)))
        try:
            for piece in state["text"][len(existing_chunks) :]:
                assert permits.acquire(timeout=PATIENCE_S)
                yield piece
        finally:
            note(("closed", attempt))

    def on_complete(self, chunks: list[Any], state: State) -> State:
        return {"text as it came": chunks}


class Gated(StreamingStep):
    """Yields a first piece, and the others once a file is there: it may run in another process."""

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        yield from state["text"][:1]
        until(Path(state["gate"]).exists)
        yield from state["text"][1:]

    def on_complete(self, chunks: list[Any], state: State) -> State:
        return {"said": "".join(chunks)}


class Counted(StreamingStep):
    """Yields numbers, and says how long each half took."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        for number in range(state["count"]):
            if number % (state["count"] // 2) == 0:
                self.moments.append(time.monotonic())
            yield number
        self.moments.append(time.monotonic())

    def on_complete(self, chunks: list[Any], state: State) -> State:
        assert chunks == list(range(state["count"]))
        first, second, third = self.moments
        return {"halves": [second - first, third - second]}


@step
def lap(state: State) -> State:
    return {"laps": state.get("laps", 0) + 1}


@step
def plain(state: State) -> State:
    return {"plain": True}


@step(max_attempts=1)
def fails_until_mended(state: State) -> None:
    if "mended" not in notes:
        raise ValueError("broken")


def read(app: Queuety, run: int) -> list[Any]:
    return list(app.workflow_stream(run, timeout=PATIENCE_S))


def reading(readers: ThreadPoolExecutor, app: Queuety, run: int) -> Future[list[Any]]:
    """A reader that has begun before anything was yielded."""
    return readers.submit(read, app, run)


every_way = pytest.mark.parametrize("handler", [Spelled, SpelledAsync])


# Reading while it runs


def test_each_chunk_can_be_read_elsewhere_before_the_next_one_comes(app: Queuety, elsewhere: Queuety) -> None:
    run = app.workflow("w").then(Permitted).then(plain).dispatch({"text": "abcd"})
    with working(app):
        stream = elsewhere.workflow_stream(run, timeout=PATIENCE_S)
        for letter in "abcd":
            permits.release()
            assert next(stream) == letter
        assert list(stream) == []
    assert status_of(elsewhere, run).state["text as it came"] == list("abcd")
    assert read(elsewhere, run) == list("abcd")


def test_a_coroutine_reads_it_too(app: Queuety, elsewhere: Queuety) -> None:
    run = app.workflow("w").then(Permitted).dispatch({"text": "abc"})

    async def follow() -> list[Any]:
        found = []
        permits.release()
        async for chunk in elsewhere.workflow_stream_async(run, timeout=PATIENCE_S):
            found.append(chunk)
            permits.release()
        return found

    with working(app):
        assert asyncio.run(follow()) == ["a", "b", "c"]


def test_a_stream_of_another_process_is_read_while_it_runs(database: Database, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Queuety(database.url) as app, remote_worker(database.url, tmp_path / "log") as remote:
        run = app.workflow("w").then(Gated).dispatch({"text": "abc", "gate": str(gate)})
        stream = app.workflow_stream(run, timeout=PATIENCE_S)
        assert next(stream) == "a"
        assert status_of(app, run).status is WorkflowStatus.RUNNING
        gate.touch()
        assert list(stream) == ["b", "c"]
        assert status_of(app, run).state["said"] == "abc"
        assert remote.stop() == 0
        check(app.door)


def test_whoever_reads_gets_all_of_it_early_late_or_behind(
    app: Queuety, elsewhere: Queuety, readers: ThreadPoolExecutor
) -> None:
    run = app.workflow("w").then(Permitted).then(Spelled).dispatch({"text": "abcdef"})
    wanted = [*"abcdef", *"abcdef"]
    early = [reading(readers, elsewhere, run) for _ in range(2)]
    behind = elsewhere.workflow_stream(run, timeout=PATIENCE_S)
    with working(app):
        permits.release()
        found = [next(behind)]
        late = reading(readers, elsewhere, run)
        permits.release(10)
        assert [one.result(PATIENCE_S) for one in early] == [wanted, wanted]
        assert late.result(PATIENCE_S) == wanted
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    found += behind  # the run has ended, and its chunks are history
    assert found == wanted
    assert read(app, run) == wanted


def test_streams_side_by_side_are_each_read_in_order(
    app: Queuety, elsewhere: Queuety, readers: ThreadPoolExecutor
) -> None:
    texts = {name: [f"{name}{number}" for number in range(20)] for name in ("first", "second", "third")}
    side_by_side = [bind(Spelled, key=name) for name in texts]
    run = app.workflow("w").parallel([*side_by_side, plain]).then(bind(Spelled, key="first")).dispatch(texts)
    reader = reading(readers, elsewhere, run)
    with working(app):
        found = reader.result(PATIENCE_S)
    for name, pieces in texts.items():
        assert [chunk for chunk in found if chunk.startswith(name)] == pieces * (2 if name == "first" else 1)
    assert status_of(app, run).state["third as it came"] == texts["third"]
    assert sorted(read(app, run)) == sorted(found)


def test_a_reader_is_told_when_nothing_comes_for_too_long(app: Queuety, elsewhere: Queuety) -> None:
    run = app.workflow("w").then(Permitted).dispatch({"text": "ab"})
    with working(app):
        stream = elsewhere.workflow_stream(run, timeout=0.2)
        permits.release()
        assert until(lambda: elsewhere.door.read(kept), within_s=PATIENCE_S)
        assert next(stream) == "a"
        with pytest.raises(errors.WaitTimeout, match=rf"workflow {run} has yielded nothing for 0.2 s and has"):
            next(stream)
        with pytest.raises(errors.WaitTimeout):
            asyncio.run(all_of(elsewhere.workflow_stream_async(run, timeout=0)))
        permits.release()
        assert read(elsewhere, run) == ["a", "b"]
    with pytest.raises(errors.NotFoundError):
        elsewhere.workflow_stream(987_654_321)


async def all_of(stream: AsyncIterator[Any]) -> list[Any]:
    return [chunk async for chunk in stream]


def kept(tx: Any) -> int:
    """How many chunks stand in rows of their own."""
    tx.cursor.execute(f"SELECT COUNT(*) FROM {tx.tables.chunks.name}")
    return int(tx.cursor.fetchone()[0])


# What becomes of it


@every_way
def test_a_failure_on_the_way_keeps_what_came_before_it(
    app: Queuety, elsewhere: Queuety, clock: ManualClock, handler: Any
) -> None:
    run = app.workflow("w").then(handler).dispatch({"text": ["a", "b", "c", "d"], "fails_at": [1, 3]})
    stream = elsewhere.workflow_stream(run, timeout=PATIENCE_S)
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is WorkflowStatus.RUNNING
    assert next(stream) == "a"
    for _ in range(2):
        clock.advance(seconds=2)
        assert app.run_until_idle() == 1
    assert notes == [[], ["a"], ["a", "b", "c"]]
    assert list(stream) == ["b", "c", "d"]
    assert status_of(app, run).state["text as it came"] == ["a", "b", "c", "d"]
    assert app.door.read(kept) == 0


def test_a_run_that_is_retried_goes_on_after_the_chunks_that_it_has(app: Queuety, elsewhere: Queuety) -> None:
    run = app.workflow("w").then(SpelledAlone).dispatch({"text": ["a", "b", "c"], "fails_at": [1, 2]})
    behind = elsewhere.workflow_stream(run, timeout=PATIENCE_S)
    for so_far in (["a"], ["a", "b"]):
        assert app.run_until_idle() == 1
        assert status_of(app, run).status is WorkflowStatus.FAILED
        assert read(elsewhere, run) == so_far
        app.retry_workflow(run)
        assert next(behind) == so_far[-1]
    assert app.run_until_idle() == 1
    assert notes == [[], ["a"], ["a", "b"]]
    assert list(behind) == ["c"]
    assert status_of(app, run).state["text as it came"] == ["a", "b", "c"] == read(elsewhere, run)
    assert app.door.read(kept) == 0


def test_a_branch_that_failed_goes_on_after_its_own_chunks(app: Queuety, elsewhere: Queuety) -> None:
    """The streams beside it are settled, or go on where they were."""
    flow = app.workflow("w").parallel([Spelled, fails_until_mended]).then(plain)
    run = flow.dispatch({"text": ["a", "b"]})
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.FAILED
    assert read(elsewhere, run) == ["a", "b"]
    note("mended")
    app.retry_workflow(run)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    assert notes == [[], "mended"], "the settled stream ran again"
    assert read(elsewhere, run) == ["a", "b"]


def test_every_visit_begins_anew(app: Queuety, elsewhere: Queuety, readers: ThreadPoolExecutor) -> None:
    flow = app.workflow("w").then(Spelled, name="spell").then(lap).repeat_until("spell", "laps", 3)
    run = flow.dispatch({"text": "ab"})
    early = reading(readers, elsewhere, run)
    app.run_until_idle()
    assert notes == [[], [], []]
    assert early.result(PATIENCE_S) == [*"ababab"]
    assert read(elsewhere, run) == [*"ababab"]


def test_a_fenced_attempt_yields_in_vain(app: Queuety, elsewhere: Queuety, clock: ManualClock) -> None:
    """Its lease was lost, and another attempt goes on with what it had yielded until then."""
    run = app.workflow("w").then(Permitted, backoff=[0]).dispatch({"text": "abc"})
    stream = elsewhere.workflow_stream(run, timeout=PATIENCE_S)
    with working(app):
        permits.release()
        assert next(stream) == "a"
        clock.advance(seconds=31)
        assert elsewhere.recover() == 1
        until(lambda: ("began", 2, ["a"]) in notes)
        permits.release(3)  # of the two attempts, one has its chunk refused
        assert list(stream) == ["b", "c"]
        until(lambda: all(("closed", attempt) in notes for attempt in (1, 2)))
    assert status_of(app, run).state["text as it came"] == ["a", "b", "c"]
    assert app.door.read(kept) == 0


def test_a_cancelled_run_keeps_no_later_chunk_and_its_readers_end(app: Queuety, elsewhere: Queuety) -> None:
    run = app.workflow("w").then(Permitted).then(plain).dispatch({"text": "abc"})
    stream = elsewhere.workflow_stream(run, timeout=PATIENCE_S)
    with working(app):
        permits.release()
        assert next(stream) == "a"
        elsewhere.cancel_workflow(run)
        permits.release()
        until(lambda: ("closed", 1) in notes)
        assert list(stream) == []
    assert read(app, run) == ["a"]
    assert status_of(app, run).status is WorkflowStatus.CANCELLED


def test_a_paused_run_streams_to_its_step_s_end(app: Queuety, elsewhere: Queuety) -> None:
    run = app.workflow("w").then(Permitted).then(Spelled).dispatch({"text": "ab"})
    stream = elsewhere.workflow_stream(run, timeout=PATIENCE_S)
    with working(app):
        permits.release()
        assert next(stream) == "a"
        elsewhere.pause_workflow(run)
        permits.release()
        assert next(stream) == "b"
        until(lambda: status_of(app, run).current_step == 1)
        elsewhere.resume_workflow(run)
        assert list(stream) == ["a", "b"]


# What is yielded


PIECES: list[Any] = [
    "",
    "\0",
    "a\0b",
    "é😀\u2028",
    "x" * 200_000,
    {"a": [1, None, {"b": "\x1b[0m"}], "\0": "'\"\\"},
    2**63 - 1,
    -0.0,
    1e-300,
    True,
    None,
    [],
    {},
    "_chunks",
]


@every_way
def test_any_json_is_a_chunk_and_comes_back_as_it_was(
    app: Queuety, elsewhere: Queuety, readers: ThreadPoolExecutor, handler: Any
) -> None:
    run = app.workflow("w").then(handler).dispatch({"text": PIECES})
    early = reading(readers, elsewhere, run)
    app.run_until_idle()
    for found in (early.result(PATIENCE_S), read(elsewhere, run), status_of(app, run).state["text as it came"]):
        assert repr(found) == repr(PIECES)


class Yields(StreamingStep):
    """Yields one good piece, then what no chunk may be."""

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        yield "good"
        wrong: dict[str, Callable[[], Any]] = {
            "surrogate": lambda: "\ud800",
            "nan": lambda: float("nan"),
            "bytes": lambda: b"x",
            "large": lambda: 2**63,
            "too large": lambda: "x" * 9_000_000,
        }
        yield wrong[state["wrong"]]()

    def on_complete(self, chunks: list[Any], state: State) -> State:
        return {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("surrogate", "chunks[1]"),
        ("nan", "chunks[1]"),
        ("bytes", "chunks[1]"),
        ("large", "chunks[1]"),
        ("too large", "8,388,608"),
    ],
)
def test_what_is_no_chunk_fails_the_attempt_and_keeps_the_others(memory: Queuety, wrong: str, said: str) -> None:
    run = memory.workflow("w").then(Yields, max_attempts=1).dispatch({"wrong": wrong})
    memory.run_until_idle()
    state = status_of(memory, run)
    assert state.status is WorkflowStatus.FAILED
    assert said in str(state.error_message)
    assert read(memory, run) == ["good"]


def test_many_chunks_take_no_longer_each_than_few(database: Database, rounds: int) -> None:
    count = 10_000 if rounds > 10 else 400
    with Queuety(database.url) as app:
        run = app.workflow("w").then(Counted).dispatch({"count": count})
        statements: list[str] = []
        app.door.on_statement = statements.append
        app.run_until_idle()
        app.door.on_statement = None
        first, second = status_of(app, run).state["halves"]
        assert second < 4 * first + 1
        assert len(statements) < 8 * count
        assert read(app, run) == list(range(count))
        check(app.door)

"""Streaming steps: each chunk is kept before the generator goes on, whatever becomes of the attempt."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuety import StreamingStep, current
from queuety.errors import Fail, LeaseLost, Retry
from queuety.model import Failed, Options, Role, Succeeded
from tests.support.executing import PATIENCE_S, Rig, wait

PAGE = (41, 5, None)
"""Where the chunks of a job of `Rig`'s are kept."""


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def letters(self: Any, state: Any, existing_chunks: list[Any]) -> Any:
    yield from state["word"][len(existing_chunks) :]


async def letters_async(self: Any, state: Any, existing_chunks: list[Any]) -> Any:
    for letter in state["word"][len(existing_chunks) :]:
        await asyncio.sleep(0)
        yield letter


def joined(self: Any, chunks: list[Any], state: Any) -> Any:
    return {"text": "".join(map(str, chunks))}


async def joined_async(self: Any, chunks: list[Any], state: Any) -> Any:
    await asyncio.sleep(0)
    return {"text": "".join(map(str, chunks))}


def streaming(stream: Callable[..., Any], complete: Callable[..., Any] = joined) -> Any:
    """A streaming step with these methods."""
    return type("Made", (StreamingStep,), {"stream": stream, "on_complete": complete})


every_way = pytest.mark.parametrize("complete", [joined, joined_async], ids=["joined", "joined_async"])
both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def of(is_async: bool, body: Callable[..., Any]) -> Callable[..., Any]:
    """The generator function as a method `stream`, or the same as an asynchronous one."""
    if not is_async:
        return lambda _, state, existing: body(state, existing)

    async def stream(self: Any, state: Any, existing: list[Any]) -> Any:
        generator = body(state, existing)
        try:
            for value in generator:
                await asyncio.sleep(0)
                yield value
        finally:
            generator.close()

    return stream


def nothing(state: Any, existing: list[Any]) -> Any:
    yield from ()


@every_way
@pytest.mark.parametrize("stream", [letters, letters_async])
def test_chunks_become_the_result_and_are_handed_over(rig: Rig, stream: Any, complete: Any) -> None:
    result = rig.run(streaming(stream, complete), state={"word": "abc"})
    assert isinstance(result, Succeeded)
    assert result.output == {"text": "abc"}
    assert result.chunks == ("a", "b", "c")
    assert rig.book.pages == {PAGE: ["a", "b", "c"]}


@every_way
@pytest.mark.parametrize("stream", [letters, letters_async])
def test_no_chunk_at_all_is_fine(rig: Rig, stream: Any, complete: Any) -> None:
    result = rig.run(streaming(stream, complete), state={"word": ""})
    assert (result.output, result.chunks) == ({"text": ""}, ())


def test_other_handlers_have_no_chunks(rig: Rig) -> None:
    assert rig.run(lambda _: None).chunks is None


@both
def test_each_chunk_is_kept_before_the_generator_goes_on(rig: Rig, is_async: bool) -> None:
    seen: list[list[Any]] = []

    def stream(state: Any, existing: list[Any]) -> Any:
        for number in range(3):
            seen.append(list(rig.book.pages.get(PAGE, ())))
            yield number
        seen.append(list(rig.book.pages[PAGE]))

    assert rig.run(streaming(of(is_async, stream))).chunks == (0, 1, 2)
    assert seen == [[], [0], [0, 1], [0, 1, 2]]


@both
def test_what_failed_on_the_way_goes_on_where_it_was(rig: Rig, is_async: bool) -> None:
    given: list[list[Any]] = []

    def stream(state: Any, existing: list[Any]) -> Any:
        given.append(list(existing))
        for number in range(len(existing), 4):
            yield {"number": number}
            if number == 1 and len(given) == 1:
                raise Retry(after=2)

    step = streaming(of(is_async, stream))
    failed = rig.run(step, job_id=7)
    assert isinstance(failed, Failed)
    assert failed.retry_after_us == 2_000_000
    assert rig.book.pages[PAGE] == [{"number": 0}, {"number": 1}]
    result = rig.run(step, job_id=7, attempt=2)
    assert given == [[], [{"number": 0}, {"number": 1}]]
    assert result.chunks == tuple({"number": number} for number in range(4))


@both
def test_chunks_are_private_whoever_changes_them(rig: Rig, is_async: bool) -> None:
    rig.book.pages[PAGE] = [{"n": [0]}]

    def stream(state: Any, existing: list[Any]) -> Any:
        existing[0]["n"].append("spoilt")
        existing.clear()
        state["items"].append("spoilt")
        mine = {"n": [1]}
        yield mine
        mine["n"].append("spoilt")
        yield mine

    def complete(self: Any, chunks: list[Any], state: Any) -> Any:
        assert state == {"items": []}
        found = [list(chunk["n"]) for chunk in chunks]
        chunks[0]["n"].append("spoilt")
        chunks.clear()
        return {"found": found}

    state: dict[str, Any] = {"items": []}
    result = rig.run(streaming(of(is_async, stream), complete), state=state)
    assert result.chunks == ({"n": [0]}, {"n": [1]}, {"n": [1, "spoilt"]})
    assert result.output == {"found": [[0], [1], [1, "spoilt"]]}
    assert state == {"items": []}


@both
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"at": [dt.date(2026, 1, 1)]}, r"chunks\[1\]\.at\[0\]: a date is not JSON"),
        (b"bytes", r"chunks\[1\]: a bytes is not JSON"),
        (float("nan"), r"chunks\[1\]: nan is not JSON"),
        ("\ud800", r"chunks\[1\]: half of a surrogate pair"),
        (object(), r"chunks\[1\]: an object is not JSON"),
    ],
    ids=["date", "bytes", "nan", "surrogate", "object"],
)
def test_a_chunk_that_is_not_json_fails_the_attempt(rig: Rig, is_async: bool, value: Any, message: str) -> None:
    closed = []

    def stream(state: Any, existing: list[Any]) -> Any:
        try:
            yield "first"
            yield value
            yield "never"
        finally:
            closed.append(True)

    result = rig.run(streaming(of(is_async, stream)))
    assert isinstance(result, Failed)
    assert result.error.type_name == "queuety.errors:PayloadError"
    assert re.match(message, result.error.message)
    assert rig.book.pages[PAGE] == ["first"]
    assert closed == [True]


@both
@pytest.mark.parametrize("value", [None, True, 0, -0.5, "", "\0", [], {}, {"a": [None]}, (1, 2)], ids=repr)
def test_every_json_value_is_a_chunk(rig: Rig, is_async: bool, value: Any) -> None:
    def stream(state: Any, existing: list[Any]) -> Any:
        yield value

    result = rig.run(streaming(of(is_async, stream)))
    expected = [1, 2] if value == (1, 2) else value
    assert result.chunks == (expected,)
    assert type(result.chunks[0]) is type(expected)


@both
def test_all_chunks_together_keep_to_the_limit(is_async: bool) -> None:
    with Rig(max_value_bytes=40) as rig:

        def stream(state: Any, existing: list[Any]) -> Any:
            while True:
                yield "12345678"

        for attempt in (1, 2):
            result = rig.run(streaming(of(is_async, stream)), attempt=attempt)
            assert isinstance(result, Failed)
            assert "all chunks of this step together are 45 bytes as JSON, more than the limit of 40 bytes" in (
                result.error.message
            )
            assert rig.book.pages[PAGE] == ["12345678"] * 3  # [...] of three are 34 bytes
        assert rig.run(streaming(of(is_async, nothing)), attempt=3).chunks == ("12345678",) * 3


def test_chunks_above_a_limit_that_was_lowered_say_so() -> None:
    with Rig(max_value_bytes=40) as rig:
        rig.book.pages[PAGE] = ["x" * 30, "y" * 30]
        result = rig.run(streaming(letters), state={"word": "ab"})
        assert "all chunks of this step together are 67 bytes" in result.error.message


class Vicious(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)

    def __str__(self) -> str:
        raise RuntimeError("no text")


@both
@pytest.mark.parametrize(
    "error",
    [
        Vicious(1, 2),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseExceptionGroup("several", [ValueError("x"), KeyboardInterrupt()]),
        StopIteration("leaked"),
        StopAsyncIteration("leaked"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("place", ["stream", "on_complete"])
def test_whatever_is_raised_is_a_failed_attempt(rig: Rig, is_async: bool, error: BaseException, place: str) -> None:
    def stream(state: Any, existing: list[Any]) -> Any:
        yield "kept"
        if place == "stream":
            raise error

    def complete(self: Any, chunks: list[Any], state: Any) -> Any:
        raise error

    async def complete_async(self: Any, chunks: list[Any], state: Any) -> Any:
        raise error

    for ending in (complete, complete_async):
        result = rig.run(streaming(of(is_async, stream), ending))
        assert isinstance(result, Failed)
        assert rig.book.pages.pop(PAGE) == ["kept"]
    assert rig.run(streaming(letters_async, joined_async), state={"word": "ab"}).chunks == ("a", "b")
    assert rig.executor.free == 4


@both
def test_give_up_on_holds_for_streams(rig: Rig, is_async: bool) -> None:
    def stream(state: Any, existing: list[Any]) -> Any:
        yield "a"
        raise Fail("no such model")

    assert rig.run(streaming(of(is_async, stream))).is_final
    options = Options(give_up_on=("builtins:ZeroDivisionError",))
    divides = streaming(of(is_async, nothing), lambda *_: 1 // 0)
    assert rig.run(divides, options=options).is_final


@both
def test_an_error_while_closing_hides_nothing(rig: Rig, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    def stream(state: Any, existing: list[Any]) -> Any:
        try:
            yield object()
        finally:
            raise Vicious(1, 2)

    with caplog.at_level(logging.WARNING, "queuety.worker"):
        result = rig.run(streaming(of(is_async, stream)))
    assert "chunks[0]: an object is not JSON" in result.error.message
    assert "closing the stream of app:Made" in caplog.text
    assert "Vicious" in caplog.text


@both
def test_an_error_at_the_end_of_a_stream_fails_the_attempt(rig: Rig, is_async: bool) -> None:
    def stream(state: Any, existing: list[Any]) -> Any:
        try:
            yield "a"
        finally:
            raise ValueError("cannot hang up")

    result = rig.run(streaming(of(is_async, stream)))
    assert result.error.message == "cannot hang up"


def stubborn(self: Any, state: Any, existing: list[Any]) -> Any:
    try:
        yield object()
    except GeneratorExit:
        yield "more"


async def stubborn_async(self: Any, state: Any, existing: list[Any]) -> Any:
    try:
        yield object()
    except GeneratorExit:
        yield "more"


@pytest.mark.parametrize("stream", [stubborn, stubborn_async])
def test_a_generator_that_does_not_close_holds_nobody_up(rig: Rig, stream: Any) -> None:
    assert "an object is not JSON" in rig.run(streaming(stream)).error.message
    assert rig.run(streaming(letters), state={"word": "a"}).chunks == ("a",)


def test_what_a_generator_returns_is_ignored(rig: Rig) -> None:
    def stream(self: Any, state: Any, existing: list[Any]) -> Any:
        yield "a"
        return {"not": "this"}

    assert rig.run(streaming(stream)).output == {"text": "a"}


# What is no generator


async def waits(*_: Any) -> None: ...


async def yields(*_: Any) -> Any:
    yield "a"


class Tokens:
    """An iterator as clients of models give it: it is closed when it is done with."""

    def __init__(self) -> None:
        self.left = ["a", "b"]
        self.is_closed = False

    def __iter__(self) -> Tokens:
        return self

    def __next__(self) -> str:
        if not self.left:
            raise StopIteration
        return self.left.pop(0)

    def close(self) -> None:
        self.is_closed = True


@every_way
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: ["a"], "stream returned a list; it must be a generator: yield each chunk"),
        (lambda: "text", "stream returned a str; it must be a generator"),
        (lambda: None, "stream returned a NoneType; it must be a generator"),
        (waits, "stream returned a coroutine; write it as `async def"),
        (yields, "stream returned a async_generator; write it as `async def"),
    ],
)
def test_what_cannot_be_iterated_is_refused(rig: Rig, complete: Any, made: Any, message: str) -> None:
    result = rig.run(streaming(lambda *_: made(), complete))
    assert isinstance(result, Failed)
    assert message in result.error.message


@every_way
def test_an_iterator_will_do_and_is_closed(rig: Rig, complete: Any) -> None:
    tokens = Tokens()
    result = rig.run(streaming(lambda *_: tokens, complete))
    assert result.chunks == ("a", "b")
    assert tokens.is_closed


@both
def test_a_result_that_is_none_is_refused_as_from_any_step(rig: Rig, is_async: bool) -> None:
    stream = letters_async if is_async else letters
    for complete, message in (
        (lambda *_: "text", "result must be a mapping"),
        (lambda *_: waits(), "which nobody runs"),
    ):
        result = rig.run(streaming(stream, complete), state={"word": "ab"})
        assert message in result.error.message
    assert rig.run(streaming(stream, lambda *_: None), state={"word": ""}).output == {}


@both
def test_a_stream_that_is_no_step_of_a_workflow_fails(rig: Rig, is_async: bool) -> None:
    stream = streaming(letters_async if is_async else letters)
    result = rig.run(stream, state={"word": "ab"}, role=Role.CLEANUP)
    assert "app:Made is a streaming step and runs only as a step" in result.error.message
    with Rig(chunks=None) as nowhere:
        assert "cannot be kept here" in nowhere.run(stream, state={"word": "ab"}).error.message


def test_branches_keep_their_chunks_apart(rig: Rig) -> None:
    step = streaming(letters)
    for branch, word in ((0, "ab"), (1, "cd")):
        assert rig.run(step, state={"word": word}, branch=branch).chunks == tuple(word)
    assert rig.book.pages == {(41, 5, 0): ["a", "b"], (41, 5, 1): ["c", "d"]}


# Losing the job


@every_way
@both
def test_a_refused_chunk_ends_the_attempt_without_a_trace(rig: Rig, is_async: bool, complete: Any) -> None:
    completed: list[Any] = []
    closed: list[bool] = []
    rig.book.loses_from = 2

    def stream(state: Any, existing: list[Any]) -> Any:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    async def never(self: Any, chunks: list[Any], state: Any) -> None:
        completed.append(chunks)

    ending = never if complete is joined_async else lambda *given: completed.append(given)
    with pytest.raises(LeaseLost, match="was given up"):
        rig.executor.run_here(rig.work(streaming(of(is_async, stream), ending)))
    assert rig.book.pages[PAGE] == [0, 1]
    assert (completed, closed) == ([], [True])
    assert not rig.has_report()
    assert rig.executor.running == []
    assert rig.executor.free == 4


@both
def test_an_attempt_that_was_cancelled_yields_no_more(rig: Rig, is_async: bool) -> None:
    begun, told, ended = threading.Event(), threading.Event(), threading.Event()

    def stream(state: Any, existing: list[Any]) -> Any:
        try:
            yield "a"
            begun.set()
            wait(told)
            assert current().cancelled
            yield "b"
        finally:
            ended.set()

    (work,) = rig.submit(streaming(lambda _, *given: stream(*given), joined_async if is_async else joined))
    wait(begun)
    rig.executor.cancel(work.job.id)
    told.set()
    wait(ended)
    assert rig.book.pages[PAGE] == ["a"]
    assert not rig.has_report()


def test_a_cancelled_async_generator_is_told_and_closed(rig: Rig) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def stream(self: Any, state: Any, existing: list[Any]) -> Any:
        try:
            yield "a"
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # it may take its time
            ended.set()

    (work,) = rig.submit(streaming(stream))
    wait(begun)
    rig.executor.cancel(work.job.id)
    wait(ended)
    assert rig.executor.running == []


# Time limits


def assert_timed_out(result: Any) -> None:
    assert isinstance(result, Failed)
    assert result.error.type_name == "queuety.errors:JobTimeout"


@every_way
def test_a_blocked_stream_fails_at_its_limit_and_keeps_its_chunks(rig: Rig, complete: Any) -> None:
    ended = threading.Event()

    def stream(self: Any, state: Any, existing: list[Any]) -> Any:
        try:
            yield "a"
            wait(rig.release)
            yield "too late"
        finally:
            ended.set()

    (work,) = rig.submit(streaming(stream, complete), timeout_s=0.03)
    assert_timed_out(rig.outcome())
    assert rig.next_stuck() == work.job
    rig.release.set()
    wait(ended)
    assert rig.book.pages[PAGE] == ["a"]


def test_an_async_stream_fails_at_its_limit_and_is_closed(rig: Rig) -> None:
    closed = threading.Event()

    async def stream(self: Any, state: Any, existing: list[Any]) -> Any:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            closed.set()

    rig.submit(streaming(stream), timeout_s=0.03)
    assert_timed_out(rig.outcome())
    wait(closed)
    assert rig.book.pages[PAGE] == ["a"]


@pytest.mark.parametrize("complete", [lambda *_: wait(HELD), joined_async], ids=["sync", "async"])
def test_the_end_of_an_async_stream_is_within_its_limit(rig: Rig, complete: Any) -> None:
    async def never_ends(self: Any, chunks: list[Any], state: Any) -> None:
        await asyncio.Event().wait()

    HELD.clear()
    ending = never_ends if complete is joined_async else complete
    (work,) = rig.submit(streaming(letters_async, ending), state={"word": "ab"}, timeout_s=0.03)
    assert_timed_out(rig.outcome())
    if ending is complete:
        assert rig.next_stuck() == work.job  # a thread that cannot be told: only the end of the process frees it
    HELD.set()


HELD = threading.Event()


# Threads and contexts


def test_writing_chunks_does_not_block_the_event_loop(rig: Rig) -> None:
    rig.book.gate = threading.Event()
    (work,) = rig.submit(streaming(letters_async, joined_async), state={"word": "ab"})
    assert rig.book.arrived.wait(PATIENCE_S)

    async def quick(state: Any) -> None: ...

    for _ in range(3):
        assert rig.run(quick).job.id != work.job.id  # the loop is free while the chunk is on its way
    rig.book.gate.set()
    assert rig.outcome().chunks == ("a", "b")
    assert all(name.startswith("queuety-aside") for name in rig.book.threads)


@every_way
@pytest.mark.parametrize("is_async", [False, True])
def test_current_is_known_everywhere_in_a_stream(rig: Rig, is_async: bool, complete: Any) -> None:
    seen: list[Any] = []

    def stream(state: Any, existing: list[Any]) -> Any:
        seen.append(current().idempotency_key)
        yield "a"
        current().heartbeat({"at": 1})

    async def end_async(self: Any, chunks: list[Any], state: Any) -> None:
        seen.append(current().idempotency_key)

    def end(self: Any, chunks: list[Any], state: Any) -> None:
        seen.append(current().idempotency_key)

    (work,) = rig.submit(streaming(of(is_async, stream), end_async if complete is joined_async else end))
    assert isinstance(rig.outcome(), Succeeded)
    assert seen == ["41-5", "41-5"]
    assert rig.beats == [(work.job, {"at": 1})]


def test_many_streams_at_once_keep_their_order() -> None:
    with Rig(concurrency=40) as rig:
        word = "".join(chr(ord("a") + number) for number in range(20))
        for branch in range(40):
            step = streaming(letters_async if branch % 2 else letters, joined_async if branch % 3 else joined)
            rig.submit(step, state={"word": word}, branch=branch)
        for _ in range(40):
            result = rig.outcome()
            assert isinstance(result, Succeeded)
            assert result.chunks == tuple(word)


def test_one_instance_streams_and_completes(rig: Rig) -> None:
    class Counting(StreamingStep):
        def __init__(self, start: int = 0) -> None:
            self.count = start

        def stream(self, state: Any, existing_chunks: list[Any]) -> Any:
            self.count += 1
            yield self.count

        def on_complete(self, chunks: list[Any], state: Any) -> Any:
            return {"count": self.count}

    assert rig.run(Counting, config={"start": 4}).output == {"count": 5}


@both
def test_a_store_that_fails_fails_the_attempt(rig: Rig, is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise ConnectionError("the database is gone")

    step = streaming(letters_async if is_async else letters)
    monkeypatch.setattr(rig.book, "append", breaks)
    assert rig.run(step, state={"word": "a"}).error.message == "the database is gone"
    monkeypatch.setattr(rig.book, "existing", breaks)
    assert rig.run(step, state={"word": "a"}).error.message == "the database is gone"

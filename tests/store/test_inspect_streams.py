"""Following what streaming steps yield: from the beginning, while it comes, and after it was settled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from queuety import Queuety, StreamingStep, step
from queuety.errors import DefinitionError, NotFoundError, WaitTimeout
from queuety.inspect.streams import Reader
from queuety.model import Json
from queuety.store.queries import streams
from tests.support.flowing import working

gate = threading.Event()
reached = threading.Event()
failing: list[str] = []


@pytest.fixture(autouse=True)
def closed_gate() -> Iterator[None]:
    gate.clear()
    reached.clear()
    failing.clear()
    yield
    gate.set()


class Letters(StreamingStep):
    """Yields a, waits at the gate, yields what else there is."""

    def stream(self, state: Any, existing_chunks: Any) -> Iterator[Json]:
        word = state.get("word", "abc")
        for letter in word[len(existing_chunks) :]:
            yield letter
            if letter == word[0]:
                reached.set()
                assert gate.wait(30)
            if failing and letter == failing[0]:
                failing.clear()
                raise ValueError("broken off")

    def on_complete(self, chunks: Any, state: Any) -> Any:
        return {"text": "".join(chunks), **state.get("more", {})}


class Numbers(StreamingStep):
    def stream(self, state: Any, existing_chunks: Any) -> Iterator[Json]:
        yield {"n": 1}
        yield [2, None]

    def on_complete(self, chunks: Any, state: Any) -> Any:
        return {"_queuety_trace": {"context": {"_chunks": ["no chunk"]}}}


@step
def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {}


def look(app: Queuety, reader: Reader) -> list[Json]:
    with app.door.reading() as connection:
        found = reader.read(connection, app.door.tables)
    assert found is not None
    return found


def test_chunks_are_read_while_they_come_and_none_twice(app: Queuety) -> None:
    run = app.workflow("w").then(Letters).then(plain).wait_for_signal("go").then(Numbers).dispatch()
    reader, late = Reader(run), Reader(run)
    assert look(app, reader) == []
    with working(app):
        assert reached.wait(30)
        assert look(app, reader) == ["a"]
        assert look(app, reader) == []
        gate.set()
    assert look(app, reader) == ["b", "c"]
    assert look(app, reader) == []
    assert look(app, late) == ["a", "b", "c"]
    app.signal(run, "go")
    app.run_until_idle()
    assert (look(app, reader), reader.has_ended) == ([{"n": 1}, [2, None]], True)
    assert (look(app, late), late.has_ended) == ([{"n": 1}, [2, None]], True)
    assert look(app, Reader(run)) == ["a", "b", "c", {"n": 1}, [2, None]]


def test_what_an_attempt_has_yielded_stays_given_when_it_fails(app: Queuety) -> None:
    gate.set()
    failing[:] = ["b"]
    run = app.workflow("w").then(Letters, max_attempts=1).dispatch()
    app.run_until_idle()
    reader = Reader(run)
    assert (look(app, reader), reader.has_ended) == (["a", "b"], True)
    app.retry_workflow(run)
    app.run_until_idle()
    assert look(app, reader) == ["c"]
    assert look(app, Reader(run)) == ["a", "b", "c"]


def test_a_step_that_was_settled_in_vain_is_not_read_twice(app: Queuety) -> None:
    """Its history row keeps all chunks, and so do their own rows, for the next attempt."""
    gate.set()
    run = app.workflow("w").then(Letters, max_attempts=1).dispatch({"more": {"_next_step": "nowhere"}})
    app.run_until_idle()
    found = app.workflow_status(run)
    assert found is not None
    assert found.status == "failed"
    reader = Reader(run)
    assert look(app, reader) == ["a", "b", "c"]
    assert look(app, reader) == []
    app.retry_workflow(run)
    app.run_until_idle()
    assert look(app, reader) == []


def test_branches_yield_side_by_side(app: Queuety) -> None:
    gate.set()
    run = app.workflow("w").parallel([Letters, Numbers, Letters]).then(Letters).dispatch()
    app.run_until_idle()
    assert look(app, Reader(run)) == [*"abc", {"n": 1}, [2, None], *"abc", *"abc"]


def test_rows_of_branches_are_read_as_far_as_each_has_come(app: Queuety) -> None:
    """Written by hand: three branches, one of them settled between two looks."""
    run = app.workflow("w").wait_for_signal("go").dispatch()
    tables = app.door.tables

    def keep(*rows: tuple[int, int, str]) -> None:
        values = [
            {"workflow_id": run, "visit": 1, "branch": branch, "number": number, "content": f'"{text}"', "at_us": 1}
            for branch, number, text in rows
        ]
        app.door.write(lambda tx: tx.connection.execute(tables.chunks.insert(), values))

    def settle(branch: int, texts: str) -> None:
        chunks, history, workflows = tables.chunks, tables.history, tables.workflows
        kept = {"run_id": run, "seq": 2, "entry": "branch", "at_us": 1, "token": 0, "step_index": 0, "visit": 1}
        row = {**kept, "branch": branch, "final": 0, "control": f'{{"_chunks":{texts}}}'}
        app.door.write(
            lambda tx: (
                tx.connection.execute(chunks.delete().where(chunks.c.branch == branch)),
                tx.connection.execute(history.insert(), row),
                tx.connection.execute(workflows.update().where(workflows.c.id == run).values(version=2)),
            )
        )

    reader = Reader(run)
    keep((0, 0, "0a"), (2, 0, "2a"))
    assert look(app, reader) == ["0a", "2a"]
    keep((0, 1, "0b"), (1, 0, "1a"))
    assert look(app, reader) == ["0b", "1a"]
    keep((2, 1, "2b"))
    settle(0, '["0a","0b","0c"]')
    assert look(app, reader) == ["0c", "2b"]
    assert look(app, reader) == []
    assert look(app, Reader(run)) == ["0a", "0b", "0c", "1a", "2a", "2b"]


def test_many_chunks_are_read_page_by_page(app: Queuety, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST", 4)
    gate.set()
    failing[:] = ["j"]
    run = app.workflow("w").then(Letters, max_attempts=1).dispatch({"word": "abcdefghij"})
    app.run_until_idle()
    assert list(app.workflow_stream(run)) == list("abcdefghij")


def test_a_look_reads_no_more_columns_than_it_needs(app: Queuety) -> None:
    gate.set()
    run = app.workflow("w").then(Letters).wait_for_signal("go").dispatch()
    app.run_until_idle()
    reader, asked = Reader(run), []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        asked.append(statement)

    event.listen(app.door.engine, "before_cursor_execute", note)
    try:
        assert look(app, reader) == ["a", "b", "c"]
        first, asked[:] = list(asked), []
        assert look(app, reader) == []
    finally:
        event.remove(app.door.engine, "before_cursor_execute", note)
    (history,) = [statement for statement in first if "FROM queuety_history" in statement]
    assert "changed" not in history
    assert not any("queuety_history" in statement for statement in asked), "nothing has happened since"


def test_a_stream_ends_with_the_run_and_waits_for_people(app: Queuety) -> None:
    run = app.workflow("w").then(Letters).wait_for_signal("go").then(Numbers).dispatch()
    found: list[Json] = []
    is_done = threading.Event()

    def follow() -> None:
        found.extend(app.workflow_stream(run))
        is_done.set()

    reader = threading.Thread(target=follow)
    reader.start()
    with working(app):
        gate.set()
        assert not is_done.wait(0.3)
        app.signal(run, "go")
        assert is_done.wait(30)
    reader.join()
    assert found == ["a", "b", "c", {"n": 1}, [2, None]]


def test_an_async_stream_gives_the_same(app: Queuety) -> None:
    gate.set()
    run = app.workflow("w").then(Letters).then(Numbers).dispatch()

    async def follow() -> list[Json]:
        return [chunk async for chunk in app.workflow_stream_async(run)]

    with working(app):
        assert asyncio.run(follow()) == ["a", "b", "c", {"n": 1}, [2, None]]


def test_an_async_stream_may_be_left(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go").dispatch()

    async def follow() -> None:
        async for _ in app.workflow_stream_async(run):
            raise AssertionError("nothing comes")

    async def leave() -> None:
        task = asyncio.create_task(follow())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())


def test_a_stream_gives_up_when_nothing_comes(app: Queuety) -> None:
    gate.set()
    run = app.workflow("w").then(Letters).wait_for_signal("go").dispatch()
    app.run_until_idle()
    stream = app.workflow_stream(run, timeout=0.02)
    assert [next(stream) for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(WaitTimeout, match=f"workflow {run} has yielded nothing for 0.02 s"):
        next(stream)


def test_a_stream_of_nobody_is_refused_at_once(app: Queuety) -> None:
    for id_ in (999_999, -1, 2**70):
        with pytest.raises(NotFoundError, match=f"no workflow has the id {id_}"):
            app.workflow_stream(id_)
    with pytest.raises(DefinitionError):
        app.workflow_stream("1")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError):
        app.workflow_stream(1, timeout=-1)

    async def follow() -> None:
        async for _ in app.workflow_stream_async(999_999):
            raise AssertionError("nothing comes")

    with pytest.raises(NotFoundError):
        asyncio.run(follow())

"""Artifacts: kept beside the state, written at once, given back as they were put."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from queuety import JobStatus, Queuety, Settings, WorkflowStatus, current, errors, job, step
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import PATIENCE_S, note, notes, status_of, until, working

State = dict[str, Any]

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
def nothing(state: State) -> None: ...


@step(max_attempts=2, backoff=[0])
def keeps(state: State) -> State:
    here = current()
    here.put_artifact("report", {"attempt": here.attempt}, metadata={"by": "Ada"})
    here.put_artifact(f"text {here.attempt}", "hello", kind="text")
    if here.attempt == 1:
        raise ValueError("after it was kept")
    return {"done": True}


@step
async def keeps_async(state: State) -> State:
    await current().put_artifact_async("picture", b"\x89PNG\x00\xff", kind="binary")
    return {}


@step
def keeps_item(state: State, item: Any, index: int) -> None:
    current().put_artifact(f"item {index}", item)


@step(max_attempts=1)
def fails(state: State) -> None:
    raise ValueError("no")


@step
def keeps_at_the_end(state: State) -> None:
    current().put_artifact("goodbye", current().step_index)


@step(backoff=[0])
def lags(state: State) -> State:
    if current().attempt == 1:
        note("told")
        assert let_go.wait(PATIENCE_S)
        try:
            current().put_artifact("late", 1)
        except errors.LeaseLost as lost:
            note(str(lost))
            note(current().cancelled)
    return {"attempt": current().attempt}


@step(backoff=[0])
async def lags_async(state: State) -> State:
    if current().attempt == 1:
        note("told")
        await asyncio.to_thread(let_go.wait, PATIENCE_S)
        try:
            await current().put_artifact_async("late", 1)
        except errors.LeaseLost as lost:
            note(str(lost))
            note(current().cancelled)
    return {"attempt": current().attempt}


@job
def not_of_a_workflow() -> None:
    with pytest.raises(errors.InvalidStateError, match="is of no workflow"):
        current().put_artifact("a", 1)
    note("refused")


def started(app: Queuety) -> int:
    return app.workflow("w").then(nothing).dispatch()


VALUES: list[tuple[Any, str]] = [
    ({"a": [1, None, {"b": "ü"}]}, "json"),
    ([], "json"),
    (5, "json"),
    (0.25, "json"),
    ("text", "json"),
    ("", "json"),
    (None, "json"),
    (False, "json"),
    ("text with 'quotes', \\ and 🐍\n", "text"),
    ("", "markdown"),
    (b"\x00\xff'\\", "binary"),
    (b"", "binary"),
    (b"PK\x03\x04", "application/zip"),
]


def test_every_value_is_given_back_as_it_was(app: Queuety, database: Database, clock: ManualClock) -> None:
    run = started(app)
    for number, (content, kind) in enumerate(VALUES):
        app.put_artifact(run, f"{number:02}", content, kind=kind)
    with Queuety(database.url, clock=clock) as elsewhere:
        found = elsewhere.workflow_artifacts(run, include_content=True)
        assert [(type(one.content), one.content, one.kind) for one in found] == [
            (type(content), content, kind) for content, kind in VALUES
        ]
        assert [elsewhere.workflow_artifact(run, one.key) for one in found] == found
        assert [one.content for one in elsewhere.workflow_artifacts(run)] == [None] * len(VALUES)
        assert [one.key for one in elsewhere.workflow_artifacts(run)] == [f"{n:02}" for n in range(len(VALUES))]


def test_bytes_come_in_any_shape_and_go_as_bytes(app: Queuety) -> None:
    run = started(app)
    for given in (bytearray(b"ab"), memoryview(b"xaby")[1:3]):
        app.put_artifact(run, "raw", given, kind="binary")
        found = app.workflow_artifact(run, "raw")
        assert found is not None
        assert (type(found.content), found.content) == (bytes, b"ab")


def test_what_is_put_under_the_same_key_replaces_all_but_the_moment_of_creation(
    app: Queuety, clock: ManualClock
) -> None:
    run = started(app)
    app.put_artifact(run, "report", {"v": 1}, step_index=0, metadata={"draft": True})
    clock.advance(minutes=1)
    app.put_artifact(run, "report", b"%PDF", kind="pdf")
    (found,) = app.workflow_artifacts(run, include_content=True)
    assert (found.content, found.kind, found.metadata, found.step_index) == (b"%PDF", "pdf", {}, None)
    assert found.created_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert found.updated_at == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    app.put_artifact(run, "report", "now text", kind="text", metadata={"final": [1]})
    (found,) = app.workflow_artifacts(run, include_content=True)
    assert (found.content, found.metadata) == ("now text", {"final": [1]})


def test_the_status_tells_of_them_and_they_are_listed_by_key(app: Queuety) -> None:
    run, other = started(app), started(app)
    for key in ("b", "a", "B", "ä", "a "):
        app.put_artifact(run, key, key)
    state = status_of(app, run)
    assert (state.artifact_count, state.artifact_keys) == (5, ("B", "a", "a ", "b", "ä"))
    assert [one.key for one in app.workflow_artifacts(run)] == list(state.artifact_keys)
    assert app.workflow_artifacts(other) == []
    assert status_of(app, run).state == {}


def test_one_can_be_deleted_and_once_more(app: Queuety) -> None:
    run = started(app)
    app.put_artifact(run, "a", 1)
    for _ in range(2):
        app.delete_workflow_artifact(run, "a")
        assert app.workflow_artifact(run, "a") is None


def test_what_a_failed_attempt_has_put_stays(app: Queuety) -> None:
    run = app.workflow("w").then(nothing).then(keeps).dispatch()
    app.run_until_idle()
    assert status_of(app, run).state == {"done": True}
    report, first, second = app.workflow_artifacts(run, include_content=True)
    assert (report.content, report.metadata, report.step_index) == ({"attempt": 2}, {"by": "Ada"}, 1)
    assert [(one.key, one.content, one.kind) for one in (first, second)] == [
        ("text 1", "hello", "text"),
        ("text 2", "hello", "text"),
    ]


def test_every_role_of_a_run_may_put_some(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .parallel([keeps_async, nothing])
        .for_each("items", keeps_item)
        .then(fails)
        .on_cancel(keeps_at_the_end)
        .dispatch({"items": ["x", "y"]})
    )
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    found = {one.key: (one.content, one.step_index) for one in app.workflow_artifacts(run, include_content=True)}
    assert found == {
        "picture": (b"\x89PNG\x00\xff", 0),
        "item 0": ("x", 1),
        "item 1": ("y", 1),
        "goodbye": (None, None),
    }


@pytest.mark.parametrize("handler", [lags, lags_async])
def test_who_has_lost_the_lease_puts_nothing(
    app: Queuety, database: Database, clock: ManualClock, handler: Any
) -> None:
    run = app.workflow("w").then(handler).dispatch()
    with working(app), Queuety(database.url, clock=clock) as elsewhere:
        until(lambda: "told" in notes)
        clock.advance(seconds=31)
        assert elsewhere.recover() == 1
        until(lambda: status_of(elsewhere, run).status is WorkflowStatus.COMPLETED)
        let_go.set()
        until(lambda: len(notes) == 3)
    assert "has lost its lease; artifact 'late' was not kept" in notes[1]
    assert notes[2] is True
    assert app.workflow_artifacts(run) == []
    assert status_of(app, run).state == {"attempt": 2}


def test_a_plain_job_has_no_run_to_put_them_to(memory: Queuety) -> None:
    given = memory.dispatch(not_of_a_workflow)
    memory.run_until_idle()
    state = memory.job_status(given)
    assert state is not None
    assert (state.status, notes) == (JobStatus.COMPLETED, ["refused"])


@pytest.mark.parametrize(
    ("key", "content", "more", "error", "said"),
    [
        ("  ", 1, {}, errors.DefinitionError, "key must not be empty"),
        (None, 1, {}, errors.DefinitionError, "key must be a string"),
        ("k", 1, {"kind": ""}, errors.DefinitionError, "kind must not be empty"),
        ("k", 1, {"step_index": -1}, errors.DefinitionError, "step_index=-1"),
        ("k", 1, {"step_index": 10_000}, errors.DefinitionError, "from 0 to 9999"),
        ("k", 1, {"step_index": 2**70}, errors.DefinitionError, "from 0 to 9999"),
        ("k", {"at": {1}}, {}, errors.PayloadError, "content.at: a set is not JSON"),
        ("k", b"x", {}, errors.PayloadError, 'content is bytes, which JSON cannot hold; give kind="binary"'),
        ("k", "x", {"kind": "binary"}, errors.PayloadError, "content is a str; of the kind 'binary' bytes are needed"),
        ("k", {}, {"kind": "text"}, errors.PayloadError, "of the kind 'text' text or bytes are needed"),
        ("k", "a\x00b", {"kind": "text"}, errors.PayloadError, "text holds no NUL"),
        ("k", "\ud800", {"kind": "text"}, errors.PayloadError, "half of a surrogate pair"),
        ("k", 1, {"metadata": [1]}, errors.PayloadError, "metadata must be a mapping"),
        ("k", "x" * 101, {}, errors.PayloadError, "more than the limit of 100 bytes"),
        ("k", "x" * 101, {"kind": "text"}, errors.PayloadError, "artifact 'k' with its metadata is 103 bytes"),
        ("k", b"x" * 101, {"kind": "binary"}, errors.PayloadError, "more than the limit of 100 bytes"),
        ("k", b"x" * 60, {"kind": "binary", "metadata": {"m": "y" * 60}}, errors.PayloadError, "with its metadata"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_leaves_nothing(
    clock: ManualClock, key: Any, content: Any, more: dict[str, Any], error: type[Exception], said: str
) -> None:
    with Queuety("sqlite:///:memory:", clock=clock, settings=Settings(max_value_bytes=100)) as app:
        run = started(app)
        with pytest.raises(error) as refused:
            app.put_artifact(run, key, content, **more)
        assert said in str(refused.value)
        assert app.workflow_artifacts(run) == []


def test_an_unknown_run_has_none(memory: Queuety) -> None:
    for unknown in (9, -1, 1 << 70):
        with pytest.raises(errors.NotFoundError, match=r"no workflow has the id .* was not kept"):
            memory.put_artifact(unknown, "a", 1)
        with pytest.raises(errors.NotFoundError, match="no workflow has the id"):
            memory.workflow_artifacts(unknown)
        with pytest.raises(errors.NotFoundError, match="no workflow has the id"):
            memory.delete_workflow_artifact(unknown, "a")
        assert memory.workflow_artifact(unknown, "a") is None
    with pytest.raises(errors.DefinitionError, match="the whole number"):
        memory.put_artifact("1", "a", 1)  # type: ignore[arg-type]


LARGEST = 8 * 1024 * 1024 - 1024
"""Bytes and quotes take twice as many in a statement to MariaDB, which takes 16 MiB in one piece."""


@pytest.mark.parametrize("content", [b"\x00" * LARGEST, '"' * LARGEST], ids=["bytes", "quotes"])
def test_the_largest_that_may_be_kept_is(app: Queuety, content: Any) -> None:
    run = started(app)
    app.put_artifact(run, "large", content, kind="some")
    found = app.workflow_artifact(run, "large")
    assert found is not None
    assert found.content == content


def test_the_verbs_have_their_async_forms(memory: Queuety) -> None:
    run = started(memory)

    async def scenario() -> None:
        await memory.put_artifact_async(run, "a", [1])
        assert [one.key for one in await memory.workflow_artifacts_async(run)] == ["a"]
        found = await memory.workflow_artifact_async(run, "a")
        assert found is not None
        assert found.content == [1]
        await memory.delete_workflow_artifact_async(run, "a")

    asyncio.run(scenario())
    assert memory.workflow_artifacts(run) == []

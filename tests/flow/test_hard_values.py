"""Values and errors that break other systems: each is stored as it was, or refused in words; nothing is left stuck."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from queuety import JobStatus, Queuety, WorkflowStatus, bind, errors, job, step
from queuety.model import ErrorKind
from tests.support.flowing import notes, status_of

State = dict[str, Any]

GOOD: dict[str, Any] = {
    "nul": "x\0y",
    "\0key": 1,
    "emoji": "😀🏳️‍🌈",
    "empty": "",
    "": "empty key",
    "quotes": "'\"`\\%s :name {} \n\r\t\x1f\x7f\u2028",
    "rtl": "\u202eabc",
    "minus zero": -0.0,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "exact": 0.1,
    "integer float": 1.0,
    "big": 2**63 - 1,
    "small": -(2**63),
    "true": True,
    "null": None,
    "nested": {"z": [[], {}, [1, "1", True, 1.0]], "a": {"b": {"c": None}}},
    "order": {"b": 1, "a": 2},
    "astral": "\U0010ffff",
}


class Color(Enum):
    RED = "red"


class Text(str):
    pass


LOOP: list[Any] = []
LOOP.append(LOOP)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "datetime": (lambda: {"items": [1, {"when": datetime(2026, 1, 1, tzinfo=UTC)}]}, "items[1].when"),
    "decimal": (lambda: {"price": Decimal("1.5")}, "price"),
    "uuid": (lambda: {"id": uuid.UUID(int=1)}, "id"),
    "bytes": (lambda: {"raw": b"x"}, "raw"),
    "set": (lambda: {"tags": {1}}, "tags"),
    "enum": (lambda: {"color": Color.RED}, "color"),
    "subclass": (lambda: {"text": Text("x")}, "text"),
    "object": (lambda: {"it": object()}, "it"),
    "class": (lambda: {"it": object}, "it"),
    "generator": (lambda: {"it": (n for n in range(3))}, "it"),
    "nan": (lambda: {"x": math.nan}, "x"),
    "infinity": (lambda: {"x": [-math.inf]}, "x[0]"),
    "surrogate": (lambda: {"x": "a\ud800"}, "x"),
    "surrogate key": (lambda: {"\udfff": 1}, "key"),
    "int key": (lambda: {"x": {1: 2}}, "x"),
    "tuple key": (lambda: {("a",): 2}, "key"),
    "too large": (lambda: {"x": 2**63}, "x"),
    "too small": (lambda: {"x": -(2**63) - 1}, "x"),
    "circle": (lambda: {"x": LOOP}, "x"),
    "deep": (lambda: {"x": deep(200)}, "x"),
    "9 MiB": (lambda: {"x": "y" * (9 * 1024 * 1024)}, "bytes"),
    "a list": (lambda: [1], "mapping"),
    "text": (lambda: "text", "mapping"),
    "a number": (lambda: 3, "mapping"),
}


class RaisingStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class TwoArguments(Exception):
    def __init__(self, one: int, other: int) -> None:
        self.one, self.other = one, other


class LyingStr(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]  # noqa: PLE0307


def circular() -> Exception:
    error = ValueError("round and round")
    cause = ValueError("the other one")
    error.__cause__, cause.__cause__ = cause, error
    return error


RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "raising __str__": (RaisingStr, "RaisingStr"),
    "no text": (lambda: ValueError(""), "ValueError"),
    "two arguments": (lambda: TwoArguments(1, 2), ""),
    "lying __str__": (LyingStr, "LyingStr"),
    "nul": (lambda: ValueError("a\0b"), "a\ufffdb"),
    "surrogate": (lambda: ValueError("a\ud800b"), "a\ufffdb"),
    "emoji": (lambda: ValueError("😀"), "😀"),
    "10 MB": (lambda: ValueError("x" * 10_000_000), "left out"),
    "10 MB of emoji": (lambda: ValueError("😀" * 2_500_000), "left out"),
    "group": (lambda: ExceptionGroup("several", [ValueError("one"), TypeError("two")]), "several (2 sub-exceptions)"),
    "circle of causes": (circular, "round and round"),
    "system exit": (lambda: SystemExit(3), "sys.exit(3)"),
    "interrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "generator exit": (GeneratorExit, "GeneratorExit"),
    "stop iteration": (lambda: StopIteration(1), ""),
    "base exception": (lambda: BaseException("bare"), "bare"),
    "markup": (lambda: ValueError("<img src=x onerror=alert(1)> %s {x}"), "<img src=x onerror=alert(1)> %s {x}"),
}


@step
def gives_all_back(state: State) -> State:
    assert list(state) == list(GOOD)
    return {"again": state, "tuple": (1, (2, [3]))}


@step(max_attempts=1)
def returns(state: State, *, which: str) -> Any:
    return BAD[which][0]()


@step(max_attempts=1)
def raises(state: State, *, which: str) -> None:
    raise RAISED[which][0]()


@step(max_attempts=1)
async def raises_awaited(state: State, *, which: str) -> None:
    raise RAISED[which][0]()


@job(max_attempts=1)
def job_raises(which: str) -> None:
    raise RAISED[which][0]()


@step
def adds_megabytes(state: State) -> State:
    return {f"part {len(state)}": "é" * (3 * 1024 * 1024)}


@step
def fine(state: State) -> State:
    return {"fine": True}


def same(one: Any, other: Any) -> bool:
    """Equal, of the same types, in the same order; minus zero is not zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def test_what_json_holds_comes_back_as_it_was_on_every_database(app: Queuety) -> None:
    run = app.workflow("w").then(gives_all_back).then(fine).dispatch(GOOD)
    assert same(status_of(app, run).state, GOOD)
    app.run_until_idle()
    done = status_of(app, run)
    assert done.status is WorkflowStatus.COMPLETED, done.error_message
    assert same(done.state, {**GOOD, "again": GOOD, "tuple": [1, [2, [3]]], "fine": True})
    assert same(app.workflow_timeline(run)[1].output, {"again": GOOD, "tuple": [1, [2, [3]]]})


def test_a_result_that_is_no_json_fails_its_step_and_names_the_path(app: Queuety) -> None:
    runs = {which: app.workflow("w").then(bind(returns, which=which)).dispatch({"kept": 1}) for which in BAD}
    innocent = app.workflow("w").then(fine).dispatch()
    assert app.run_until_idle() == len(BAD) + 1
    for which, run in runs.items():
        failed = status_of(app, run)
        assert (failed.status, failed.error_kind, failed.failed_step) == (
            WorkflowStatus.FAILED,
            ErrorKind.STEP_FAILED,
            0,
        ), which
        assert BAD[which][1] in (failed.error_message or ""), (which, failed.error_message)
        assert failed.state == {"kept": 1}
        assert app.list_jobs(workflow_id=run)[0].status is JobStatus.BURIED
    assert "isoformat()" in (status_of(app, runs["datetime"]).error_message or "")
    assert status_of(app, innocent).status is WorkflowStatus.COMPLETED


@pytest.mark.parametrize("which", BAD)
def test_a_payload_that_is_no_json_is_refused_and_nothing_is_written(memory: Queuety, which: str) -> None:
    for dispatch in (
        lambda payload: memory.workflow("w").then(fine).dispatch(payload),
        lambda payload: memory.dispatch(job_raises, payload),
        lambda payload: memory.dispatch_many(memory.workflow("w").then(fine), [{}, payload]),
    ):
        with pytest.raises(errors.PayloadError) as refusal:
            dispatch(BAD[which][0]())
        assert BAD[which][1] in str(refusal.value)
        assert len(str(refusal.value)) < 1000
        assert isinstance(refusal.value, ValueError)
    assert (memory.list_workflows(), memory.list_jobs()) == ([], [])


@pytest.mark.parametrize("key", ["_next_step", "_", "__x"])
def test_a_payload_may_not_hold_reserved_keys(memory: Queuety, key: str) -> None:
    with pytest.raises(errors.PayloadError, match=key):
        memory.workflow("w").then(fine).dispatch({"a": 1, key: 2})


def test_whatever_a_handler_raises_is_told_in_bounded_text_and_takes_nobody_along(app: Queuety) -> None:
    runs = {
        (which, handler): app.workflow("w").then(bind(handler, which=which)).dispatch()
        for which in RAISED
        for handler in (raises, raises_awaited)
    }
    jobs = {which: app.dispatch(job_raises, {"which": which}) for which in RAISED}
    innocent = app.workflow("w").then(fine).dispatch()
    assert app.run_until_idle() == 3 * len(RAISED) + 1
    for (which, handler), run in runs.items():
        failed = status_of(app, run)
        assert failed.status is WorkflowStatus.FAILED, which
        if not (handler is raises_awaited and which == "stop iteration"):
            assert RAISED[which][1] in (failed.error_message or ""), which
        assert len((failed.error_message or "").encode()) <= 8 * 1024
        (_, end) = app.workflow_timeline(run)
        assert end.error is not None
        assert len((end.error["trace"] or "").encode()) <= 32 * 1024
    for which, job_id in jobs.items():
        state = app.job_status(job_id)
        assert state is not None
        assert state.status is JobStatus.BURIED
        assert RAISED[which][1] in (state.error_message or "")
    assert status_of(app, innocent).status is WorkflowStatus.COMPLETED
    assert notes == []


def test_a_run_whose_state_grows_beyond_its_limit_fails_in_words_and_can_be_seen_and_cancelled(app: Queuety) -> None:
    """On MySQL the state would not fit into one packet; the limit is the same everywhere."""
    builder = app.workflow("w").max_attempts(1)
    for _ in range(4):
        builder.then(adds_megabytes)
    run = builder.delay(days=1).dispatch()
    app.run_until_idle()
    grown = status_of(app, run)
    assert (grown.status, grown.error_kind) == (WorkflowStatus.FAILED, ErrorKind.STEP_FAILED)
    assert "state with this result" in (grown.error_message or "")
    assert app.list_workflows()[0] == grown
    app.cancel_workflow(run)
    assert status_of(app, run).status is WorkflowStatus.CANCELLED
    assert status_of(app, run).state == grown.state

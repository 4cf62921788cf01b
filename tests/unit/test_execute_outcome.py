"""What every return and every raise of a handler becomes."""

from __future__ import annotations

import asyncio
import warnings
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from queuety.define.call import prepare
from queuety.errors import Fail, JobTimeout, Retry
from queuety.model import ErrorKind, Failed, Options, Role, Span, Succeeded
from queuety.worker import outcome
from queuety.worker.outcome import Unhandled, Work
from tests.support.executing import claimed, handler_made_of

SPAN = Span(1, 2, 9)


@dataclass
class Point:
    x: int
    at: datetime


def work(role: Role = Role.STEP, **options: object) -> Work:
    return Work(job=claimed(role=role), options=Options(**options), timeout_s=2.5)  # type: ignore[arg-type]


def returned(value: object, role: Role = Role.STEP, max_bytes: int = 1000) -> outcome.Outcome:
    plan = prepare(handler_made_of(print, "app:step", job=role is Role.JOB))
    return outcome.returned(work(role), plan, value, SPAN, max_bytes=max_bytes)


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, {}),
        ({}, {}),
        ({"a": (1, 2), "_next_step": "b"}, {"a": [1, 2], "_next_step": "b"}),
        (OrderedDict(z=1, a=None), {"z": 1, "a": None}),
        (Point(1, datetime(2024, 1, 1, tzinfo=UTC)), {"x": 1, "at": "2024-01-01T00:00:00Z"}),
    ],
)
def test_a_mapping_or_none_is_the_output_of_a_step(value: object, output: object) -> None:
    assert returned(value) == Succeeded(claimed(), output, SPAN)  # type: ignore[arg-type]


def test_the_output_is_a_copy_of_what_the_handler_keeps() -> None:
    kept = {"items": [1]}
    result = returned(kept)
    kept["items"].append(2)
    assert isinstance(result, Succeeded)
    assert result.output == {"items": [1]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1], "not a list"),
        ("text", "not a str"),
        (5, "not an int"),
        ({"items": [{"when": datetime(2024, 1, 1, tzinfo=UTC)}]}, "result.items[0].when: a datetime"),
        ({"raw": b"x"}, "result.raw: a bytes"),
        ({"n": float("nan")}, "result.n: nan"),
        ({"s": "\ud800"}, "result.s"),
        ({1: 2}, "keys must be str"),
        ({"big": "x" * 2000}, "more than the limit of 1,000"),
        ({"_chunks": "abc"}, "result._chunks must be a list, not of type str"),
        ({"_chunks": {"0": 1}}, "result._chunks must be a list, not of type dict"),
        ({"_chunks": None}, "result._chunks must be a list, not of type NoneType"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_a_failed_attempt_that_says_why(value: object, words: str) -> None:
    result = returned(value)
    assert isinstance(result, Failed)
    assert words in result.error.message
    assert result.error.kind is ErrorKind.STEP_FAILED
    assert result.error.type_name == "queuety.errors:PayloadError"
    assert not result.is_final


class Trap(dict):  # type: ignore[type-arg]
    def keys(self):  # type: ignore[no-untyped-def]
        raise SystemExit(1)

    __iter__ = keys


def test_a_mapping_that_raises_when_it_is_read_is_a_failed_attempt() -> None:
    result = returned(Trap(a=1))
    assert isinstance(result, Failed)
    assert result.error.type_name == "builtins:SystemExit"


@pytest.mark.parametrize("role", [Role.JOB, Role.CLEANUP])
@pytest.mark.parametrize("value", ["text", {"a": 1}, {"a": datetime(2024, 1, 1, tzinfo=UTC)}, 5])
def test_what_jobs_and_cleanup_handlers_return_is_ignored(role: Role, value: object) -> None:
    assert returned(value, role) == Succeeded(claimed(role=role), {}, SPAN)


@pytest.mark.parametrize("role", list(Role))
def test_a_coroutine_that_nobody_awaits_is_a_failed_attempt(role: Role) -> None:
    async def forgotten() -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = returned(forgotten(), role)
    assert isinstance(result, Failed)
    assert "coroutine" in result.error.message
    assert "async def" in result.error.message


@pytest.mark.parametrize("role", list(Role))
def test_a_generator_that_nobody_runs_is_a_failed_attempt(role: Role) -> None:
    result = returned((n for n in [1]), role)
    assert isinstance(result, Failed)
    assert "generator" in result.error.message


def raised(exc: BaseException, **options: object) -> Failed:
    return outcome.raised(work(**options), exc, SPAN)


def test_an_exception_is_told_with_its_type_and_text() -> None:
    try:
        raise KeyError("user")
    except KeyError as exc:
        result = raised(exc)
    assert result.job == claimed()
    assert result.span == SPAN
    assert (result.error.message, result.error.type_name) == ("KeyError: 'user'", "builtins:KeyError")
    assert "test_an_exception_is_told" in str(result.error.traceback)
    assert not result.is_final
    assert result.retry_after_us is None


def test_the_jitter_is_drawn_for_every_failure() -> None:
    shaky = replace(work(), jitter=0.1)
    drawn = {outcome.raised(shaky, ValueError(), SPAN).jitter for _ in range(20)}
    assert len(drawn) > 1
    assert all(0 <= jitter <= 0.1 for jitter in drawn)
    assert outcome.raised(work(), ValueError(), SPAN).jitter == 0


@pytest.mark.parametrize(
    ("after", "wanted_us"),
    [(0, 0), (1.5, 1_500_000), (float("inf"), 3_155_760_000_000_000), (1e300, 3_155_760_000_000_000)],
)
def test_retry_names_its_own_time(after: float, wanted_us: int) -> None:
    result = raised(Retry(after=after))
    assert result.retry_after_us == wanted_us
    assert not result.is_final


def test_a_spoilt_retry_is_still_a_failed_attempt() -> None:
    spoilt = Retry(after=1)
    spoilt.after = "soon"  # type: ignore[assignment]
    assert not raised(spoilt).is_final


class Broken(ValueError): ...


VALUE, LOOKUP, OURS = ("builtins:ValueError",), ("builtins:LookupError",), (f"{__name__}:Broken",)


@pytest.mark.parametrize(
    ("exc", "options", "is_final"),
    [
        (Fail("why"), {}, True),
        (Fail("why"), {"retry_on": ("queuety.errors:Fail",)}, True),
        (Broken(), {"retry_on": VALUE}, False),
        (Broken(), {"retry_on": OURS}, False),
        (ValueError(), {"retry_on": OURS}, True),
        (KeyError(), {"retry_on": VALUE}, True),
        (KeyError(), {"retry_on": ()}, True),
        (KeyError(), {"give_up_on": LOOKUP}, True),
        (Broken(), {"give_up_on": LOOKUP}, False),
        (Broken(), {"retry_on": VALUE, "give_up_on": OURS}, True),
        (Retry(), {"retry_on": VALUE}, False),
        (Retry(), {"give_up_on": ("queuety.errors:Retry",)}, False),
        (JobTimeout(), {"give_up_on": ("queuety.errors:JobTimeout",)}, True),
    ],
)
def test_which_exceptions_end_the_job(exc: Exception, options: dict[str, object], is_final: bool) -> None:
    assert raised(exc, **options).is_final is is_final


@pytest.mark.parametrize(
    "exc", [KeyboardInterrupt(), GeneratorExit(), SystemExit("bye"), asyncio.CancelledError(), RecursionError()]
)
def test_even_what_is_no_exception_is_a_failed_attempt(exc: BaseException) -> None:
    result = raised(exc)
    assert result.error.message
    assert not result.is_final


def test_a_failure_that_cannot_be_read_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("queuety.worker.faults.error_info", exhausted)
    assert raised(ValueError("x")).error.message == "the handler failed, and its error could not be read"


def test_a_time_limit_names_the_handler_and_the_limit() -> None:
    result = outcome.timed_out(work(), SPAN)
    assert result.error.message == "app:step ran longer than its time limit of 2.5 s"
    assert result.error.type_name == "queuety.errors:JobTimeout"


def test_a_result_that_the_database_refuses_becomes_a_failure_that_it_takes() -> None:
    result = outcome.broken(Succeeded(claimed(), {}, SPAN), ValueError("too \x00 odd"), now_us=9)
    assert result.error.message == "its result could not be stored: too \ufffd odd"
    assert result.span == SPAN
    assert outcome.broken(Unhandled(claimed(), "?"), ValueError("x"), now_us=9).span == Span(9, 9, 0)

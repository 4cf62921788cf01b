"""Errors as text: whatever was raised, it can be stored, and telling of it never raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.worker import faults


def caught(function, *arguments) -> BaseException:
    try:
        function(*arguments)
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def throw(exc: BaseException) -> None:
    raise exc


@given(
    st.text(alphabet=st.characters() | st.sampled_from(["\x00", "\ud800", "\udfff", "é", "🙂"]), max_size=400),
    st.integers(min_value=80, max_value=300),
)
def test_any_text_becomes_one_that_every_database_stores(text: str, limit: int) -> None:
    stored = faults.storable(text, max_bytes=limit)
    assert len(stored.encode()) <= limit
    assert "\x00" not in stored
    if text.isascii() and "\x00" not in text and len(text) <= limit:
        assert stored == text


def test_a_ten_megabyte_message_keeps_its_head_and_its_tail() -> None:
    message = faults.message_of(ValueError("HEAD" + "x" * 10_000_000 + "TAIL"))
    assert message.startswith("HEADxxx")
    assert message.endswith("xxxTAIL")
    assert "characters left out" in message
    assert len(message.encode()) <= faults.MESSAGE_BYTES


def test_the_limit_is_in_bytes() -> None:
    text = faults.storable("🙂" * 10_000, max_bytes=1_000)
    assert 900 < len(text.encode()) <= 1_000


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        raise SystemExit(3)


class NoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class SlyText(str):
    def strip(self, *_: object) -> str:
        raise RuntimeError("sly")


class Sly(Exception):
    def __str__(self) -> str:
        return SlyText("sly text")


class TwoArguments(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


@pytest.mark.parametrize(
    ("exc", "message"),
    [
        (ValueError("plain"), "plain"),
        (ValueError("a\x00b\ud800c"), "a\ufffdb\ufffdc"),
        (ValueError(), "ValueError"),
        (ValueError("  "), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "the handler called sys.exit(3)"),
        (SystemExit(Hostile()), "the handler called sys.exit("),
        (Hostile(), "whose text cannot be made"),
        (NoText("x"), "NoText('x')"),
        (Sly(), "sly text"),
        (TwoArguments(1, 2), "(1, 2)"),
        (ExceptionGroup("several", [ValueError("a"), TypeError("b")]), "several (2 sub-exceptions)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_the_message_of_anything_that_is_raised(exc: BaseException, message: str) -> None:
    found = faults.message_of(exc)
    assert type(found) is str
    assert message in found


def test_names_are_module_and_qualname() -> None:
    assert faults.type_name(Hostile) == f"{__name__}:Hostile"
    assert faults.type_name(KeyError) == "builtins:KeyError"


class NamelessMeta(type):
    def __getattribute__(cls, name: str) -> object:
        if name == "__qualname__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=NamelessMeta):
    pass


@pytest.mark.parametrize("exc", [Hostile(), NoText(), Nameless("x"), MemoryError(), StopIteration(4)])
def test_hostile_exceptions_have_a_whole_error_info(exc: BaseException) -> None:
    info = faults.error_info(caught(throw, exc))
    assert info.message
    assert info.type_name
    assert info.traceback is not None
    assert "in throw" in info.traceback


def test_a_recursive_cause_is_rendered() -> None:
    exc = ValueError("one")
    exc.__cause__ = TypeError("two")
    exc.__cause__.__cause__ = exc
    text = faults.traceback_of(caught(throw, exc))
    assert text is not None
    assert "ValueError: one" in text
    assert "TypeError: two" in text


def test_a_long_chain_and_a_wide_group_are_cut() -> None:
    last = ValueError("last")
    link = last
    for number in range(5_000):
        link.__cause__ = TypeError(str(number))
        link = link.__cause__
    wide = ExceptionGroup("wide", [ExceptionGroup(f"g{n}", [ValueError("v")] * 1_000) for n in range(1_000)])
    for exc, tail in ((last, "ValueError: last"), (wide, "wide (1000 sub-exceptions)")):
        text = faults.traceback_of(caught(throw, exc))
        assert text is not None
        assert "in throw" in text
        assert tail in text
        assert len(text.encode()) <= faults.TRACEBACK_BYTES


def test_a_stack_overflow_keeps_the_innermost_frames() -> None:
    def dive(depth: int) -> int:
        return dive(depth + 1) + 1

    text = faults.traceback_of(caught(dive, 0))
    assert text is not None
    assert "RecursionError" in text
    assert len(text.encode()) <= faults.TRACEBACK_BYTES


def test_huge_messages_do_not_push_the_end_out_of_the_traceback() -> None:
    exc = ValueError("end of it")
    exc.__cause__ = TypeError("y" * 1_000_000)
    text = faults.traceback_of(caught(throw, exc))
    assert text is not None
    assert text.rstrip().endswith("ValueError: end of it")
    assert len(text.encode()) <= faults.TRACEBACK_BYTES

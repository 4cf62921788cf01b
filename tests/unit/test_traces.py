"""What handlers note for the history: merged over calls, checked, bounded, and with the outcome of every attempt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from queuety import StreamingStep, current
from queuety.errors import PayloadError, Retry
from queuety.model import Failed, Role, Succeeded, Use
from queuety.worker.traces import KEY
from tests.support.executing import Rig, wait


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def tells(state: Any, *more: Any) -> Any:
    current().trace(input={"a": 1}, context={"user": "Ada"})
    current().trace(input={"b": [2]}, output={"tokens": 9}, context={"user": "Zoë"})
    return {"said": True}


async def tells_async(state: Any, *more: Any) -> Any:
    await asyncio.to_thread(current().trace, input={"a": 1}, context={"user": "Ada"})
    current().trace(input={"b": [2]}, output={"tokens": 9}, context={"user": "Zoë"})
    return {"said": True}


WHOLE = {"input": {"a": 1, "b": [2]}, "output": {"tokens": 9}, "context": {"user": "Zoë"}}
both = pytest.mark.parametrize("handler", [tells, tells_async])


@both
def test_several_calls_are_merged_and_go_with_the_result(rig: Rig, handler: Any) -> None:
    assert rig.run(handler).output == {"said": True, KEY: WHOLE}


@both
@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"role": Role.JOB, "payload": {"state": 1}}, {}),
        ({"role": Role.CLEANUP, "use": Use.CLEANUP}, {}),
        ({"use": Use.CONDITION}, {"_matched": True}),
        ({"use": Use.ITEM, "arguments": ("x", 0), "branch": 0}, {"said": True}),
        ({"use": Use.REDUCER, "arguments": ({},)}, {"said": True}),
    ],
    ids=["job", "cleanup", "condition", "item", "reducer"],
)
def test_whatever_a_handler_is_called_as_it_may_trace(
    rig: Rig, handler: Any, changes: dict[str, Any], output: dict[str, Any]
) -> None:
    assert rig.run(handler, **changes).output == {**output, KEY: WHOLE}


class Streams(StreamingStep):
    def stream(self, state: Any, existing_chunks: list[Any]) -> Iterator[Any]:
        current().trace(input={"prompt": "say"})
        yield "a"

    def on_complete(self, chunks: list[Any], state: Any) -> Any:
        current().trace(output={"chunks": len(chunks)})
        return {"text": "a"}


def test_a_stream_traces_in_both_of_its_methods(rig: Rig) -> None:
    assert rig.run(Streams).output == {"text": "a", KEY: {"input": {"prompt": "say"}, "output": {"chunks": 1}}}


def test_what_failed_tells_what_it_had_noted(rig: Rig) -> None:
    def fails(state: Any) -> None:
        current().trace(input={"a": 1})
        raise Retry(after=3)

    def returns_no_mapping(state: Any) -> Any:
        current().trace(input={"a": 1})
        return 5

    for handler in (fails, returns_no_mapping):
        result = rig.run(handler)
        assert isinstance(result, Failed)
        assert result.trace == {"input": {"a": 1}}
    assert rig.run(lambda _: 1 / 0).trace is None


def test_what_ran_out_of_time_tells_what_it_had_noted(rig: Rig) -> None:
    def hangs(state: Any) -> None:
        current().trace(context={"at": "the door"})
        wait(rig.release)

    async def hangs_async(state: Any) -> None:
        current().trace(context={"at": "the door"})
        await asyncio.Event().wait()

    for handler in (hangs, hangs_async):
        result = rig.run(handler, timeout_s=0.02)
        assert isinstance(result, Failed)
        assert (result.error.type_name, result.trace) == ("queuety.errors:JobTimeout", {"context": {"at": "the door"}})


def test_an_attempt_knows_nothing_of_the_one_before(rig: Rig) -> None:
    rig.run(tells, job_id=5, attempt=1)
    assert rig.run(lambda _: {"a": 1}, job_id=5, attempt=2).output == {"a": 1}


def test_it_is_a_copy_of_the_moment(rig: Rig) -> None:
    def changes(state: Any) -> None:
        noted = {"items": [1]}
        current().trace(input=noted)
        noted["items"].append(2)

    assert rig.run(changes).output[KEY] == {"input": {"items": [1]}}


def test_threads_of_a_handler_lose_nothing_of_each_other(rig: Rig) -> None:
    async def many(state: Any) -> None:
        begun = threading.Barrier(4)

        def one(number: int) -> None:
            begun.wait(20)
            current().trace(context={str(number): number})

        await asyncio.gather(*(asyncio.to_thread(one, number) for number in range(4)))

    for _ in range(20):
        assert rig.run(many).output == {KEY: {"context": {str(number): number for number in range(4)}}}


@dataclass
class Model:
    name: str


def test_objects_of_typed_classes_give_their_json(rig: Rig) -> None:
    def notes(state: Any) -> None:
        current().trace(input=Model("x"))  # type: ignore[arg-type]

    assert rig.run(notes).output == {KEY: {"input": {"name": "x"}}}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"input": 5}, "trace.input must be a mapping with string keys, not an int"),
        ({"output": {"at": {1}}}, "trace.output.at: a set is not JSON"),
        ({"context": {"s": "\ud800"}}, "trace.context.s: half of a surrogate pair"),
        ({"input": {"fine": 1}, "context": {1: 2}}, "trace.context: the key 1"),
    ],
)
def test_what_is_no_mapping_of_json_is_refused_at_the_call(rig: Rig, parts: dict[str, Any], said: str) -> None:
    def notes(state: Any) -> Any:
        current().trace(context={"before": 1})
        with pytest.raises(PayloadError) as refused:
            current().trace(**parts)
        return {"said": str(refused.value)}

    output = rig.run(notes).output
    assert output["said"].startswith(said)
    assert output[KEY] == {"context": {"before": 1}}, "nothing of the refused call was noted"


def test_it_is_bounded_over_all_calls() -> None:
    def notes(state: Any) -> Any:
        for _ in range(5):
            current().trace(context={"same": "x" * 60})  # replaces itself: never more than the limit
        with pytest.raises(PayloadError, match=r"all that this attempt has traced is \d+ bytes .*put_artifact"):
            current().trace(context={"other": "x" * 60})
        return {}

    with Rig(max_value_bytes=110) as rig:
        assert rig.run(notes).output == {KEY: {"context": {"same": "x" * 60}}}


def test_the_result_and_its_trace_fit_together_into_what_a_value_may_take() -> None:
    def notes(state: Any) -> Any:
        current().trace(context={"a": "x" * 60})
        return {"b": "x" * 60}

    with Rig(max_value_bytes=110) as rig:
        result = rig.run(notes)
        assert isinstance(result, Failed)
        assert "the result with what was traced is" in result.error.message
        assert result.trace == {"context": {"a": "x" * 60}}


def test_a_trace_may_be_returned(rig: Rig) -> None:
    def returns(state: Any) -> Any:
        current().trace(input={"a": 1, "b": 1})
        returned = {"input": {"b": 2}, "artifacts": ["report"], "chunks": {"0": "…"}, "output": None, "context": {}}
        return {"said": True, KEY: returned}

    whole = {"input": {"a": 1, "b": 2}, "artifacts": ["report"], "chunks": {"0": "…"}}
    assert rig.run(returns).output == {"said": True, KEY: whole}


@pytest.mark.parametrize("changes", [{"role": Role.JOB, "payload": {}}, {"role": Role.CLEANUP, "use": Use.CLEANUP}])
def test_it_may_be_returned_where_the_result_is_ignored(rig: Rig, changes: dict[str, Any]) -> None:
    def returns(*state: Any) -> Any:
        return {"ignored": {1}, KEY: {"output": {"a": 1}}}

    assert rig.run(returns, **changes).output == {KEY: {"output": {"a": 1}}}


@pytest.mark.parametrize("empty", [None, {}, {"input": {}}, {"artifacts": []}])
def test_an_empty_trace_is_none(rig: Rig, empty: Any) -> None:
    def returns(state: Any) -> Any:
        current().trace()
        current().trace(input={})
        return {"a": 1, KEY: empty}

    assert rig.run(returns).output == {"a": 1}


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (
            [],
            "result._queuety_trace must be a mapping with the keys input, output, context, artifacts, chunks, not",
        ),
        ({"inputs": {}}, "result._queuety_trace has the key 'inputs'; it may have input, output, context"),
        ({"input": [1]}, "result._queuety_trace.input must be a mapping, not of type list"),
        ({"chunks": "abc"}, "result._queuety_trace.chunks must be a mapping or a list, not of type str"),
        ({"input": {"at": {1}}}, "result._queuety_trace.input.at: a set is not JSON"),
    ],
)
@pytest.mark.parametrize("role", [Role.STEP, Role.CLEANUP])
def test_a_returned_trace_of_another_shape_fails_the_attempt(rig: Rig, returned: Any, said: str, role: Role) -> None:
    result = rig.run(lambda _: {KEY: returned}, role=role, use=Use.STEP if role is Role.STEP else Use.CLEANUP)
    assert isinstance(result, Failed)
    assert result.error.message.startswith(said)


def test_nobody_pays_who_does_not_trace(rig: Rig) -> None:
    result = rig.run(lambda _: {"a": 1})
    assert isinstance(result, Succeeded)
    assert result.output == {"a": 1}

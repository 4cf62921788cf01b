"""Heartbeats from coroutines, and what else a running handler asks about itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from queuety import current
from queuety.errors import LeaseLost, PayloadError
from queuety.model import Failed, Job, Json, Succeeded, Use
from tests.support.executing import Rig, wait


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def test_an_awaited_heartbeat_keeps_its_progress(rig: Rig) -> None:
    async def beats(state: Any) -> Any:
        await current().heartbeat_async()
        await current().heartbeat_async({"done": [1, 2]})
        return {"cancelled": current().cancelled}

    (work,) = rig.submit(beats)
    assert rig.outcome().output == {"cancelled": False}
    assert rig.beats == [(work.job, None), (work.job, {"done": [1, 2]})]


def test_an_awaited_heartbeat_lets_the_loop_go_on() -> None:
    arrived, gate = threading.Event(), threading.Event()

    def slow(job: Job, progress: Mapping[str, Json] | None) -> None:
        arrived.set()
        wait(gate)

    with Rig(heartbeat=slow) as rig:

        async def beats(state: Any) -> None:
            await current().heartbeat_async({"a": 1})

        async def quick(state: Any) -> None: ...

        (work,) = rig.submit(beats)
        wait(arrived)
        assert rig.run(quick).job.id != work.job.id
        gate.set()
        assert rig.outcome().job.id == work.job.id


def test_the_progress_is_that_of_the_call(rig: Rig) -> None:
    async def beats(state: Any) -> None:
        progress = {"at": 1}
        beat = asyncio.ensure_future(current().heartbeat_async(progress))
        await asyncio.sleep(0)
        progress["at"] = 2
        await beat

    rig.run(beats)
    assert [progress for _, progress in rig.beats] == [{"at": 1}]


def test_progress_that_is_not_json_is_refused(rig: Rig) -> None:
    async def beats(state: Any) -> None:
        with pytest.raises(PayloadError, match=r"progress\.at: a set is not JSON"):
            await current().heartbeat_async({"at": {1}})

    assert isinstance(rig.run(beats), Succeeded)
    assert rig.beats == []


def test_an_awaited_heartbeat_without_the_lease_ends_the_attempt() -> None:
    def refuses(job: Job, progress: Mapping[str, Json] | None) -> None:
        raise LeaseLost("it is not yours")

    seen: list[Any] = []

    async def beats(state: Any) -> None:
        try:
            await current().heartbeat_async()
        except LeaseLost as error:
            seen.append((str(error), current().cancelled))
        try:
            await current().heartbeat_async()
        except LeaseLost:
            seen.append("again")
        await asyncio.Event().wait()  # here it is told to stop

    with Rig(heartbeat=refuses) as rig:
        with pytest.raises(LeaseLost, match="was given up"):
            rig.executor.run_here(rig.work(beats))
        assert seen == [("it is not yours", True), "again"]
        assert rig.executor.running == []


@pytest.mark.parametrize("error", [ConnectionError("gone"), StopIteration("x"), SystemExit(1)], ids=repr)
def test_what_the_heartbeat_raises_reaches_the_handler(error: BaseException) -> None:
    def breaks(job: Job, progress: Mapping[str, Json] | None) -> None:
        raise error

    async def beats(state: Any) -> None:
        await current().heartbeat_async()

    with Rig(heartbeat=breaks) as rig:
        assert isinstance(rig.run(beats), Failed)
        assert isinstance(rig.run(beats), Failed)
        assert rig.executor.free == 4


def test_a_handler_may_await_it_on_a_loop_of_its_own(rig: Rig) -> None:
    def own_loop(state: Any) -> None:
        asyncio.run(current().heartbeat_async({"from": "own"}))

    assert isinstance(rig.run(own_loop), Succeeded)
    assert [progress for _, progress in rig.beats] == [{"from": "own"}]


def test_the_context_knows_the_item(rig: Rig) -> None:
    def asks(state: Any, item: Any = None, index: Any = None) -> Any:
        return {"index": current().item_index, "key": current().idempotency_key}

    assert rig.run(asks).output == {"index": None, "key": "41-5"}
    given = rig.run(asks, use=Use.ITEM, arguments=("x", 3), branch=3)
    assert given.output == {"index": 3, "key": "41-5-3"}


# What each use's return value means


@pytest.mark.parametrize(
    ("value", "matched"),
    [(True, True), (False, False), (None, False), (0, False), ("no", True), ({}, False), ({"a": 1}, True), ([], False)],
)
def test_a_condition_is_true_or_false(rig: Rig, value: Any, matched: bool) -> None:
    async def awaited(state: Any) -> Any:
        return value

    for condition in (lambda _: value, awaited):
        assert rig.run(condition, use=Use.CONDITION).output == {"_matched": matched}


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


async def forgotten() -> bool:
    return True


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (Undecided, "ambiguous"),
        (forgotten, "returned a coroutine, which nobody runs; declare it `async def`"),
        (lambda: (yield), "returned a generator, which nobody runs; return a result, or yield the chunks"),
    ],
)
def test_a_condition_that_answers_neither_fails(rig: Rig, made: Any, message: str) -> None:
    result = rig.run(lambda _: made(), use=Use.CONDITION)
    assert isinstance(result, Failed)
    assert message in result.error.message


@pytest.mark.parametrize("use", [Use.ITEM, Use.REDUCER])
def test_items_and_reducers_return_mappings_as_steps_do(use: Use) -> None:
    arguments: tuple[Any, ...] = ("x", 0) if use is Use.ITEM else ({"total": 1},)
    with Rig(max_value_bytes=100) as rig:
        changes: dict[str, Any] = {"use": use, "arguments": arguments}
        assert rig.run(lambda *given: {"given": list(given[1:])}, **changes).output == {"given": list(arguments)}
        assert rig.run(lambda *_: None, **changes).output == {}
        assert "must be a mapping" in rig.run(lambda *_: 3, **changes).error.message
        assert "more than the limit of 100 bytes" in rig.run(lambda *_: {"a": "x" * 100}, **changes).error.message


def test_arguments_are_copies_for_every_attempt(rig: Rig) -> None:
    def spoils(state: Any, item: Any, index: int) -> Any:
        item["tags"].append("spoilt")
        return item

    item: dict[str, Any] = {"tags": []}
    for _ in range(2):
        assert rig.run(spoils, use=Use.ITEM, arguments=(item, 0)).output == {"tags": ["spoilt"]}
    assert item == {"tags": []}


def test_one_function_is_called_by_each_of_its_uses(rig: Rig) -> None:
    def counts(*given: Any) -> Any:
        return {"given": len(given)}

    for _ in range(2):
        assert rig.run(counts).output == {"given": 1}
        assert rig.run(counts, use=Use.ITEM, arguments=("x", 0)).output == {"given": 3}
        assert rig.run(counts, use=Use.REDUCER, arguments=({},)).output == {"given": 2}
        assert rig.run(counts, use=Use.CONDITION).output == {"_matched": True}

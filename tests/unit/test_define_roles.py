"""What handlers may be used as, and how each use calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from queuety import (
    Compensation,
    ForEachHandler,
    ForEachReducer,
    Job,
    RepeatCondition,
    Step,
    StreamingStep,
    bind,
    job,
    step,
    workflow,
)
from queuety.define.call import Plan
from queuety.define.marks import Bound, HandlerKind
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_to_json
from queuety.errors import DefinitionError, HandlerNotFound, PayloadError
from queuety.model import Definition, HandlerRef, Json, Options, Use

STEP = HandlerKind.STEP


class Order(BaseModel):
    id: int


@dataclass
class Line:
    price: int


class Totals(TypedDict):
    succeeded: int


@step
def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {"got": state}


@step
def priced(state: Order, item: Line, index: int, *, by: int = 1) -> dict[str, Any]:
    return {"price": item.price * by, "of": state.id, "index": index}


@step
async def two_uses(state: Any, item: Any = None, index: int | None = None) -> Any:
    return {"item": item, "index": index}


@step
def anything(*given: Any, **config: Any) -> Any:
    return {"given": list(given), **config}


@step
def scored(state: Any, score: int) -> Any:
    return {"score": score}


@step
def summed(state: Any, for_each: Totals) -> Any:
    return for_each


@step
def of_two(state: Any, item: Any) -> None: ...


@job
def resize(width: int) -> None: ...


class Format(Step):
    def __init__(self, mark: str = "!") -> None:
        self.mark = mark

    def handle(self, state: Any) -> Any:
        return {"mark": self.mark}


class Price(ForEachHandler):
    def __init__(self, by: int = 2) -> None:
        self.by = by

    def handle_item(self, state: Order, item: Line, index: int) -> Any:
        return {"price": item.price * self.by, "of": state.id, "index": index}

    def config(self) -> dict[str, Any]:
        return {"max_attempts": self.by, "queue": "prices"}


@step(queue="sums", timeout=3)
class Sum(ForEachReducer):
    async def reduce(self, state: Any, for_each: Any) -> Any:
        return {"total": for_each["succeeded"]}


class ScoreAtLeast(RepeatCondition):
    def __init__(self, score: int) -> None:
        self.score = score

    def matches(self, state: Any) -> Any:
        return state["score"] >= self.score


class Refund(Compensation):
    def handle(self, state: Any) -> None: ...


class Spell(StreamingStep):
    def __init__(self, word: str = "abc") -> None:
        self.word = word

    def stream(self, state: Order, existing_chunks: list[Any]) -> Iterator[str]:
        yield from self.word[len(existing_chunks) :]

    def on_complete(self, chunks: list[Any], state: Order) -> Totals:
        return Totals(succeeded=state.id)

    def config(self) -> dict[str, Any]:
        return {"timeout": 7}


class SpellAsync(StreamingStep):
    async def stream(self, state: Any, existing_chunks: list[Any]) -> AsyncIterator[str]:
        yield "a"

    async def on_complete(self, chunks: list[Any], state: Any) -> None: ...


class Nightly(Job):
    def handle(self) -> None: ...


def plan(handler: Any, use: Use, **config: Json) -> Plan:
    return Registry().plan(f"{__name__}:{handler.__name__}", config, use)


def options(target: Any, use: Use) -> Options:
    return Registry().ref(target, STEP, where="here", use=use)[1]


@pytest.mark.parametrize(
    ("target", "uses"),
    [
        (plain, set(Use) - {Use.REDUCER}),
        (anything, set(Use)),
        (priced, {Use.ITEM}),
        (two_uses, set(Use)),
        (summed, {Use.REDUCER}),
        (Format, {Use.STEP, Use.ITEM, Use.CLEANUP}),
        (Price, {Use.ITEM}),
        (Sum, {Use.REDUCER}),
        (bind(ScoreAtLeast, score=3), {Use.CONDITION}),
        (Spell, {Use.STEP}),
        (SpellAsync, {Use.STEP}),
        (Refund, {Use.CLEANUP}),
    ],
)
def test_every_use_takes_what_has_its_shape_and_refuses_the_rest(target: Any, uses: set[Use]) -> None:
    taken = set()
    for use in Use:
        try:
            found, _ = Registry().ref(target, STEP, where="here", use=use)
        except DefinitionError:
            continue
        taken.add(use)
        assert Registry().plan(found.name, found.config, use).use is use
    assert taken == uses


@pytest.mark.parametrize(
    ("target", "use", "message"),
    [
        (
            Sum,
            Use.STEP,
            r"Sum is a ForEachReducer and cannot be used as a step; .* Step or StreamingStep, or",
        ),
        (Price, Use.CONDITION, r"Price is a ForEachHandler .* as a condition; .* derived from RepeatCondition, or"),
        (ScoreAtLeast, Use.ITEM, r"is a RepeatCondition .* as the handler of items; .*\(state, item, index\) marked"),
        (Spell, Use.ITEM, "Spell is a StreamingStep and cannot be used as the handler of items"),
        (
            Format,
            Use.REDUCER,
            r"Format is a Step .* as a reducer; .*ForEachReducer.*\(state, for_each\)",
        ),
        (Refund, Use.STEP, "Refund is a Compensation and cannot be used as a step"),
        (
            Spell,
            Use.CLEANUP,
            r"Spell is a StreamingStep and cannot be used as a handler that cleans up; .* derived from Step or "
            r"Compensation, or a function \(state\) marked",
        ),
        (Price, Use.CLEANUP, "Price is a ForEachHandler and cannot be used as a handler that cleans up"),
        (Sum, Use.CLEANUP, "Sum is a ForEachReducer and cannot be used as a handler that cleans up"),
        (bind(ScoreAtLeast, score=3), Use.CLEANUP, "is a RepeatCondition and cannot be used as a handler that cleans"),
        (priced, Use.CLEANUP, r"cannot be called with \(state\): missing a required argument: 'item'"),
        (resize, Use.CLEANUP, "is a job and cannot be used as a step"),
        (of_two, Use.ITEM, r"cannot be called with \(state, item, index\)"),
        (plain, Use.REDUCER, r"cannot be called with \(state, for_each\)"),
        (bind(priced, item=1), Use.ITEM, "multiple values for argument 'item'"),
        (ScoreAtLeast, Use.CONDITION, "missing a required argument: 'score'"),
        (resize, Use.ITEM, "is a job and cannot be used as a step"),
        (Nightly, Use.STEP, "is a job and cannot be used as a step"),
    ],
)
def test_a_wrong_role_is_refused_with_what_it_is_and_what_is_wanted(target: Any, use: Use, message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^here: .*{message}"):
        Registry().ref(target, STEP, where="here", use=use)


def cancelled_by(handler: Any) -> Definition:
    return workflow("w").then(plain).on_cancel(handler).build()


@pytest.mark.parametrize("handler", [plain, Format, Refund, bind(Format, mark="?"), f"{__name__}:Refund"])
def test_what_cleans_up_is_a_function_of_the_state_a_step_or_a_compensation(handler: Any) -> None:
    built = cancelled_by(handler)
    assert built.on_cancel is not None
    assert definition_from_json(definition_to_json(built), Registry()) == built
    assert Registry().plan(built.on_cancel.name, built.on_cancel.config, Use.CLEANUP).use is Use.CLEANUP


@pytest.mark.parametrize("handler", [Spell, SpellAsync, Price, Sum, bind(ScoreAtLeast, score=3), priced, resize])
def test_nothing_else_can_clean_up_however_the_definition_is_written(handler: Any) -> None:
    target = handler.target if isinstance(handler, Bound) else handler
    with pytest.raises(DefinitionError, match=rf"^workflow 'w': on_cancel: .*{target.__name__}"):
        cancelled_by(handler)
    form = definition_to_json(workflow("w").then(plain).build())
    with pytest.raises(DefinitionError, match=rf"^workflow 'w': on_cancel: .*{target.__name__}"):
        definition_from_json({**form, "on_cancel": f"{__name__}:{target.__name__}"}, Registry())
    registry = Registry()
    registry.register("alias", target)
    with pytest.raises(DefinitionError, match=r"^workflow 'w': on_cancel: alias"):
        workflow("w").then(plain).on_cancel("alias").build(registry)


def test_a_handler_that_has_become_something_else_is_none_for_workers() -> None:
    with pytest.raises(HandlerNotFound, match="is a ForEachReducer and cannot be used as a step"):
        Registry().plan(f"{__name__}:Sum")


@pytest.mark.parametrize("use", [Use.STEP, Use.REDUCER])
def test_a_role_refused_once_is_refused_again_by_the_same_registry(use: Use) -> None:
    registry = Registry()
    assert registry.ref(Format, STEP, where="here", use=Use.ITEM)[0] == HandlerRef(f"{__name__}:Format")
    with pytest.raises(DefinitionError):
        registry.ref(Price, STEP, where="here", use=use)
    assert registry.ref(Price, STEP, where="here", use=Use.ITEM)[1].queue == "prices"


def test_each_use_gets_its_arguments() -> None:
    assert plan(anything, Use.STEP).call({"a": 1}) == {"given": [{"a": 1}]}
    assert plan(anything, Use.ITEM, by=2).call({}, "x", 4) == {"given": [{}, "x", 4], "by": 2}
    assert plan(anything, Use.REDUCER).call({}, {"total": 1}) == {"given": [{}, {"total": 1}]}
    assert plan(anything, Use.CONDITION).call({}) == {"given": [{}]}


def test_a_step_given_for_items_is_called_with_the_state_alone() -> None:
    assert plan(plain, Use.ITEM).call({"a": 1}, "x", 0) == {"got": {"a": 1}}
    assert plan(scored, Use.ITEM, score=4).call({}, "x", 0) == {"score": 4}
    assert plan(Format, Use.ITEM, mark="?").call({}, "x", 0) == {"mark": "?"}
    assert asyncio.run(plan(two_uses, Use.ITEM).call({}, "x", 0)) == {"item": "x", "index": 0}


def test_typed_parameters_are_read_in_every_role() -> None:
    for handler, config in ((priced, {"by": 3}), (Price, {"by": 3})):
        given = plan(handler, Use.ITEM, **config)
        assert given.call({"id": 7}, {"price": 5}, 2) == {"price": 15, "of": 7, "index": 2}
        with pytest.raises(PayloadError, match="item does not fit Line"):
            given.call({"id": 7}, {"cost": 5}, 2)
        with pytest.raises(PayloadError, match="state does not fit Order"):
            given.call({}, {"price": 5}, 2)
    with pytest.raises(PayloadError, match="for_each does not fit Totals"):
        plan(summed, Use.REDUCER).call({}, {"succeeded": "all"})
    assert plan(ScoreAtLeast, Use.CONDITION, score=3).call({"score": 3}) is True


def test_options_of_a_class_come_from_its_config_and_its_mark() -> None:
    assert options(Price, Use.ITEM) == Options(max_attempts=2, queue="prices")
    assert options(bind(Price, by=9), Use.ITEM).max_attempts == 9
    assert options(Sum, Use.REDUCER) == Options(queue="sums", timeout_s=3)
    assert options(Spell, Use.STEP).timeout_s == 7


def test_a_stream_is_one_instance_that_streams_and_completes() -> None:
    given = plan(Spell, Use.STEP, word="stream")
    assert given.stream is not None
    assert not given.is_async
    generator, complete = given.call({"id": 3}, ["s", "t"])
    assert list(generator) == ["r", "e", "a", "m"]
    assert given.output(complete(["s"], {"id": 4})) == {"succeeded": 4}
    with pytest.raises(PayloadError, match="state does not fit Order"):
        complete([], {})
    assert plan(SpellAsync, Use.STEP).is_async
    assert plan(plain, Use.STEP).stream is None


class NoEnd(StreamingStep):
    def stream(self, state: Any, existing_chunks: Any) -> Iterator[str]:
        yield ""


class Awaited(StreamingStep):
    async def stream(self, state: Any, existing_chunks: Any) -> Any:
        return []

    def on_complete(self, chunks: Any, state: Any) -> None: ...


class ShortStream(StreamingStep):
    def stream(self, state: Any) -> Iterator[str]:  # type: ignore[override]
        yield ""

    def on_complete(self, chunks: Any, state: Any) -> None: ...


class ShortEnd(StreamingStep):
    def stream(self, state: Any, existing_chunks: Any) -> Iterator[str]:
        yield ""

    def on_complete(self, chunks: Any) -> None: ...  # type: ignore[override]


class YieldingEnd(StreamingStep):
    def stream(self, state: Any, existing_chunks: Any) -> Iterator[str]:
        yield ""

    def on_complete(self, chunks: Any, state: Any) -> Any:
        yield {}


class StaticEnd(StreamingStep):
    def stream(self, state: Any, existing_chunks: Any) -> Iterator[str]:
        yield ""

    @staticmethod
    def on_complete(chunks: Any, state: Any) -> None: ...


class YieldingStep(Step):
    def handle(self, state: Any) -> Any:
        yield {}


class YieldingItem(ForEachHandler):
    async def handle_item(self, state: Any, item: Any, index: int) -> Any:
        yield {}


class Nothing(RepeatCondition): ...


class Both(Step, RepeatCondition):
    def handle(self, state: Any) -> None: ...

    def matches(self, state: Any) -> bool:
        return True


@step
def yielding(state: Any) -> Any:
    yield {}


@pytest.mark.parametrize(
    ("target", "use", "message"),
    [
        (NoEnd, Use.STEP, r"has no method on_complete\(\)"),
        (Awaited, Use.STEP, "stream is a coroutine function that yields nothing"),
        (ShortStream, Use.STEP, r"cannot be called with \(state, existing_chunks\)"),
        (ShortEnd, Use.STEP, r"ShortEnd.on_complete cannot be called with \(chunks, state\)"),
        (YieldingEnd, Use.STEP, "on_complete is a generator"),
        (StaticEnd, Use.STEP, "on_complete must be a plain method"),
        (YieldingStep, Use.STEP, "handle is a generator; .* or be a StreamingStep"),
        (YieldingItem, Use.ITEM, "handle_item is a generator"),
        (yielding, Use.STEP, "is a generator; .* derived from StreamingStep"),
        (Nothing, Use.CONDITION, r"has no method matches\(\)"),
        (Both, Use.STEP, "derives from Step and RepeatCondition; write a class for each"),
        (StreamingStep, Use.STEP, "a class that is no handler"),
        (Format(), Use.STEP, "an instance of Format was given"),
    ],
)
def test_classes_that_cannot_be_called_so_are_refused(target: Any, use: Use, message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^here: .*{message}"):
        Registry().ref(target, STEP, where="here", use=use)

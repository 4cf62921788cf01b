"""The states around events: the same on whatever page; what an attempt was given, and not what has come since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from queuety import Queuety, Retry, current, step
from queuety.codec import encode
from queuety.define.marks import ForEachReducer
from queuety.errors import DefinitionError
from queuety.inspect.events import TimelineEvent
from queuety.inspect.timeline import workflow_timeline
from queuety.model import Branch, Entry, HandlerRef, PatchState, StepSpec, Succeeded
from queuety.store.tx import Tx
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.hands import House, definition, single, succeeded
from tests.support.pasts import live, tell


@step
def one(state: dict[str, Any]) -> dict[str, Any]:
    return {"a": 1, "n": state.get("n", 0) + 1}


@step(max_attempts=2, backoff=[1])
def flaky(state: dict[str, Any]) -> dict[str, Any]:
    current().trace(input={"tried": current().attempt}, context={"host": "h"})
    if current().attempt == 1:
        raise Retry(after=1)
    return {"b": state["a"], "_queuety_trace": {"output": {"seen": 1}, "chunks": ["x"], "artifacts": {"k": 2}}}


@step
def double(state: dict[str, Any], item: int, index: int) -> dict[str, Any]:
    return {"n": item * 2}


class Sum(ForEachReducer):
    def reduce(self, state: Any, for_each: Any) -> Any:
        return {"sum": len(for_each["results"])}


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: some runs here have lived without working."""
    with House(database.url) as made:
        yield made


def told(house: House, run: int, *page: int, **more: Any) -> list[TimelineEvent]:
    with house.door.reading() as connection:
        return workflow_timeline(connection, house.door.tables, run, *page, **more)


def drained(app: Queuety, clock: ManualClock, rounds: int = 4) -> None:
    for _ in range(rounds):
        app.run_until_idle()
        clock.advance(seconds=2)


def test_every_event_has_the_states_around_it(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(one, "a").then(flaky, "f").then(one, "c").prune_state_after(1).dispatch({"p": [1]})
    drained(app, clock)
    a0, a1, f0, f1, g0, g1, c0, c1 = app.workflow_timeline(run)

    payload, after_a = {"p": [1]}, {"p": [1], "a": 1, "n": 1}
    after_f = {"p": [1], "b": 1}
    assert (a0.state_before, a0.state_after, a0.input_delta) == (payload, None, {"changed": payload, "removed": []})
    assert (a1.state_before, a1.state_after, a1.changed, a1.removed) == (payload, after_a, {"a": 1, "n": 1}, [])
    assert (a0.input, a1.input, a1.output, a1.context) == (payload, payload, {"a": 1, "n": 1}, None)

    assert (f0.event, f0.state_before, f0.input_delta) == (
        "step_started",
        after_a,
        {"changed": {"a": 1, "n": 1}, "removed": []},
    )
    assert (f1.event, f1.state_before, f1.state_after, f1.changed) == ("step_failed", after_a, None, None)
    assert (f1.input, f1.context, f0.context) == ({"tried": 1}, {"host": "h"}, None)
    assert (g0.state_before, g0.input_delta) == (after_a, {"changed": {}, "removed": []})
    assert (g1.state_after, g1.changed, g1.removed) == (after_f, {"b": 1}, ["a", "n"])
    assert (g1.input, g1.output, g1.chunks, g1.artifacts) == ({"tried": 2}, {"seen": 1}, ["x"], {"k": 2})
    assert c0.input_delta == {"changed": {"b": 1}, "removed": ["a", "n"]}
    assert (c1.state_before, c1.state_after) == (after_f, app.workflow_status(run).state)  # type: ignore[union-attr]


def test_what_a_kind_of_step_is_given(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("f")
        .for_each("xs", double, "out", name="each", reducer=Sum)
        .delay(seconds=1, step_name="nap")
        .dispatch({"xs": [7]})
    )
    drained(app, clock)
    started, item, reducing, reduced, napped = app.workflow_timeline(run)
    state = {"xs": [7]}
    assert started.input == item.input == {"state": state, "item": 7, "item_index": 0}
    assert started.context == item.context == {"item": 7, "item_index": 0}
    assert (item.output, item.state_before) == ({"n": 14}, state)
    assert reducing.input["state"].keys() == {"xs", "out"}
    assert (reducing.input["definition"]["type"], reducing.context) == ("for_each", None)
    assert (reduced.changed, napped.event, napped.input["definition"]["name"]) == (
        {"sum": 1},
        "workflow_resumed",
        "nap",
    )


def test_an_attempt_is_told_what_it_was_given_and_not_what_was_patched_since(house: House) -> None:
    run = house.dispatch(definition(single("a"), single("b")), {"price": 3})
    hand = house.hand()
    (job,) = hand.claim()
    began_us = house.clock.us
    house.clock.advance(1)
    house.steer(run, PatchState({"price": 5}))
    house.clock.advance(1)
    hand.turn(ended(succeeded(job, {"sold": True}, now_us=house.clock.us), began_us))
    patched, started, completed = told(house, run)
    assert (patched.event, patched.changed, patched.input) == ("workflow_patched", {"price": 5}, None)
    assert (started.state_before, started.input) == ({"price": 3}, {"price": 3})
    assert (completed.state_before, completed.state_after) == ({"price": 5}, {"price": 5, "sold": True})
    assert completed.input == {"price": 3}


def test_branches_are_given_what_was_there_before_the_others_ended(house: House) -> None:
    branches = tuple(Branch(HandlerRef(f"tests:{name}")) for name in "lmr")
    run = house.dispatch(definition(single("a"), StepSpec("parallel", "p", branches=branches), single("b")), {"x": 1})
    hand = house.hand()
    (first,) = hand.claim()
    jobs = [work.job for work in hand.turn(succeeded(first, {"a": 1}), slots=10).works]
    began_us = house.clock.us
    for job, key in zip(jobs, "lmr", strict=True):
        house.clock.advance(1)
        hand.turn(ended(succeeded(job, {key: 1}, now_us=house.clock.us), began_us))
    events = told(house, run)
    starts = [event for event in events if event.event == "step_started" and event.step_name == "p"]
    ends = [event for event in events if event.event == "step_branch_completed"]
    assert [event.state_before for event in starts] == [{"x": 1, "a": 1}] * 3
    assert [event.state_before for event in ends[:2]] == [{"x": 1, "a": 1}, {"x": 1, "a": 1, "l": 1}]
    assert ends[1].state_after == {"x": 1, "a": 1, "l": 1, "m": 1}
    assert [event.input_delta for event in starts] == [
        {"changed": {"a": 1}, "removed": []},
        {"changed": {}, "removed": []},
        {"changed": {}, "removed": []},
    ]
    check_pages(house, run)


def test_pages_of_a_long_run_tell_the_same_as_the_whole(house: House) -> None:
    """Through checkpoints, rows that tell of two events and of none, and a state that shrinks and grows."""
    run = house.dispatch(definition(single("a"), single("b")), {"p": 1})
    live(house, run, 300, at_once=100)
    for number in range(5):
        attempt = {"started_us": house.clock.us, "job_id": 1_000 + number, "attempt": 1, "owner": 7}
        live(house, run, 3, entry=Entry.COMPLETED, visits=False)
        tell(house, run, {"entry": Entry.NOTED}, {"entry": Entry.PATCHED, "changed": {"q": number}})
        house.door.write(lambda tx, made=attempt: rewrite(tx, house, run, made))
    whole = told(house, run, 1_000)
    assert len(whole) == 300 + 5 * 4 + 5
    assert [event.state_after for event in whole[:3]] == [
        {"p": 1, "n": 1, "odd": 1},
        {"p": 1, "n": 2},
        {"p": 1, "n": 3, "odd": 3},
    ]
    for size, offsets in ((7, (0, 150, 295, 310)), (100, (0, 100, 200, 300))):
        for offset in offsets:
            assert told(house, run, size, offset) == whole[offset : offset + size], (size, offset)
    assert told(house, run, 10, 325) == []
    check_following(house, run, whole, 40)


def rewrite(tx: Tx, house: House, run: int, attempt: dict[str, Any]) -> None:
    """Makes the row of an attempt of the run's last row but two."""
    history = house.door.tables.history
    last = tx.connection.execute(select(func.max(history.c.seq)).where(history.c.run_id == run)).scalar_one()
    where = (history.c.run_id == run, history.c.seq == last - 2)
    tx.connection.execute(history.update().where(*where).values(**attempt))


def ended(outcome: Succeeded, began_us: int) -> Succeeded:
    """The outcome of an attempt that began then."""
    return replace(outcome, span=replace(outcome.span, started_us=began_us))


def check_following(house: House, run: int, whole: list[TimelineEvent], size: int) -> None:
    followed: list[TimelineEvent] = []
    while page := told(house, run, size, after_id=followed[-1].id if followed else None):
        assert len(page) <= size
        followed += page
    assert followed == whole, size


def check_pages(house: House, run: int) -> None:
    """Whatever page an event stands on, it is the same."""
    whole = told(house, run, 1_000)
    for size in (1, 2, 3, 7):
        pages = [told(house, run, size, offset) for offset in range(0, len(whole), size)]
        assert [event for page in pages for event in page] == whole, size
        check_following(house, run, whole, size)


def test_a_place_is_said_in_one_way(house: House) -> None:
    run = house.dispatch(definition(single("a")))
    with pytest.raises(DefinitionError, match="offset=1 and after_id=2"):
        told(house, run, 10, 1, after_id=2)
    with pytest.raises(DefinitionError, match="after_id=-1"):
        told(house, run, after_id=-1)


def test_states_are_unknown_where_their_past_was_pruned(house: House) -> None:
    run = house.dispatch(definition(single("a"), single("b")), {"p": 1})
    live(house, run, 10)
    history, checkpoints = house.door.tables.history, house.door.tables.checkpoints
    house.door.write(lambda tx: tx.connection.execute(history.delete().where(history.c.seq <= 4)))
    events = told(house, run)
    assert (len(events), {event.state_before for event in events}, events[0].changed) == (6, {None}, {"n": 5, "odd": 5})
    row = {"run_id": run, "seq": 4, "state": encode({"p": 1, "n": 4})}
    house.door.write(lambda tx: tx.connection.execute(checkpoints.insert().values(row)))
    events = told(house, run)
    assert [event.state_before for event in events[:2]] == [{"p": 1, "n": 4}, {"p": 1, "n": 5, "odd": 5}]
    assert events[-1].state_after == house.state(run)

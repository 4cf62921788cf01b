"""Many that end in the same instant, in several workers: what follows them starts once, and sees them all.

The count grows with `rounds`: two hundred groups under `make proof`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, bind, step
from tests.support.databases import Database
from tests.support.flowing import note, notes, working
from tests.support.invariants import check
from tests.support.stories import story

State = dict[str, Any]

BRANCHES = 20

gates: dict[str, threading.Barrier] = {}


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    gates["together"] = threading.Barrier(BRANCHES)
    yield
    gates["together"].abort()


@step(max_attempts=1)
def together(state: State, *, number: int) -> State:
    gates["together"].wait(60)
    return {f"branch {number}": number, "last": number}


@step(max_attempts=1)
def together_as_item(state: State, item: int, index: int) -> State:
    gates["together"].wait(60)
    return {"item": item}


@step
def end(state: State) -> State:
    note(state["group"])
    return {"seen": sorted(value for key, value in state.items() if key.startswith("branch "))}


@step
def add_up(state: State, for_each: State) -> State:
    note(("reduced", state["group"]))
    return {"sum": sum(entry["output"]["item"] for entry in for_each["results"])}


@step
def join(state: State) -> State:
    note(("joined", state["group"]))
    return {"joined": len(state["all"])}


@pytest.fixture
def crowd(database: Database) -> Iterator[Queuety]:
    """An application beside which two workers, each with connections of its own, hold all that runs at once."""
    with Queuety(database.url) as app, Queuety(database.url) as one, Queuety(database.url) as other:
        with working(one, concurrency=BRANCHES // 2), working(other, concurrency=BRANCHES // 2):
            yield app
        check(app.door)


def test_branches_that_end_in_the_same_instant_lead_to_the_next_step_once_and_it_sees_all(
    crowd: Queuety, rounds: int
) -> None:
    """Ten are in the hands of each worker when all twenty are let go."""
    builder = crowd.workflow("w").parallel([bind(together, number=n) for n in range(BRANCHES)]).then(end)
    for number in range(rounds):
        done = crowd.wait(builder.dispatch({"group": number}), 90)
        assert done.status is WorkflowStatus.COMPLETED, done.error_message
        assert done.state["seen"] == list(range(BRANCHES))
        assert Counter(story(crowd, done.id)) == {
            "step_branch_completed 0": BRANCHES,
            "step_completed 0": 1,
            "step_completed 1": 1,
        }
    assert notes == list(range(rounds))


def test_items_that_end_in_the_same_instant_are_reduced_once(crowd: Queuety, rounds: int) -> None:
    builder = crowd.workflow("w").for_each("items", together_as_item, reducer=add_up).then(end)
    for number in range(rounds):
        done = crowd.wait(builder.dispatch({"group": number, "items": list(range(BRANCHES))}), 90)
        assert done.status is WorkflowStatus.COMPLETED, done.error_message
        assert done.state["sum"] == sum(range(BRANCHES))
    assert notes == [word for number in range(rounds) for word in (("reduced", number), number)]


def test_a_first_success_among_many_in_the_same_instant_is_the_only_one(crowd: Queuety, rounds: int) -> None:
    builder = crowd.workflow("w").for_each("items", together_as_item, result_key="out", mode="first_success").then(end)
    for number in range(rounds):
        done = crowd.wait(builder.dispatch({"group": number, "items": list(range(BRANCHES))}), 90)
        out = done.state["out"]
        assert isinstance(out, dict)
        assert (done.status, out["succeeded"], out["results"]) == (WorkflowStatus.COMPLETED, 1, [out["winner"]])
        assert Counter(story(crowd, done.id))["step_item_completed 0"] == 1
    assert notes == list(range(rounds))


def test_runs_that_end_in_the_same_instant_wake_the_one_that_waits_for_them_once(crowd: Queuety, rounds: int) -> None:
    child = crowd.workflow("child").then(bind(together, number=1))
    builder = crowd.workflow("w").start_workflows("items", child, "ids").wait_for_workflows("ids", result_key="all")
    builder.then(join)
    for number in range(rounds):
        done = crowd.wait(builder.dispatch({"group": number, "items": list(range(BRANCHES))}), 90)
        assert (done.status, done.state["joined"]) == (WorkflowStatus.COMPLETED, BRANCHES), done.error_message
    assert notes == [("joined", number) for number in range(rounds)]

"""Steps one after the other: every form of a handler, and how the state grows."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

from queuety import Queuety, Step, WorkflowStatus, bind, current, step, workflow
from tests.support.flowing import note, notes, status_of

State = dict[str, Any]


@step
def fetch_user(state: State) -> State:
    return {"user_name": f"User #{state['user_id']}", "user_email": "user@example.com"}


@step
async def ask_model(state: State) -> State:
    await asyncio.to_thread(note, f"asked for {state['user_name']}")
    return {"answer": f"about {state['user_name']}"}


class FormatOutput(Step):
    def __init__(self, ending: str = "pdf") -> None:
        self.ending = ending

    def handle(self, state: State) -> State:
        return {"report_url": f"/reports/{state['user_id']}.{self.ending}"}


class AsyncClass(Step):
    async def handle(self, state: State) -> State:
        return {"async_class": True}


@step
def changes_its_copy(state: State) -> None:
    state["user_id"] = 99
    state["deep"]["list"].append("mine")
    state["new"] = 1


@step
def replaces(state: State) -> State:
    return {"deep": {"only": 1}, "kept_null": None, "a": 2, "_hidden": "x", "_queuety_trace": {"input": {"n": 1}}}


@step
def returns_other_mappings(state: State) -> Any:
    return OrderedDict(z=1, inner={"t": (1, 2)})


@step
def returns_a_view(state: State) -> Any:
    return MappingProxyType({"view": True})


@step
def returns_nothing(state: State) -> None:
    note("ran")


@step
def scale(state: State, *, factor: int, offset: int = 0) -> State:
    return {"value": state["value"] * factor + offset}


@step
def tells_where_it_is(state: State) -> State:
    here = current()
    return {
        here.step_name or "": [here.workflow_id, here.step_index, here.attempt, here.iteration, here.cancelled],
        f"key {here.step_index}": here.idempotency_key,
    }


def test_a_chain_of_functions_coroutines_and_classes_hands_its_state_on(app: Queuety) -> None:
    run = (
        app.workflow("report")
        .then(fetch_user)
        .then(ask_model, name="ask")
        .then(FormatOutput)
        .then(AsyncClass)
        .dispatch({"user_id": 42})
    )
    begun = status_of(app, run)
    assert (begun.status, begun.current_step, begun.current_step_name, begun.total_steps) == (
        WorkflowStatus.RUNNING,
        0,
        "0",
        4,
    )
    assert app.run_until_idle(max_jobs=1) == 1
    assert (status_of(app, run).current_step, status_of(app, run).current_step_name) == (1, "ask")
    assert app.run_until_idle() == 3
    done = status_of(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    assert (done.current_step, done.current_step_name) == (4, None)
    assert done.completed_at is not None
    assert done.completed_at.utcoffset() is not None
    assert list(done.state.items()) == [
        ("user_id", 42),
        ("user_name", "User #42"),
        ("user_email", "user@example.com"),
        ("answer", "about User #42"),
        ("report_url", "/reports/42.pdf"),
        ("async_class", True),
    ]
    assert notes == ["asked for User #42"]
    assert app.run_until_idle() == 0


def test_a_step_that_changes_the_state_it_was_given_changes_nothing(app: Queuety) -> None:
    payload = {"user_id": 1, "deep": {"list": []}}
    run = app.workflow("private").then(changes_its_copy).then(returns_nothing).dispatch(payload)
    app.run_until_idle()
    assert status_of(app, run).state == {"user_id": 1, "deep": {"list": []}}
    assert payload == {"user_id": 1, "deep": {"list": []}}


def test_the_merge_is_shallow_keeps_null_and_the_first_order_and_drops_control_keys(app: Queuety) -> None:
    run = (
        app.workflow("merge")
        .then(replaces)
        .then(returns_other_mappings)
        .then(returns_a_view)
        .dispatch({"a": 1, "deep": {"gone": True}, "tuple": (1, (2,))})
    )
    app.run_until_idle()
    done = status_of(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    assert list(done.state.items()) == [
        ("a", 2),
        ("deep", {"only": 1}),
        ("tuple", [1, [2]]),
        ("kept_null", None),
        ("z", 1),
        ("inner", {"t": [1, 2]}),
        ("view", True),
    ]


def test_a_step_that_returns_nothing_is_a_boundary_all_the_same(app: Queuety) -> None:
    run = app.workflow("silent").then(returns_nothing).then(returns_nothing).dispatch()
    assert app.run_until_idle() == 2
    assert status_of(app, run).state == {}
    assert [event.event for event in app.workflow_timeline(run)] == ["step_started", "step_completed"] * 2


def test_one_handler_bound_in_different_ways_is_a_different_step_each_time(app: Queuety) -> None:
    run = (
        app.workflow("bound")
        .then(bind(scale, factor=3))
        .then(bind(scale, factor=2, offset=1))
        .then(bind(FormatOutput, ending="html"))
        .dispatch({"value": 5, "user_id": 7})
    )
    app.run_until_idle()
    assert status_of(app, run).state == {"value": 31, "user_id": 7, "report_url": "/reports/7.html"}


def test_an_alias_stands_for_its_handler_also_in_a_builder_without_an_application(app: Queuety) -> None:
    app.register("billing.scale", scale)
    runs = [
        app.workflow("alias").then(bind("billing.scale", factor=2)).dispatch({"value": 1}),
        app.dispatch_workflow(workflow("alias").then(bind("billing.scale", factor=4)), {"value": 1}),
    ]
    app.run_until_idle()
    assert [status_of(app, run).state for run in runs] == [{"value": 2}, {"value": 4}]
    (event, *_) = app.workflow_timeline(runs[0])
    assert event.handler == "billing.scale"


def test_a_running_step_knows_where_it_is_and_has_a_key_of_its_own(app: Queuety) -> None:
    run = app.workflow("where").then(tells_where_it_is).then(tells_where_it_is, name="second").dispatch()
    app.run_until_idle()
    state = status_of(app, run).state
    assert state["0"] == [run, 0, 1, None, False]
    assert state["second"] == [run, 1, 1, None, False]
    assert len({state["key 0"], state["key 1"]}) == 2


def test_three_hundred_steps_are_not_too_many(app: Queuety) -> None:
    builder = app.workflow("long")
    for _ in range(300):
        builder.delay(seconds=0)
    run = builder.then(returns_nothing).dispatch()
    assert app.run_until_idle() == 1
    assert (status_of(app, run).status, status_of(app, run).current_step) == (WorkflowStatus.COMPLETED, 301)

"""`repeat_until` and `repeat_while`: back to an earlier step, or on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, RepeatCondition, WorkflowStatus, bind, current, step
from queuety.define.builder import WorkflowBuilder
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.stories import ended, story

State = dict[str, Any]

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
def increment(state: State) -> State:
    return {"counter": state.get("counter", 0) + 1}


@step
def tell(state: State) -> State:
    note((current().step_name, current().iteration))
    return {}


@step
def value_of_lap(state: State, *, values: list[Any]) -> State:
    """What stands in the list for this lap; nothing at all where it says `missing`."""
    n = state.get("n", 0)
    value = values[min(n, len(values) - 1)]
    return {"n": n + 1} if value == "missing" else {"n": n + 1, "value": value}


@step
def outer(state: State) -> State:
    return {"outer": state.get("outer", 0) + 1, "inner": 0}


@step
def inner(state: State) -> State:
    note((state["outer"], state["inner"], current().iteration))
    return {"inner": state["inner"] + 1}


@step
def enough(state: State) -> bool:
    note(state["counter"])
    return state["counter"] >= 3


@step
def truthy(state: State) -> Any:
    return ["something"] if state["counter"] == 2 else None


class AtLeast(RepeatCondition):
    def __init__(self, counter: int = 2) -> None:
        self.counter = counter

    def matches(self, state: State) -> bool:
        return bool(state["counter"] >= self.counter)


@step
async def asked(state: State) -> bool:
    return bool(state["counter"] == 2)


@step(max_attempts=2, backoff=[0])
def breaks(state: State) -> bool:
    note(f"asked {current().attempt}")
    if "mended" not in notes:
        raise OSError("nobody answers")
    return True


@step
def changes(state: State) -> bool:
    state["counter"] = 99
    return True


@step
def gated(state: State) -> State:
    note("gated")
    let_go.wait(30)
    return {"counter": state.get("counter", 0) + 1}


@step
def double(state: State, item: int, index: int) -> State:
    return {"twice": 2 * item}


@step
def gather(state: State) -> State:
    outputs = [entry["output"]["twice"] for entry in state["all_results"]["results"]]
    return {"seen": [*state.get("seen", []), outputs], "items": outputs, "laps": state.get("laps", 0) + 1}


def counting(app: Queuety) -> WorkflowBuilder:
    return app.workflow("w").then(increment, name="count")


@pytest.mark.parametrize(
    ("expected", "most", "status", "counter"),
    [
        (1, None, "completed", 1),
        (3, None, "completed", 3),
        (3, 2, "completed", 3),
        (4, 2, "failed", 3),
        (2, 1, "completed", 2),
        (3, 1, "failed", 2),
    ],
)
def test_until_goes_back_as_often_as_it_takes_and_never_more_often_than_allowed(
    memory: Queuety, expected: int, most: int | None, status: str, counter: int
) -> None:
    run = counting(memory).repeat_until("count", "counter", expected, name="loop", max_iterations=most).dispatch()
    done = ended(memory, run)
    assert (done.status, done.state) == (status, {"counter": counter})
    if status == "failed":
        assert (done.error_kind, done.failed_step) == (ErrorKind.CONSTRAINT_VIOLATION, 1)
        assert f"max_iterations={most}" in (done.error_message or "")


def test_while_goes_back_as_long_as_the_state_matches(app: Queuety) -> None:
    run = app.workflow("w").then(bind(value_of_lap, values=[True, True, False]), name="lap")
    done = ended(app, run.repeat_while("lap", "value", max_iterations=2).then(increment).dispatch())
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"n": 3, "value": False, "counter": 1})


def test_while_stops_where_it_may_not_go_back_once_more(app: Queuety) -> None:
    run = app.workflow("w").then(bind(value_of_lap, values=[True]), name="lap")
    failed = ended(app, run.repeat_while("lap", "value", max_iterations=3).dispatch())
    assert (failed.status, failed.error_kind, failed.state["n"]) == ("failed", ErrorKind.CONSTRAINT_VIOLATION, 4)


@pytest.mark.parametrize(
    ("values", "expected", "laps"),
    [
        (["1", True, 1.5, 1], 1, 4),
        ([1, "true", [True], True], True, 4),
        ([0, "", [], False, None], None, 5),
        (["missing"], None, 1),
        ([0, None, "missing", False], False, 4),
        ([{"a": 1}, {"b": [2], "a": 1}], {"a": 1, "b": [2]}, 2),
        ([[2, 1], [1, 2]], [1, 2], 2),
        (["a", "á", "A", "\0", "👩‍👩‍👧"], "👩‍👩‍👧", 5),
        ([2**63 - 2, 2**63 - 1], 2**63 - 1, 2),
    ],
    ids=repr,
)
def test_values_are_compared_strictly_and_a_missing_key_counts_as_null(
    memory: Queuety, values: list[Any], expected: Any, laps: int
) -> None:
    builder = memory.workflow("w").then(bind(value_of_lap, values=values), name="lap")
    done = ended(memory, builder.repeat_until("lap", "value", expected, max_iterations=9).dispatch())
    assert (done.status, done.state["n"]) == (WorkflowStatus.COMPLETED, laps)


@pytest.mark.parametrize(("condition", "counter"), [(enough, 3), (truthy, 2), (AtLeast, 2), (asked, 2)])
def test_a_condition_decides_whatever_its_form(memory: Queuety, condition: Any, counter: int) -> None:
    done = ended(memory, counting(memory).repeat_until("count", condition=condition).dispatch())
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"counter": counter})


def test_a_condition_is_asked_once_a_lap_and_its_answer_is_no_part_of_the_state(app: Queuety) -> None:
    builder = counting(app).repeat_until("count", condition=enough, name="loop")
    run = builder.repeat_while("count", condition=bind(AtLeast, counter=4), max_iterations=1).dispatch()
    done = ended(app, run)
    assert (done.status, done.state, notes) == (WorkflowStatus.COMPLETED, {"counter": 3}, [1, 2, 3])
    assert story(app, run) == ["step_completed 0", "step_completed 1"] * 3 + ["step_completed 2"]
    assert all(event.output in ({}, None) for event in app.workflow_timeline(run) if event.step_index == 2)


def test_a_condition_that_raises_is_asked_again_and_then_fails_the_run_until_a_retry(app: Queuety) -> None:
    run = counting(app).repeat_until("count", condition=breaks, name="loop").then(increment).dispatch()
    failed = ended(app, run)
    assert (failed.status, failed.failed_step, failed.error_kind) == (WorkflowStatus.FAILED, 1, ErrorKind.STEP_FAILED)
    assert (failed.error_message, notes) == ("nobody answers", ["asked 1", "asked 2"])
    note("mended")
    app.retry_workflow(run)
    done = ended(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"counter": 2})
    assert notes[3:] == ["asked 1"]


def test_a_condition_changes_nothing(app: Queuety) -> None:
    done = ended(app, counting(app).repeat_until("count", condition=changes).then(increment).dispatch())
    assert done.state == {"counter": 2}


def test_a_loop_within_a_loop_has_all_its_laps_in_each_lap_of_the_other(app: Queuety) -> None:
    """The inner one may go back twice: each lap of the outer one takes both."""
    run = (
        app.workflow("w")
        .then(outer, name="outer")
        .then(inner, name="inner")
        .repeat_until("inner", "inner", 3, max_iterations=2)
        .repeat_until("outer", "outer", 3, max_iterations=2)
        .dispatch()
    )
    done = ended(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"outer": 3, "inner": 3})
    assert notes == [(lap, number, number + 1) for lap in (1, 2, 3) for number in (0, 1, 2)]


def test_a_step_knows_in_which_lap_of_the_innermost_loop_it_is(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .then(tell, name="before")
        .then(increment, name="outer")
        .then(tell, name="inner")
        .then(bind(value_of_lap, values=[False, True, False, True]), name="lap")
        .repeat_until("inner", "value")
        .then(tell, name="after inner")
        .repeat_until("outer", "counter", 2)
        .then(tell, name="after")
        .dispatch()
    )
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert notes == [
        ("before", None),
        ("inner", 1),
        ("inner", 2),
        ("after inner", 1),
        ("inner", 1),
        ("inner", 2),
        ("after inner", 2),
        ("after", None),
    ]


def test_a_run_that_went_back_too_often_fails_again_when_it_is_retried(app: Queuety) -> None:
    run = counting(app).repeat_until("count", "counter", 9, max_iterations=2).dispatch()
    for _ in range(2):
        failed = ended(app, run)
        assert (failed.status, failed.state) == (WorkflowStatus.FAILED, {"counter": 3})
        assert failed.error_kind is ErrorKind.CONSTRAINT_VIOLATION
        app.retry_workflow(run)
    assert status_of(app, run).status is WorkflowStatus.FAILED


def test_a_loop_without_any_handler_ends_where_it_must(app: Queuety) -> None:
    """It takes several transactions, and no worker is lost in it."""
    looping = app.workflow("w").delay(step_name="pause")
    run = looping.repeat_until("pause", "never", True, max_iterations=250).dispatch()
    failed = ended(app, run)
    assert (failed.status, failed.error_kind) == (WorkflowStatus.FAILED, ErrorKind.CONSTRAINT_VIOLATION)
    assert story(app, run).count("workflow_resumed 0") == 251


def test_a_loop_may_hold_a_delay_items_branches_and_a_run_within_the_run(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("w")
        .delay(minutes=1, step_name="first")
        .for_each("items", double, result_key="all_results")
        .then(gather)
        .parallel([increment, tell])
        .run_workflow("child", app.workflow("child").then(tell, name="within"))
        .repeat_until("first", "laps", 3)
        .dispatch({"items": [1, 2]})
    )
    for lap in range(3):
        before = ended(app, run)
        assert (before.status, before.state.get("laps", 0), before.current_step) == (WorkflowStatus.RUNNING, lap, 0)
        clock.advance(minutes=1)
    done = ended(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    assert (done.state["seen"], done.state["counter"]) == ([[2, 4], [4, 8], [8, 16]], 3)
    assert sorted(notes, key=str) == [("3", 1), ("3", 2), ("3", 3), *[("within", None)] * 3]
    assert len(app.list_workflows(parent_id=run)) == 3


def test_a_run_paused_within_a_loop_goes_on_in_the_lap_where_it_was(app: Queuety) -> None:
    run = app.workflow("w").then(gated, name="count").repeat_until("count", "counter", 3, max_iterations=2).dispatch()
    with working(app):
        until(lambda: notes)
        app.pause_workflow(run)
        let_go.set()
        until(lambda: status_of(app, run).state)
    held = status_of(app, run)
    assert (held.status, held.state, held.current_step) == (WorkflowStatus.PAUSED, {"counter": 1}, 1)
    assert app.run_until_idle() == 0
    app.resume_workflow(run)
    assert (ended(app, run).status, ended(app, run).state) == (WorkflowStatus.COMPLETED, {"counter": 3})
    assert notes == ["gated"] * 3


def test_a_run_cancelled_within_a_loop_goes_back_no_more(app: Queuety) -> None:
    run = app.workflow("w").then(gated, name="count").repeat_until("count", "counter", 99).dispatch()
    with working(app):
        until(lambda: notes)
        app.cancel_workflow(run)
        let_go.set()
    assert (status_of(app, run).status, app.run_until_idle(), notes) == (WorkflowStatus.CANCELLED, 0, ["gated"])

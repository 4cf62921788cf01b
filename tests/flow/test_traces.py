"""Trace data of handlers as it is stored: with every attempt, in the history alone."""

from __future__ import annotations

from typing import Any

import pytest

from queuety import Queuety, StreamingStep, WorkflowStatus, current, job, step
from queuety.codec import decode
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of

KEY = "_queuety_trace"
State = dict[str, Any]


@step(max_attempts=2, backoff=[0])
def asks(state: State) -> State:
    here = current()
    here.trace(input={"prompt": "…"}, context={"attempt": here.attempt})
    if here.attempt == 1:
        raise ValueError("the first time")
    here.trace(output={"tokens": 9})
    return {"answer": 42, "_next_step": "last", KEY: {"context": {"model": "m"}, "artifacts": ["a"], "chunks": [1]}}


@step
async def asks_async(state: State) -> None:
    current().trace(context={"as": "async"})


@step
def item(state: State, item: Any, index: int) -> State:
    current().trace(input={"seen": item})
    return {"item": item}


@step
def sums(state: State, results: Any) -> State:
    current().trace(context={"role": "reducer"})
    return {"sum": results["total"]}


@step
def decides(state: State) -> bool:
    return True


@step
def cleans(state: State) -> None:
    current().trace(context={"role": "cleanup"})


class Writes(StreamingStep):
    def stream(self, state: State, existing_chunks: list[Any]) -> Any:
        current().trace(input={"prompt": "write"})
        yield "a"

    def on_complete(self, chunks: list[Any], state: State) -> State:
        return {"text": "".join(chunks)}


@step
def last(state: State) -> None: ...


def traces(app: Queuety, run: int) -> list[Any]:
    """What every row of the run's history has under the key, of those that have some."""
    table = app.door.tables.history
    with app.door.reading() as connection:
        rows = connection.execute(table.select().where(table.c.run_id == run).order_by(table.c.seq)).mappings().all()
    found = [decode(row["control"]) for row in rows if row["control"]]
    return [control[KEY] for control in found if KEY in control]


def test_each_attempt_keeps_its_own_and_the_state_none(app: Queuety) -> None:
    run = app.workflow("w").then(asks).then(last).then(last, name="last").dispatch()
    app.run_until_idle()
    assert traces(app, run) == [
        {"input": {"prompt": "…"}, "context": {"attempt": 1}},
        {
            "input": {"prompt": "…"},
            "context": {"attempt": 2, "model": "m"},
            "output": {"tokens": 9},
            "artifacts": ["a"],
            "chunks": [1],
        },
    ]
    state = status_of(app, run)
    assert (state.status, state.state, state.current_step) == (WorkflowStatus.COMPLETED, {"answer": 42}, 3)
    assert all(KEY not in (event.output or {}) for event in app.workflow_timeline(run))


def test_every_role_of_a_run_traces(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .parallel([asks_async, asks_async])
        .for_each("items", item, reducer=sums)
        .repeat_until("0", condition=decides)
        .then(Writes)
        .wait_for_signal("go")
        .on_cancel(cleans)
        .dispatch({"items": ["x"]})
    )
    app.run_until_idle()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert traces(app, run) == [
        {"context": {"as": "async"}},
        {"context": {"as": "async"}},
        {"input": {"seen": "x"}},
        {"context": {"role": "reducer"}},
        {"input": {"prompt": "write"}},
        {"context": {"role": "cleanup"}},
    ]
    assert KEY not in str(status_of(app, run).state)


@job
def works() -> None:
    current().trace(context={"role": "job"})


@job(max_attempts=1)
def breaks() -> None:
    current().trace(context={"role": "job"})
    raise ValueError("no")


@pytest.mark.parametrize("handler", [works, breaks])
def test_a_plain_job_may_trace(app: Queuety, handler: Any) -> None:
    given = app.dispatch(handler)
    assert app.run_until_idle() == 1
    assert traces(app, given) == [{"context": {"role": "job"}}]


# What else a handler is told: in a compensation, of the step that it undoes


@step
def counts(state: State) -> State:
    return {"n": state.get("n", 0) + 1, "then": state.get("n", 0)}


@step(max_attempts=2, backoff=[0])
def undoes(state: State) -> None:
    here = current()
    note((state, here.step_index, here.step_name, here.idempotency_key, here.attempt))
    if here.attempt == 1 and state["n"] == 2:
        raise ValueError("once more")


@step(max_attempts=1)
def sinks(state: State) -> None:
    raise ValueError("no")


@step
def ends(state: State) -> None:
    here = current()
    note((state, here.step_index, here.step_name, here.idempotency_key, here.attempt))


def test_a_compensation_gets_the_state_as_it_was_after_its_step_and_a_key_for_each_time(
    app: Queuety, clock: ManualClock
) -> None:
    run = (
        app.workflow("w")
        .then(counts, name="count")
        .compensate_with(undoes)
        .repeat_until("count", "n", 2)
        .then(sinks)
        .compensate_on_failure()
        .on_cancel(ends)
        .max_attempts(2)
        .dispatch({"given": True})
    )
    app.run_until_idle()
    clock.advance(seconds=10)
    app.run_until_idle()
    assert status_of(app, run).compensation_status == "completed"
    app.cancel_workflow(run)
    app.run_until_idle()
    second, again, first, end = notes
    assert second[:3] == ({"given": True, "n": 2, "then": 1}, 0, "count")
    assert first[:3] == ({"given": True, "n": 1, "then": 0}, 0, "count")
    assert end[:3] == ({"given": True, "n": 2, "then": 1}, None, None)
    assert (second[3], second[4], again[4]) == (again[3], 1, 2), "one key for every attempt"
    assert len({second[3], first[3], end[3]}) == 3, "and one for each time that the step was done"

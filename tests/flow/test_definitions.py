"""Definitions as JSON: what a builder describes, started again from its text, and the shapes that people write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from queuety import JobStatus, Priority, Queuety, Step, WorkflowStatus, bind, errors, step, workflow
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of

State = dict[str, Any]
HERE = __name__


@step(queue="own", max_attempts=7)
def greet(state: State, *, greeting: str = "hello") -> State:
    return {"said": f"{greeting} {state['name']}"}


@step
def fails(state: State) -> None:
    note("failed")
    raise ValueError("no")


@step
def cleaned(state: State) -> None:
    note("cleaned")


class Shout(Step):
    def handle(self, state: State) -> State:
        return {"said": str(state["said"]).upper()}

    def config(self) -> Mapping[str, Any]:
        return {"priority": "high"}


def full(app: Queuety) -> Any:
    return (
        app.workflow("greeting")
        .then(bind(greet, greeting="hi"), name="greet", max_attempts=2, timeout=30, backoff=[1, 2.5])
        .delay(minutes=1)
        .then(Shout, retry_on=(OSError, ValueError), priority=2)
        .on_cancel(cleaned)
        .on_queue("reports")
        .with_priority(Priority.NORMAL)
        .max_attempts(4)
        .version("v1")
    )


def test_a_definition_goes_through_text_and_back_and_starts_the_same_run(app: Queuety, clock: ManualClock) -> None:
    form = full(app).definition()
    through_text = json.loads(json.dumps(form))
    built = full(app).dispatch({"name": "Ada"})
    read = app.dispatch_definition(through_text, {"name": "Ada"})
    assert status_of(app, read).definition_hash == status_of(app, built).definition_hash
    assert status_of(app, read).definition_version == "v1"
    for run in (built, read):
        (job,) = app.list_jobs(workflow_id=run)
        assert (job.queue, job.max_attempts, job.priority) == ("own", 2, Priority.NORMAL)
    assert app.run_until_idle() == 2
    clock.advance(minutes=1)
    assert app.run_until_idle() == 2
    assert [status_of(app, run).state["said"] for run in (built, read)] == ["HI ADA"] * 2


def test_a_builder_may_grow_after_a_dispatch_and_earlier_runs_keep_what_they_had(app: Queuety) -> None:
    builder = app.workflow("w").then(greet)
    early = builder.dispatch({"name": "a"})
    late = builder.then(Shout).dispatch({"name": "a"})
    app.run_until_idle()
    assert [status_of(app, run).state["said"] for run in (early, late)] == ["hello a", "HELLO A"]
    assert status_of(app, early).definition_hash != status_of(app, late).definition_hash


def test_the_shapes_that_people_write_by_hand_mean_the_same(app: Queuety, clock: ManualClock) -> None:
    form = {
        "name": "by hand",
        "priority": 1,
        "steps": [
            {
                "type": "single",
                "name": "a",
                "class": f"{HERE}:greet",
                "retry": {"max_attempts": 5, "backoff": "fixed"},
                "timeout": {"seconds": 20},
                "priority": "urgent",
            },
            {"type": "delay", "name": "pause", "minutes": 1, "seconds": 30},
            {
                "type": "single",
                "name": "b",
                "handler": {"handler": f"{HERE}:greet", "config": {"greeting": "bye"}},
                "config": {"queue": "slow", "max_attempts": 1},
                "delay": 10,
            },
            {"type": "single", "name": "c", "handler": {"class": f"{HERE}:Shout"}},
        ],
        "on_cancel": {"handler": f"{HERE}:cleaned"},
    }
    run = app.dispatch_definition(form, {"name": "Bob"})
    (first,) = app.list_jobs(workflow_id=run)
    assert (first.queue, first.max_attempts, first.priority) == ("own", 5, Priority.URGENT)
    app.run_until_idle()
    clock.advance(seconds=90)
    assert app.run_until_idle() == 0
    (third,) = app.list_jobs(workflow_id=run, status="pending")
    assert (third.queue, third.max_attempts) == ("slow", 1)
    assert (third.available_at - clock.now).total_seconds() == 10
    clock.advance(seconds=10)
    app.run_until_idle()
    done = status_of(app, run)
    assert (done.status, done.state["said"]) == (WorkflowStatus.COMPLETED, "BYE BOB")


def test_a_backoff_written_by_hand_is_minded(app: Queuety, clock: ManualClock) -> None:
    entry = {"type": "single", "name": "a", "handler": f"{HERE}:fails", "retry": {"max_attempts": 2, "backoff": [40]}}
    run = app.dispatch_definition({"name": "w", "steps": [entry]})
    app.run_until_idle()
    (job,) = app.list_jobs(workflow_id=run)
    assert ((job.available_at - clock.now).total_seconds(), job.status) == (40, JobStatus.PENDING)
    clock.advance(seconds=40)
    app.run_until_idle()
    assert (len(notes), status_of(app, run).status) == (2, WorkflowStatus.FAILED)


STEP = {"type": "single", "name": "a", "handler": f"{HERE}:greet"}


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        "w",
        {},
        {"name": "w"},
        {"name": "w", "steps": []},
        {"name": "w", "steps": {}},
        {"name": "", "steps": [STEP]},
        {"name": "w", "steps": ["a"]},
        {"name": "w", "steps": [STEP, STEP]},
        {"name": "w", "steps": [STEP], "color": "red"},
        {"name": "w", "steps": [STEP], "priority": "soon"},
        {"name": "w", "steps": [{**STEP, "type": "dance"}]},
        {"name": "w", "steps": [{**STEP, "type": None}]},
        {"name": "w", "steps": [{"type": "single", "name": "a"}]},
        {"name": "w", "steps": [{**STEP, "class": f"{HERE}:greet"}]},
        {"name": "w", "steps": [{**STEP, "handler": 3}]},
        {"name": "w", "steps": [{**STEP, "handler": {"function": f"{HERE}:greet"}}]},
        {"name": "w", "steps": [{**STEP, "handler": "os:system"}]},
        {"name": "w", "steps": [{**STEP, "handler": f"{HERE}:State"}]},
        {"name": "w", "steps": [{**STEP, "handler": f"{HERE}:missing"}]},
        {"name": "w", "steps": [{**STEP, "handler": {"handler": f"{HERE}:greet", "config": {"color": 1}}}]},
        {"name": "w", "steps": [{**STEP, "max_attempts": 0}]},
        {"name": "w", "steps": [{**STEP, "timeout": {"minutes": 1}}]},
        {"name": "w", "steps": [{**STEP, "backoff": "sometimes"}]},
        {"name": "w", "steps": [{**STEP, "backoff": []}]},
        {"name": "w", "steps": [{**STEP, "delay": -1}]},
        {"name": "w", "steps": [{**STEP, "retry": 3}]},
        {"name": "w", "steps": [{**STEP, "note": float("nan")}]},
        {"name": "w", "steps": [{"type": "delay", "name": "d", "seconds": -1}]},
        {"name": "w", "steps": [{"type": "delay", "name": "d", "seconds": "1"}]},
        {"name": "w", "steps": [STEP], "on_cancel": f"{HERE}:missing"},
    ],
    ids=range(32),
)
def test_a_definition_that_cannot_be_right_is_refused_and_nothing_is_written(memory: Queuety, form: Any) -> None:
    with pytest.raises(errors.DefinitionError) as refusal:
        memory.dispatch_definition(form, {"name": "x"})
    assert len(str(refusal.value)) > 10
    assert memory.list_workflows() == []


def nested() -> Any:
    @step
    def inside(state: State) -> None:
        pass

    return inside


class Bare:
    @step
    def method(self, state: State) -> None:
        pass


def unmarked(state: State) -> None:
    pass


@step
def takes_nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda w: w.then(lambda: None), "lambda"),
        (lambda w: w.then(nested()), "inside a function"),
        (lambda w: w.then(Bare().method), "bound method"),
        (lambda w: w.then(unmarked), "@step"),
        (lambda w: w.then(Bare), "derive it from Step"),
        (lambda w: w.then(Shout()), "instance"),
        (lambda w: w.then(Step), "derive it from Step"),
        (lambda w: w.then(print), ""),
        (lambda w: w.then(None), ""),
        (lambda w: w.then(42), ""),
        (lambda w: w.then("nobody"), "nobody"),
        (lambda w: w.then(takes_nothing), "takes_nothing"),
        (lambda w: w.then(bind(greet, color=1)), "color"),
        (lambda w: w.then(bind(greet, greeting=object())), "greeting"),
        (lambda w: w.then(greet, name=""), "empty"),
        (lambda w: w.then(greet, name="a").then(greet, name="a"), "already"),
        (lambda w: w.then(greet, name="1").then(greet), "another name"),
        (lambda w: w.then(greet, colour=1), "colour"),
        (lambda w: w.then(greet, timeout=0), "timeout"),
        (lambda w: w.then(greet, timeout=float("nan")), "timeout"),
        (lambda w: w.then(greet, retry_on="ValueError"), "retry_on"),
        (lambda w: w.delay(seconds=-1), ""),
        (lambda w: w.delay(seconds=float("inf")), ""),
        (lambda w: w.delay(days="2"), "days"),
        (lambda w: w.on_cancel(unmarked), "on_cancel"),
        (lambda w: w.max_attempts(0), "max_attempts"),
        (lambda w: w.version("  "), "version"),
        (lambda w: w.idempotency_key(""), "idempotency_key"),
        (lambda w: w.on_queue(""), "queue"),
        (lambda w: w.on_queue("a\0b"), "control character"),
        (lambda w: w.with_priority(9), "priority"),
        (lambda w: w.dispatch({}), "no steps"),
        (lambda w: w.definition(), "no steps"),
    ],
    ids=range(33),
)
def test_what_cannot_be_right_is_refused_when_it_is_built_and_says_why(memory: Queuety, build: Any, says: str) -> None:
    with pytest.raises(errors.DefinitionError) as refusal:
        build(memory.workflow("w"))
    assert says in str(refusal.value)
    assert memory.list_workflows() == []


@pytest.mark.parametrize("name", ["", " ", "a\n", "n" * 256, None, 7], ids=repr)
def test_a_workflow_needs_a_name(memory: Queuety, name: Any) -> None:
    with pytest.raises(errors.DefinitionError):
        memory.workflow(name)


def test_a_builder_without_an_application_says_how_to_start_it() -> None:
    with pytest.raises(errors.DefinitionError, match="dispatch_workflow"):
        workflow("w").then(greet).dispatch({})

"""What the builder makes of a user's calls, and what it refuses at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.checks import MAX_STEPS
from queuety.define.marks import Step, bind, job, step
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json
from queuety.errors import DefinitionError
from queuety.model import HandlerRef, Options, Priority, StepSpec


@step
def fetch(state: dict[str, Any]) -> None: ...


@step(max_attempts=5, queue="slow")
async def render(state: dict[str, Any], width: int = 1) -> None: ...


class Send(Step):
    def handle(self, state: dict[str, Any]) -> None: ...

    def config(self) -> dict[str, Any]:
        return {"timeout": 30}


@job
def plain_job() -> None: ...


def ref(function: Any) -> HandlerRef:
    return HandlerRef(f"{__name__}:{function.__name__}")


def names(builder: WorkflowBuilder) -> list[str]:
    return [spec.name for spec in builder.build().steps]


def test_the_calls_become_a_definition() -> None:
    built = (
        workflow("report")
        .max_attempts(4)
        .then(fetch)
        .then(bind(render, width=2), "draw", max_attempts=9, retry_on=OSError)
        .delay(30, minutes=2, hours=1, days=1)
        .then(Send)
        .on_cancel(fetch)
        .on_queue("reports")
        .with_priority(Priority.HIGH)
        .version(" v2 ")
        .build()
    )
    assert built.name == "report"
    assert built.steps == (
        StepSpec("single", "0", ref(fetch)),
        StepSpec(
            "single",
            "draw",
            HandlerRef(f"{__name__}:render", {"width": 2}),
            Options(max_attempts=9, queue="slow", retry_on=("builtins:OSError",)),
        ),
        StepSpec("delay", "delay_0", settings={"seconds": 90150}),
        StepSpec("single", "3", ref(Send), Options(timeout_s=30.0)),
    )
    assert (built.queue, built.priority, built.max_attempts, built.version) == ("reports", Priority.HIGH, 4, "v2")
    assert built.on_cancel == ref(fetch)
    assert len(built.hash) == 64
    assert built == definition_from_json(workflow_json(built))


def workflow_json(built: Any) -> dict[str, Any]:
    from queuety.define.wire import definition_to_json

    return definition_to_json(built)


def test_default_names_are_indices_and_delays_are_counted() -> None:
    assert names(workflow("w").then(fetch).delay(1).then(fetch).delay(2).then(fetch, "last")) == [
        "0",
        "delay_0",
        "2",
        "delay_1",
        "last",
    ]
    assert names(workflow("w").delay(0, step_name="pause").delay()) == ["pause", "delay_1"]


def test_defaults_that_collide_are_numbered() -> None:
    builder = workflow("w")
    for _ in range(3):
        builder.wait_for_approval()
    assert names(builder) == ["wait_for_approval", "wait_for_approval_2", "wait_for_approval_3"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("a", "a", "step 0 already has the name 'a'"),
        (None, "0", "step 0 already has the name '0'"),
        ("1", None, "would be named '1', as another step was by hand"),
    ],
)
def test_a_name_chosen_by_hand_is_nobody_elses(first: str | None, second: str | None, message: str) -> None:
    builder = workflow("w").then(fetch, first)
    with pytest.raises(DefinitionError, match=message):
        builder.then(fetch, second)
    assert len(builder.build().steps) == 1


@pytest.mark.parametrize("name", ["", " ", "a\0", "a\n", "x" * 256, 3])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match=r"step 0 (must|has|')"):
        workflow("w").then(fetch, name)
    with pytest.raises(DefinitionError, match="the name of a workflow"):
        workflow(name)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda w: w.then(plain_job),
        lambda w: w.then(lambda _: None),
        lambda w: w.then(3),
        lambda w: w.then(None),
        lambda w: w.then(fetch, concurrency_group="x"),
        lambda w: w.then(fetch, delay=3),
        lambda w: w.then(fetch, timeout=0),
        lambda w: w.then("a\0"),
        lambda w: w.delay(-1),
        lambda w: w.delay(minutes=1, seconds=-61),
        lambda w: w.delay("1"),
        lambda w: w.delay(True),
        lambda w: w.delay(float("nan")),
        lambda w: w.delay(days=10**6),
        lambda w: w.on_cancel(plain_job),
        lambda w: w.on_queue(""),
        lambda w: w.with_priority(9),
        lambda w: w.max_attempts(0),
        lambda w: w.version("  "),
        lambda w: w.idempotency_key(""),
        lambda w: w.idempotency_key(7),
    ],
)
def test_wrong_use_is_refused_at_the_call_and_changes_nothing(wrong: Any) -> None:
    builder = workflow("w").then(fetch)
    before = builder.build()
    with pytest.raises(DefinitionError, match="workflow 'w'"):
        wrong(builder)
    assert builder.build() == before
    assert builder.key is None


def test_a_workflow_without_steps_is_refused_when_it_is_built() -> None:
    with pytest.raises(DefinitionError, match="workflow 'w' has no steps"):
        workflow("w").build()
    with pytest.raises(DefinitionError, match="has no steps"):
        workflow("w").definition()


def test_a_definition_is_not_changed_by_later_calls() -> None:
    builder = workflow("w").then(fetch)
    first = builder.build()
    assert builder.then(fetch).on_queue("q").build() != first
    assert len(first.steps) == 1


def test_the_idempotency_key_is_not_part_of_the_definition() -> None:
    builder = workflow("w").then(fetch)
    before = builder.build().hash
    assert builder.idempotency_key("  order 7 ").key == "order 7"
    assert builder.build().hash == before


def test_an_alias_is_looked_up_at_once_where_the_application_is_known() -> None:
    registry = Registry()
    registry.register("draw", render)
    built = WorkflowBuilder("w", registry=registry).then("draw").then(bind("draw", width=3)).build()
    assert [spec.handler for spec in built.steps] == [HandlerRef("draw"), HandlerRef("draw", {"width": 3})]
    assert built.steps[0].options == Options(max_attempts=5, queue="slow")
    with pytest.raises(DefinitionError, match="step 0 of workflow 'w': no handler is named 'drew' here"):
        WorkflowBuilder("w", registry=registry).then("drew")


def test_an_alias_waits_for_the_application_where_there_is_none() -> None:
    registry = Registry()
    registry.register("draw", render)
    builder = workflow("w").then(fetch).then(bind("draw", width=3), queue="mine").on_cancel("draw")
    built = builder.build(registry)
    assert built.steps[1].handler == HandlerRef("draw", {"width": 3})
    assert built.steps[1].options == Options(max_attempts=5, queue="mine")
    assert built.on_cancel == HandlerRef("draw")
    with pytest.raises(DefinitionError, match="step 1 of workflow 'w': no handler is named 'draw' here"):
        builder.build()
    assert builder.on_cancel(fetch).build(registry).on_cancel == ref(fetch)


def test_there_is_a_limit_to_the_number_of_steps() -> None:
    builder = workflow("w")
    for _ in range(MAX_STEPS):
        builder.then(fetch)
    with pytest.raises(DefinitionError, match="more than 10000 steps"):
        builder.then(fetch)


class Recorder:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def dispatch_workflow(self, builder: WorkflowBuilder, payload: Any = None, *, connection: Any = None) -> int:
        self.calls.append((builder.build().hash, payload, connection))
        return len(self.calls)

    async def dispatch_workflow_async(
        self, builder: WorkflowBuilder, payload: Any = None, *, connection: Any = None
    ) -> int:
        return self.dispatch_workflow(builder, payload, connection=connection)


def test_dispatch_asks_the_application() -> None:
    application = Recorder()
    builder = WorkflowBuilder("w", dispatcher=application).then(fetch)
    assert builder.dispatch({"a": 1}, connection="tx") == 1
    assert asyncio.run(builder.dispatch_async()) == 2
    assert application.calls == [(builder.build().hash, {"a": 1}, "tx"), (builder.build().hash, None, None)]
    with pytest.raises(DefinitionError, match=r"made without an application; start it with app\.dispatch_workflow"):
        workflow("w").then(fetch).dispatch()


def test_a_builder_that_has_not_changed_is_not_built_again() -> None:
    registry, other = Registry(), Registry()
    builder = workflow("w").then("draw")
    registry.register("draw", render)
    other.register("draw", fetch)
    built = builder.build(registry)
    assert builder.build(registry) is built
    assert builder.build(other).steps[0].options == Options()
    for change in (lambda w: w.then(fetch), lambda w: w.on_queue("q"), lambda w: w.on_cancel(fetch)):
        before = builder.build(registry)
        change(builder)
        assert builder.build(registry) != before

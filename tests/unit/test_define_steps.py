"""Branches, items and ways back: what the builder makes of them, and what it refuses at once."""

from __future__ import annotations

from typing import Any

import pytest

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import bind, job, step
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_to_json
from queuety.errors import DefinitionError
from queuety.model import Branch, ForEachMode, HandlerRef, Options, StepSpec
from tests.support.typed_builder import every_call


@step
def fetch(state: dict[str, Any]) -> None: ...


@step(max_attempts=5, queue="slow")
async def render(state: dict[str, Any], width: int = 1) -> None: ...


@step(queue="items")
def each(state: dict[str, Any], item: Any, index: int) -> None: ...


@step
def total(state: dict[str, Any], for_each: dict[str, Any]) -> None: ...


@step(timeout=9)
def is_good(state: dict[str, Any], score: int = 1) -> bool: ...


@job
def plain_job() -> None: ...


def ref(function: Any, config: dict[str, Any] | None = None) -> HandlerRef:
    return HandlerRef(f"{__name__}:{function.__name__}", config)


def last(builder: WorkflowBuilder, registry: Registry | None = None) -> StepSpec:
    return builder.build(registry).steps[-1]


SLOW = Options(max_attempts=5, queue="slow")


def test_branches_carry_their_handlers_own_options() -> None:
    assert last(workflow("w").parallel([fetch, bind(render, width=2), fetch])) == StepSpec(
        "parallel", "0", branches=(Branch(ref(fetch)), Branch(ref(render, {"width": 2}), SLOW), Branch(ref(fetch)))
    )
    assert last(workflow("w").parallel((handler for handler in [fetch]), step_name="both")).name == "both"


def test_items_are_counted_in_a_result_named_after_the_step() -> None:
    assert last(workflow("w").then(fetch).for_each("urls", each)) == StepSpec(
        "for_each",
        "1",
        ref(each),
        Options(queue="items"),
        {"items_key": "urls", "result_key": "1_results", "mode": "all"},
    )
    assert last(workflow("w").for_each("urls", fetch, "pages", "first_success", name="get")).settings == {
        "items_key": "urls",
        "result_key": "pages",
        "mode": "first_success",
    }
    spec = last(workflow("w").for_each("urls", each, mode=ForEachMode.QUORUM, quorum=2, reducer=total, name="get"))
    assert spec.settings == {"items_key": "urls", "result_key": "get_results", "mode": "quorum", "quorum": 2}
    assert spec.reducer == ref(total)


def test_a_repeat_asks_a_key_or_a_condition() -> None:
    start = workflow("w").then(fetch)
    assert last(start.repeat_until("0", "done")) == StepSpec(
        "repeat", "repeat_until_1", settings={"until": True, "target": "0", "state_key": "done", "expected": True}
    )
    assert last(start.repeat_while("repeat_until_1", "left", None, max_iterations=1)) == StepSpec(
        "repeat",
        "repeat_while_2",
        settings={
            "until": False,
            "target": "repeat_until_1",
            "state_key": "left",
            "expected": None,
            "max_iterations": 1,
        },
    )
    assert last(start.repeat_while("0", condition=bind(is_good, score=8))) == StepSpec(
        "repeat",
        "repeat_while_3",
        ref(is_good, {"score": 8}),
        Options(timeout_s=9.0),
        {"until": False, "target": "0"},
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda w: w.parallel([]), "parallel needs at least one handler"),
        (lambda w: w.parallel("fetch"), "parallel takes a list of handlers"),
        (lambda w: w.parallel(fetch), "parallel takes a list of handlers"),
        (lambda w: w.parallel([fetch, plain_job]), "branch 1: .* is a job and cannot be used as a"),
        (lambda w: w.parallel([fetch], step_name="0"), "step 0 already has the name '0'"),
        (lambda w: w.for_each("", each), "items_key must not be empty"),
        (lambda w: w.for_each(None, each), "items_key is missing"),
        (lambda w: w.for_each("_urls", each), "items_key '_urls': keys that start with _ are reserved"),
        (lambda w: w.for_each("urls", each, " "), "result_key must not be empty"),
        (lambda w: w.for_each("urls", each, "_pages"), "result_key '_pages': keys that start with _"),
        (lambda w: w.for_each("urls", plain_job), "is a job and cannot be used as"),
        (lambda w: w.for_each("urls", each, reducer=plain_job), "reducer: .* is a job and cannot be used as"),
        (lambda w: w.for_each("urls", each, mode="most"), "mode must be one of all, first_success, quorum, not 'most'"),
        (lambda w: w.for_each("urls", each, mode="quorum"), "the mode quorum needs quorum"),
        (lambda w: w.for_each("urls", each, mode="quorum", quorum=0), "quorum must be an integer, 1 or above, not 0"),
        (lambda w: w.for_each("urls", each, mode="quorum", quorum=True), "quorum must be an integer"),
        (lambda w: w.for_each("urls", each, quorum=1), "quorum is for the mode quorum"),
        (lambda w: w.repeat_until("", "done"), "the target must not be empty"),
        (lambda w: w.repeat_until("later", "done"), "no step before it is named 'later'"),
        (lambda w: w.repeat_until("me", "done", name="me"), "no step before it is named 'me'"),
        (lambda w: w.repeat_until("0"), "either state_key or condition; neither is given"),
        (lambda w: w.repeat_until("0", "done", condition=is_good), "either state_key or condition; both are given"),
        (lambda w: w.repeat_until("0", expected=1, condition=is_good), "expected is compared with state_key"),
        (lambda w: w.repeat_until("0", expected=None, condition=is_good), "expected is compared with state_key"),
        (lambda w: w.repeat_until("0", "done", {1, 2}), "expected: a set is not JSON"),
        (lambda w: w.repeat_until("0", ""), "state_key must not be empty"),
        (lambda w: w.repeat_until("0", "_done"), "state_key '_done': keys that start with _"),
        (lambda w: w.repeat_until("0", condition=""), "the name of a handler must not be empty"),
        (lambda w: w.repeat_until("0", condition=plain_job), "is a job and cannot be used as"),
        (lambda w: w.repeat_while("0", "done", max_iterations=0), "max_iterations must be an integer, 1 or above"),
        (lambda w: w.repeat_while("0", "done", max_iterations=1.0), "max_iterations must be an integer, 1 or above"),
    ],
)
def test_wrong_use_is_refused_at_the_call_and_changes_nothing(wrong: Any, message: str) -> None:
    builder = workflow("w").then(fetch)
    before = builder.build()
    with pytest.raises(DefinitionError, match=rf"workflow 'w'.*{message}"):
        wrong(builder)
    assert builder.build() == before
    assert builder.then(fetch, "me").build().steps[1].name == "me"


def test_aliases_are_looked_up_wherever_a_handler_stands() -> None:
    registry = Registry()
    for alias, handler in {"draw": render, "each": each, "total": total, "good": is_good}.items():
        registry.register(alias, handler)

    def described(builder: WorkflowBuilder) -> WorkflowBuilder:
        return (
            builder.parallel(["draw", bind("draw", width=2)], step_name="both")
            .for_each("urls", "each", reducer=bind("total"))
            .repeat_while("both", condition=bind("good", score=2))
        )

    built = described(workflow("w")).build(registry)
    assert built == described(WorkflowBuilder("w", registry=registry)).build()
    assert built.steps[0].branches == (
        Branch(HandlerRef("draw"), SLOW),
        Branch(HandlerRef("draw", {"width": 2}), SLOW),
    )
    assert built.steps[1].handler == HandlerRef("each")
    assert built.steps[1].options == Options(queue="items")
    assert built.steps[1].reducer == HandlerRef("total")
    assert built.steps[2].handler == HandlerRef("good", {"score": 2})
    with pytest.raises(DefinitionError, match="step 0 of workflow 'w': branch 0: no handler is named 'draw' here"):
        described(workflow("w")).build()


def test_every_method_can_be_called_by_the_names_of_its_arguments() -> None:
    built = every_call().build()
    assert len(built.steps) == 19
    assert definition_from_json(definition_to_json(built)) == built

"""What undoes steps and what is called when a run ends badly, from the builder and from JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import Compensation, ForEachReducer, RepeatCondition, Step, StreamingStep, bind, job, step
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_to_json
from queuety.errors import DefinitionError
from queuety.model import Definition, HandlerRef, Options, Use


@step
def plain(state: dict[str, Any]) -> None: ...


@step(max_attempts=9, queue="theirs")
def undo(state: dict[str, Any], how: str = "quietly") -> None: ...


@step
def item(state: dict[str, Any], item: Any, index: int) -> None: ...


class Refund(Compensation):
    def __init__(self, part: int = 100) -> None:
        self.part = part

    def handle(self, state: Any) -> None: ...


class AStep(Step):
    def handle(self, state: Any) -> None: ...


class Spell(StreamingStep):
    def stream(self, state: Any, existing_chunks: list[Any]) -> Any:
        yield ""

    def on_complete(self, chunks: list[Any], state: Any) -> None: ...


class Total(ForEachReducer):
    def reduce(self, state: Any, for_each: Any) -> None: ...


class IsGood(RepeatCondition):
    def matches(self, state: Any) -> bool:
        return True


@job
def plain_job() -> None: ...


def name(target: Any) -> str:
    return f"{__name__}:{target.__name__}"


CLEANERS = [
    (undo, HandlerRef(name(undo))),
    (bind(undo, how="loudly"), HandlerRef(name(undo), {"how": "loudly"})),
    (Refund, HandlerRef(name(Refund))),
    (bind(Refund, part=50), HandlerRef(name(Refund), {"part": 50})),
    (AStep, HandlerRef(name(AStep))),
    (name(Refund), HandlerRef(name(Refund))),
    ("elsewhere.shop:refund", HandlerRef("elsewhere.shop:refund")),
]


@pytest.mark.parametrize(("handler", "ref"), CLEANERS)
def test_a_step_is_undone_by_what_can_clean_up(handler: Any, ref: HandlerRef) -> None:
    built = workflow("w").then(plain).then(plain).compensate_with(handler).build()
    assert [spec.compensation for spec in built.steps] == [None, ref]
    assert built.compensated == (1,)
    assert built.steps[1].options == Options()
    for registry in (None, Registry()):
        back = definition_from_json(definition_to_json(built), registry)
        assert (back, back.hash) == (built, built.hash)


@pytest.mark.parametrize(("handler", "ref"), CLEANERS)
def test_a_deadline_calls_what_can_clean_up(handler: Any, ref: HandlerRef) -> None:
    built = workflow("w").then(plain).on_deadline(handler).must_complete_within(9).build()
    assert (built.on_deadline, built.on_cancel) == (ref, None)
    for registry in (None, Registry()):
        assert definition_from_json(definition_to_json(built), registry) == built


CHILD = workflow("c").then(plain)

KINDS: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
    "single": lambda w: w.then(plain),
    "streaming": lambda w: w.then(Spell),
    "parallel": lambda w: w.parallel([plain, plain]),
    "for_each": lambda w: w.for_each("urls", item),
    "repeat": lambda w: w.then(plain).repeat_until("0", "done"),
    "repeat with a condition": lambda w: w.then(plain).repeat_until("0", condition=IsGood),
    "delay": lambda w: w.delay(1),
    "signal": lambda w: w.wait_for_signal("go"),
    "decision": lambda w: w.wait_for_decision(),
    "workflow": lambda w: w.wait_for_workflow(7),
    "run": lambda w: w.run_workflow("c", CHILD),
    "start": lambda w: w.start_workflows("orders", CHILD),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_step_can_be_undone(kind: str) -> None:
    before = KINDS[kind](workflow("w")).build()
    built = KINDS[kind](workflow("w")).compensate_with(undo).build()
    assert built.steps[-1].compensation == HandlerRef(name(undo))
    assert built.compensated == (len(built.steps) - 1,)
    assert built.hash != before.hash
    assert definition_from_json(definition_to_json(built)) == built


def test_the_last_word_about_a_step_counts() -> None:
    builder = workflow("w").then(plain).compensate_with(undo)
    first = builder.build()
    assert builder.compensate_with(Refund).build().steps[0].compensation == HandlerRef(name(Refund))
    assert first.steps[0].compensation == HandlerRef(name(undo))
    built = builder.then(plain).compensate_with(undo).build()
    assert [spec.compensation for spec in built.steps] == [HandlerRef(name(Refund)), HandlerRef(name(undo))]


def test_there_must_be_a_step_to_undo() -> None:
    builder = workflow("w")
    with pytest.raises(DefinitionError, match=r"^workflow 'w': compensate_with .* there is none yet; add one"):
        builder.compensate_with(undo)
    assert builder.then(plain).build() == workflow("w").then(plain).build()


def test_steps_are_undone_on_failure_only_where_that_is_said() -> None:
    builder = workflow("w").then(plain).compensate_with(undo)
    assert not builder.build().compensates_on_failure
    built = builder.compensate_on_failure().build()
    assert built.compensates_on_failure
    assert definition_to_json(built)["compensate_on_failure"] is True
    assert definition_from_json(definition_to_json(built)) == built


REFUSED = [
    (Spell, "is a StreamingStep and cannot be used as a handler that cleans up"),
    (Total, "is a ForEachReducer and cannot be used as a handler that cleans up"),
    (IsGood, "is a RepeatCondition and cannot be used as a handler that cleans up"),
    (item, "cannot be called with .state.: missing a required argument: 'item'"),
    (plain_job, "is a job and cannot be used as a step"),
    (bind(undo, why="no"), "unexpected keyword argument 'why'"),
    (bind(Refund, whole=1), "unexpected keyword argument 'whole'"),
    (lambda _: None, "a lambda"),
    (f"{__name__}:nothing", "has no nothing; if it was renamed"),
    (Refund(), "an instance of Refund was given"),
    (None, "no name"),
]

PLACES: dict[str, tuple[Callable[[WorkflowBuilder, Any], WorkflowBuilder], str]] = {
    "compensate_with": (
        lambda w, handler: w.compensate_with(handler),
        r"step 1 \('1'\) of workflow 'w': compensation: ",
    ),
    "on_deadline": (lambda w, handler: w.on_deadline(handler).must_complete_within(9), "workflow 'w': on_deadline: "),
    "on_cancel": (lambda w, handler: w.on_cancel(handler), "workflow 'w': on_cancel: "),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("handler", "message"), REFUSED)
def test_what_cannot_clean_up_is_refused_at_the_call_and_changes_nothing(
    place: str, handler: Any, message: str
) -> None:
    call, where = PLACES[place]
    builder = workflow("w").then(plain).then(plain).compensate_with(undo)
    before = builder.build()
    with pytest.raises(DefinitionError, match=f"^{where}.*{message}"):
        call(builder, handler)
    assert builder.build() == before


@pytest.mark.parametrize("place", PLACES)
def test_an_alias_waits_for_the_application_where_there_is_none(place: str) -> None:
    call, where = PLACES[place]
    registry = Registry()
    registry.register("undo", Refund)
    registry.register("total", Total)
    builder = call(workflow("w").then(plain).then(plain), bind("undo", part=1))

    def cleaner(definition: Definition) -> HandlerRef | None:
        return definition.on_deadline or definition.on_cancel or definition.steps[1].compensation

    assert cleaner(builder.build(registry)) == HandlerRef("undo", {"part": 1})
    assert cleaner(call(WorkflowBuilder("w", registry=registry).then(plain).then(plain), "undo").build()) == HandlerRef(
        "undo"
    )
    inner = "step 1 of workflow 'w': compensation: " if place == "compensate_with" else where
    with pytest.raises(DefinitionError, match=f"^{inner}no handler is named 'undo' here"):
        builder.build()
    with pytest.raises(DefinitionError, match=f"^{inner}alias .*|^{inner}total is a ForEachReducer"):
        call(builder, "total").build(registry)
    with pytest.raises(DefinitionError, match=f"^{inner}.*unexpected keyword argument 'whole'"):
        call(builder, bind("undo", whole=1)).build(registry)


def test_the_aliases_of_a_child_are_looked_up_too() -> None:
    registry = Registry()
    child = workflow("c").then(plain).compensate_with("undo").on_deadline("late").must_complete_within(9)
    parent = workflow("w").run_workflow("inner", child)
    registry.register("late", undo)
    with pytest.raises(DefinitionError, match=r"^step 0 of workflow 'w': step 0 of workflow 'inner': compensation: no"):
        parent.build(registry)
    registry.register("undo", Refund)
    built = parent.build(registry).steps[0].child
    assert built is not None
    assert (built.on_deadline, built.steps[0].compensation) == (HandlerRef("late"), HandlerRef("undo"))


def test_a_handler_of_a_deadline_that_there_is_none_is_refused_once_all_is_said() -> None:
    message = r"workflow 'w': on_deadline is never called without a deadline; set one with must_complete_within"
    builder = workflow("w").then(plain).on_deadline(undo)
    for build in (builder.build, lambda: definition_from_json({**only(), "on_deadline": "m:u"}, Registry())):
        with pytest.raises(DefinitionError, match=f"^{message}"):
            build()
    with pytest.raises(DefinitionError, match=f"^step 0 of workflow 'parent': {message}"):
        workflow("parent").run_workflow("inner", builder)
    assert builder.must_complete_within(9).build().on_deadline is not None
    assert definition_from_json({**only(), "on_deadline": "m:u"}).on_deadline == HandlerRef("m:u"), "one that is stored"


def only(**entry: Any) -> dict[str, Any]:
    return {"name": "w", "steps": [{"type": "single", "name": "a", "handler": "m:f", **entry}]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("m:undo", HandlerRef("m:undo")),
        ({"class": "m:Undo", "payload": {"a": 1}}, HandlerRef("m:Undo", {"a": 1})),
        ({"handler": "m:undo", "config": {"a": 1}}, HandlerRef("m:undo", {"a": 1})),
        ({"class": "m:Undo"}, HandlerRef("m:Undo")),
    ],
)
def test_the_other_shapes_are_read_too(given: Any, expected: HandlerRef) -> None:
    for key in ("compensation", "compensate_with"):
        spec = definition_from_json(only(**{key: given}, payload={"b": 2})).steps[0]
        assert spec.compensation == expected
        assert spec.handler == HandlerRef("m:f", {"b": 2})
    assert definition_from_json({**only(), "on_deadline": given}).on_deadline == expected
    back = definition_to_json(definition_from_json(only(compensate_with=given)))
    assert back["steps"][0].keys() == {"type", "name", "handler", "compensation"}  # type: ignore[index, union-attr]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (
            only(compensation="m:u", compensate_with="m:u"),
            "step 0 .'a'.: compensate_with and compensation say the same",
        ),
        (only(compensation=3), "step 0 .'a'.: compensation must be a string"),
        (only(compensation={}), "step 0 .'a'.: compensation: handler or class is missing"),
        (only(compensation={"handler": "m:u", "queue": "q"}), "step 0 .'a'.: compensation: there is no key 'queue'"),
        ({**only(), "on_deadline": 3}, "workflow 'w': on_deadline must be a string"),
        ({**only(), "on_deadline": {"name": "m:u"}}, "workflow 'w': on_deadline: there is no key 'name'"),
        ({**only(), "compensation": "m:u"}, "definition: there is no key 'compensation'"),
    ],
)
def test_a_form_that_cannot_be_right_is_refused(form: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=f"^{message}"):
        definition_from_json(form)


def test_what_a_worker_is_to_call_is_checked_once_more() -> None:
    plan = Registry().plan(name(Refund), {"part": 3}, Use.CLEANUP)
    assert plan.use is Use.CLEANUP
    with pytest.raises(DefinitionError, match=r"step 0 .'a'.: compensation: .* is a RepeatCondition"):
        definition_from_json(only(handler=name(plain), compensation=name(IsGood)), Registry())

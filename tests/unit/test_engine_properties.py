"""Random definitions and random courses of events, against the reference and the laws that always hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from queuety.engine.decide import decide
from queuety.engine.replay import delta, fold
from queuety.errors import InvalidStateError
from queuety.model import (
    Cancel,
    Command,
    Commanded,
    Definition,
    Due,
    Event,
    HandlerRef,
    Pause,
    Resume,
    RetryRun,
    StepSpec,
    WorkflowStatus,
)
from tests.unit.reference import SECOND, Reference, World, copied, delay, flow, refused, then

COMMANDS: dict[str, Command] = {"pause": Pause(), "resume": Resume(), "retry": RetryRun(), "cancel": Cancel()}

atoms = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-1, 1) | st.text(max_size=2)
json_values = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
)
states = st.dictionaries(st.sampled_from("abcdef"), json_values, max_size=4)


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    def a_step(index: int) -> StepSpec:
        if draw(st.integers(0, 3)) == 0:
            return delay(f"s{index}", draw(st.sampled_from([0, 0, 1, 60])))
        attempts = draw(st.none() | st.integers(1, 4))
        return then(
            f"s{index}", max_attempts=attempts, backoff=draw(st.sampled_from([None, "exponential", (1.5, 7.0)]))
        )

    steps = [a_step(index) for index in range(draw(st.integers(1, 6)))]
    on_cancel = draw(st.none() | st.just(HandlerRef("app:undo", {"deep": True})))
    return flow(*steps, max_attempts=draw(st.none() | st.integers(1, 3)), on_cancel=on_cancel)


targets = st.sampled_from([None, "s0", "s1", "s2", "s3", "s4", "s5", "s9", "", 7, ["s0"]])
outputs = st.builds(
    lambda public, control, target: public | control | target,
    states,
    st.dictionaries(st.sampled_from(["_trace", "_steps"]), json_values, max_size=1),
    st.just({}) | st.just({}) | targets.map(lambda name: {"_next_step": name}),
)
failures = st.fixed_dictionaries(
    {
        "is_final": st.sampled_from([False, False, False, True]),
        "retry_after_us": st.none() | st.integers(0, 90 * SECOND),
        "jitter": st.floats(0, 1),
    }
)
work = st.tuples(st.just("succeed"), outputs) | st.tuples(st.just("fail"), failures)
commands = st.tuples(st.sampled_from(sorted(COMMANDS)), st.none())
likely = st.tuples(st.sampled_from(["pause", "resume", "resume", "retry"]), st.none())
courses = st.lists(work | work | work | likely | commands | st.tuples(st.just("wait"), st.integers(1, 90)), max_size=40)


def go(world: World, reference: Reference, what: str, how: Any) -> None:
    """Let the same thing happen to both."""
    if what in COMMANDS:
        taken = getattr(reference, what)()
        before = world.workflow
        assert refused(lambda: world.command(COMMANDS[what])) is not taken
        assert taken or world.workflow is before
    elif what == "wait":
        world.now_us += how * SECOND
        reference.now_us = world.now_us
    elif reference.work == "timer":
        world.fire()
        reference.fire()
    elif reference.work == "job" and what == "succeed":
        world.succeed(how)
        reference.succeed(how)
    elif reference.work == "job":
        world.fail(**how)
        reference.fail(is_final=how["is_final"], wish_us=how["retry_after_us"], jitter=how["jitter"])


def assert_late_changes_nothing(world: World) -> None:
    late = [*world.late(), Due(world.workflow.visit + 1), Due(0)]
    for told in late:
        decision = decide(world.workflow, world.definition, told, now_us=world.now_us)
        assert decision.workflow is world.workflow
        assert decision.effects == ()


@given(definitions(), states, courses)
def test_a_run_goes_as_the_reference_says(definition: Definition, payload: dict[str, Any], course: list[Any]) -> None:
    world, reference = World(definition, payload), Reference(definition, dict(payload))
    reference.compare(world)
    for what, how in course:
        was = world.workflow.status
        go(world, reference, what, how)
        reference.compare(world)
        assert_late_changes_nothing(world)
        if was.is_terminal and world.workflow.status is not was:
            assert was is WorkflowStatus.FAILED
            assert what in ("retry", "cancel")
    event(f"ends {world.workflow.status}")


@given(
    definitions(), states, courses, st.lists(st.sampled_from([*COMMANDS, "due"]), max_size=3), work, st.integers(0, 3)
)
def test_a_batch_is_its_events_one_after_the_other(
    definition: Definition, payload: dict[str, Any], course: list[Any], others: list[str], outcome: Any, place: int
) -> None:
    world, reference = World(definition, payload), Reference(definition, dict(payload))
    for what, how in course[:10]:
        go(world, reference, what, how)
    if reference.work == "timer":
        world.now_us = max(world.now_us, reference.due_us)
    events: list[Event] = [
        Due(world.workflow.visit) if name == "due" else Commanded(COMMANDS[name], 900 + number)
        for number, name in enumerate(others)
    ]
    if reference.work == "job":
        what, how = outcome
        events.insert(place, world.success(how) if what == "succeed" else world.failure(**how))
    one_by_one, at_once = copied(world), copied(world)
    try:
        for told in events:
            job = getattr(told, "job", None)
            if job is not None and job.id not in one_by_one.held:
                continue  # an earlier event dropped the job: the store does not let its outcome in
            one_by_one.tell(told)
    except InvalidStateError:
        with pytest.raises(InvalidStateError):
            at_once.tell(*events, Due(0))
        return
    at_once.tell(*events, Due(0))
    assert at_once.workflow == one_by_one.workflow
    assert at_once.rows == one_by_one.rows
    assert list(at_once.open.values()) == list(one_by_one.open.values())
    assert at_once.timers == one_by_one.timers


@given(states, states)
def test_a_delta_is_what_lies_between_two_states(before: dict[str, Any], after: dict[str, Any]) -> None:
    folded = fold(before, [delta(before, after)])
    assert {key: repr(value) for key, value in folded.items()} == {key: repr(value) for key, value in after.items()}

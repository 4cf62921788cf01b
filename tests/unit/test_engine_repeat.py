"""`repeat`: back to an earlier step, or on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.engine.kinds import repeat
from queuety.errors import DefinitionError
from queuety.model import (
    Entry,
    ErrorInfo,
    HandlerRef,
    Options,
    Pause,
    Resume,
    RetryRun,
    Signalled,
    StepSpec,
    Use,
)
from tests.unit.reference import SECOND, flow, then
from tests.unit.stage import Stage

NO_WAY = ErrorInfo("no way", "ValueError")


def back(*, until: bool = True, target: str = "a", name: str = "r", **settings: Any) -> StepSpec:
    """A repeat by a key, which is `n` unless it says otherwise."""
    return StepSpec("repeat", name, settings={"until": until, "target": target, "state_key": "n", **settings})


def asking(*, until: bool = True, **settings: Any) -> StepSpec:
    """A repeat by a condition."""
    options = Options(max_attempts=2, backoff=(3.0,))
    return StepSpec("repeat", "r", HandlerRef("app:ready"), options, {"until": until, "target": "a", **settings})


def test_until_goes_back_unless_matched_and_then_on() -> None:
    stage = Stage(flow(then("a"), back(expected=2), then("end")))
    for n in (0, 1, 2):
        assert stage.workflow.current_step == 0
        stage.succeed({"n": n})
    run = stage.workflow
    assert (run.current_step, run.transitions, run.visit) == (2, 6, 7), "each evaluation is a transition"
    assert run.loops is None, "the count is forgotten once it falls through"
    assert [(row.entry, row.step_index) for row in stage.rows] == [(Entry.COMPLETED, 0), (Entry.RESUMED, 1)] * 3


def test_while_goes_back_if_matched() -> None:
    stage = Stage(flow(then("a"), back(until=False, expected=True), then("end")))
    stage.succeed({"n": True})
    assert (stage.workflow.current_step, stage.workflow.loops) == (0, {"1": 1})
    stage.succeed({"n": False})
    assert stage.workflow.current_step == 2


@pytest.mark.parametrize(
    ("value", "expected", "is_matched"),
    [
        (1, True, False),
        (1, "1", False),
        (True, "true", False),
        (0, None, False),
        (None, None, True),
        ({"a": 1, "b": [1]}, {"b": [1], "a": 1}, True),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": True}, False),
    ],
)
def test_matched_is_equal_by_value_and_by_type(value: Any, expected: Any, is_matched: bool) -> None:
    stage = Stage(flow(then("a"), back(expected=expected), then("end")))
    stage.succeed({"n": value})
    assert stage.workflow.current_step == (2 if is_matched else 0)


def test_a_missing_key_counts_as_null() -> None:
    stage = Stage(flow(then("a"), back(until=False, expected=None), then("end")))
    stage.succeed()
    assert stage.workflow.current_step == 0
    stage.succeed({"n": 0})
    assert stage.workflow.current_step == 2


def test_max_iterations_is_how_often_it_may_go_back() -> None:
    """The specification's own example: with two jumps a counter gets to three."""
    enough = Stage(flow(then("a"), back(expected=3, max_iterations=2)))
    for n in (1, 2, 3):
        enough.succeed({"n": n})
    assert (enough.workflow.status, enough.workflow.state) == ("completed", {"n": 3})
    short = Stage(flow(then("a"), back(expected=4, max_iterations=2)))
    for n in (1, 2, 3):
        short.succeed({"n": n})
    run = short.workflow
    assert (run.status, run.error_kind, run.failed_step, run.state) == ("failed", "ConstraintViolation", 1, {"n": 3})
    assert run.error_message == ("step 'r' of workflow 41 would go back to step 'a' once more, but max_iterations=2")
    assert run.loops == {"1": 2}
    short.command(RetryRun())
    assert short.workflow.error_kind == "ConstraintViolation", "a retry is no fresh budget"


def test_an_inner_loop_has_a_fresh_budget_in_every_round_of_the_outer_one() -> None:
    inner = back(name="inner", state_key="i", expected=2, max_iterations=1)
    outer = back(name="outer", state_key="o", expected=3, max_iterations=2)
    stage = Stage(flow(then("a"), inner, outer))
    for o in (1, 2, 3):
        stage.succeed({"i": 1, "o": o})
        assert (stage.workflow.loops or {})["1"] == 1
        stage.succeed({"i": 2})
    assert (stage.workflow.status, stage.workflow.loops) == ("completed", None)


def test_a_condition_is_asked_and_decides() -> None:
    stage = Stage(flow(then("a"), asking(max_iterations=5), then("end")))
    stage.succeed({"n": 1})
    assert (stage.workflow.current_step, stage.workflow.runtime) == (1, {"asked": True})
    ((new, _, _),) = stage.open.values()
    assert (new.handler, new.branch, new.max_attempts) == ("app:ready", None, 2)
    stage.succeed({"_matched": False})
    assert (stage.workflow.current_step, stage.workflow.loops) == (0, {"1": 1})
    stage.succeed({"n": 2})
    stage.succeed({"_matched": True})
    run = stage.workflow
    assert (run.current_step, run.state, run.transitions, run.loops) == (2, {"n": 2}, 4, None)
    assert (stage.rows[1].entry, stage.rows[1].control) == (Entry.COMPLETED, {"_next_step": "a"})


def test_a_condition_for_a_while_is_the_other_way_round() -> None:
    stage = Stage(flow(then("a"), asking(until=False), then("end")))
    stage.succeed()
    stage.succeed({"_matched": True})
    assert stage.workflow.current_step == 0


def test_a_condition_that_raises_is_a_failed_attempt_and_may_fail_the_run() -> None:
    stage = Stage(flow(then("a"), asking()))
    stage.succeed()
    stage.fail()
    ((_, attempts, due_us),) = stage.open.values()
    assert (stage.workflow.status, attempts, due_us) == ("running", 1, 3 * SECOND)
    stage.fail(NO_WAY)
    assert (stage.workflow.status, stage.workflow.error_message, stage.workflow.failed_step) == ("failed", "no way", 1)
    stage.command(RetryRun())
    ((_, attempts, _),) = stage.open.values()
    assert attempts == 0
    stage.succeed({"_matched": True})
    assert stage.workflow.status == "completed"


def test_a_condition_that_would_go_back_once_too_often_fails_the_run() -> None:
    stage = Stage(flow(then("a"), asking(max_iterations=1)))
    for _ in range(2):
        stage.succeed()
        stage.succeed({"_matched": False})
    assert (stage.workflow.status, stage.workflow.error_kind) == ("failed", "ConstraintViolation")
    stage.command(RetryRun())
    stage.succeed({"_matched": True})
    assert stage.workflow.status == "completed", "what it is asked anew may be answered otherwise"


def test_a_pause_holds_what_a_condition_leads_to() -> None:
    stage = Stage(flow(then("a"), asking()))
    stage.succeed()
    stage.command(Pause())
    stage.tell(Signalled("hello", {}, 900))
    assert (stage.workflow.status, stage.workflow.runtime) == ("paused", {"asked": True})
    stage.succeed({"_matched": False})
    assert (stage.workflow.status, stage.workflow.current_step, stage.branches()) == ("paused", 0, [])
    stage.command(Resume())
    assert stage.branches() == [None]


def test_a_job_of_it_is_a_condition() -> None:
    stage = Stage(flow(then("a"), asking()))
    stage.succeed()
    job = stage.take(None)
    task = repeat.task(asking(), job, {})
    assert (task.handler.name, task.use, task.options.max_attempts) == ("app:ready", Use.CONDITION, 2)
    with pytest.raises(DefinitionError, match="step 'r' has no condition"):
        repeat.task(back(), job, {})


@given(st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_a_loop_runs_as_often_as_it_must_and_never_oftener_than_it_may(wanted: int, most: int, until: bool) -> None:
    repeating = back(until=until, expected=until, state_key="ready", max_iterations=most)
    stage = Stage(flow(then("a"), repeating, then("end")))
    rounds = 0
    while stage.workflow.current_step == 0:
        rounds += 1
        stage.succeed({"ready": rounds >= wanted})
    if wanted <= most + 1:
        assert (rounds, stage.workflow.current_step, stage.workflow.transitions) == (wanted, 2, 2 * wanted)
    else:
        assert (rounds, stage.workflow.error_kind) == (most + 1, "ConstraintViolation")

"""Budgets: exactly so much is fine, one more fails the run, and nothing of what would have broken the limit is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from queuety.engine.decide import start
from queuety.errors import ConstraintViolation
from queuety.model import (
    Branch,
    ChildSettled,
    Definition,
    DependencySettled,
    Entry,
    ErrorKind,
    Guards,
    HandlerRef,
    KeepSignal,
    Options,
    RetryRun,
    Signalled,
    Span,
    StepSpec,
    Succeeded,
    UseSignals,
    WorkflowStatus,
)
from tests.unit.reference import delay, flow, is_settled, then
from tests.unit.reference_world import World
from tests.unit.stage import Stage

CHILD = Definition("child", (then("work"),), hash="c" * 64)
RUN = 10_000_001


def beside(*names: str, **options: Any) -> StepSpec:
    branches = tuple(Branch(HandlerRef(f"app:{name}"), Options(**options)) for name in names)
    return StepSpec("parallel", "p", branches=branches)


def each(*, reducer: bool = False, mode: str = "all", **options: Any) -> StepSpec:
    settings = {"items_key": "items", "result_key": "out", "mode": mode}
    last = HandlerRef("app:reduce") if reducer else None
    return StepSpec("for_each", "each", HandlerRef("app:item"), Options(**options), settings, reducer=last)


def until(count: int, *, asks: bool = False) -> StepSpec:
    settings = {"until": True, "target": "a", "state_key": "n", "expected": count}
    return StepSpec("repeat", "r", HandlerRef("app:ready") if asks else None, settings=settings)


def starting(child: Definition = CHILD) -> StepSpec:
    settings = {"items_key": "items", "result_key": "ids", "payload_key": "item", "inherit_state": False}
    return StepSpec("start_workflows", "s", settings=settings, child=child)


def within(child: Definition = CHILD) -> StepSpec:
    return StepSpec("run_workflow", "w", child=child)


def signalled(**settings: Any) -> StepSpec:
    return StepSpec("wait_for_signal", "go", settings={"names": ["go"], "mode": "all", **settings})


def waiting(*ids: int) -> StepSpec:
    settings = {"workflows": list(ids), "mode": "all", "keyed": True, "result_key": "got"}
    return StepSpec("wait_for_workflows", "others", settings=settings)


def limited(*steps: StepSpec, prune_after: int | None = None, **guards: int) -> Definition:
    return flow(*steps, guards=Guards(**guards), prune_after=prune_after)


def assert_broken(stage: Stage, limit: str, most: int, at_step: int) -> None:
    """The run has failed of this limit, at this step, without anything left to run."""
    run = stage.workflow
    assert (run.status, run.error_kind, run.failed_step) == ("failed", ErrorKind.CONSTRAINT_VIOLATION, at_step)
    assert run.error_message is not None
    assert f"{limit}={most}" in run.error_message
    assert run.error_message.startswith("workflow 41 ('flow')")
    assert (stage.open, stage.timers, run.current_step) == ({}, [], at_step)
    last = stage.rows[-1]
    assert (last.entry, last.is_final, last.changed) == (Entry.FAILED, True, None)
    assert last.error is not None
    assert last.error.kind is ErrorKind.CONSTRAINT_VIOLATION


def cost(stage: Stage) -> int:
    spent: int = (stage.workflow.ledger or {}).get("cost", 0)
    return spent


# transitions


def test_exactly_so_many_transitions_are_fine() -> None:
    stage = Stage(limited(then("a"), then("b"), max_transitions=2))
    stage.succeed({"a": 1})
    stage.succeed({"b": 2})
    assert (stage.workflow.status, stage.workflow.transitions) == ("completed", 2)


def test_one_transition_too_many_fails_at_once_and_its_output_is_not_merged() -> None:
    stage = Stage(limited(then("a", max_attempts=5), then("b", max_attempts=5), max_transitions=1))
    stage.succeed({"a": 1})
    (job_id,) = stage.open
    stage.succeed({"b": 2, "_trace": True})
    assert_broken(stage, "max_transitions", 1, 1)
    run = stage.workflow
    assert (run.state, run.transitions) == ({"a": 1}, 1), "the counter keeps its last value"
    assert "this would be transition 2" in (run.error_message or "")
    assert stage.buried[job_id] == run.error_message
    assert stage.rows[-1].job is not None, "the row is that of the attempt"
    assert job_id not in stage.finished


def test_a_retry_meets_the_same_limit_at_its_next_boundary() -> None:
    stage = Stage(limited(then("a"), then("b"), max_transitions=1))
    stage.succeed()
    stage.succeed()
    for _ in range(2):
        stage.command(RetryRun())
        assert (stage.workflow.status, stage.workflow.error_kind) == ("running", None)
        stage.succeed({"b": 1})
        assert_broken(stage, "max_transitions", 1, 1)
    assert stage.workflow.state == {}


def settle_branches(stage: Stage) -> None:
    stage.tell(stage.good(0))
    stage.tell(stage.good(1))


def settle_items(stage: Stage) -> None:
    settle_branches(stage)
    stage.tell(stage.good(None))


def settle_child(stage: Stage) -> None:
    child = (stage.workflow.runtime or {})["child"]
    stage.stands(child, WorkflowStatus.COMPLETED, {"c": 1})
    stage.tell(ChildSettled(child, WorkflowStatus.COMPLETED, is_clean=True))


def settle_other(stage: Stage) -> None:
    stage.stands(7, WorkflowStatus.COMPLETED, {})
    stage.tell(DependencySettled(7, stage.workflow.visit))


KINDS: dict[str, tuple[StepSpec, Callable[[Stage], object]]] = {
    "then": (then("a"), lambda stage: stage.succeed()),
    "delay": (delay("d", 5), lambda stage: stage.fire()),
    "delay of nothing": (delay("d", 0), lambda _: None),
    "parallel": (beside("x", "y"), settle_branches),
    "for_each": (each(), settle_branches),
    "for_each with a reducer": (each(reducer=True), settle_items),
    "start_workflows": (starting(), lambda _: None),
    "run_workflow": (within(), settle_child),
    "wait_for_signal": (signalled(), lambda stage: stage.signal("go")),
    "wait_for_workflows": (waiting(7), settle_other),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_any_kind_is_one_transition(kind: str) -> None:
    spec, settle = KINDS[kind]
    for most in (1, 2):
        stage = Stage(limited(then("before"), spec, then("after"), max_transitions=most))
        stage.stands(7, WorkflowStatus.RUNNING)
        stage.succeed({"items": [1, 2]})
        if kind not in ("delay of nothing", "start_workflows"):
            assert stage.workflow.transitions == 1
        settle(stage)
        if most == 1:
            assert_broken(stage, "max_transitions", 1, 1)
            kept = {"items", "out"} if kind == "for_each with a reducer" else {"items"}  # the items had settled
            assert (stage.workflow.transitions, stage.workflow.state.keys()) == (1, kept)
        else:
            assert (stage.workflow.status, stage.workflow.current_step, stage.workflow.transitions) == ("running", 2, 2)


def test_each_evaluation_of_a_repeat_is_a_transition() -> None:
    stage = Stage(limited(then("a"), until(3), max_transitions=6))
    for n in (1, 2, 3):
        stage.succeed({"n": n})
    assert (stage.workflow.status, stage.workflow.transitions) == ("completed", 6)
    stage = Stage(limited(then("a"), until(3), max_transitions=5))
    for n in (1, 2, 3):
        stage.succeed({"n": n})
    assert_broken(stage, "max_transitions", 5, 1)
    assert (stage.workflow.transitions, stage.workflow.state) == (5, {"n": 3}), "the step before it stands"


# bytes of the state


def test_a_state_of_exactly_so_many_bytes_is_fine() -> None:
    stage = Stage(limited(then("a"), max_state_bytes=13))
    stage.succeed({"counter": 1})
    assert (stage.workflow.status, stage.workflow.state) == ("completed", {"counter": 1})


def test_one_byte_too_many_fails_the_run() -> None:
    stage = Stage(limited(then("a"), max_state_bytes=12))
    stage.succeed({"counter": 1})
    assert_broken(stage, "max_state_bytes", 12, 0)
    assert stage.workflow.state == {}
    assert "its state would take 13 bytes" in (stage.workflow.error_message or "")


def test_bytes_are_those_of_utf_8_without_escapes() -> None:
    Stage(limited(then("a"), max_state_bytes=12), {"ä": "é/"})
    with pytest.raises(ConstraintViolation, match="max_state_bytes=11; its state would take 12 bytes"):
        Stage(limited(then("a"), max_state_bytes=11), {"ä": "é/"})


def test_a_state_that_shrinks_is_measured_as_it_is_then() -> None:
    stage = Stage(limited(then("a"), then("b"), max_state_bytes=20), {"x": "0123456789"})
    stage.succeed({"x": "0"})
    stage.succeed({"y": "0123"})
    assert stage.workflow.status == "completed"


def test_bytes_are_measured_after_pruning() -> None:
    big = "x" * 20
    stage = Stage(limited(then("a"), then("b"), then("c"), prune_after=1, max_state_bytes=30))
    for name in "abc":
        stage.succeed({name: big})
    assert (stage.workflow.status, stage.workflow.state) == ("completed", {"c": big})
    stage = Stage(limited(then("a"), then("b"), then("c"), prune_after=2, max_state_bytes=30))
    stage.succeed({"a": big})
    stage.succeed({"b": big})
    assert_broken(stage, "max_state_bytes", 30, 1)


def test_a_branch_that_makes_the_state_too_large_is_not_merged_and_takes_the_others_along() -> None:
    stage = Stage(limited(then("a"), beside("x", "y", "z"), max_state_bytes=20))
    stage.succeed()
    stage.tell(stage.good(1, {"y": 1}))
    late = stage.good(0, {"x": "a long text is too much"})
    stage.tell(late)
    assert_broken(stage, "max_state_bytes", 20, 1)
    assert (stage.workflow.state, stage.workflow.transitions) == ({"y": 1}, 1)
    assert stage.buried[late.job.id] == stage.workflow.error_message
    assert [row.entry for row in stage.rows] == [Entry.COMPLETED, Entry.BRANCH, Entry.FAILED]


def test_the_last_branch_is_measured_with_what_it_brings() -> None:
    stage = Stage(limited(beside("x", "y"), max_state_bytes=20))
    stage.tell(stage.good(0, {"x": 1}))
    stage.tell(stage.good(1, {"y": "a long text is too much"}))
    assert_broken(stage, "max_state_bytes", 20, 0)
    assert stage.workflow.state == {"x": 1}


def test_a_retry_runs_again_what_was_not_merged() -> None:
    stage = Stage(limited(beside("x", "y"), max_state_bytes=20))
    stage.tell(stage.good(0, {"x": 1}))
    stage.tell(stage.good(1, {"y": "a long text is too much"}))
    stage.command(RetryRun())
    assert stage.branches() == [1]
    stage.tell(stage.good(1, {"y": 2}))
    assert (stage.workflow.status, stage.workflow.state) == ("completed", {"x": 1, "y": 2})


@pytest.mark.parametrize("reducer", [False, True])
def test_the_aggregate_of_a_for_each_is_measured(reducer: bool) -> None:
    stage = Stage(limited(each(reducer=reducer), max_state_bytes=80), {"items": [1, 2]})
    stage.tell(stage.good(1))
    stage.tell(stage.good(0))
    assert_broken(stage, "max_state_bytes", 80, 0)
    assert (stage.workflow.state, stage.workflow.transitions) == ({"items": [1, 2]}, 0)
    stage.command(RetryRun())
    assert stage.branches() == [0], "the item whose row was not written is run again"


def test_a_childs_state_is_measured_when_it_is_merged_and_only_the_parent_fails() -> None:
    stage = Stage(limited(within(), max_state_bytes=10))
    stage.stands(1000, WorkflowStatus.COMPLETED, {"c": "a long text"})
    stage.tell(ChildSettled(1000, WorkflowStatus.COMPLETED, is_clean=True))
    assert_broken(stage, "max_state_bytes", 10, 0)
    assert (stage.workflow.state, stage.others[1000][0].status) == ({}, "completed")


def test_a_signal_that_is_too_large_fails_who_waits_and_stays_there() -> None:
    stage = Stage(limited(then("a"), signalled(), max_state_bytes=20))
    stage.succeed()
    effects = stage.tell(Signalled("go", {"said": "a long text"}, 900))
    assert_broken(stage, "max_state_bytes", 20, 1)
    assert KeepSignal(41, 3, "go", {"said": "a long text"}, 0) in effects
    assert not [effect for effect in effects if isinstance(effect, UseSignals)]
    assert [signal.seq for signal in stage.signals] == [3]


def test_a_run_whose_payload_is_too_large_is_not_started() -> None:
    with pytest.raises(ConstraintViolation, match=r"^workflow 'flow' may have at most max_state_bytes=12; its"):
        Stage(limited(then("a"), max_state_bytes=12), {"counter": 1})
    assert Stage(limited(then("a"), max_state_bytes=13), {"counter": 1}).workflow.status == "running"


# cost


@pytest.mark.parametrize(("units", "most"), [(None, 2), (3, 6), (0, 1)])
def test_handlers_cost_what_they_say_or_one(units: int | None, most: int) -> None:
    each_costs = 1 if units is None else units
    stage = Stage(limited(then("a", cost_units=units), then("b", cost_units=units), max_cost_units=most))
    stage.succeed()
    assert cost(stage) == each_costs
    stage.succeed()
    assert (stage.workflow.status, cost(stage)) == ("completed", 2 * each_costs)


def test_one_cost_unit_too_many_fails_the_run() -> None:
    stage = Stage(limited(then("a", cost_units=3), then("b", cost_units=3), max_cost_units=5))
    stage.succeed({"a": 1})
    stage.succeed({"b": 1})
    assert_broken(stage, "max_cost_units", 5, 1)
    assert (stage.workflow.state, cost(stage)) == ({"a": 1}, 3), "the counter keeps its last value"
    assert "this would be cost unit 6" in (stage.workflow.error_message or "")


def test_failed_attempts_cost_nothing() -> None:
    stage = Stage(limited(then("a", max_attempts=3), max_cost_units=1))
    stage.fail()
    stage.fail()
    assert cost(stage) == 0
    stage.succeed()
    assert (stage.workflow.status, cost(stage)) == ("completed", 1)


def test_each_branch_costs_when_it_completes() -> None:
    stage = Stage(limited(beside("x", "y", "z", cost_units=2), max_cost_units=4))
    stage.tell(stage.good(2, {"z": 1}))
    assert cost(stage) == 2
    stage.tell(stage.good(0, {"x": 1}))
    assert cost(stage) == 4
    stage.tell(stage.good(1, {"y": 1}))
    assert_broken(stage, "max_cost_units", 4, 0)
    assert (stage.workflow.state, cost(stage), stage.workflow.transitions) == ({"z": 1, "x": 1}, 4, 0)


def test_each_item_costs_and_the_reducer_nothing() -> None:
    stage = Stage(limited(each(reducer=True, cost_units=2), max_cost_units=4), {"items": [1, 2]})
    stage.tell(stage.good(0))
    assert cost(stage) == 2
    stage.tell(stage.good(1))
    assert cost(stage) == 4
    stage.tell(stage.good(None, {"reduced": True}))
    assert (stage.workflow.status, cost(stage), stage.workflow.state["reduced"]) == ("completed", 4, True)


def test_an_item_that_costs_too_much_is_not_counted_as_done() -> None:
    stage = Stage(limited(each(), max_cost_units=1), {"items": [1, 2, 3]})
    stage.tell(stage.good(0))
    stage.tell(stage.good(1))
    assert_broken(stage, "max_cost_units", 1, 0)
    assert [row.entry for row in stage.rows] == [Entry.ITEM, Entry.FAILED]
    stage.command(RetryRun())
    assert stage.branches() == [1, 2]


def test_a_condition_costs_nothing_nor_does_what_has_no_handler() -> None:
    stage = Stage(limited(then("a"), until(2, asks=True), delay("d", 1), signalled(), starting(), max_cost_units=2))
    stage.succeed()
    stage.tell(Succeeded(stage.claim(), {"_matched": False}, Span(0, 0, 1)))
    stage.succeed({"items": [1]})
    stage.tell(Succeeded(stage.claim(), {"_matched": True}, Span(0, 0, 1)))
    stage.fire()
    stage.signal("go")
    assert (stage.workflow.status, cost(stage), len(stage.started)) == ("completed", 2, 1)


def test_cost_is_counted_where_anything_is_limited() -> None:
    stage = Stage(limited(then("a"), max_transitions=9))
    stage.succeed()
    assert (stage.workflow.status, cost(stage)) == ("completed", 1)


# runs that are started


def test_so_many_runs_may_be_started_in_all() -> None:
    stage = Stage(limited(starting(), then("b"), starting(), then("c"), max_started_workflows=3), {"items": [1, 2]})
    stage.succeed({"items": [3]})
    assert (stage.workflow.current_step, stage.workflow.ledger) == (3, {"started": 3, "cost": 1})
    assert [run.workflow_id for run in stage.started] == [1000, 1001, 1002]


def test_one_run_too_many_and_none_of_them_is_started() -> None:
    stage = Stage(limited(starting(), then("b"), starting(), max_started_workflows=3), {"items": [1, 2]})
    asked = len(stage.asked)
    stage.succeed({"items": [3, 4], "b": 1})
    assert_broken(stage, "max_started_workflows", 3, 2)
    assert "with these 2 runs it would have 4" in (stage.workflow.error_message or "")
    assert len(stage.started) == 2
    assert stage.asked[asked:] == [], "no id is drawn for a run that will not be"
    assert stage.workflow.state == {"items": [3, 4], "ids": [1000, 1001], "b": 1}, "the step before it stands"
    assert (stage.workflow.ledger or {})["started"] == 2


def test_nobody_starts_with_too_many_runs_at_once() -> None:
    with pytest.raises(ConstraintViolation, match="max_started_workflows=1; with these 2 runs it would have 2"):
        Stage(limited(starting(), max_started_workflows=1), {"items": [1, 2]})


def test_a_child_that_is_run_within_does_not_count_as_started() -> None:
    stage = Stage(limited(within(), max_started_workflows=1))
    settle_child(stage)
    assert (stage.workflow.status, (stage.workflow.ledger or {}).get("started")) == ("completed", None)


def test_runs_are_counted_where_anything_is_limited() -> None:
    stage = Stage(flow(then("a"), starting()))
    stage.succeed({"items": [1, 2]})
    assert stage.workflow.ledger is None
    stage = Stage(limited(then("a"), starting(), max_transitions=9))
    stage.succeed({"items": [1, 2]})
    assert stage.workflow.ledger == {"started": 2, "cost": 1}


# items


def test_exactly_so_many_items_are_fine() -> None:
    stage = Stage(limited(each(), max_for_each_items=2), {"items": [1, 2]})
    assert stage.branches() == [0, 1]


def test_one_item_too_many_and_none_is_begun_but_the_planners_output_is_kept() -> None:
    stage = Stage(limited(then("plan"), each(), max_for_each_items=2))
    stage.succeed({"items": [1, 2, 3]})
    assert_broken(stage, "max_for_each_items", 2, 1)
    run = stage.workflow
    assert (run.state, run.transitions, stage.finished) == ({"items": [1, 2, 3]}, 1, [101])
    assert "the list has 3" in (run.error_message or "")
    assert [row.entry for row in stage.rows] == [Entry.COMPLETED, Entry.FAILED]


def test_a_first_step_with_too_many_items_raises_and_there_is_no_run() -> None:
    with pytest.raises(ConstraintViolation, match="max_for_each_items=2; the list has 3"):
        start(41, limited(each(), max_for_each_items=2), {"items": [1, 2, 3]}, now_us=0)
    with pytest.raises(ConstraintViolation, match="max_for_each_items=2"):
        start(41, limited(delay("d", 0), each(), max_for_each_items=2), {"items": [1, 2, 3]}, now_us=0)


def test_a_mapping_counts_by_its_values_and_a_retry_asks_again() -> None:
    stage = Stage(limited(then("plan"), each(), max_for_each_items=1))
    stage.succeed({"items": {"x": 1, "y": 2}})
    stage.command(RetryRun())
    assert_broken(stage, "max_for_each_items", 1, 1)
    stage.command(RetryRun(with_state={"items": {"x": 1}}))
    assert (stage.workflow.status, stage.branches()) == ("running", [0])


# several limits, and none


def test_limits_are_looked_at_in_order() -> None:
    """Transitions, then bytes, then cost."""
    tight = {"max_transitions": 1, "max_state_bytes": 10, "max_cost_units": 1}
    for name, more in (("max_transitions", 0), ("max_state_bytes", 1), ("max_cost_units", 2)):
        guards = dict(list(tight.items())[more:])
        stage = Stage(limited(then("a"), then("b", cost_units=5), **guards))
        stage.succeed()
        stage.succeed({"text": "much too long"})
        assert_broken(stage, name, guards[name], 1)


def test_where_nothing_is_limited_nothing_is_kept() -> None:
    stage = Stage(flow(then("a", cost_units=7), beside("x", "y")))
    stage.succeed({"a": 1})
    settle_branches(stage)
    assert (stage.workflow.status, stage.workflow.ledger) == ("completed", None)


def test_counters_are_those_of_settled_boundaries() -> None:
    stage = Stage(limited(then("a"), beside("x", "y"), each(reducer=True), max_cost_units=99), {"items": [1, 2]})
    stage.succeed()
    settle_branches(stage)
    settle_items(stage)
    assert stage.workflow.transitions == sum(map(is_settled, stage.rows)) == 3
    done = [row for row in stage.rows if row.entry in (Entry.COMPLETED, Entry.BRANCH, Entry.ITEM) and row.job]
    assert cost(stage) == 5 == len([row for row in done if row.job and row.job.handler != "app:reduce"])


# a run that cannot be started because of its own limits


def at_work(definition: Definition, payload: dict[str, Any], *others: Definition) -> World:
    world = World({one.hash: one for one in (definition, *others)})
    with world.answering():
        world.dispatch([(RUN, definition, payload)])
    return world


@pytest.mark.parametrize(
    ("child", "limit"),
    [
        (Definition("c", (then("work"),), hash="c" * 64, guards=Guards(max_state_bytes=5)), "max_state_bytes=5"),
        (Definition("c", (each(),), hash="c" * 64, guards=Guards(max_for_each_items=1)), "max_for_each_items=1"),
        (Definition("c", (starting(),), hash="c" * 64, guards=Guards(max_started_workflows=1)), "max_started_work"),
        (
            Definition("c", (within(Definition("d", (each(),), hash="d" * 64, guards=Guards(max_for_each_items=1))),)),
            "max_for_each_items=1",
        ),
    ],
)
@pytest.mark.parametrize("how", [within, starting])
def test_a_run_that_cannot_be_started_fails_the_step_that_would_and_none_before_it(
    child: Definition, limit: str, how: Callable[[Definition], StepSpec]
) -> None:
    """The step before it has settled: it is not run again, and its output is not lost."""
    step = how(child)
    if step.kind == "start_workflows":
        step = replace(step, settings={**step.settings, "inherit_state": True, "items_key": "of"})
    world = at_work(flow(then("plan"), step), {"of": [{"items": [1, 2]}]}, child)
    paper = world.runs[RUN]
    (held,) = paper.jobs.values()
    world.wastes_ids = True
    with world.answering():
        world.happen({RUN: [Succeeded(world.claim(held), {"items": [1, 2]}, Span(0, 0, 1))]})
    run = paper.workflow
    assert (run.status, run.error_kind, run.failed_step) == ("failed", ErrorKind.CONSTRAINT_VIOLATION, 1)
    assert limit in (run.error_message or "")
    assert (run.state["items"], run.transitions, list(world.runs), paper.jobs) == ([1, 2], 1, [RUN], {})
    assert [row.entry for row in paper.rows] == [Entry.COMPLETED, Entry.FAILED]


def test_a_dispatch_whose_child_cannot_be_started_is_refused() -> None:
    child = Definition("c", (each(),), hash="c" * 64, guards=Guards(max_for_each_items=1))
    with pytest.raises(ConstraintViolation, match="max_for_each_items=1; the list has 2"):
        at_work(flow(within(child)), {"items": [1, 2]}, child)

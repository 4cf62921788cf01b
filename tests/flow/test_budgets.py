"""What a run may use up at most: exactly so much is fine, and one more fails it at once, with nothing of it merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy import func, select

from queuety import Queuety, StreamingStep, WorkflowState, WorkflowStatus, bind, errors, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of
from tests.support.stories import ended, story

State = dict[str, Any]


@step
def put(state: State, *, key: str, value: Any = True) -> State:
    note(key)
    return {key: value}


@step
def count(state: State) -> State:
    note("count")
    return {"counter": state.get("counter", 0) + 1}


@step(cost_units=3)
def dear(state: State) -> State:
    return {"dear": True}


@step(cost_units=0)
def free(state: State) -> State:
    return {"free": True}


@step(backoff=[0])
def at_the_second_attempt(state: State) -> State:
    note("tried")
    if notes.count("tried") == 1:
        raise ValueError("not yet")
    return {}


@step
def item(state: State, item: Any, index: int) -> State:
    note(item)
    return {"big": "x" * 100}


@step
def total(state: State, for_each: State) -> State:
    return {"out": for_each["succeeded"]}


@step
def enough(state: State) -> bool:
    return bool(state["counter"] >= 2)


@step
def says(state: State) -> None:
    note(("undone", dict(state)))


class Writes(StreamingStep):
    def stream(self, state: Any, existing_chunks: list[Any]) -> Iterator[Any]:
        yield from "ab"

    def on_complete(self, chunks: list[Any], state: Any) -> State:
        return {"written": chunks}


def is_stopped_by(state: WorkflowState, limit: str, most: int) -> bool:
    """Whether the run has failed of this limit, and says so."""
    message = state.error_message or ""
    return (
        (state.status, state.error_kind) == (WorkflowStatus.FAILED, ErrorKind.CONSTRAINT_VIOLATION)
        and f"{limit}={most}" in message
        and f"workflow {state.id} " in message
    )


def tallies(app: Queuety) -> dict[str, int]:
    """How many rows each table has."""
    tables = app.door.tables
    with app.door.reading() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in tables.metadata.sorted_tables
            if table not in (tables.ids, tables.definitions)
        }


def test_a_run_without_limits_has_no_budget(app: Queuety) -> None:
    run = app.workflow("w").then(count).dispatch()
    assert status_of(app, run).budget is None
    assert ended(app, run).budget is None


def test_a_budget_tells_its_limits_and_what_was_used(app: Queuety) -> None:
    child = workflow("child").then(bind(put, key="x"))
    builder = app.workflow("w").max_cost_units(100).max_started_workflows(5).then(dear).then(free).delay()
    run = builder.start_workflows("items", child, "ids").then(count).dispatch({"items": [1, 2]})
    before = status_of(app, run).budget
    assert before == {
        "max_cost_units": 100,
        "max_started_workflows": 5,
        "transitions": 0,
        "cost_units": 0,
        "started_workflows": 0,
        "public_state_bytes": len('{"items":[1,2]}'),
    }
    app.run_until_idle()
    state = status_of(app, run)
    budget = state.budget
    assert budget is not None
    assert (budget["transitions"], budget["cost_units"], budget["started_workflows"]) == (5, 4, 2)
    others = app.workflow("w").max_transitions(9).max_state_bytes(1000).max_for_each_items(8).then(count).dispatch()
    budget = ended(app, others).budget
    assert budget is not None
    assert set(budget) == {
        "max_transitions",
        "max_state_bytes",
        "max_for_each_items",
        "transitions",
        "cost_units",
        "started_workflows",
        "public_state_bytes",
    }
    assert budget["public_state_bytes"] == len('{"counter":1}') == 13


@step
def says_yes(state: State) -> bool:
    return True


STEPS: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
    "a step": lambda w: w.then(bind(put, key="x")),
    "a streaming step": lambda w: w.then(Writes),
    "branches": lambda w: w.parallel([bind(put, key="x"), bind(put, key="y")]),
    "items": lambda w: w.for_each("items", item),
    "no items": lambda w: w.for_each("none", item),
    "items that are reduced": lambda w: w.for_each("items", item, reducer=total),
    "a delay": lambda w: w.delay(seconds=1),
    "a repeat": lambda w: w.repeat_until("0", "counter", 1),
    "a condition": lambda w: w.repeat_until("0", condition=says_yes),
    "a signal": lambda w: w.wait_for_signal("go"),
    "a workflow": lambda w: w.wait_for_workflow("other"),
    "a child": lambda w: w.run_workflow("child", workflow("child").then(bind(put, key="x"))),
    "started workflows": lambda w: w.start_workflows("items", workflow("c").then(bind(put, key="x")), "ids"),
}


def test_each_step_is_one_transition_whatever_it_is(app: Queuety, clock: ManualClock) -> None:
    """With a limit of two the second step is the last one that settles; with one it fails, and nothing is merged."""
    other = app.workflow("other").delay().dispatch()
    app.run_until_idle()
    payload = {"items": [1, 2], "other": other}
    for kind, most in ((kind, most) for kind in STEPS for most in (2, 1)):
        run = STEPS[kind](app.workflow("w").max_transitions(most).then(count)).dispatch(payload)
        app.signal(run, "go", {"sent": True})
        app.run_until_idle()
        clock.advance(seconds=1)
        state = ended(app, run)
        budget = state.budget
        assert budget is not None
        assert budget["transitions"] == most
        if most == 2:
            assert state.status is WorkflowStatus.COMPLETED
            continue
        assert is_stopped_by(state, "max_transitions", 1), state.error_message
        assert (state.current_step, state.failed_step) == (1, 1)
        kept = {**payload, "counter": 1}
        if kind == "branches":
            kept["x"] = True  # what came before the boundary is merged
        if kind == "items that are reduced":
            kept["1_results"] = state.state["1_results"]
        assert state.state == kept, kind
        assert app.list_jobs(workflow_id=run, status="pending") == []
        children = app.list_workflows(parent_id=run) + app.list_workflows(name="c")
        assert all(child.status.is_terminal for child in children)


def test_a_loop_ends_at_its_limit_of_transitions(app: Queuety) -> None:
    builder = app.workflow("w").max_transitions(7).then(count).repeat_until("0", "counter", 1_000)
    state = ended(app, builder.dispatch())
    assert is_stopped_by(state, "max_transitions", 7)
    assert state.state == {"counter": 4}
    assert notes == ["count"] * 4


def test_a_state_may_have_exactly_so_many_bytes(app: Queuety) -> None:
    fits = ended(app, app.workflow("w").max_state_bytes(13).then(count).dispatch())
    assert (fits.status, fits.state) == (WorkflowStatus.COMPLETED, {"counter": 1})
    small = ended(app, app.workflow("w").max_state_bytes(12).then(count).dispatch())
    assert is_stopped_by(small, "max_state_bytes", 12)
    assert small.state == {}
    assert small.budget is not None
    assert (small.budget["transitions"], small.budget["public_state_bytes"]) == (0, 2)


def test_bytes_are_those_of_utf8(app: Queuety) -> None:
    size = len('{"x":"éé"}'.encode())
    assert size == 12
    for most, status in ((size, WorkflowStatus.COMPLETED), (size - 1, WorkflowStatus.FAILED)):
        run = app.workflow("w").max_state_bytes(most).then(bind(put, key="x", value="éé")).dispatch()
        assert ended(app, run).status is status


BIG: dict[str, tuple[Callable[[WorkflowBuilder], WorkflowBuilder], list[str]]] = {
    "a branch": (lambda w: w.parallel([bind(put, key="x", value="x" * 500), bind(put, key="y")]), []),
    "the last branch": (lambda w: w.parallel([bind(put, key="y"), bind(put, key="x", value="x" * 500)]), ["y"]),
    "items": (lambda w: w.for_each("items", item), []),
    "items that are reduced": (lambda w: w.for_each("items", item, reducer=total), []),
    "a signal": (lambda w: w.wait_for_signal("go"), []),
    "a signal under a key": (lambda w: w.wait_for_signal("go", result_key="x"), []),
    "a child": (lambda w: w.run_workflow("child", workflow("c").then(bind(put, key="x", value="x" * 500))), []),
    "another run": (lambda w: w.wait_for_workflow("other", result_key="x"), []),
    "what is returned": (lambda w: w.then(bind(put, key="x", value="x" * 500)), []),
}


def test_what_would_make_the_state_too_large_is_not_merged_whoever_brings_it(app: Queuety) -> None:
    other = app.workflow("other").delay().dispatch({"big": "x" * 500})
    app.run_until_idle()
    payload = {"items": [1, 2, 3], "other": other}
    for kind, (build, kept) in BIG.items():
        run = build(app.workflow("w").max_state_bytes(300).then(free)).dispatch(payload)
        app.signal(run, "go", {"big": "x" * 500})
        state = ended(app, run)
        assert is_stopped_by(state, "max_state_bytes", 300), (kind, state.error_message)
        assert state.state == {**payload, "free": True, **dict.fromkeys(kept, True)}, kind


def test_the_state_is_measured_after_it_was_pruned(app: Queuety) -> None:
    large = {"value": "x" * 100}
    builder = app.workflow("w").max_state_bytes(250).prune_state_after(1)
    for key in "abcdef":
        builder.then(bind(put, key=key, **large))
    assert ended(app, builder.dispatch()).status is WorkflowStatus.COMPLETED


def test_handlers_cost_what_they_say_each_branch_and_each_item(app: Queuety) -> None:
    builder = app.workflow("w").max_cost_units(1000)
    expected = 0
    added: list[tuple[Callable[[], object], int]] = [
        (lambda: builder.then(count), 1),
        (lambda: builder.then(dear), 3),
        (lambda: builder.then(dear, cost_units=7), 7),
        (lambda: builder.then(free), 0),
        (lambda: builder.then(Writes), 1),
        (lambda: builder.parallel([dear, free, count]), 4),
        (lambda: builder.for_each("items", item), 3),
        (lambda: builder.for_each("items", item, reducer=total), 3),
        (lambda: builder.repeat_until("6", condition=says_yes), 0),
        (lambda: builder.repeat_until("6", "counter", 2), 0),
        (lambda: builder.delay(seconds=0), 0),
        (lambda: builder.wait_for_signal("go"), 0),
        (lambda: builder.run_workflow("child", workflow("c").then(dear)), 0),
        (lambda: builder.start_workflows("items", workflow("c").then(dear), "ids"), 0),
        (lambda: builder.wait_for_workflows("ids", result_key="all"), 0),
    ]
    for add, cost in added:
        add()
        expected += cost
    run = builder.dispatch({"items": [1, 2, 3]})
    app.signal(run, "go")
    state = ended(app, run)
    assert state.status is WorkflowStatus.COMPLETED, state.error_message
    assert state.budget is not None
    assert state.budget["cost_units"] == expected


def test_failed_attempts_cost_nothing(app: Queuety) -> None:
    state = ended(app, app.workflow("w").max_cost_units(1).then(at_the_second_attempt).dispatch())
    assert (state.status, notes) == (WorkflowStatus.COMPLETED, ["tried", "tried"])
    assert state.budget is not None
    assert state.budget["cost_units"] == 1


COSTLY: dict[str, tuple[Callable[[WorkflowBuilder], WorkflowBuilder], int]] = {
    "a step": (lambda w: w.then(count).then(dear), 4),
    "branches": (lambda w: w.parallel([dear, count, dear]), 7),
    "items": (lambda w: w.for_each("items", item), 3),
    "items that are reduced": (lambda w: w.for_each("items", item, reducer=total), 3),
    "a loop": (lambda w: w.then(count).then(dear).repeat_until("0", condition=enough), 8),
}


def test_cost_units_may_be_used_up_exactly(app: Queuety) -> None:
    for (build, cost), spared in product(COSTLY.values(), (0, 1)):
        most = cost - spared
        state = ended(app, build(app.workflow("w").max_cost_units(most)).dispatch({"items": [1, 2, 3]}))
        if most == cost:
            assert state.status is WorkflowStatus.COMPLETED, state.error_message
            continue
        assert is_stopped_by(state, "max_cost_units", most), state.error_message
        assert state.budget is not None
        used = state.budget["cost_units"]
        assert isinstance(used, int)
        assert used <= most


def test_a_list_may_have_exactly_so_many_items_and_the_step_before_it_keeps_what_it_returned(app: Queuety) -> None:
    def of(number: int) -> WorkflowState:
        builder = app.workflow("w").max_for_each_items(3).then(bind(put, key="items", value=list(range(number))))
        return ended(app, builder.for_each("items", item).dispatch())

    assert of(3).status is WorkflowStatus.COMPLETED
    notes.clear()
    large = of(4)
    assert is_stopped_by(large, "max_for_each_items", 3)
    assert (notes, large.state["items"], large.failed_step) == (["items"], [0, 1, 2, 3], 1)
    assert large.budget is not None
    assert large.budget["transitions"] == 1
    assert app.list_jobs(workflow_id=large.id, status="pending") == []


def test_items_are_limited_step_by_step_and_started_runs_are_not_among_them(app: Queuety) -> None:
    builder = app.workflow("w").max_for_each_items(2).for_each("items", item, "one").for_each("items", item, "two")
    builder.start_workflows("many", workflow("c").then(bind(put, key="x")), "ids")
    assert ended(app, builder.dispatch({"items": [1, 2], "many": [1, 2, 3]})).status is WorkflowStatus.COMPLETED


def test_a_run_may_start_exactly_so_many_others_and_none_of_a_batch_that_is_too_large(app: Queuety) -> None:
    child = workflow("c").then(bind(put, key="x"))
    builder = app.workflow("w").max_started_workflows(4).then(free).start_workflows("items", child, "first")
    builder.start_agents("items", child, "second")
    state = ended(app, builder.dispatch({"items": [1, 2]}))
    assert state.status is WorkflowStatus.COMPLETED, state.error_message
    assert len(app.list_workflows(name="c")) == 4
    large = ended(app, builder.dispatch({"items": [1, 2, 3]}))
    assert is_stopped_by(large, "max_started_workflows", 4)
    assert (large.failed_step, len(app.list_workflows(name="c"))) == (2, 7)
    assert "second" not in large.state
    assert large.budget is not None
    assert large.budget["started_workflows"] == 3


def test_children_that_are_run_are_not_counted_and_have_budgets_of_their_own(app: Queuety) -> None:
    child = workflow("c").max_transitions(1).then(count).then(count)
    builder = app.workflow("w").max_started_workflows(1).max_transitions(100).run_workflow("child", child)
    state = ended(app, builder.dispatch())
    assert (state.status, state.error_kind) == (WorkflowStatus.FAILED, ErrorKind.CHILD_FAILED)
    (inner,) = app.list_workflows(parent_id=state.id)
    assert is_stopped_by(inner, "max_transitions", 1)


IMPOSSIBLE: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
    "the payload": lambda w: w.max_state_bytes(5).then(count),
    "the first list": lambda w: w.max_for_each_items(1).for_each("items", item),
    "what it starts at once": lambda w: w.max_started_workflows(1).start_workflows("items", workflow("c").then(count)),
    "delays": lambda w: w.max_transitions(1).delay().delay(),
    "a child's payload": lambda w: w.run_workflow("child", workflow("c").max_state_bytes(5).then(count)),
    "a started run's": lambda w: w.start_workflows("items", workflow("c").max_state_bytes(5).then(count)),
}


def test_a_dispatch_that_breaks_a_limit_at_once_is_refused_and_leaves_nothing(app: Queuety) -> None:
    before = tallies(app)
    for what, build in IMPOSSIBLE.items():
        builder = build(app.workflow("w").idempotency_key("key").tag("here"))
        with pytest.raises(errors.ConstraintViolation, match="max_"):
            builder.dispatch({"items": [1, 2]})
        assert tallies(app) == before, what
    other = app.workflow("w").idempotency_key("key").then(count).dispatch()
    assert status_of(app, other).idempotency_key == "key", "the key was not taken"


def test_a_batch_of_dispatches_of_which_one_breaks_a_limit_leaves_nothing(app: Queuety) -> None:
    before = tallies(app)
    builder = app.workflow("w").max_state_bytes(20).then(count)
    with pytest.raises(errors.ConstraintViolation):
        app.dispatch_many(builder, [{}, {"x": "x" * 100}])
    assert tallies(app) == before


LIMITED: dict[str, Callable[[WorkflowBuilder], WorkflowBuilder]] = {
    "max_transitions": lambda w: w.max_transitions(1).then(count),
    "max_state_bytes": lambda w: w.max_state_bytes(40).then(bind(put, key="x", value="x" * 99)),
    "max_cost_units": lambda w: w.max_cost_units(2).then(dear),
    "max_for_each_items": lambda w: w.max_for_each_items(1).for_each("items", item),
    "max_started_workflows": lambda w: w.max_started_workflows(1).start_workflows("items", workflow("c").then(count)),
}


def test_a_run_that_has_failed_of_a_limit_fails_again_when_it_is_retried(app: Queuety) -> None:
    for limit, build in LIMITED.items():
        run = build(app.workflow("w").then(free)).dispatch({"items": [1, 2]})
        first = ended(app, run)
        assert first.error_message is not None, limit
        assert limit in first.error_message
        app.retry_workflow(run)
        again = ended(app, run)
        assert (again.status, again.error_kind) == (WorkflowStatus.FAILED, ErrorKind.CONSTRAINT_VIOLATION)
        assert (again.error_message, again.state, again.budget) == (first.error_message, first.state, first.budget)
    assert app.list_workflows(name="c") == []


def test_a_run_that_fails_of_a_limit_undoes_what_it_did(app: Queuety) -> None:
    builder = app.workflow("w").max_transitions(1).then(count).compensate_with(says).then(bind(put, key="x"))
    run = builder.compensate_with(says).compensate_on_failure().dispatch()
    assert is_stopped_by(ended(app, run), "max_transitions", 1)
    assert notes == ["count", "x", ("undone", {"counter": 1})]


def test_counters_are_not_reset_by_a_rewind_and_taken_along_by_a_fork(app: Queuety) -> None:
    builder = app.workflow("w").max_transitions(5).max_cost_units(4).then(count).then(count).wait_for_signal("go")
    run = builder.then(count).then(count).dispatch()
    app.run_until_idle()
    app.rewind_workflow(run, 0)
    app.run_until_idle()
    other = app.fork_workflow(run)
    for each in (run, other):
        budget = status_of(app, each).budget
        assert budget is not None
        assert (budget["transitions"], budget["cost_units"]) == (3, 3)
        app.signal(each, "go")
        assert is_stopped_by(ended(app, each), "max_transitions", 5) or is_stopped_by(
            ended(app, each), "max_cost_units", 4
        )


def test_what_operators_say_may_not_break_a_limit_either(app: Queuety) -> None:
    builder = app.workflow("w").max_state_bytes(60).max_transitions(2).then(count).then(count)
    run = builder.wait_for_signal("go").then(count).dispatch()
    app.run_until_idle(max_jobs=1)
    large = {"x": "x" * 100}
    attempts: list[Callable[[], object]] = [
        lambda: app.patch_state(run, large),
        lambda: app.complete_step(run, large),
        lambda: app.rewind_workflow(run, 0, with_state=large),
        lambda: app.fork_workflow(run, with_state=large),
    ]
    before = status_of(app, run), story(app, run), tallies(app)
    for attempt in attempts:
        with pytest.raises(errors.ConstraintViolation, match="max_state_bytes=60"):
            attempt()
    assert (status_of(app, run), story(app, run), tallies(app)) == before
    app.complete_step(run, {"by": "hand"})
    with pytest.raises(errors.ConstraintViolation, match="max_transitions=2"):
        app.skip_step(run)
    assert status_of(app, run).status is WorkflowStatus.WAITING_FOR_SIGNAL


def test_a_signal_that_would_break_a_limit_is_kept_and_its_sender_not_told(app: Queuety) -> None:
    run = app.workflow("w").max_state_bytes(50).wait_for_signal("go").dispatch()
    app.signal(run, "go", {"x": "x" * 100})
    state = status_of(app, run)
    assert is_stopped_by(state, "max_state_bytes", 50)
    assert state.state == {}

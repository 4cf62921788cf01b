"""`start_workflows` and `start_agents`: a run of its own for every item, all of them with the step or none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine

from queuety import Priority, Queuety, WaitMode, WorkflowStatus, bind, step
from queuety.define.builder import WorkflowBuilder
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.store.breaking import driver_error
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check
from tests.support.stories import ended, jobs_of, story

State = dict[str, Any]

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step
def work(state: State) -> State:
    note(state["start_item_index"])
    return {"answer": state.get("item")}


@step(max_attempts=1)
def fails_at_two(state: State) -> State:
    if state["start_item_index"] == 2:
        raise ValueError("two is bad")
    return {"fine": True}


@step
def waits(state: State) -> State:
    note("began")
    let_go.wait(30)
    return {}


@step
def end(state: State) -> State:
    note("end")
    return {"end": True}


@step(max_attempts=1)
def fails(state: State) -> None:
    raise ValueError("the parent is broken")


@step
def lap(state: State) -> State:
    n = state.get("n", 0) + 1
    return {"n": n, "items": list(range(n))}


@step
def double(state: State, item: int, index: int) -> State:
    return {"twice": 2 * item}


@step
def branch(state: State, *, key: str) -> State:
    return {key: state["start_item_index"]}


@step
def add_up(state: State) -> State:
    return {"total": sum(state["doubled"]["results"][n]["output"]["twice"] for n in range(2))}


def child(app: Queuety, handler: Any = work) -> WorkflowBuilder:
    return app.workflow("child").then(handler)


def ids_of(app: Queuety, run: int, key: str = "ids") -> list[int]:
    found = status_of(app, run).state[key]
    assert isinstance(found, list)
    return found


def runs_named(app: Queuety, name: str = "child") -> list[int]:
    return sorted(one.id for one in app.list_workflows(name=name, limit=2000))


def test_every_item_has_a_run_of_its_own_that_nobody_is_parent_of(app: Queuety) -> None:
    described = child(app).version("v3").on_queue("agents").with_priority(Priority.HIGH).idempotency_key("once")
    items = ["a", {"topic": "dogs", "_secret": 1}, None, [1, [2]], {}, {"start_item_index": "mine"}]
    run = (
        app.workflow("parent")
        .start_workflows("items", described, "ids", "task")
        .then(end)
        .dispatch({"topic": "cats", "items": items, "ids": "of before", "deep": {"x": [1]}})
    )
    ids = ids_of(app, run)
    assert ids == runs_named(app)
    children = [status_of(app, one) for one in ids]
    shared = {"topic": "cats", "deep": {"x": [1]}}
    assert [one.state for one in children] == [
        {**shared, "task": "a", "start_item_index": 0},
        {**shared, "topic": "dogs", "start_item_index": 1},
        {**shared, "task": None, "start_item_index": 2},
        {**shared, "task": [1, [2]], "start_item_index": 3},
        {**shared, "start_item_index": 4},
        {**shared, "start_item_index": 5},
    ]
    for one in children:
        assert (one.name, one.parent_workflow_id, one.parent_step_index) == ("child", None, None)
        assert (one.definition_version, one.idempotency_key) == ("v3", None)
        (job,) = jobs_of(app, one.id)
        assert (job.queue, job.priority) == ("agents", Priority.HIGH)
    done = ended(app, run)
    assert (done.status, done.state["end"]) == (WorkflowStatus.COMPLETED, True)
    assert story(app, run) == ["step_completed 0", "step_completed 1"]
    assert app.workflow_timeline(run)[0].output == {"ids": ids}
    assert {status_of(app, one).status for one in ids} == {WorkflowStatus.COMPLETED}


def test_nothing_is_inherited_unless_it_is_wanted(app: Queuety) -> None:
    builder = app.workflow("parent").start_workflows("items", child(app), "ids", inherit_state=False)
    run = builder.dispatch({"topic": "cats", "items": ["a", {"x": 1}]})
    assert [status_of(app, one).state for one in ids_of(app, run)] == [
        {"item": "a", "start_item_index": 0},
        {"x": 1, "start_item_index": 1},
    ]


@pytest.mark.parametrize("payload", [{}, {"items": None}, {"items": []}, {"items": {}}], ids=str)
def test_without_items_no_run_is_started_and_the_run_goes_on(memory: Queuety, payload: State) -> None:
    run = memory.workflow("parent").start_workflows("items", child(memory)).then(end).dispatch(payload)
    done = ended(memory, run)
    assert (done.status, done.state["started_workflow_ids"]) == (WorkflowStatus.COMPLETED, [])
    assert runs_named(memory) == []


def test_what_is_no_list_fails_the_run_and_starts_nothing(app: Queuety) -> None:
    run = app.workflow("parent").then(end).start_workflows("items", child(app)).dispatch({"items": "abc"})
    failed = ended(app, run)
    assert (failed.status, failed.failed_step, failed.error_kind) == ("failed", 1, ErrorKind.STEP_FAILED)
    assert "state['items'], which is of type str" in (failed.error_message or "")
    assert runs_named(app) == []


def test_hard_values_come_to_the_children_as_they_are(app: Queuety) -> None:
    items: list[Any] = ["nul \0", "👩‍👩‍👧‍👦", 2**63 - 1, -(2**63), 1.0, {"a\0b": {"_x": [None]}}, "x" * 70_000]
    run = app.workflow("parent").start_workflows("items", child(app), "ids").dispatch({"items": items})
    app.run_until_idle()
    states = [status_of(app, one).state for one in ids_of(app, run)]
    assert [state.get("item", state.get("a\0b")) for state in states] == [*items[:5], {"_x": [None]}, items[6]]
    assert [type(state.get("item")) for state in states[2:5]] == [int, int, float]


@pytest.mark.parametrize("where", ["INSERT INTO queuety_workflows", "UPDATE queuety_workflows", "DELETE FROM"])
def test_a_transaction_that_breaks_starts_none_and_the_next_one_each_once(
    app: Queuety, database: Database, where: str
) -> None:
    """Whatever the statement at which the database goes away: there is no child, and then no child twice."""
    builder = app.workflow("parent").then(lap).start_workflows("list", child(app), "ids")
    run = builder.dispatch({"list": list(range(5))})
    seen: list[list[int]] = []

    def lose(text: str) -> None:
        if where in text and len(seen) < 2:
            with Queuety(database.url) as other:
                seen.append(runs_named(other))
            raise driver_error(database.kind, "lost")

    app.door.on_statement = lose
    try:
        app.run_until_idle()
    finally:
        app.door.on_statement = None
    assert seen == [[], []]
    assert len(runs_named(app)) == 5
    assert ids_of(app, run) == runs_named(app)


def test_a_dispatch_that_the_caller_rolls_back_starts_no_children_either(app: Queuety, database: Database) -> None:
    builder = app.workflow("parent").start_workflows("items", child(app), "ids")
    engine = create_engine(database.url)
    with engine.connect() as connection:
        run = builder.dispatch({"items": [1, 2, 3]}, connection=connection)
        connection.rollback()
    assert (app.workflow_status(run), runs_named(app)) == (None, [])
    with engine.begin() as connection:
        run = builder.dispatch({"items": [1, 2, 3]}, connection=connection)
    engine.dispose()
    assert ids_of(app, run) == runs_named(app)
    assert app.run_until_idle() == 3


def test_a_cancelled_or_failed_run_does_not_touch_the_runs_that_it_has_started(app: Queuety) -> None:
    for last in (end, fails):
        run = app.workflow("parent").start_workflows("items", child(app), "ids").then(last).dispatch({"items": [1, 2]})
        if last is end:
            app.cancel_workflow(run)
        app.run_until_idle()
        assert status_of(app, run).status.is_terminal
        assert status_of(app, run).status is not WorkflowStatus.COMPLETED
        assert [status_of(app, one).status for one in ids_of(app, run)] == [WorkflowStatus.COMPLETED] * 2


def test_a_started_run_that_fails_or_is_cancelled_does_not_touch_the_one_that_started_it(app: Queuety) -> None:
    builder = app.workflow("parent").start_workflows("items", child(app, fails_at_two), "ids")
    run = builder.delay(step_name="pause").then(end).dispatch({"items": [1, 2, 3, 4]})
    ids = ids_of(app, run)
    app.cancel_workflow(ids[0])
    done = ended(app, run)
    assert (done.status, done.error_message) == (WorkflowStatus.COMPLETED, None)
    assert [status_of(app, one).status for one in ids] == ["cancelled", "completed", "failed", "completed"]


def test_a_retry_of_a_later_step_starts_nothing_again(app: Queuety) -> None:
    run = app.workflow("parent").start_workflows("items", child(app), "ids").then(fails).dispatch({"items": [1, 2]})
    for _ in range(2):
        app.run_until_idle()
        app.retry_workflow(run)
    app.run_until_idle()
    assert len(runs_named(app)) == 2


def test_a_pause_holds_the_start_until_the_run_is_resumed(app: Queuety) -> None:
    run = app.workflow("parent").then(end).start_workflows("items", child(app), "ids").dispatch({"items": [1]})
    app.pause_workflow(run)
    assert (ended(app, run).current_step, runs_named(app)) == (1, [])
    app.resume_workflow(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert ids_of(app, run) == runs_named(app)


def test_the_run_waits_for_all_that_it_has_started_whatever_they_do(app: Queuety) -> None:
    described = (
        app.workflow("child")
        .for_each("numbers", double, result_key="doubled")
        .parallel([bind(branch, key="p"), bind(branch, key="q")])
        .run_workflow("grandchild", app.workflow("g").then(add_up))
    )
    run = (
        app.workflow("parent")
        .start_workflows("items", described, "ids", "number")
        .wait_for_workflows("ids", result_key="all")
        .then(end)
        .dispatch({"items": ["x", "y", "z"], "numbers": [3, 4]})
    )
    done = ended(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    everything = done.state["all"]
    assert isinstance(everything, dict)
    assert list(everything) == [str(one) for one in ids_of(app, run)]
    assert [(one["number"], one["p"], one["q"], one["total"]) for one in everything.values()] == [
        ("x", 0, 0, 14),
        ("y", 1, 1, 14),
        ("z", 2, 2, 14),
    ]


def test_a_group_names_the_runs_of_the_last_start_only(app: Queuety) -> None:
    run = (
        app.workflow("parent")
        .then(lap, name="lap")
        .start_workflows("items", child(app), "ids", group_key="crowd")
        .wait_for_workflow_group("crowd", result_key="crowd")
        .repeat_until("lap", "n", 3)
        .dispatch()
    )
    done = ended(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    crowd = done.state["crowd"]
    assert isinstance(crowd, dict)
    assert list(crowd) == [str(one) for one in ids_of(app, run)]
    assert (len(crowd), len(runs_named(app))) == (3, 6)


def test_agents_are_started_and_awaited_under_names_of_their_own(app: Queuety) -> None:
    run = (
        app.workflow("parent")
        .start_agents("tasks", child(app, fails_at_two), group_key="agents")
        .wait_for_agents(mode=WaitMode.QUORUM, quorum=2)
        .wait_for_agent_group(mode=WaitMode.ANY, result_key="any")
        .dispatch({"tasks": ["a", "b", "c"]})
    )
    done = ended(app, run)
    ids = ids_of(app, run, "agent_workflow_ids")
    assert done.status is WorkflowStatus.COMPLETED
    results, first = done.state["agent_results"], done.state["any"]
    assert isinstance(results, dict)
    assert isinstance(first, dict)
    assert [one["agent_task"] for one in results.values()] == ["a", "b"]
    assert list(first) == [str(ids[0])]


def test_what_was_started_is_kept_while_its_starter_waits_for_a_person(app: Queuety, clock: ManualClock) -> None:
    """Nobody has named the group, and nobody waits for it yet: whoever takes eight days to agree finds all of it."""
    builder = app.workflow("parent").start_agents("tasks", child(app)).wait_for_approval().wait_for_agents()
    run = builder.dispatch({"tasks": ["a", "b"]})
    app.run_until_idle()
    assert len(app.list_workflows(name="child", status="completed")) == 2
    clock.advance(days=8)
    assert app.purge_workflows(7) == 0
    app.approve_workflow(run)
    done = ended(app, run)
    assert done.status is WorkflowStatus.COMPLETED, done.error_message
    clock.advance(days=8)
    assert app.purge_workflows(7) == 3


def test_a_start_within_a_run_within_a_run(app: Queuety) -> None:
    """The ids come up with the child's state, and the outer run may wait for them."""
    inside = app.workflow("i").start_workflows("items", child(app), "ids")
    builder = app.workflow("parent").run_workflow("inner", inside).wait_for_workflows("ids", result_key="all").then(end)
    done = ended(app, builder.dispatch({"items": [5, 6]}))
    everything = done.state["all"]
    assert isinstance(everything, dict)
    assert [one["answer"] for one in everything.values()] == [5, 6]


def test_runs_that_start_runs_that_start_runs(app: Queuety) -> None:
    leaf = app.workflow("leaf").then(work)
    middle = app.workflow("middle").start_workflows("items", leaf, "leaves")
    run = app.workflow("parent").start_workflows("items", middle, "ids").then(end).dispatch({"items": {"x": 1, "y": 2}})
    app.run_until_idle()
    assert len(runs_named(app, "middle")) == 2
    assert runs_named(app, "leaf") == [], "what was worked through is not inherited"
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_thousand_runs_start_with_one_step(database: Database) -> None:
    with Queuety(database.url) as app:
        described = app.workflow("child").wait_for_signal("never")
        builder = app.workflow("parent").start_workflows("items", described, "ids", inherit_state=False)
        run = builder.dispatch({"items": list(range(1000))})
        ids = ids_of(app, run)
        assert status_of(app, run).status is WorkflowStatus.COMPLETED
        assert (len(ids), ids) == (1000, sorted(ids))
        assert runs_named(app) == ids
        assert [status_of(app, ids[n]).state["item"] for n in (0, 500, 999)] == [0, 500, 999]
        check(app.door)


def test_started_runs_are_worked_on_while_the_one_that_started_them_goes_on(database: Database) -> None:
    with Queuety(database.url) as app, working(app, concurrency=4):
        builder = app.workflow("parent").start_workflows("items", child(app, waits), "ids").then(end)
        run = builder.dispatch({"items": [1, 2, 3]})
        assert app.wait(run, 30).status is WorkflowStatus.COMPLETED
        until(lambda: notes.count("began") == 3)
        let_go.set()
        assert {app.wait(one, 30).status for one in ids_of(app, run)} == {WorkflowStatus.COMPLETED}
    with Queuety(database.url) as app:
        check(app.door)

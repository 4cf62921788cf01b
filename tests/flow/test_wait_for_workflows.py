"""`wait_for_workflow(s)`: which runs are meant, when the wait is decided, and what it brings."""

from __future__ import annotations

from typing import Any

import pytest

from queuety import Queuety, WaitMode, WorkflowStatus, errors, step
from tests.support.flowing import status_of

State = dict[str, Any]
ALL, ANY, QUORUM = WaitMode.ALL, WaitMode.ANY, WaitMode.QUORUM
COMPLETED, FAILED = WorkflowStatus.COMPLETED, WorkflowStatus.FAILED
WAITING = WorkflowStatus.WAITING_FOR_WORKFLOWS


@step(max_attempts=1)
def ends(state: State) -> State:
    if state.get("fails"):
        raise ValueError(f"no luck with {state['who']}")
    return {f"of_{state['who']}": True}


@step
def nothing(state: State) -> State:
    return {}


def held(app: Queuety, *whos: str, **payload: Any) -> list[int]:
    """A run for each, that ends with its signal `go`."""
    builder = app.workflow("held").wait_for_signal("go").then(ends)
    return app.dispatch_many(builder, [{"who": who, **payload} for who in whos])


def finish(app: Queuety, *runs: int, fails: bool = False) -> None:
    """Each ends, and whoever waits for it is told."""
    for run in runs:
        app.signal(run, "go", {"fails": fails})
        app.run_until_idle()


def run_of(app: Queuety, workflows: Any, mode: WaitMode = ALL, payload: State | None = None, **more: Any) -> int:
    """A run that waits, and has asked by now."""
    run = app.workflow("waiter").wait_for_workflows(workflows, mode, "got", "wait", **more).dispatch(payload)
    app.run_until_idle()
    return run


def status(app: Queuety, run: int) -> WorkflowStatus:
    return status_of(app, run).status


def got(app: Queuety, run: int) -> Any:
    """What the wait has brought; the run is completed."""
    assert status(app, run) is COMPLETED, status_of(app, run)
    return status_of(app, run).state["got"]


def lost(app: Queuety, run: int) -> str:
    """Why the wait was in vain; the run has failed of it."""
    state = status_of(app, run)
    assert (state.status, state.error_kind) == (FAILED, "WaitUnsatisfiable"), state
    assert state.failed_step == state.current_step
    assert state.error_message is not None
    return state.error_message.partition("in vain: ")[2]


# when it is decided


def test_all_goes_on_with_the_last_one(app: Queuety) -> None:
    a, b, c = held(app, "a", "b", "c")
    run = run_of(app, [c, a, b])
    finish(app, b, c)
    assert status(app, run) is WAITING
    assert app.list_jobs(workflow_id=run, status="pending") == []
    finish(app, a)
    assert list(got(app, run)) == [str(c), str(a), str(b)], "as listed"
    assert [event.event for event in app.workflow_timeline(run)] == ["workflow_waiting", "workflow_resumed"]


def test_all_fails_with_the_first_that_fails_while_others_go_on(app: Queuety) -> None:
    a, b, c = held(app, "a", "b", "c")
    run = run_of(app, [a, b, c])
    finish(app, b, fails=True)
    assert lost(app, run) == f"all 3 must complete, but workflow {b} has failed (no luck with b)"
    assert [status(app, other) for other in (a, c)] == [WorkflowStatus.WAITING_FOR_SIGNAL] * 2
    finish(app, a, c)
    assert status(app, run) is FAILED


def test_all_fails_with_the_first_that_is_cancelled(app: Queuety) -> None:
    """H11, H16: a member that is cancelled must not hang the barrier."""
    a, b = held(app, "a", "b")
    run = run_of(app, [a, b])
    app.cancel_workflow(b)
    app.run_until_idle()
    assert lost(app, run) == f"all 2 must complete, but workflow {b} was cancelled"


def test_any_goes_on_with_the_first_that_completes(app: Queuety) -> None:
    a, b, c = held(app, "a", "b", "c")
    run = run_of(app, [a, b, c], ANY)
    finish(app, c, fails=True)
    assert status(app, run) is WAITING
    finish(app, b)
    assert got(app, run) == {str(b): {"who": "b", "fails": False, "of_b": True}}


def test_any_fails_when_none_is_left(app: Queuety) -> None:
    a, b = held(app, "a", "b")
    run = run_of(app, [a, b], ANY)
    finish(app, b, fails=True)
    assert status(app, run) is WAITING
    app.cancel_workflow(a)
    app.run_until_idle()
    assert lost(app, run) == (
        f"1 of 2 must complete, but workflow {a} was cancelled, workflow {b} has failed (no luck with b)"
    )


def test_a_quorum_goes_on_when_it_is_reached(app: Queuety) -> None:
    a, b, c, d = held(app, "a", "b", "c", "d")
    run = run_of(app, [a, b, c, d], QUORUM, quorum=2)
    finish(app, d)
    finish(app, a, fails=True)
    assert status(app, run) is WAITING
    finish(app, b)
    assert list(got(app, run)) == [str(b), str(d)]


def test_a_quorum_fails_the_moment_it_cannot_be_reached(app: Queuety) -> None:
    a, b, c = held(app, "a", "b", "c")
    run = run_of(app, [a, b, c], QUORUM, quorum=2)
    finish(app, a, fails=True)
    assert status(app, run) is WAITING
    app.cancel_workflow(b)
    app.run_until_idle()
    assert lost(app, run).startswith("2 of 3 must complete, but")
    finish(app, c)
    assert status(app, run) is FAILED


def test_what_has_already_come_about_is_not_waited_for(app: Queuety) -> None:
    a, b, c, d = held(app, "a", "b", "c", "d")
    finish(app, a, b)
    finish(app, c, fails=True)
    assert list(got(app, run_of(app, [b, a]))) == [str(b), str(a)]
    assert list(got(app, run_of(app, [d, b, a], ANY))) == [str(b)], "the first completed as listed"
    assert list(got(app, run_of(app, [d, c, b, a], QUORUM, quorum=2))) == [str(b), str(a)]
    assert lost(app, run_of(app, [a, c])).startswith("all 2 must complete")
    assert lost(app, run_of(app, [a, c, d], QUORUM, quorum=3)).startswith("3 of 3 must complete")


def test_a_wait_that_is_dispatched_after_all_is_over_never_waits(app: Queuety) -> None:
    (a,) = held(app, "a")
    finish(app, a)
    run = app.workflow("waiter").wait_for_workflow(a).dispatch()
    assert (status(app, run), status_of(app, run).state["of_a"]) == (COMPLETED, True)


# ids


def test_ids_come_from_the_state_as_numbers_or_as_text(app: Queuety) -> None:
    a, b = held(app, "a", "b")
    finish(app, a, b)
    named: list[tuple[Any, list[int]]] = [(a, [a]), (str(a), [a]), ([b, a], [b, a]), ([str(b), a, b, str(a)], [b, a])]
    for value, ids in named:
        assert list(got(app, run_of(app, "ids", payload={"ids": value}))) == [str(one) for one in ids], value


def test_ids_that_a_step_before_has_found_are_taken_when_the_wait_is_reached(app: Queuety) -> None:
    (a,) = held(app, "a")
    builder = app.workflow("waiter").wait_for_signal("ids").wait_for_workflows("ids", result_key="got")
    run = builder.dispatch({"ids": "not yet"})
    app.signal(run, "ids", {"ids": [a]})
    app.run_until_idle()
    assert status_of(app, run).waiting_for == [str(a)]
    finish(app, a)
    assert list(got(app, run)) == [str(a)]


def test_an_id_that_is_listed_twice_counts_once(app: Queuety) -> None:
    a, b = held(app, "a", "b")
    run = run_of(app, "ids", QUORUM, {"ids": [a, a, b]}, quorum=2)
    assert status_of(app, run).waiting_for == [str(a), str(b)]
    finish(app, a)
    assert status(app, run) is WAITING
    finish(app, b)
    assert list(got(app, run)) == [str(a), str(b)]


def test_what_is_no_id_fails_at_once_in_every_mode(app: Queuety) -> None:
    (a,) = held(app, "a")
    values: list[Any] = [None, True, 0, -1, 1.5, "", "01", {}, [[a]], [a, None], [a, "12a"]]
    for value in values:
        for mode in WaitMode:
            said = lost(app, run_of(app, "ids", mode, {"ids": value}, quorum=1 if mode is QUORUM else None))
            assert said.startswith("state key 'ids' holds "), value


def test_a_missing_key_fails_at_once_in_every_mode(app: Queuety) -> None:
    for mode in WaitMode:
        assert lost(app, run_of(app, "ids", mode, quorum=1 if mode is QUORUM else None)).startswith(
            "state key 'ids' is missing"
        )


def test_an_unknown_group_fails_at_once(app: Queuety) -> None:
    run = app.workflow("w").wait_for_workflow_group("nobody").dispatch()
    assert lost(app, run).startswith("group 'nobody' is unknown")


def test_an_empty_list_satisfies_all_and_neither_any_nor_a_quorum(app: Queuety) -> None:
    assert got(app, run_of(app, [])) == {}
    assert got(app, run_of(app, "ids", payload={"ids": []})) == {}
    assert lost(app, run_of(app, "ids", ANY, {"ids": []})) == "1 of 0 must complete, but there are too few"
    assert lost(app, run_of(app, "ids", QUORUM, {"ids": []}, quorum=1)).startswith("1 of 0")


def test_a_run_that_is_not_there_is_lost(app: Queuety) -> None:
    a, b = held(app, "a", "b")
    assert lost(app, run_of(app, [a, 10**9])) == f"all 2 must complete, but workflow {10**9} is not there"
    either = run_of(app, [10**9, a, b], ANY)
    both = run_of(app, [10**9, a, b], QUORUM, quorum=2)
    assert [status(app, run) for run in (either, both)] == [WAITING, WAITING]
    finish(app, b)
    assert list(got(app, either)) == [str(b)]
    finish(app, a)
    assert list(got(app, both)) == [str(a), str(b)]
    assert lost(app, run_of(app, [10**9], ANY)).startswith("1 of 1 must complete")


def test_a_run_does_not_wait_for_itself(app: Queuety) -> None:
    (a,) = held(app, "a")
    builder = app.workflow("w").wait_for_signal("ids").wait_for_workflows("ids", ANY)
    run = builder.dispatch()
    app.signal(run, "ids", {"ids": [a, run]})
    assert lost(app, run) == "state key 'ids' names the run itself, which would wait for ever"


def test_a_quorum_above_the_number_of_runs_is_refused_or_fails_on_entry(app: Queuety) -> None:
    a, b = held(app, "a", "b")
    with pytest.raises(errors.DefinitionError, match="quorum of 3 among 2"):
        app.workflow("w").wait_for_workflows([a, b], QUORUM, quorum=3)
    assert lost(app, run_of(app, "ids", QUORUM, {"ids": [a, b]}, quorum=3)) == (
        "3 of 2 must complete, but there are too few"
    )


# what it brings


def test_the_wait_for_one_run_brings_its_state_itself(app: Queuety) -> None:
    (a,) = held(app, "a")
    for workflow in (a, "id"):
        run = app.workflow("w").wait_for_workflow(workflow, "got").dispatch({"id": a})
        app.run_until_idle()
        if workflow == a:
            assert status(app, run) is WAITING
            finish(app, a)
        assert got(app, run) == {"who": "a", "fails": False, "of_a": True}


def test_the_wait_for_one_run_refuses_a_list_of_several(app: Queuety) -> None:
    a, b = held(app, "a", "b")
    run = app.workflow("w").wait_for_workflow("ids").dispatch({"ids": [a, b]})
    assert lost(app, run) == "state key 'ids' names 2 workflows where one is waited for; use wait_for_workflows"
    single = app.workflow("w").wait_for_workflow("ids").dispatch({"ids": [a]})
    assert status(app, single) is WAITING


def test_a_list_of_one_brings_states_by_id(app: Queuety) -> None:
    (a,) = held(app, "a")
    finish(app, a)
    assert got(app, run_of(app, [a])) == {str(a): {"who": "a", "fails": False, "of_a": True}}


def test_without_a_key_states_are_merged_as_listed_and_the_later_one_wins(app: Queuety) -> None:
    a, b = held(app, "a", "b")
    finish(app, b, a)
    run = app.workflow("w").wait_for_workflows([b, a]).dispatch({"who": "me", "mine": 1})
    assert status_of(app, run).state == {"who": "a", "mine": 1, "fails": False, "of_b": True, "of_a": True}
    assert list(status_of(app, run).state) == ["who", "mine", "fails", "of_b", "of_a"]


def test_nothing_of_the_lost_ones_is_brought(app: Queuety) -> None:
    a, b, c = held(app, "a", "b", "c")
    run = run_of(app, [a, b, c], QUORUM, quorum=2)
    finish(app, a, fails=True)
    finish(app, b, c)
    assert list(got(app, run)) == [str(b), str(c)]


# groups and agents


def agents(app: Queuety) -> Any:
    return app.workflow("agent").wait_for_signal("go").then(ends)


def test_a_group_is_what_a_step_of_the_run_has_started(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .start_workflows("items", agents(app), group_key="crew")
        .wait_for_workflow_group("crew", result_key="got")
        .dispatch({"items": [{"who": "a"}, {"who": "b"}]})
    )
    app.run_until_idle()
    ids: Any = status_of(app, run).state["started_workflow_ids"]
    details: Any = status_of(app, run).wait_details
    assert (status_of(app, run).waiting_for, details["group_key"]) == ([str(id_) for id_ in ids], "crew")
    finish(app, *reversed(ids))
    assert [state["who"] for state in got(app, run).values()] == ["a", "b"]


def test_agents_are_started_and_waited_for_without_naming_anything(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .start_agents("tasks", agents(app))
        .wait_for_agents()
        .dispatch({"tasks": ["a", "b"], "who": "x"})
    )
    app.run_until_idle()
    ids: Any = status_of(app, run).state["agent_workflow_ids"]
    assert status_of(app, run).waiting_for == [str(id_) for id_ in ids]
    finish(app, *ids)
    results: Any = status_of(app, run).state["agent_results"]
    assert [(key, state["agent_task"]) for key, state in results.items()] == [(str(ids[0]), "a"), (str(ids[1]), "b")]


def test_an_agent_group_goes_on_with_its_quorum(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .start_agents("tasks", agents(app), group_key="agents")
        .wait_for_agent_group(mode=QUORUM, quorum=1)
        .dispatch({"tasks": ["a", "b"], "who": "x"})
    )
    app.run_until_idle()
    first, second = map(int, status_of(app, run).waiting_for or ())
    finish(app, first, fails=True)
    assert status(app, run) is WAITING
    finish(app, second)
    results: Any = status_of(app, run).state["agent_results"]
    assert list(results) == [str(second)]


def test_a_group_of_nobody_is_an_empty_list(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .start_workflows("items", agents(app), group_key="crew")
        .wait_for_workflow_group("crew", result_key="got")
        .dispatch({"items": []})
    )
    assert got(app, run) == {}


def test_a_group_belongs_to_the_run_that_started_it(app: Queuety) -> None:
    builder = app.workflow("w").start_workflows("items", agents(app), group_key="crew")
    builder.dispatch({"items": [{"who": "a"}]})
    assert lost(app, app.workflow("w").wait_for_workflow_group("crew").dispatch()).startswith("group 'crew' is unknown")


def test_the_latest_start_under_a_name_is_the_group(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .start_workflows("items", agents(app), result_key="first", group_key="crew")
        .start_workflows("items", agents(app), result_key="second", group_key="crew")
        .wait_for_workflow_group("crew", result_key="got")
        .dispatch({"items": [{"who": "a"}]})
    )
    app.run_until_idle()
    second: Any = status_of(app, run).state["second"]
    assert status_of(app, run).waiting_for == [str(id_) for id_ in second]

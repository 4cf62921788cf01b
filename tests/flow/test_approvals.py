"""Waits for people: approvals, inputs, decisions, and the verbs that answer them whatever their signals are called."""

from __future__ import annotations

from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, errors, step
from queuety.testing import ManualClock
from tests.support.cli import done
from tests.support.databases import Database
from tests.support.flowing import status_of

State = dict[str, Any]
COMPLETED = WorkflowStatus.COMPLETED
WAITING = WorkflowStatus.WAITING_FOR_SIGNAL


@step
def work(state: State) -> State:
    return {"worked": True}


def state_of(app: Queuety, run: int) -> State:
    return dict(status_of(app, run).state)


def test_an_approval_lets_the_run_go_on_with_what_was_said(app: Queuety) -> None:
    run = app.workflow("w").wait_for_approval().then(work).dispatch()
    waiting = status_of(app, run)
    details: Any = waiting.wait_details
    assert (waiting.waiting_for, details["human_wait"], details["step_name"]) == (
        ["approval"],
        "approval",
        "wait_for_approval",
    )
    app.approve_workflow(run, {"by": "Ada"})
    app.run_until_idle()
    assert state_of(app, run) == {"approval": {"by": "Ada"}, "worked": True}


def test_an_input_is_stored_as_it_was_handed_over(app: Queuety) -> None:
    run = app.workflow("w").wait_for_input().dispatch()
    details: Any = status_of(app, run).wait_details
    assert details["human_wait"] == "input"
    app.submit_workflow_input(run, {"answer": 42})
    assert state_of(app, run) == {"input": {"answer": 42}}


def test_a_decision_says_what_was_decided_by_which_signal_and_with_what(app: Queuety) -> None:
    builder = app.workflow("w").wait_for_decision()
    yes, no = builder.dispatch(), builder.dispatch()
    waiting = status_of(app, yes)
    details: Any = waiting.wait_details
    assert (waiting.waiting_for, waiting.wait_mode, details["human_wait"]) == (
        ["approved", "rejected"],
        "any",
        "decision",
    )
    app.approve_workflow(yes, {"by": "Ada"})
    app.reject_workflow(no)
    assert state_of(app, yes) == {"decision": {"outcome": "approved", "signal": "approved", "data": {"by": "Ada"}}}
    assert state_of(app, no) == {"decision": {"outcome": "rejected", "signal": "rejected", "data": {}}}


def test_a_decision_without_a_key_is_merged_and_its_payload_cannot_say_otherwise(app: Queuety) -> None:
    run = app.workflow("w").wait_for_decision(result_key=None).dispatch()
    app.reject_workflow(run, {"why": "no", "decision_outcome": "approved", "_next_step": "x"})
    assert state_of(app, run) == {"decision_outcome": "rejected", "decision_signal": "rejected", "why": "no"}


def test_the_first_of_two_contrary_answers_decides(app: Queuety) -> None:
    run = app.workflow("w").then(work).wait_for_decision("yes", "no").dispatch()
    app.signal(run, "no", {"n": 1})
    app.signal(run, "yes", {"n": 2})
    app.run_until_idle()
    assert state_of(app, run)["decision"] == {"outcome": "rejected", "signal": "no", "data": {"n": 1}}


def test_answers_go_to_whatever_the_present_step_listens_for(app: Queuety) -> None:
    """The name of `approve_workflow` by default is `approval`, and a decision listens for `approved`."""
    run = (
        app.workflow("w")
        .wait_for_approval("legal", "legal", name="legal")
        .wait_for_decision("yes", "no", "choice")
        .wait_for_decision("ja", "nein", "wahl", name="wahl")
        .wait_for_input("size", "size")
        .dispatch()
    )
    app.approve_workflow(run, {"n": 1})
    app.approve_workflow(run, {"n": 2})
    app.reject_workflow(run, {"n": 3})
    app.submit_workflow_input(run, {"n": 4})
    assert status_of(app, run).status is COMPLETED
    assert state_of(app, run) == {
        "legal": {"n": 1},
        "choice": {"outcome": "approved", "signal": "yes", "data": {"n": 2}},
        "wahl": {"outcome": "rejected", "signal": "nein", "data": {"n": 3}},
        "size": {"n": 4},
    }


def test_a_name_that_is_given_is_the_name_that_is_sent(app: Queuety) -> None:
    run = app.workflow("w").wait_for_decision("yes", "no").dispatch()
    app.approve_workflow(run, signal_name="approval")
    app.submit_workflow_input(run, signal_name="input")
    assert status_of(app, run).status is WAITING
    app.approve_workflow(run, signal_name="no")
    decision: Any = state_of(app, run)["decision"]
    assert decision["outcome"] == "rejected"


def test_where_nobody_is_asked_the_usual_names_are_sent(app: Queuety) -> None:
    builder = app.workflow("w").then(work).wait_for_signals(["approval", "rejected", "input"], result_key="got")
    run = builder.dispatch()
    app.approve_workflow(run, {"n": 1})
    app.reject_workflow(run, {"n": 2})
    app.run_until_idle()
    app.submit_workflow_input(run, {"n": 3})
    assert state_of(app, run)["got"] == {"approval": {"n": 1}, "rejected": {"n": 2}, "input": {"n": 3}}


def test_an_answer_of_another_kind_than_is_asked_for_goes_by_its_usual_name(app: Queuety) -> None:
    run = app.workflow("w").wait_for_input("size").dispatch()
    app.approve_workflow(run)
    app.reject_workflow(run)
    assert status_of(app, run).status is WAITING
    names = [
        event.output["name"]
        for event in app.workflow_timeline(run)
        if event.event == "signal_received" and event.output
    ]
    assert names == ["approval", "rejected"]


def test_an_answer_that_comes_before_the_question_is_found_by_it(app: Queuety) -> None:
    run = app.workflow("w").then(work).wait_for_approval().wait_for_input().dispatch()
    app.submit_workflow_input(run, {"n": 2})
    app.approve_workflow(run, {"n": 1})
    app.run_until_idle()
    assert (state_of(app, run)["approval"], state_of(app, run)["input"]) == ({"n": 1}, {"n": 2})


def test_an_answer_must_fit_where_the_question_is_picky(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .wait_for_approval(match_payload={"role": "boss"}, correlation_key="order")
        .dispatch({"order": 7})
    )
    for answer in ({}, {"role": "boss"}, {"role": "boss", "order": 8}, {"role": "clerk", "order": 7}):
        app.approve_workflow(run, answer)
        assert status_of(app, run).status is WAITING
    app.approve_workflow(run, {"role": "boss", "order": 7})
    assert status_of(app, run).status is COMPLETED


def test_nobody_answers_in_time_and_the_run_goes_where_it_was_told(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("w")
        .wait_for_decision(timeout=60, on_timeout="late")
        .wait_for_input()
        .then(work, "late")
        .dispatch()
    )
    clock.advance(seconds=60)
    app.run_until_idle()
    assert (status_of(app, run).status, state_of(app, run)) == (COMPLETED, {"worked": True})


def test_answers_to_a_run_that_is_over_or_unknown(app: Queuety) -> None:
    run = app.workflow("w").wait_for_approval().dispatch()
    app.approve_workflow(run)
    for verb in (app.approve_workflow, app.reject_workflow, app.submit_workflow_input):
        verb(run, {"late": True})
        with pytest.raises(errors.NotFoundError):
            verb(run + 10**6)
        with pytest.raises(errors.DefinitionError, match="signal_name"):
            verb(run, signal_name="  ")
        with pytest.raises(errors.PayloadError):
            verb(run, [1])
    assert state_of(app, run) == {"approval": {}}


def test_two_approvals_answer_two_questions_of_one_name(app: Queuety) -> None:
    run = app.workflow("w").wait_for_approval().wait_for_approval(result_key="second", name="again").dispatch()
    app.approve_workflow(run, {"n": 1})
    assert status_of(app, run).current_step_name == "again"
    app.approve_workflow(run, {"n": 2})
    assert state_of(app, run) == {"approval": {"n": 1}, "second": {"n": 2}}


def test_the_command_line_answers_a_run_of_another_process(app: Queuety, database: Database) -> None:
    builder = app.workflow("w").wait_for_decision("yes", "no").wait_for_input("size").wait_for_signal("go", "go")
    run = str(builder.dispatch())
    place = ("--database", database.url, "workflow")
    assert done(*place, "reject", run, '{"n": 1}') == f"workflow {run} is waiting_for_signal\n"
    done(*place, "input", run, '{"n": 2}')
    assert done(*place, "signal", run, "go") == f"workflow {run} is completed\n"
    state = state_of(app, int(run))
    assert (state["decision"]["outcome"], state["input"], state["go"]) == ("rejected", {"n": 2}, {})

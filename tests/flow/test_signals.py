"""`wait_for_signal(s)`: what a run is told, before it waits or while it does, and which signal serves which wait."""

from __future__ import annotations

from typing import Any

import pytest

from queuety import Queuety, WaitMode, WorkflowStatus, current, errors, step
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of

State = dict[str, Any]
COMPLETED = WorkflowStatus.COMPLETED
WAITING = WorkflowStatus.WAITING_FOR_SIGNAL


@step
def before(state: State) -> State:
    return {"before": True}


@step
def after(state: State) -> State:
    note(("after", current().workflow_id))
    return {"after": True}


@step
def collect(state: State) -> State:
    return {"all": [*state.get("all", []), state["got"]["n"]], "is_full": len(state.get("all", [])) + 1 == 3}


@step
def revise(state: State) -> State:
    note("revise")
    return {"draft": state.get("draft", 0) + 1}


def state_of(app: Queuety, run: int) -> State:
    return dict(status_of(app, run).state)


def events(app: Queuety, run: int) -> list[str]:
    return [event.event for event in app.workflow_timeline(run)]


# when a signal comes


def test_a_run_waits_until_its_signal_comes_and_goes_on_in_the_senders_call(app: Queuety) -> None:
    run = app.workflow("w").then(before).wait_for_signal("go").then(after).dispatch()
    assert app.run_until_idle() == 1
    waiting = status_of(app, run)
    assert (waiting.status, waiting.current_step, waiting.waiting_for) == (WAITING, 1, ["go"])
    assert app.list_jobs(workflow_id=run, status="pending") == []
    app.signal(run, "go", {"by": "Ada"})
    going = status_of(app, run)
    assert (going.status, going.current_step, going.state["by"]) == (WorkflowStatus.RUNNING, 2, "Ada")
    assert app.run_until_idle() == 1
    assert status_of(app, run).status is COMPLETED
    assert events(app, run) == [
        "step_started",
        "step_completed",
        "workflow_waiting",
        "signal_received",
        "workflow_resumed",
        "step_started",
        "step_completed",
    ]


def test_a_signal_that_comes_before_the_wait_is_found_there_and_the_run_never_waits(app: Queuety) -> None:
    run = app.workflow("w").then(before).wait_for_signal("go", "got").dispatch()
    app.signal(run, "go", {"early": True})
    assert app.run_until_idle() == 1
    assert (status_of(app, run).status, state_of(app, run)["got"]) == (COMPLETED, {"early": True})
    assert "workflow_waiting" not in events(app, run)


def test_a_wait_that_is_the_last_step_completes_the_run(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go").dispatch()
    app.signal(run, "go")
    done = status_of(app, run)
    assert (done.status, done.current_step, done.waiting_for, done.state) == (COMPLETED, 1, None, {})
    assert done.completed_at is not None


def test_the_earliest_of_several_signals_is_taken(app: Queuety) -> None:
    run = app.workflow("w").then(before).wait_for_signal("go", "got").dispatch()
    for number in range(3):
        app.signal(run, "go", {"n": number})
    app.run_until_idle()
    assert state_of(app, run)["got"] == {"n": 0}


def test_a_signal_to_a_paused_run_is_kept_until_it_is_resumed(app: Queuety) -> None:
    run = app.workflow("w").then(before).wait_for_signal("go", "got").then(after).dispatch()
    app.pause_workflow(run)
    app.run_until_idle()
    app.signal(run, "go", {"n": 1})
    paused = status_of(app, run)
    assert (paused.status, paused.current_step, "got" in paused.state) == (WorkflowStatus.PAUSED, 1, False)
    app.resume_workflow(run)
    going = status_of(app, run)
    assert (going.status, going.current_step, going.state["got"]) == (WorkflowStatus.RUNNING, 2, {"n": 1})


def test_a_signal_to_a_failed_run_serves_it_once_it_is_retried(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", "got", timeout=1, match_payload={"ok": True}).dispatch()
    app.signal(run, "go", {"ok": False})
    clock.advance(seconds=1)
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.FAILED
    app.signal(run, "go", {"ok": True})
    assert status_of(app, run).status is WorkflowStatus.FAILED
    app.retry_workflow(run)
    assert (status_of(app, run).status, state_of(app, run)) == (COMPLETED, {"got": {"ok": True}})


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_a_signal_to_a_run_that_is_over_is_recorded_and_changes_nothing(app: Queuety, end: str) -> None:
    run = app.workflow("w").wait_for_signal("go").dispatch()
    if end == "completed":
        app.signal(run, "go")
    else:
        app.cancel_workflow(run)
    was = status_of(app, run)
    app.signal(run, "go", {"late": True})
    app.run_until_idle()
    assert status_of(app, run) == was
    assert events(app, run)[-1] == "signal_received"


def test_a_signal_to_an_unknown_run_is_refused(app: Queuety) -> None:
    for unknown in (1, 10**12, -1, 0):
        with pytest.raises(errors.NotFoundError, match=f"no workflow has the id {unknown}"):
            app.signal(unknown, "go")


# each serves once


def test_two_signals_of_one_name_serve_two_waits_in_order(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go", "first").wait_for_signal("go", "second", "again").dispatch()
    app.signal(run, "go", {"n": 1})
    assert (status_of(app, run).status, status_of(app, run).current_step) == (WAITING, 1)
    app.signal(run, "go", {"n": 2})
    assert state_of(app, run) == {"first": {"n": 1}, "second": {"n": 2}}


def test_one_signal_does_not_serve_two_waits(app: Queuety) -> None:
    """W-08: one early signal satisfied every later wait of its name."""
    run = app.workflow("w").then(before).wait_for_signal("go").wait_for_signal("go", step_name="again").dispatch()
    app.signal(run, "go")
    app.run_until_idle()
    assert (status_of(app, run).status, status_of(app, run).current_step) == (WAITING, 2)


def test_the_passes_of_a_loop_take_one_signal_each_in_order(app: Queuety) -> None:
    run = (
        app.workflow("w").wait_for_signal("go", "got", "hold").then(collect).repeat_until("hold", "is_full").dispatch()
    )
    app.signal(run, "go", {"n": 1})
    app.signal(run, "go", {"n": 2})
    app.run_until_idle()
    waiting = status_of(app, run)
    assert (waiting.status, waiting.current_step_name, waiting.state["all"]) == (WAITING, "hold", [1, 2])
    app.signal(run, "go", {"n": 3})
    app.signal(run, "go", {"n": 4})
    app.run_until_idle()
    assert (status_of(app, run).status, state_of(app, run)["all"]) == (COMPLETED, [1, 2, 3])


def test_a_draft_is_revised_until_it_is_approved(app: Queuety) -> None:
    """W-08: after one rejection the loop of the documentation never ended."""
    run = (
        app.workflow("w")
        .then(revise, name="revise")
        .wait_for_decision(result_key=None)
        .repeat_until("revise", "decision_outcome", "approved")
        .dispatch()
    )
    for _ in range(2):
        app.run_until_idle()
        assert status_of(app, run).status is WAITING
        app.reject_workflow(run, {"why": "too long"})
    app.run_until_idle()
    app.approve_workflow(run)
    app.run_until_idle()
    assert status_of(app, run).status is COMPLETED
    assert notes == ["revise"] * 3


def test_any_uses_only_the_one_that_it_took(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .then(before)
        .wait_for_signals(["a", "b"], WaitMode.ANY, "first")
        .wait_for_signals(["a", "b"], WaitMode.ANY, "second")
        .dispatch()
    )
    app.signal(run, "b", {"n": 1})
    app.signal(run, "a", {"n": 2})
    app.run_until_idle()
    state = state_of(app, run)
    assert (state["first"], state["second"]) == ({"b": {"n": 1}}, {"a": {"n": 2}}), "by arrival, not as configured"


def test_what_an_unfinished_wait_has_found_is_not_used_up(app: Queuety) -> None:
    """It is reserved: the wait takes it when it is over, and a later wait of that name does not find it."""
    run = app.workflow("w").wait_for_signals(["a", "b"], result_key="both").wait_for_signal("a", "rest").dispatch()
    app.signal(run, "a", {"n": 1})
    app.signal(run, "a", {"n": 2})
    details: Any = status_of(app, run).wait_details
    assert (details["matched"], details["remaining"]) == (["a"], ["b"])
    app.signal(run, "b", {"n": 3})
    assert state_of(app, run) == {"both": {"a": {"n": 1}, "b": {"n": 3}}, "rest": {"n": 2}}


def test_signals_that_nobody_waits_for_wait_themselves(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go").then(before).wait_for_signal("later", "got").dispatch()
    app.signal(run, "later", {"n": 1})
    assert status_of(app, run).status is WAITING
    app.signal(run, "go")
    app.run_until_idle()
    assert state_of(app, run)["got"] == {"n": 1}


def test_runs_do_not_take_each_others_signals(app: Queuety) -> None:
    one, other = app.dispatch_many(app.workflow("w").wait_for_signal("go"), [{}, {}])
    app.signal(other, "go")
    assert [status_of(app, run).status for run in (one, other)] == [WAITING, COMPLETED]


# several names


def test_all_waits_for_every_name_in_whatever_order_they_come(app: Queuety) -> None:
    for order in ("abc", "cba", "bac"):
        run = app.workflow("w").wait_for_signals(["a", "b", "c"], result_key="got").dispatch()
        for number, name in enumerate(order):
            assert status_of(app, run).status is WAITING
            app.signal(run, name, {"n": number})
        assert status_of(app, run).status is COMPLETED
        assert list(state_of(app, run)["got"]) == ["a", "b", "c"], "as configured"


def test_without_a_key_payloads_are_merged_in_the_configured_order(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signals(["a", "b"]).dispatch({"x": 0})
    app.signal(run, "b", {"x": "b", "only_b": 1, "_hidden": 1})
    app.signal(run, "a", {"x": "a", "only_a": 1})
    assert state_of(app, run) == {"x": "b", "only_a": 1, "only_b": 1}


def test_under_a_key_a_payload_is_kept_as_it_was_sent(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go", "got").dispatch()
    sent = {"_ours": 1, "list": [1, {"a": None}], "é": "\x00", "n": -0.0}
    app.signal(run, "go", sent)
    got = state_of(app, run)["got"]
    assert (got, str(got["n"])) == (sent, "-0.0")


def test_next_step_in_a_payload_leads_nowhere(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go").then(after).then(before, name="last").dispatch()
    app.signal(run, "go", {"_next_step": "last"})
    assert app.run_until_idle() == 2
    assert state_of(app, run) == {"after": True, "before": True}


def test_a_list_of_one_name_gives_the_payload_itself(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signals(["go"], WaitMode.ANY, "got").dispatch()
    app.signal(run, "go", {"n": 1})
    assert state_of(app, run) == {"got": {"n": 1}}


# which one is meant


def test_only_a_payload_that_has_what_is_asked_for_ends_the_wait(app: Queuety) -> None:
    asked = {"order": {"id": 7}, "tags": ["a", "b"]}
    run = app.workflow("w").wait_for_signal("go", "got", match_payload=asked).dispatch()
    misses: list[State] = [
        {},
        {"order": {"id": 7}},
        {"order": {"id": "7"}, "tags": ["a", "b"]},
        {"order": {"id": True}, "tags": ["a", "b"]},
        {"order": {"id": 7}, "tags": ["b", "a"]},
        {"order": {"id": 7}, "tags": ["a", "b", "c"]},
        {"order": [7], "tags": ["a", "b"]},
    ]
    for missed in misses:
        app.signal(run, "go", missed)
        assert status_of(app, run).status is WAITING, missed
    fits = {"more": 1, "tags": ["a", "b"], "order": {"sum": 5, "id": 7}}
    app.signal(run, "go", fits)
    assert state_of(app, run) == {"got": fits}


def test_what_a_picky_wait_left_serves_the_next_one(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .then(before)
        .wait_for_signal("go", "picked", match_payload={"n": 3})
        .wait_for_signal("go", "next", "again")
        .dispatch()
    )
    for number in range(1, 5):
        app.signal(run, "go", {"n": number})
    app.run_until_idle()
    assert (state_of(app, run)["picked"], state_of(app, run)["next"]) == ({"n": 3}, {"n": 1})


def test_a_picky_wait_finds_its_signal_behind_hundreds_of_others(app: Queuety) -> None:
    run = app.workflow("w").then(before).wait_for_signal("go", "got", match_payload={"n": 120}).dispatch()
    for number in range(130):
        app.signal(run, "go", {"n": number})
    app.run_until_idle()
    assert state_of(app, run)["got"] == {"n": 120}


def test_a_signal_belongs_to_the_run_if_the_key_has_the_same_value_in_both(app: Queuety) -> None:
    values: list[tuple[Any, Any]] = [("7", 7), (7, "7"), (1, True), (None, 0), ([1, 2], [2, 1])]
    for key, other in values:
        run = app.workflow("w").wait_for_signal("paid", "got", correlation_key="order").dispatch({"order": key})
        app.signal(run, "paid", {})
        app.signal(run, "paid", {"order": other})
        details: Any = status_of(app, run).wait_details
        assert (details["correlation_key"], details["correlation_value"], details["matched"]) == ("order", key, [])
        app.signal(run, "paid", {"order": key, "sum": 5})
        assert state_of(app, run)["got"] == {"order": key, "sum": 5}


def test_a_key_that_the_state_does_not_have_matches_nothing(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("paid", correlation_key="order").dispatch()
    app.signal(run, "paid", {"order": None})
    assert status_of(app, run).status is WAITING


# names and payloads


ALIKE = {
    "Order-1": ["order-1", "Order-1\u0301", "Order–1", "Order-10"],
    "café": ["cafe", "CAFÉ", "cafe\u0301"],
    "a b": ["a  b", "ab", "a\u00a0b"],
    "straße": ["strasse", "STRASSE"],
    "100%": ["100_", "100x", "%"],
    "go 🚀": ["go", "go 🎉"],
}
"""Names, and others that a database may take for the same."""


def test_names_are_told_apart_exactly(app: Queuety) -> None:
    """E15: by its default collation MySQL takes Order-1 for order-1, and é for e."""
    for name, others in ALIKE.items():
        run = app.workflow("w").then(before).wait_for_signal(name, "got").dispatch()
        for other in others:
            app.signal(run, other, {"early": other})
        app.run_until_idle()
        for other in others:
            app.signal(run, other, {"late": other})
            assert status_of(app, run).status is WAITING
        app.signal(run, name, {"right": name})
        assert state_of(app, run)["got"] == {"right": name}


def test_blanks_around_a_name_are_no_part_of_it(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signals([" a ", "b\t"], result_key="got").dispatch()
    assert status_of(app, run).waiting_for == ["a", "b"]
    app.signal(run, "a  ")
    app.signal(run, "\nb")
    assert status_of(app, run).status is COMPLETED


def test_what_is_no_name_is_refused_and_nothing_is_kept(app: Queuety) -> None:
    names: list[Any] = ["", "  ", "a\x00b", "a\nb", "x" * 256, "\ud800", None, 7, ["go"]]
    run = app.workflow("w").wait_for_signal("go").dispatch()
    for name in names:
        with pytest.raises(errors.DefinitionError, match="name"):
            app.signal(run, name)
        with pytest.raises(errors.DefinitionError, match="name of a signal"):
            app.workflow("w").wait_for_signal(name)
    assert events(app, run) == ["workflow_waiting"]


def test_what_is_no_payload_is_refused_and_nothing_is_kept(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("go").dispatch()
    payloads: list[Any] = [[1], "text", 5, {"t": {1}}, {"n": float("nan")}, {1: 2}, {"x": "\ud800"}, {"n": 2**63}]
    for data in payloads:
        with pytest.raises(errors.PayloadError):
            app.signal(run, "go", data)
    assert events(app, run) == ["workflow_waiting"]

"""`why`: what a run waits for, what of it has come, and what a person can do; in words, also of all it depends on."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete

from queuety import Queuety, WaitMode, WorkflowStatus, step
from queuety.testing import ManualClock
from queuety.worker import maintain
from tests.support.cli import done, told
from tests.support.databases import Database
from tests.support.flowing import status_of

State = dict[str, Any]


@step
def work(state: State) -> State:
    return {}


@step(max_attempts=1)
def fails(state: State) -> State:
    raise ValueError("no luck")


def test_why_says_what_is_missing_and_how_it_is_given(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signals(["a", "b"], name="hold", match_payload={"ok": 1}, timeout=3600).dispatch()
    app.signal(run, "a", {"ok": 1})
    app.signal(run, "b", {"ok": 2})
    said = app.why(run)
    assert (said.reason, said.details["unfit"]) == ("waiting_for_signal", {"b": 1})
    assert said.answer == (
        f"Workflow {run} (w) waits at step 'hold' for all of the signals 'a' and 'b'. 'a' has come, 'b' is missing. "
        "1 signal 'b' has come whose payload is not what it asks for. It gives up in 1 h (2026-01-01T01:00:00Z); then "
        f"the run fails. `queuety workflow signal {run} b '{{\"ok\":1}}'` sends it."
    )


def test_why_says_who_is_to_answer(app: Queuety) -> None:
    run = app.workflow("w").wait_for_approval().wait_for_decision().wait_for_input().dispatch()
    for verb, words in (("approve", "approve"), ("approve", "reject"), ("input", "input")):
        assert f"`queuety workflow {words} {run}" in app.why(run).answer
        (app.approve_workflow if verb == "approve" else app.submit_workflow_input)(run)
    assert app.why(run).reason == "completed"


def test_why_follows_the_runs_that_are_waited_for(app: Queuety) -> None:
    held = app.workflow("held").wait_for_signal("go").dispatch()
    failed = app.workflow("failed").then(fails).dispatch()
    run = app.workflow("w").wait_for_workflows([held, failed, 10**9], WaitMode.ANY, name="wait").dispatch()
    app.run_until_idle()
    said = app.why(run)
    assert said.reason == "waiting_for_workflows"
    assert said.answer.startswith(
        f"Workflow {run} (w) waits at step 'wait' for any of 3 workflows. "
        f"Lost: {failed} (failed) and {10**9} (missing). Left: {held} held (waiting_for_signal)."
    )
    app.cancel_workflow(held)
    told_ = app.why(run)
    assert told_.reason == "waiting_for_workflows"
    assert "goes on as soon as a worker looks" in told_.answer
    app.run_until_idle()
    assert app.why(run).reason == "failed"


def test_why_says_whether_a_signal_that_came_was_of_any_use(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("paid", correlation_key="order").dispatch({"order": 7})
    for order in (8, 9, "7"):
        app.signal(run, "paid", {"order": order})
    app.signal(run, "unpaid", {"order": 7})
    said = app.why(run)
    assert said.details["unfit"] == {"paid": 3}
    assert "3 signals 'paid' have come whose payload is not what it asks for." in said.answer
    assert "Only data counts whose 'order' is 7, as in the state." in said.answer
    assert f"`queuety workflow signal {run} paid '{{\"order\":7}}'` sends it." in said.answer
    assert said.details["unused"] == {"unpaid": 1}
    assert "Unused, for no step of this run asks for them: 'unpaid'." in said.answer


def test_why_says_that_an_answer_was_of_no_use(app: Queuety) -> None:
    run = app.workflow("w").wait_for_approval().wait_for_signal("go").dispatch()
    app.signal(run, "go")
    assert "Unused" not in app.why(run).answer, "a later step asks for it"
    for _ in range(2):
        app.reject_workflow(run)
    assert "Unused, for no step of this run asks for them: 'rejected' (2). `queuety" in app.why(run).answer


def test_why_names_the_key_that_the_state_lacks(app: Queuety) -> None:
    run = app.workflow("w").wait_for_signal("paid", correlation_key="order").dispatch({"ordr": 7})
    app.signal(run, "paid", {"order": 7})
    answer = app.why(run).answer
    assert "Only data counts whose 'order' is that of the state, and the state has no 'order': no signal" in answer
    assert "sends it" not in answer
    empty = app.workflow("w").wait_for_signal("paid", correlation_key="order").dispatch({"order": None})
    assert "Only data counts whose 'order' is null, as in the state." in app.why(empty).answer


def test_why_writes_data_and_names_as_a_shell_takes_them(app: Queuety) -> None:
    asked = {"by": "it's me"}
    run = app.workflow("w").wait_for_decision(match_payload=asked).wait_for_signal("go on").dispatch()
    data = """'{"by":"it'"'"'s me"}'"""
    assert f"`queuety workflow approve {run} {data}` or `queuety workflow reject {run} {data}`" in app.why(run).answer
    app.approve_workflow(run, asked)
    assert f"`queuety workflow signal {run} 'go on'` sends it." in app.why(run).answer
    long = app.workflow("w").wait_for_input(match_payload={"text": "x" * 200}).dispatch()
    assert f"`queuety workflow input {long} JSON` answers it." in app.why(long).answer


def test_why_says_where_a_wait_goes_when_its_time_is_over(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go", timeout=60, on_timeout="late").then(work, "late").dispatch()
    assert "It gives up in 1 min (2026-01-01T00:01:00Z); then it goes on at step 'late'." in app.why(run).answer
    clock.advance(seconds=60)
    assert "then it goes on at step 'late'" in app.why(run).answer
    app.run_until_idle()
    assert app.why(run).reason == "completed"


def test_why_says_what_became_of_a_wait(app: Queuety, clock: ManualClock) -> None:
    late = app.workflow("w").wait_for_signal("go", timeout=60).dispatch()
    clock.advance(seconds=60)
    app.run_until_idle()
    lost = app.workflow("w").wait_for_workflow(late).dispatch()
    for run, kind in ((late, "WaitTimeout"), (lost, "WaitUnsatisfiable")):
        said = app.why(run)
        assert said.reason == "failed"
        assert f"({kind})" in said.answer
        assert f"`queuety workflow retry {run}`" in said.answer
    assert "waits there anew, as long as the first time" in app.why(late).answer
    assert "looks anew, and fails again if all stands as it did" in app.why(lost).answer


@step
def never(state: State) -> bool:
    return False


def test_why_advises_no_retry_that_can_only_fail_again(app: Queuety) -> None:
    keyed = app.workflow("w").then(work, "a").repeat_until("a", "done", max_iterations=1).dispatch()
    asked = app.workflow("w").then(work, "a").repeat_until("a", condition=never, max_iterations=1).dispatch()
    app.run_until_idle()
    said = app.why(keyed).answer
    assert "(ConstraintViolation)" in said
    assert "workflow retry" not in said
    assert said.endswith(
        "start another run, of a definition that allows more rounds or with a payload that ends the loop."
    )
    assert (
        f"`queuety workflow retry {asked}` asks the condition once more, and fails again unless"
        in app.why(asked).answer
    )


def test_why_says_that_a_retry_is_on_its_way(app: Queuety) -> None:
    run = app.workflow("mum").run_workflow("kid", app.workflow("kid").then(fails, "try"), "sub").dispatch()
    app.run_until_idle()
    (child,) = app.list_workflows(parent_id=run)
    assert app.why(child.id).details["retry_on_its_way"] is False
    app.retry_workflow(run)
    assert status_of(app, child.id).status == WorkflowStatus.FAILED
    said = app.why(run)
    assert (said.reason, said.details["because"]["details"]["retry_on_its_way"]) == ("child", True)
    assert "A retry of its parent is on its way: it goes on there as soon as a worker looks." in said.answer
    assert "No worker is alive; start one: `queuety work`." in said.answer
    assert "workflow retry" not in said.answer
    app.run_until_idle()
    assert app.why(child.id).details["retry_on_its_way"] is False


def test_why_advises_no_retry_of_a_child_that_was_cancelled(app: Queuety) -> None:
    kid = app.workflow("kid").wait_for_signal("go").then(fails)
    gone, lost = (app.workflow("mum").run_workflow("kid", kid).dispatch() for _ in range(2))
    of_gone, of_lost = (app.list_workflows(parent_id=run)[0].id for run in (gone, lost))
    app.cancel_workflow(of_gone)
    app.signal(of_lost, "go")
    app.run_until_idle()
    assert f"`queuety workflow retry {of_lost}` goes on in the child" in app.why(lost).answer
    app.cancel_workflow(of_lost)
    for run, child, kind in ((gone, of_gone, "ChildCancelled"), (lost, of_lost, "ChildFailed")):
        said = app.why(run).answer
        assert f"({kind})" in said
        assert said.endswith(
            f"Its child {child} is cancelled; `queuety workflow retry {run}` goes on with another one."
        )


def test_why_finds_a_message_that_was_lost(app: Queuety) -> None:
    """Nobody tells the run any more: its dependency has ended, and the row that says who waits for it is gone."""
    one = app.workflow("held").wait_for_signal("go").dispatch()
    run = app.workflow("w").wait_for_workflow(one).dispatch()
    app.run_until_idle()
    (row,) = watchers(app)
    app.door.write(lambda tx: tx.connection.execute(delete(tx.tables.watchers)))
    app.signal(one, "go")
    app.run_until_idle()
    said = app.why(run)
    assert (status_of(app, run).status, said.reason) == (WorkflowStatus.WAITING_FOR_WORKFLOWS, "not_told")
    assert "which is a bug" in said.answer
    app.door.write(lambda tx: tx.connection.execute(tx.tables.watchers.insert().values(row)))
    maintain.tell_again(app.door)
    app.run_until_idle()
    assert app.why(run).reason == "completed"


def watchers(app: Queuety) -> list[State]:
    with app.door.reading() as connection:
        return [dict(row) for row in connection.execute(app.door.tables.watchers.select()).mappings()]


def test_why_of_one_that_waits_for_one_that_is_paused(app: Queuety) -> None:
    one = app.workflow("held").then(work).then(work, "two").dispatch()
    app.pause_workflow(one)
    run = app.workflow("w").wait_for_workflow(one).dispatch()
    app.run_until_idle()
    assert f"Workflow {one} (held) has been paused" in app.why(run).answer


def test_why_says_that_runs_wait_for_each_other(app: Queuety) -> None:
    one = app.workflow("one").wait_for_signal("id").wait_for_workflow("other").dispatch()
    two = app.workflow("two").wait_for_workflow(one).dispatch()
    app.signal(one, "id", {"other": two})
    app.run_until_idle()
    said = app.why(one)
    assert said.details["because"]["details"]["because"]["reason"] == "in_circle"
    assert said.answer.count(f"Workflow {one} (one) waits") == 1
    assert f"Workflow {one} (one) is asked about already: these wait for each other" in said.answer
    assert f"`queuety workflow cancel {two}` ends it." in said.answer


def test_the_command_line_says_the_same(app: Queuety, database: Database) -> None:
    run = app.workflow("w").wait_for_decision().dispatch()
    waiter = app.workflow("w").wait_for_workflow(run).dispatch()
    app.run_until_idle()
    place = ("--database", database.url)
    assert done(*place, "why", str(run)) == app.why(run).answer + "\n"
    assert told(*place, "why", str(waiter))["answer"] == app.why(waiter).answer

"""Queues and priorities: in which order `run_until_idle` and workers take jobs, and what a pause holds back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from queuety import JobStatus, Priority, Queuety, WorkflowStatus, errors, job, step
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of, until, working

State = dict[str, Any]


@job
def say(word: Any) -> None:
    note(word)


@step
def say_name(state: State) -> State:
    note(state["word"])
    return {}


@step(queue="printer", priority="high")
def on_its_own_queue(state: State) -> None:
    note("printed")


@job
def takes_a_moment(payload: State) -> None:
    note("began")
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass


def test_jobs_run_by_priority_then_in_order_of_dispatch(app: Queuety) -> None:
    for priority in (Priority.LOW, "normal", Priority.URGENT, 2, None):
        for n in range(2):
            app.dispatch(say, {"word": f"{priority!s} {n}"}, priority=priority)
    assert app.run_until_idle() == 10
    assert notes == [f"{which} {n}" for which in ("3", "2", "normal") for n in range(2)] + [
        "0 0",
        "0 1",
        "None 0",
        "None 1",
    ]


def test_queues_are_emptied_in_the_order_in_which_they_are_named(app: Queuety) -> None:
    app.dispatch(say, {"word": "b"}, queue="b", priority="urgent")
    app.dispatch(say, {"word": "a"}, queue="a")
    app.dispatch(say, {"word": "c"}, queue="c", priority="urgent")
    assert app.run_until_idle(["a", "b"]) == 2
    assert notes == ["a", "b"]
    assert app.run_until_idle(" c , d ") == 1
    app.dispatch(say, {"word": "low"}, queue="a")
    app.dispatch(say, {"word": "urgent"}, queue="z", priority="urgent")
    assert app.run_until_idle() == 2
    assert notes == ["a", "b", "c", "urgent", "low"]


def test_a_workflows_queue_and_priority_hold_for_steps_that_name_none(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .on_queue("reports")
        .with_priority(Priority.NORMAL)
        .then(say_name)
        .then(on_its_own_queue)
        .then(say_name, queue="third", priority="urgent")
        .dispatch({"word": "said"})
    )
    seen = []
    for _ in range(3):
        (pending,) = app.list_jobs(workflow_id=run, status="pending")
        seen.append((pending.queue, pending.priority))
        assert app.run_until_idle(max_jobs=1) == 1
    assert seen == [("reports", Priority.NORMAL), ("printer", Priority.HIGH), ("third", Priority.URGENT)]
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    done = app.list_jobs(workflow_id=run)
    assert [(each.queue, each.status) for each in done] == [
        (queue, JobStatus.COMPLETED) for queue in ("third", "printer", "reports")
    ]


def test_names_of_queues_that_look_alike_are_different_queues(app: Queuety) -> None:
    names = ["mail", "Mail", "mail ", "maïl", "mail😀"]
    for name in names:
        app.dispatch(say, {"word": name}, queue=name)
    for name in names:
        assert app.stats(name)["pending"] == 1
    app.pause("Mail")
    assert app.paused_queues() == ["Mail"]
    assert app.run_until_idle() == 4
    assert sorted(notes) == sorted(set(names) - {"Mail"})


def test_it_stops_after_as_many_handlers_as_are_asked_for(app: Queuety) -> None:
    for n in range(5):
        app.dispatch(say, {"word": n})
    assert app.run_until_idle(max_jobs=0) == 0
    assert app.run_until_idle(max_jobs=2) == 2
    assert notes == [0, 1]
    assert app.run_until_idle() == 3
    assert app.run_until_idle() == 0


def test_it_stops_after_its_time_and_finishes_what_has_begun(app: Queuety) -> None:
    for _ in range(50):
        app.dispatch(takes_a_moment, {})
    ran = app.run_until_idle(timeout=0.1)
    assert 1 <= ran < 20
    assert app.stats() == {"pending": 50 - ran, "processing": 0, "completed": ran, "failed": 0, "buried": 0}
    with pytest.raises(errors.DefinitionError):
        app.run_until_idle(timeout=-1)


def test_it_runs_only_what_is_due_and_also_what_falls_due_because_of_it(app: Queuety, clock: ManualClock) -> None:
    app.dispatch(say, {"word": "later"}, delay=60)
    run = app.workflow("w").then(say_name).delay(seconds=0).then(say_name).dispatch({"word": "now"})
    assert app.run_until_idle() == 2
    assert status_of(app, run).status is WorkflowStatus.COMPLETED
    clock.advance(seconds=60)
    assert app.run_until_idle() == 1
    assert notes == ["now", "now", "later"]


def test_a_paused_queue_holds_back_its_jobs_until_it_is_resumed(app: Queuety) -> None:
    assert app.is_paused("mail") is False
    app.pause("mail")
    app.pause("mail")
    assert (app.is_paused("mail"), app.is_paused("Mail"), app.paused_queues()) == (True, False, ["mail"])
    app.dispatch(say, {"word": "held"}, queue="mail")
    run = app.workflow("w").then(say_name).then(say_name, queue="mail").dispatch({"word": "step"})
    assert app.run_until_idle() == 1
    assert app.run_until_idle(["mail"]) == 0
    assert app.stats("mail") == {"pending": 2, "processing": 0, "completed": 0, "failed": 0, "buried": 0}
    app.resume("mail")
    app.resume("mail")
    assert app.paused_queues() == []
    assert app.run_until_idle() == 2
    assert (notes, status_of(app, run).status) == (["step", "held", "step"], WorkflowStatus.COMPLETED)


def test_a_worker_minds_pauses_that_begin_and_end_while_it_works(app: Queuety) -> None:
    with working(app, "default,mail"):
        app.dispatch(say, {"word": "first"}, queue="mail")
        until(lambda: app.stats()["completed"] == 1)
        app.pause("mail")
        app.dispatch(say, {"word": "held"}, queue="mail")
        app.dispatch(say, {"word": "other"})
        until(lambda: notes == ["first", "other"])
        app.resume("mail")
        until(lambda: notes == ["first", "other", "held"])
        until(lambda: app.stats()["completed"] == 3)


@pytest.mark.parametrize("queues", ["", " , ", [], ["a", 3], [""], ["a\0"]], ids=repr)
def test_queues_that_cannot_be_are_refused(app: Queuety, queues: Any) -> None:
    with pytest.raises(errors.DefinitionError):
        app.run_until_idle(queues)
    with pytest.raises(errors.DefinitionError):
        app.worker(queues)

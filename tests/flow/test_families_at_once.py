"""Parents, children and people that want something of each other in the same instant, beside two workers.

Whatever comes first: a run ends once, nothing runs twice, and nobody waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, bind, current, errors, step
from queuety.define.builder import WorkflowBuilder
from queuety.model import CleanupStatus
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.invariants import check

State = dict[str, Any]


@step(max_attempts=1)
def fails_until_mended(state: State) -> State:
    if ("mended", state["round"]) not in notes:
        raise ValueError("the child is broken")
    note(("child", state["round"]))
    return {"mended": True}


@step
def quick(state: State) -> State:
    return {f"did {current().step_name}": True}


@step
def after(state: State) -> State:
    note(("after", state["round"]))
    return {"after": True}


@step
def clean(state: State, *, whose: str) -> None:
    note((f"cleaned {whose}", state["round"]))


@step
def item(state: State, item: int, index: int) -> State:
    return {"did": item}


@pytest.fixture
def crowd(database: Database) -> Iterator[Queuety]:
    """An application beside which two workers, each with connections of its own, do what is to be done."""
    with Queuety(database.url) as app, Queuety(database.url) as one, Queuety(database.url) as other:
        with working(one), working(other):
            yield app
        app.run_until_idle()
        check(app.door)


def clash(*acts: tuple[Callable[[int], object], int]) -> list[BaseException | None]:
    """What each raises when they are done to these runs in the same instant; what a status forbids is no fault."""
    gate = threading.Barrier(len(acts))
    found: list[BaseException | None] = [None] * len(acts)

    def do(number: int) -> None:
        gate.wait(30)
        try:
            act, run = acts[number]
            act(run)
        except errors.InvalidStateError as error:
            found[number] = error

    threads = [threading.Thread(target=do, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def until_status(app: Queuety, run: int, status: WorkflowStatus) -> None:
    until(lambda: status_of(app, run).status is status)


def until_over(app: Queuety, *runs: int) -> None:
    """Until each of them has ended, and nothing is left to clean up."""

    def are_over() -> bool:
        states = [status_of(app, run) for run in runs]
        return all(
            state.status.is_terminal and state.compensation_status is not CleanupStatus.PENDING for state in states
        )

    until(are_over)


def around(app: Queuety, child: WorkflowBuilder) -> WorkflowBuilder:
    return app.workflow("parent").run_workflow("child", child).then(after).on_cancel(bind(clean, whose="parent"))


def test_a_parent_and_its_child_retried_at_once_go_on_together(crowd: Queuety, rounds: int) -> None:
    builder = around(crowd, crowd.workflow("c").then(fails_until_mended))
    for number in range(rounds):
        run = builder.dispatch({"round": number})
        assert crowd.wait(run, 30).status is WorkflowStatus.FAILED
        (child,) = crowd.list_workflows(parent_id=run)
        note(("mended", number))
        clash((crowd.retry_workflow, run), (crowd.retry_workflow, child.id))
        until_status(crowd, run, WorkflowStatus.COMPLETED)
        assert [one.id for one in crowd.list_workflows(parent_id=run)] == [child.id]
        assert (notes.count(("child", number)), notes.count(("after", number))) == (1, 1)


def test_a_parent_cancelled_while_its_child_completes_is_cancelled_or_done(crowd: Queuety, rounds: int) -> None:
    child = crowd.workflow("c").then(quick).then(quick).on_cancel(bind(clean, whose="child"))
    builder = around(crowd, child)
    for number in range(rounds):
        run = builder.dispatch({"round": number})
        (refused,) = clash((crowd.cancel_workflow, run))
        (inside,) = crowd.list_workflows(parent_id=run)
        until_over(crowd, run, inside.id)
        parent, inside = status_of(crowd, run), status_of(crowd, inside.id)
        assert (parent.status is WorkflowStatus.COMPLETED) == (refused is not None)
        assert inside.status in (WorkflowStatus.COMPLETED, WorkflowStatus.CANCELLED)
        cleaned = [word for word, which in notes if which == number and word.startswith("cleaned")]
        expected = ["cleaned child"] if inside.status is WorkflowStatus.CANCELLED else []
        assert cleaned == expected + (["cleaned parent"] if refused is None else [])


def test_a_child_cancelled_and_its_parent_at_once_end_both(crowd: Queuety, rounds: int) -> None:
    builder = around(crowd, crowd.workflow("c").delay(hours=1).on_cancel(bind(clean, whose="child")))
    for number in range(rounds):
        run = builder.dispatch({"round": number})
        (child,) = crowd.list_workflows(parent_id=run)
        clash((crowd.cancel_workflow, child.id), (crowd.cancel_workflow, run))
        until_over(crowd, run, child.id)
        assert status_of(crowd, child.id).status is WorkflowStatus.CANCELLED
        assert status_of(crowd, run).status is WorkflowStatus.CANCELLED
        assert notes.count(("cleaned child", number)) == 1
        assert notes.count(("cleaned parent", number)) == 1
        assert ("after", number) not in notes


def test_a_run_paused_resumed_and_cancelled_among_its_items_ends_once(crowd: Queuety, rounds: int) -> None:
    builder = crowd.workflow("w").for_each("items", item, result_key="out").then(after)
    for number in range(rounds):
        paused = builder.dispatch({"round": number, "items": list(range(30))})
        clash((crowd.pause_workflow, paused))
        clash((crowd.resume_workflow, paused))
        done = crowd.wait(paused, 30)
        out = done.state["out"]
        assert isinstance(out, dict)
        assert (done.status, out["succeeded"], notes.count(("after", number))) == (WorkflowStatus.COMPLETED, 30, 1)
        ended = builder.dispatch({"round": -1 - number, "items": list(range(30))})
        (refused,) = clash((crowd.cancel_workflow, ended))
        done = crowd.wait(ended, 30)
        assert (done.status is WorkflowStatus.COMPLETED) == (refused is not None)

"""What operators do to many runs at once: those that meet a filter, each by itself, or none of them in a rehearsal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, bind, errors, step
from queuety.app import bulk
from queuety.app.results import BulkResult
from queuety.define.builder import WorkflowBuilder
from queuety.inspect import workflows
from queuety.inspect.filters import WorkflowFilter
from queuety.testing import ManualClock
from tests.support.contents import contents
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of
from tests.support.invariants import check
from tests.support.stories import ended

State = dict[str, Any]
Verb = Callable[..., BulkResult]

TAGGED = WorkflowFilter(tag="here")


@step
def put(state: State, *, key: str) -> State:
    return {key: state.get(key, 0) + 1}


@step(max_attempts=1)
def breaks_unless_mended(state: State) -> State:
    if not state.get("mended"):
        raise ValueError("broken")
    note(state["n"])
    return {"worked": True}


@step
def undo(state: State) -> None:
    note("undone")


def steps(builder: WorkflowBuilder, *keys: str) -> WorkflowBuilder:
    for key in keys:
        builder.then(bind(put, key=key), name=key)
    return builder


def motley(app: Queuety) -> dict[str, int]:
    """A run in each state that matters, and one that is not meant."""

    def tagged(name: str) -> WorkflowBuilder:
        return steps(app.workflow(name).tag("here", name), "a")

    found = {
        "delayed": tagged("delayed").delay(hours=1).then(bind(put, key="b"), name="b").dispatch(),
        "waiting": steps(tagged("waiting").wait_for_signal("go"), "b").dispatch(),
        "paused": steps(tagged("paused").delay(hours=1), "b").dispatch(),
        "failed": steps(tagged("failed").then(breaks_unless_mended, name="break"), "b").dispatch({"n": 1}),
        "failed too": tagged("failed too").then(breaks_unless_mended, name="break").dispatch({"n": 2}),
        "compensated": tagged("c").compensate_with(undo).then(breaks_unless_mended).compensate_on_failure().dispatch(),
        "completed": steps(tagged("completed"), "b").dispatch(),
        "cancelled": tagged("cancelled").delay(hours=1).dispatch(),
    }
    other = steps(app.workflow("failed").tag("there"), "a").then(breaks_unless_mended, name="break").dispatch({"n": 3})
    app.run_until_idle()
    app.pause_workflow(found["paused"])
    app.cancel_workflow(found["cancelled"])
    found["running"] = steps(tagged("running"), "b").dispatch()
    found["not meant"] = other
    return found


VERBS: dict[str, tuple[Verb, set[str]]] = {
    "pause": (lambda app, where, **more: app.pause_workflows(where, **more), {"delayed", "running"}),
    "resume": (lambda app, where, **more: app.resume_workflows(where, **more), {"paused"}),
    "retry": (
        lambda app, where, **more: app.retry_workflows(where, with_state={"mended": True}, **more),
        {"failed", "failed too"},
    ),
    "cancel": (
        lambda app, where, **more: app.cancel_workflows(where, **more),
        {"delayed", "waiting", "paused", "failed", "failed too", "compensated", "running"},
    ),
    "rewind": (
        lambda app, where, **more: app.rewind_workflows(where, "a", with_state={"mended": True}, **more),
        {"delayed", "waiting", "paused", "failed", "failed too", "completed"},
    ),
    "skip": (lambda app, where, **more: app.skip_steps(where, "break", **more), {"failed", "failed too"}),
    "run now": (lambda app, where, **more: app.run_workflows_now(where, **more), {"delayed", "paused"}),
    "signal": (
        lambda app, where, **more: app.signal_workflows(where, "go", {"sent": 1}, **more),
        {
            *("delayed", "waiting", "paused", "failed", "failed too"),
            *("compensated", "completed", "cancelled", "running"),
        },
    ),
}


@pytest.mark.parametrize(("verb", "at_once"), [*((verb, 2) for verb in VERBS), ("cancel", 500)])
def test_a_rehearsal_writes_nothing_and_says_what_will_be_done_and_what_refused(
    app: Queuety, monkeypatch: pytest.MonkeyPatch, verb: str, at_once: int
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", at_once)
    runs = motley(app)
    do, allowed = VERBS[verb]
    meant = {run for name, run in runs.items() if name != "not meant"}
    before, states = contents(app.door), {run: status_of(app, run) for run in runs.values()}
    rehearsed = do(app, TAGGED, dry_run=True, actor="ann")
    assert contents(app.door) == before
    done = do(app, TAGGED, actor="ann", reason="as rehearsed")
    assert (rehearsed.dry_run, done.dry_run) == (True, False)
    assert (rehearsed.done, rehearsed.refused) == (done.done, done.refused)
    assert done.done == sorted((runs[name] for name in allowed), reverse=True), "newest first"
    assert set(done.refused) == meant - set(done.done)
    assert done.matched == len(meant) == 9
    for run, why in done.refused.items():
        assert f"workflow {run} " in why
        assert status_of(app, run) == states[run]
    for run in done.done:
        event = next(event for event in reversed(app.workflow_timeline(run)) if event.actor is not None)
        assert (event.actor, event.reason) == ("ann", "as rehearsed")
    assert status_of(app, runs["not meant"]) == states[runs["not meant"]]


def test_what_is_done_to_many_is_what_is_done_to_each(app: Queuety) -> None:
    runs = motley(app)
    app.retry_workflows(TAGGED, with_state={"mended": True})
    for name in ("failed", "failed too"):
        assert ended(app, runs[name]).status is WorkflowStatus.COMPLETED
    assert sorted(word for word in notes if word != "undone") == [1, 2]
    app.signal_workflows(WorkflowFilter(status="waiting_for_signal", name="waiting"), "go", {"sent": 1})
    assert ended(app, runs["waiting"]).state == {"a": 1, "sent": 1, "b": 1}
    app.run_workflows_now(TAGGED)
    assert ended(app, runs["delayed"]).status is WorkflowStatus.COMPLETED
    app.resume_workflows(TAGGED)
    assert ended(app, runs["paused"]).status is WorkflowStatus.COMPLETED
    assert status_of(app, runs["not meant"]).status is WorkflowStatus.FAILED


FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a status": ({"status": "failed"}, {"failed", "failed too", "compensated", "not meant"}),
    "a name": ({"name": "failed"}, {"failed", "not meant"}),
    "a tag": ({"tag": "failed"}, {"failed"}),
    "a kind of error": ({"error_kind": "StepFailed", "tag": "here"}, {"failed", "failed too", "compensated"}),
    "several": ({"status": WorkflowStatus.FAILED, "name": "failed", "tag": "there"}, {"not meant"}),
    "nothing that is there": ({"name": "nobody"}, set()),
    "no such parent": ({"parent_id": 2**70}, set()),
}


def test_every_condition_of_a_filter_must_be_met(app: Queuety) -> None:
    runs = motley(app)
    for what, (conditions, expected) in FILTERS.items():
        found = app.cancel_workflows(WorkflowFilter(**conditions), dry_run=True)
        assert set(found.done) == {runs[name] for name in expected}, what
        assert found.refused == {}


def test_ages_choose_runs_by_when_they_were_started(app: Queuety, clock: ManualClock) -> None:
    old = steps(app.workflow("w"), "a").dispatch()
    clock.advance(hours=2)
    new = steps(app.workflow("w"), "a").dispatch()
    clock.advance(minutes=1)
    assert app.pause_workflows(WorkflowFilter(older_than=3600)).done == [old]
    assert app.pause_workflows(WorkflowFilter(newer_than=3600)).done == [new]
    assert app.resume_workflows(WorkflowFilter(older_than=60, newer_than=7260)).done == [new, old]


def test_children_of_one_run_are_chosen_by_their_parent(app: Queuety) -> None:
    child = steps(app.workflow("child").wait_for_signal("go"), "x")
    run = app.workflow("w").run_workflow("child", child).dispatch()
    (inner,) = app.list_workflows(parent_id=run)
    assert app.signal_workflows(WorkflowFilter(parent_id=run), "go").done == [inner.id]
    assert ended(app, run).status is WorkflowStatus.COMPLETED


def test_no_more_than_so_many_are_looked_at_the_newest_first(app: Queuety, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 2)
    runs = app.dispatch_many(steps(app.workflow("w").tag("here"), "a"), [{}] * 7)
    for limit in (1, 3, 4, 100):
        for dry_run in (True, False):
            found = app.pause_workflows(TAGGED, dry_run=dry_run, limit=limit)
            assert (found.done, found.refused) == (runs[::-1][:limit], {})
        found = app.pause_workflows(TAGGED, limit=limit)
        assert found.done == [], "those that are refused count too"
        assert len(found.refused) == min(limit, 7)
        app.resume_workflows(TAGGED)


def test_many_more_than_a_page_are_each_done_once(app: Queuety, monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter is by a status that changes by what is done: no page is read twice, and none is left out."""
    monkeypatch.setattr(bulk, "AT_ONCE", 10)
    runs = app.dispatch_many(steps(app.workflow("w"), "a"), [{}] * 35)
    assert app.pause_workflows(WorkflowFilter(status="running")).done == runs[::-1]
    assert app.resume_workflows(WorkflowFilter(status="paused"), limit=25).done == runs[:9:-1]
    assert app.cancel_workflows(WorkflowFilter(status="paused")).done == runs[9::-1]
    assert app.cancel_workflows(WorkflowFilter(name="w")).matched == 35


def test_a_filter_without_a_condition_is_refused_and_so_is_what_is_none(app: Queuety) -> None:
    run = steps(app.workflow("w").tag("here"), "a").dispatch()
    before = contents(app.door)
    for do, _ in VERBS.values():
        for dry_run in (True, False):
            with pytest.raises(errors.DefinitionError, match="no condition"):
                do(app, WorkflowFilter(), dry_run=dry_run)
            for nothing in (None, {}, "here", {"tag": "here"}, [run]):
                with pytest.raises(errors.DefinitionError, match="WorkflowFilter is needed"):
                    do(app, nothing, dry_run=dry_run)
        for limit in (0, -1, 1.5, True, "1"):
            with pytest.raises(errors.DefinitionError, match="limit"):
                do(app, TAGGED, limit=limit)
        with pytest.raises(errors.DefinitionError, match="actor"):
            do(app, TAGGED, actor="")
    for bad in (None, 1.5, True, ["a"]):
        with pytest.raises(errors.DefinitionError, match="the index or the name of a step"):
            app.rewind_workflows(TAGGED, bad)  # type: ignore[arg-type]
        with pytest.raises(errors.DefinitionError, match="the index or the name of a step"):
            app.skip_steps(TAGGED, bad)  # type: ignore[arg-type]
    with pytest.raises(errors.PayloadError):
        app.retry_workflows(TAGGED, with_state={"x": {1}})
    with pytest.raises(errors.DefinitionError):
        app.signal_workflows(TAGGED, " ")
    with pytest.raises(errors.PayloadError):
        app.signal_workflows(TAGGED, "go", {"x": {1}})
    for condition in ({"status": "asleep"}, {"error_kind": "Bad"}, {"older_than": -1}, {"tag": 5}, {"parent_id": "1"}):
        with pytest.raises(errors.DefinitionError):
            WorkflowFilter(**condition)
    assert contents(app.door) == before


def test_a_step_that_only_some_have_is_refused_by_the_others(app: Queuety) -> None:
    one, other = steps(app.workflow("one").tag("here"), "a", "x"), steps(app.workflow("other").tag("here"), "a", "y")
    runs = [one.dispatch(), other.dispatch()]
    app.run_until_idle()
    found = app.rewind_workflows(TAGGED, "x")
    assert found.done == [runs[0]]
    assert "has no step 'x'" in found.refused[runs[1]]
    assert app.rewind_workflows(TAGGED, 0).done == runs[::-1]


def test_runs_that_change_meanwhile_are_done_or_refused_and_nothing_is_lost(
    app: Queuety, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pages somebody else cancels some of the rest, and starts others that are not meant any more."""
    monkeypatch.setattr(bulk, "AT_ONCE", 3)
    builder = steps(app.workflow("w").tag("here"), "a")
    runs = app.dispatch_many(builder, [{}] * 9)
    pages: list[list[int]] = []

    def read(*args: Any, **more: Any) -> list[int]:
        page = workflows.ids_of(*args, **more)
        pages.append(page)
        app.cancel_workflow(page[0])
        builder.dispatch()
        return page

    monkeypatch.setattr(bulk, "ids_of", read)
    found = app.pause_workflows(WorkflowFilter(tag="here", status="running"), limit=9)
    assert [run for page in pages for run in page] == runs[::-1]
    assert set(found.refused) == {page[0] for page in pages}
    assert found.done == [run for run in runs[::-1] if run not in found.refused]
    assert all("is cancelled" in why for why in found.refused.values())


def test_two_who_do_it_to_the_same_runs_at_once_have_each_done_by_one_of_them(database: Database, rounds: int) -> None:
    with Queuety(database.url) as app, Queuety(database.url) as other:
        builder = app.workflow("w").tag("here").then(breaks_unless_mended)
        for number in range(rounds):
            runs = app.dispatch_many(builder, [{"n": (number, one)} for one in range(10)])
            app.run_until_idle()
            found: list[BulkResult] = []
            gate = threading.Barrier(2)

            def retry(by: Queuety, gate: threading.Barrier = gate, found: list[BulkResult] = found) -> None:
                gate.wait(30)
                found.append(by.retry_workflows(WorkflowFilter(tag="here", status="failed"), with_state={"mended": 1}))

            threads = [threading.Thread(target=retry, args=(by,)) for by in (app, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert sorted(run for one in found for run in one.done) == runs
            app.run_until_idle()
            assert sorted(map(tuple, notes)) == [(number, one) for one in range(10)]
            notes.clear()
        check(app.door)

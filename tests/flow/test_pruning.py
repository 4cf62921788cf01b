"""`prune_state_after`: what a step has written leaves the state once the steps after it have settled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, StreamingStep, WorkflowStatus, bind, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of
from tests.support.invariants import check
from tests.support.stories import ended
from tests.support.waking import Field

State = dict[str, Any]


@step
def put(state: State, *, key: str, value: Any = True) -> State:
    note(sorted(state))
    return {key: value}


@step
def put_many(state: State, *, values: State) -> State:
    note(sorted(state))
    return values


@step
def goes_to(state: State, *, name: str) -> State:
    return {"_next_step": name, "steered": True}


@step
def item(state: State, item: Any, index: int) -> State:
    note(sorted(state))
    return {"of": item}


@step
def total(state: State, for_each: State) -> State:
    note(sorted(state))
    return {"total": for_each["succeeded"]}


@step
def count(state: State) -> State:
    return {"laps": state.get("laps", 0) + 1}


@step
def undo(state: State, *, key: str) -> None:
    note((key, sorted(state)))


class Writes(StreamingStep):
    def stream(self, state: Any, existing_chunks: list[Any]) -> Iterator[Any]:
        yield "a"

    def on_complete(self, chunks: list[Any], state: Any) -> State:
        return {"written": chunks}


def puts(builder: WorkflowBuilder, *keys: str) -> WorkflowBuilder:
    for key in keys:
        builder.then(bind(put, key=key), name=key)
    return builder


def kept(app: Queuety, run: int) -> list[list[str]]:
    """The keys of the state after each step that has settled, in order."""
    events = app.workflow_timeline(run, 1000)
    return [
        sorted(event.state_after or {})
        for event in events
        if event.event in ("step_completed", "workflow_resumed", "step_skipped") and event.step_index is not None
    ]


def test_the_keys_of_a_step_leave_with_the_step_that_stands_so_many_after_it(app: Queuety) -> None:
    """The example of the specification: after step 2, step 0's keys go."""
    run = puts(app.workflow("w").prune_state_after(2), *"abcde").dispatch({"given": 1})
    state = ended(app, run)
    assert state.state == {"given": 1, "d": True, "e": True}
    assert kept(app, run) == [
        ["a", "given"],
        ["a", "b", "given"],
        ["b", "c", "given"],
        ["c", "d", "given"],
        ["d", "e", "given"],
    ]
    assert notes == [["given"], *kept(app, run)[:-1]], "what handlers are given"


def test_two_steps_is_what_is_meant_where_nobody_says(app: Queuety) -> None:
    run = puts(app.workflow("w").prune_state_after(), *"abcd").dispatch()
    assert ended(app, run).state == {"c": True, "d": True}


def test_after_one_step_only_its_own_keys_are_there(app: Queuety) -> None:
    run = puts(app.workflow("w").prune_state_after(1), *"abc").dispatch()
    assert ended(app, run).state == {"c": True}
    assert kept(app, run) == [["a"], ["b"], ["c"]]


def test_a_key_that_a_newer_step_has_written_stays_as_long_as_that_ones(app: Queuety) -> None:
    builder = puts(app.workflow("w").prune_state_after(2), "a", "b")
    puts(builder.then(bind(put, key="a", value="new")), "c", "d")
    run = builder.dispatch()
    assert ended(app, run).state == {"c": True, "d": True}
    assert kept(app, run) == [["a"], ["a", "b"], ["a", "b"], ["a", "c"], ["c", "d"]]


def test_what_the_run_was_started_with_stays_unless_a_step_has_written_it(app: Queuety) -> None:
    builder = app.workflow("w").prune_state_after(1).then(bind(put_many, values={"x": None, "y": 2}))
    run = puts(builder, "a").dispatch({"x": 1, "y": 1, "z": None, "w": {"deep": []}})
    assert ended(app, run).state == {"z": None, "w": {"deep": []}, "a": True}


def test_null_is_a_value_like_any_other(app: Queuety) -> None:
    run = puts(app.workflow("w").prune_state_after(2).then(bind(put, key="n", value=None)), "a", "b").dispatch()
    assert ended(app, run).state == {"a": True, "b": True}
    assert "n" in kept(app, run)[1]


def test_a_key_that_was_written_again_after_it_had_gone_is_new(app: Queuety) -> None:
    builder = puts(app.workflow("w").prune_state_after(1), "a", "b")
    run = builder.then(bind(put, key="a", value="again")).dispatch({"given": 1})
    assert ended(app, run).state == {"given": 1, "a": "again"}


def test_all_that_a_step_of_any_kind_writes_is_that_steps(app: Queuety, clock: ManualClock) -> None:
    """Each kind is step 1; two steps later what it brought is gone."""
    other = app.workflow("other").delay().dispatch({"of other": 1})
    app.run_until_idle()
    child = puts(workflow("child"), "of child")
    kinds: dict[str, tuple[Any, list[str]]] = {
        "streaming": (lambda w: w.then(Writes), ["written"]),
        "parallel": (
            lambda w: w.parallel([bind(put, key="l"), bind(put, key="r"), bind(put, key="a")]),
            ["a", "l", "r"],
        ),
        "items": (lambda w: w.for_each("items", item, "out"), ["out"]),
        "reduced": (lambda w: w.for_each("items", item, "out", reducer=total), ["out", "total"]),
        "signal": (lambda w: w.wait_for_signal("go"), ["of", "sent"]),
        "decision": (lambda w: w.wait_for_decision(), ["decision"]),
        "workflow": (lambda w: w.wait_for_workflow("other", "found"), ["found"]),
        "child": (lambda w: w.run_workflow("child", child), ["of child"]),
        "started": (lambda w: w.start_workflows("items", child, "ids"), ["ids"]),
    }
    given = {"items": [1, 2], "other": other}
    for kind, (add, brings) in kinds.items():
        builder = add(puts(app.workflow("w").prune_state_after(2), "a"))
        run = puts(builder, "b", "c").dispatch(given)
        app.signal(run, "go", {"sent": 1, "of": "signal"})
        app.signal(run, "approved")
        state = ended(app, run)
        assert state.status is WorkflowStatus.COMPLETED, (kind, state.error_message)
        after = kept(app, run)
        assert set(brings) <= set(after[1]), kind
        assert set(brings) <= set(after[2]), kind
        assert set(state.state) == {"b", "c", "items", "other"}, kind


def test_steps_that_write_nothing_make_others_age_too(app: Queuety) -> None:
    run = puts(app.workflow("w").prune_state_after(2), "a").delay().delay().delay().dispatch()
    assert ended(app, run).state == {}
    assert kept(app, run) == [["a"], ["a"], [], []]


def test_a_for_each_works_on_a_list_that_is_old_by_then(app: Queuety) -> None:
    """The list is step 0's; the step that works on it is the one that takes it out."""
    builder = app.workflow("w").prune_state_after(1).then(bind(put, key="items", value=[1, 2]))
    run = builder.for_each("items", item, "out", reducer=total).dispatch()
    state = ended(app, run)
    assert (state.status, state.state["total"]) == (WorkflowStatus.COMPLETED, 2)
    assert notes == [[], ["items"], ["items"], ["items", "out"]]
    assert "items" not in state.state


def test_in_a_loop_the_latest_visit_counts(app: Queuety) -> None:
    builder = puts(app.workflow("w").prune_state_after(2), "a").then(count, name="laps")
    run = puts(builder.repeat_until("a", "laps", 3), "b", "c").dispatch()
    state = ended(app, run)
    assert state.state == {"b": True, "c": True}
    lap = [["a", "laps"], ["a", "laps"], ["laps"]]
    assert kept(app, run) == [["a"], *lap[1:], *lap, *lap, ["b"], ["b", "c"]]


def test_a_step_that_is_jumped_over_takes_nothing_out(app: Queuety) -> None:
    builder = puts(app.workflow("w").prune_state_after(2), "a").then(bind(goes_to, name="d"))
    run = puts(builder, "b", "c", "d", "e").dispatch()
    assert ended(app, run).state == {"d": True, "e": True}
    assert kept(app, run) == [["a"], ["a", "steered"], ["d"], ["d", "e"]]


def test_compensations_get_the_state_after_pruning(app: Queuety) -> None:
    builder = app.workflow("w").prune_state_after(1)
    for key in "abc":
        builder.then(bind(put, key=key)).compensate_with(bind(undo, key=key))
    run = builder.wait_for_signal("go").dispatch({"given": 1})
    app.run_until_idle()
    notes.clear()
    app.cancel_workflow(run)
    app.run_until_idle()
    assert notes == [("c", ["c", "given"]), ("b", ["b", "given"]), ("a", ["a", "given"])]


def test_what_operators_write_counts_as_the_present_steps(app: Queuety) -> None:
    run = puts(app.workflow("w").prune_state_after(2), *"abcdef").dispatch()
    app.run_until_idle(max_jobs=2)
    app.patch_state(run, {"patched": 1, "a": "patched"})
    app.run_until_idle(max_jobs=2)
    assert sorted(status_of(app, run).state) == ["a", "c", "d", "patched"]
    app.complete_step(run, {"e": "by hand"})
    assert sorted(status_of(app, run).state) == ["d", "e"]
    app.skip_step(run)
    done = status_of(app, run)
    assert (done.status, done.state) == (WorkflowStatus.COMPLETED, {"e": "by hand"})


def test_a_rewound_run_prunes_as_if_it_came_there_for_the_first_time(app: Queuety) -> None:
    """The keys that are back are as old as the steps that wrote them; what the run was given is nobody's again."""
    builder = puts(app.workflow("w").prune_state_after(2), *"abcd").then(bind(put, key="given", value="new"))
    run = puts(builder, "f").dispatch({"given": 1})
    first = ended(app, run)
    assert first.state == {"given": "new", "f": True}
    app.rewind_workflow(run, "b")
    assert status_of(app, run).state == {"given": 1, "a": True, "b": True}
    app.run_until_idle(max_jobs=2)
    assert status_of(app, run).state == {"given": 1, "c": True, "d": True}
    assert ended(app, run).state == first.state


def test_a_rewound_run_that_goes_another_way_keeps_what_it_was_given(app: Queuety) -> None:
    """A later step had written over it; after the rewind no step has."""
    builder = puts(app.workflow("w").prune_state_after(2), "a", "b").then(bind(put, key="given", value="new"))
    run = puts(builder.delay().delay().delay(), "z").dispatch({"given": 1})
    app.run_until_idle(max_jobs=3)
    app.rewind_workflow(run, "a")
    app.skip_step(run)
    app.skip_step(run)
    assert ended(app, run).state == {"given": 1, "z": True}


def test_a_fork_at_an_earlier_step_prunes_as_its_origin_did(app: Queuety) -> None:
    run = puts(app.workflow("w").prune_state_after(2), *"abcdef").dispatch({"given": 1})
    app.run_until_idle(max_jobs=5)
    present, earlier = app.fork_workflow(run), app.fork_workflow(run, "c")
    assert status_of(app, present).state == {"given": 1, "d": True, "e": True}
    assert status_of(app, earlier).state == {"given": 1, "a": True, "b": True}
    app.run_until_idle()
    for each in (run, present, earlier):
        assert status_of(app, each).state == {"given": 1, "e": True, "f": True}
    assert set(kept(app, earlier)[0]) >= {"b", "c", "given"}


@pytest.mark.parametrize("filler", [10, 3_000])
def test_who_wrote_what_is_known_to_an_application_that_begins_between_two_steps(
    database: Database, filler: int
) -> None:
    """A small state and one of which only deltas are written; each step is run by an application of its own."""
    builder = workflow("w").prune_state_after(2)
    for key in "abcdef":
        builder.then(bind(put_many, values={key: "x" * filler, "shared": key, f"{key}2": None}))
    with Queuety(database.url) as app:
        run = app.dispatch_workflow(builder, {"given": "y" * filler})
    for number, key in enumerate("abcdef"):
        with Queuety(database.url) as app:
            assert app.run_until_idle(max_jobs=1) == 1
        with Queuety(database.url) as app:
            expected = {"given", "shared"} | {
                f"{k}{n}" for k in "abcdef"[max(0, number - 1) : number + 1] for n in ("", "2")
            }
            state = status_of(app, run).state
            assert (set(state), state["shared"]) == (expected, key)
            check(app.door)


def test_who_wrote_what_is_known_to_workers_that_share_the_steps_of_a_run(database: Database) -> None:
    """Three applications: each sees in the row what the others have written."""
    builder = workflow("w").prune_state_after(2)
    for key in "abcdef":
        builder.then(bind(put, key=key))
    field = Field(database.url)
    try:
        with field.workers(3, concurrency=2):
            runs = field.app.dispatch_many(builder, [{"given": number} for number in range(20)])
            for number, run in enumerate(runs):
                assert field.app.wait(run, 60).state == {"given": number, "e": True, "f": True}
        for run in runs:
            after = [["b", "c", "given"], ["c", "d", "given"], ["d", "e", "given"], ["e", "f", "given"]]
            assert kept(field.app, run)[2:] == after
        check(field.app.door)
    finally:
        field.close()

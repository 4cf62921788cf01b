"""`for_each`: a handler for every item of a list, and what is made of all they return."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import ForEachHandler, ForEachMode, ForEachReducer, JobStatus, Queuety, WorkflowStatus, bind, current, step
from queuety.define.builder import WorkflowBuilder
from queuety.model import ErrorKind
from queuety.testing import ManualClock
from tests.support.flowing import note, notes, status_of, until, working
from tests.support.stories import ended, jobs_of, story

State = dict[str, Any]

let_go = threading.Event()


@pytest.fixture(autouse=True)
def everybody_ends() -> Iterator[None]:
    let_go.clear()
    yield
    let_go.set()


@step(max_attempts=1)
def work_on(state: State, item: Any, index: int) -> State:
    """Fails with items that say so until somebody has mended it."""
    note(item)
    if item == "bad" and "mended" not in notes:
        raise ValueError(f"item {index} is bad")
    return {"did": item, "at": index, "_hidden": 1, "_next_step": "nowhere"}


@step
def hands_back(state: State, item: Any, index: int) -> State:
    return {"item": item, "same": state["items"][index] == item}


@step
def waits(state: State, item: Any, index: int) -> State:
    note(item)
    if item != "quick":
        let_go.wait(30)
    return {"did": item}


@step(backoff=[0])
def stumbles(state: State, item: Any, index: int) -> State:
    note((item, current().attempt, current().item_index))
    if item == "hard" and current().attempt < 3:
        raise OSError("not yet")
    return {}


@step(backoff=[60])
def comes_late(state: State, item: Any, index: int) -> None:
    if item == "late" and current().attempt == 1:
        raise OSError("not yet")


@step
def state_alone(state: State) -> State:
    return {"items": len(state["items"])}


@step
async def awaited(state: State, item: Any, index: int, *, factor: int) -> State:
    return {"product": item * factor}


@step
def spoils(state: State, item: Any, index: int) -> State:
    state["items"].append("mine")
    state["new"] = True
    item["spoilt"] = True
    return {"number": len(state["items"])}


class Measure(ForEachHandler):
    def __init__(self, unit: str = "m") -> None:
        self.unit = unit

    def handle_item(self, state: State, item: Any, index: int) -> State:
        return {"measured": f"{item} {self.unit}"}


@step
def end(state: State) -> State:
    note("end")
    return {"end": True}


@step
def lap(state: State) -> State:
    n = state.get("n", 0) + 1
    return {"n": n, "items": [f"{n}{letter}" for letter in "abc"[:n]]}


@step
def keep(state: State) -> State:
    return {"kept": [*state.get("kept", []), [entry["item"] for entry in state["out"]["results"]]]}


@step
def add_up(state: State, for_each: State) -> State:
    note("reduced")
    assert state["out"] == for_each
    return {"sum": sum(entry["output"]["item"] for entry in for_each["results"])}


@step(max_attempts=2, backoff=[0])
def tried_twice(state: State, item: Any, index: int) -> None:
    note(item)


@step
def breaks(state: State, for_each: State) -> State:
    note(f"reducing {current().attempt}")
    if "mended" not in notes:
        raise ValueError("cannot reduce")
    return {"out": for_each["succeeded"]}


class Replace(ForEachReducer):
    def reduce(self, state: State, for_each: State) -> State:
        return {"out": [entry["output"]["did"] for entry in for_each["results"]], "_next_step": "end"}


def over(app: Queuety, handler: Any = work_on, **how: Any) -> WorkflowBuilder:
    return app.workflow("w").for_each("items", handler, result_key="out", name="each", **how)


def test_every_item_has_its_handler_and_the_aggregate_tells_all(app: Queuety) -> None:
    run = over(app).then(end).dispatch({"items": ["x", {"y": [1]}, None]})
    app.run_until_idle(max_jobs=2)
    held = status_of(app, run)
    assert (held.state, held.status, held.current_step) == ({"items": ["x", {"y": [1]}, None]}, "running", 0)
    done = ended(app, run)
    assert done.status is WorkflowStatus.COMPLETED
    ids = {
        output["at"]: event.job_id
        for event in app.workflow_timeline(run)
        if event.event == "step_item_completed" and (output := event.output)
    }
    results = [
        {"index": index, "item": item, "output": {"did": item, "at": index}, "job_id": ids[index]}
        for index, item in enumerate(["x", {"y": [1]}, None])
    ]
    first = next(e.output for e in app.workflow_timeline(run) if e.event == "step_item_completed")
    assert first is not None
    assert done.state == {
        "items": ["x", {"y": [1]}, None],
        "out": {
            "mode": "all",
            "quorum": None,
            "total": 3,
            "succeeded": 3,
            "failed": 0,
            "settled": True,
            "winner": results[first["at"]],
            "results": results,
            "failures": [],
        },
        "end": True,
    }
    assert story(app, run) == ["step_item_completed 0"] * 3 + ["step_completed 0", "step_completed 1"]
    assert notes[-1] == "end"


@pytest.mark.parametrize(
    ("payload", "items"),
    [
        ({}, []),
        ({"items": None}, []),
        ({"items": []}, []),
        ({"items": {}}, []),
        ({"items": ["one"]}, ["one"]),
        ({"items": ["a", "b"]}, ["a", "b"]),
        ({"items": {"z": 1, "a": 2}}, [1, 2]),
        ({"items": [[], [[1]], {}]}, [[], [[1]], {}]),
        ({"items": ["same"] * 3}, ["same"] * 3),
    ],
    ids=str,
)
def test_none_one_or_several_items_however_they_are_given(memory: Queuety, payload: State, items: list[Any]) -> None:
    done = ended(memory, over(memory).then(end).dispatch(payload))
    out = done.state["out"]
    assert isinstance(out, dict)
    assert (out["total"], out["succeeded"], out["settled"]) == (len(items), len(items), True)
    assert [entry["item"] for entry in out["results"]] == items
    assert (out["winner"] is None) == (not items)
    assert notes == [*items, "end"]


def test_what_is_no_list_fails_the_run_at_once_and_the_step_before_stays_done(app: Queuety) -> None:
    runs = {
        type(items).__name__: app.workflow("w").then(end).for_each("items", work_on).dispatch({"items": items})
        for items in (7, "text", True, 1.5)
    }
    app.run_until_idle()
    for name, run in runs.items():
        failed = status_of(app, run)
        assert (failed.status, failed.failed_step, failed.error_kind) == (
            WorkflowStatus.FAILED,
            1,
            ErrorKind.FOR_EACH_UNSATISFIABLE,
        )
        assert failed.state["end"] is True
        assert f"state['items'], which is of type {name}" in (failed.error_message or "")
    assert notes == ["end"] * 4


def test_with_all_one_item_that_fails_for_good_fails_the_run_with_its_message(app: Queuety) -> None:
    run = over(app).then(end).dispatch({"items": ["a", "bad", "b", "c"]})
    failed = ended(app, run)
    assert (failed.status, failed.error_kind, failed.error_message) == (
        WorkflowStatus.FAILED,
        ErrorKind.STEP_FAILED,
        "item 1 is bad",
    )
    assert notes == ["a", "bad"]
    assert [job.error_message for job in jobs_of(app, run, JobStatus.BURIED)] == ["item 1 is bad"] * 3
    assert "out" not in failed.state


def test_a_retry_keeps_the_successes_and_runs_only_what_is_missing(app: Queuety) -> None:
    run = over(app).then(end).dispatch({"items": ["a", "bad", "b"]})
    for _ in range(2):
        assert ended(app, run).status is WorkflowStatus.FAILED
        app.retry_workflow(run)
    note("mended")
    done = ended(app, run)
    out = done.state["out"]
    assert isinstance(out, dict)
    assert (done.status, out["succeeded"], out["failed"], out["failures"]) == (WorkflowStatus.COMPLETED, 3, 0, [])
    assert [entry["output"]["did"] for entry in out["results"]] == ["a", "bad", "b"]
    assert out["winner"]["item"] == "a"
    assert (notes.count("a"), notes.count("b"), notes.count("end")) == (1, 1, 1)


def test_the_first_success_settles_and_what_else_is_in_hand_or_waits_is_superseded(app: Queuety) -> None:
    run = over(app, waits, mode=ForEachMode.FIRST_SUCCESS).then(end).dispatch({"items": ["slow", "quick", "late"]})
    with working(app, concurrency=2):
        done = app.wait(run, 30)
        buried = jobs_of(app, run, JobStatus.BURIED)
        assert ["superseded" in (job.error_message or "") for job in buried] == [True, True]
        let_go.set()
    assert done.status is WorkflowStatus.COMPLETED
    out = done.state["out"]
    assert isinstance(out, dict)
    assert (out["mode"], out["total"], out["succeeded"], out["failed"]) == ("first_success", 3, 1, 0)
    assert (out["winner"]["index"], out["results"]) == (1, [out["winner"]])
    assert status_of(app, run).state == done.state, "a late result has changed something"
    assert story(app, run) == ["step_item_completed 0", "step_completed 0", "step_completed 1"]
    assert sorted(notes) == ["end", "quick", "slow"]


def test_a_late_result_means_nothing_to_the_next_step_of_the_same_kind(app: Queuety) -> None:
    """The results of a step that goes on beside it belong to that step alone."""
    builder = over(app, waits, mode="first_success").for_each("items", waits, result_key="second", name="second")
    run = builder.dispatch({"items": ["slow", "quick"]})
    with working(app, concurrency=4):
        until(lambda: notes.count("slow") == 2)
        let_go.set()
        done = app.wait(run, 30)
    second = done.state["second"]
    assert isinstance(second, dict)
    assert (second["succeeded"], len(second["results"]), len({r["job_id"] for r in second["results"]})) == (2, 2, 2)


@pytest.mark.parametrize(
    ("how", "items", "tried", "succeeded", "failed"),
    [
        ({"mode": "first_success"}, ["bad", "a", "b"], ["bad", "a"], [1], [0]),
        ({"mode": "quorum", "quorum": 2}, ["a", "bad", "b", "c"], ["a", "bad", "b"], [0, 2], [1]),
        ({"mode": "quorum", "quorum": 2}, ["bad", "bad", "b", "c"], ["bad", "bad", "b", "c"], [2, 3], [0, 1]),
        ({"mode": "quorum", "quorum": 1}, ["a"], ["a"], [0], []),
        ({"mode": "quorum", "quorum": 3}, ["a", "b", "c"], ["a", "b", "c"], [0, 1, 2], []),
    ],
    ids=str,
)
def test_it_settles_as_soon_as_enough_have_succeeded(
    memory: Queuety, how: State, items: list[str], tried: list[str], succeeded: list[int], failed: list[int]
) -> None:
    done = ended(memory, over(memory, **how).then(end).dispatch({"items": items}))
    out = done.state["out"]
    assert isinstance(out, dict)
    assert (done.status, notes) == (WorkflowStatus.COMPLETED, [*tried, "end"])
    assert [entry["index"] for entry in out["results"]] == succeeded
    assert [entry["index"] for entry in out["failures"]] == failed
    assert (out["succeeded"], out["failed"], out["total"]) == (len(succeeded), len(failed), len(items))
    assert (out["mode"], out["quorum"]) == (how["mode"], how.get("quorum"))
    assert out["winner"]["index"] == succeeded[0]
    for entry in out["failures"]:
        assert (entry["item"], entry["error_message"]) == ("bad", f"item {entry['index']} is bad")
        job = memory.job_status(entry["job_id"])
        assert job is not None
        assert job.status is JobStatus.BURIED


@pytest.mark.parametrize(
    ("how", "items", "tried"),
    [
        ({"mode": "first_success"}, [], 0),
        ({"mode": "quorum", "quorum": 1}, [], 0),
        ({"mode": "quorum", "quorum": 3}, ["a", "b"], 0),
        ({"mode": "first_success"}, ["bad", "bad"], 2),
        ({"mode": "quorum", "quorum": 3}, ["a", "bad", "bad", "bad", "c"], 4),
        ({"mode": "quorum", "quorum": 2}, ["bad", "bad", "a"], 2),
    ],
    ids=str,
)
def test_it_fails_as_soon_as_not_enough_can_succeed_any_more(
    memory: Queuety, how: State, items: list[str], tried: int
) -> None:
    run = over(memory, **how).then(end).dispatch({"items": items})
    failed = ended(memory, run)
    assert (failed.status, failed.failed_step, failed.error_kind) == (
        WorkflowStatus.FAILED,
        0,
        ErrorKind.FOR_EACH_UNSATISFIABLE,
    )
    assert (len(notes), "out" in failed.state) == (tried, False)


def test_a_retry_of_one_that_lacked_successes_forgets_the_failures(app: Queuety) -> None:
    run = over(app, mode="quorum", quorum=3).dispatch({"items": ["a", "bad", "b", "bad"]})
    assert ended(app, run).status is WorkflowStatus.FAILED
    note("mended")
    app.retry_workflow(run)
    out = ended(app, run).state["out"]
    assert isinstance(out, dict)
    assert (out["succeeded"], out["failed"], out["failures"], out["total"]) == (3, 0, [], 4)
    assert (notes.count("a"), notes.count("b")) == (1, 1)


def test_the_winner_is_the_first_in_time_also_where_all_succeed(app: Queuety, clock: ManualClock) -> None:
    run = over(app, comes_late).dispatch({"items": ["late", "a", "b"]})
    app.run_until_idle()
    clock.advance(minutes=1)
    out = ended(app, run).state["out"]
    assert isinstance(out, dict)
    assert [entry["index"] for entry in out["results"]] == [0, 1, 2]
    assert out["winner"] == out["results"][1]


def test_an_item_that_stumbles_is_tried_again_alone_and_knows_its_place(app: Queuety) -> None:
    run = over(app, stumbles).dispatch({"items": ["a", "hard", "b"]})
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert sorted(notes) == [("a", 1, 0), ("b", 1, 2), ("hard", 1, 1), ("hard", 2, 1), ("hard", 3, 1)]


def test_classes_coroutines_and_functions_of_the_state_alone_are_handlers(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .for_each("items", Measure)
        .for_each("items", bind(Measure, unit="km"), name="far")
        .for_each("items", bind(awaited, factor=3), result_key="products")
        .for_each("items", state_alone)
        .dispatch({"items": [5, 6]})
    )
    state = ended(app, run).state
    found = {key: [r["output"] for r in out["results"]] for key, out in state.items() if isinstance(out, dict)}
    assert found == {
        "0_results": [{"measured": "5 m"}, {"measured": "6 m"}],
        "far_results": [{"measured": "5 km"}, {"measured": "6 km"}],
        "products": [{"product": 15}, {"product": 18}],
        "3_results": [{"items": 2}, {"items": 2}],
    }


def test_a_handler_that_changes_what_it_was_given_changes_nothing(app: Queuety) -> None:
    items = [{"n": 1}, {"n": 2}]
    done = ended(app, over(app, spoils).dispatch({"items": items}))
    out = done.state["out"]
    assert isinstance(out, dict)
    assert (done.state["items"], [entry["item"] for entry in out["results"]]) == (items, items)
    assert [entry["output"] for entry in out["results"]] == [{"number": 3}] * 2
    assert "new" not in done.state


def test_hard_values_come_to_the_handler_and_into_the_aggregate_as_they_are(app: Queuety) -> None:
    items: list[Any] = [
        "nul \0 in the middle",
        "👩‍👩‍👧‍👦 \u202e \ud7ff \uffff",
        2**63 - 1,
        -(2**63),
        1.0,
        1e308,
        -0.0,
        True,
        None,
        "",
        {"a\0b": {"_x": [[[{"deep": [None, {}]}]]]}},
        "x" * 70_000,
        ["'", '"', "\\", "%s", ":name", "\r\n\t"],
    ]
    done = ended(app, over(app, hands_back).dispatch({"items": items}))
    out = done.state["out"]
    assert isinstance(out, dict)
    assert done.status is WorkflowStatus.COMPLETED
    assert [entry["output"] for entry in out["results"]] == [{"item": item, "same": True} for item in items]
    assert [type(entry["item"]) for entry in out["results"]] == [type(item) for item in items]


def test_the_result_may_take_the_place_of_the_items_also_after_a_retry_and_in_a_loop(app: Queuety) -> None:
    builder = app.workflow("w").then(lap, name="lap").for_each("items", work_on, result_key="items")
    run = builder.repeat_until("lap", "n", 2).dispatch()
    items = ended(app, run).state["items"]
    assert isinstance(items, dict)
    assert [entry["item"] for entry in items["results"]] == ["2a", "2b"]
    run = app.workflow("w").for_each("items", work_on, result_key="items").dispatch({"items": ["a", "bad"]})
    assert ended(app, run).state == {"items": ["a", "bad"]}
    note("mended")
    app.retry_workflow(run)
    items = ended(app, run).state["items"]
    assert isinstance(items, dict)
    assert [entry["item"] for entry in items["results"]] == ["a", "bad"]


def test_every_lap_of_a_loop_has_results_of_its_own(app: Queuety) -> None:
    builder = app.workflow("w").then(lap, name="lap").for_each("items", work_on, result_key="out")
    run = builder.then(keep).repeat_until("lap", "n", 3).dispatch()
    assert ended(app, run).state["kept"] == [["1a"], ["2a", "2b"], ["3a", "3b", "3c"]]
    assert sorted(notes) == ["1a", "2a", "2b", "3a", "3b", "3c"]


def test_a_first_success_in_a_loop_is_found_anew_in_every_lap(app: Queuety) -> None:
    builder = app.workflow("w").then(lap, name="lap").for_each("items", work_on, result_key="out", mode="first_success")
    run = builder.then(keep).repeat_until("lap", "n", 3).dispatch()
    assert ended(app, run).state["kept"] == [["1a"], ["2a"], ["3a"]]


def test_a_reducer_sees_the_state_with_the_aggregate_and_adds_to_it(app: Queuety) -> None:
    done = ended(app, over(app, hands_back, reducer=add_up).then(end).dispatch({"items": [1, 2, 3]}))
    out = done.state["out"]
    assert isinstance(out, dict)
    assert (done.state["sum"], out["succeeded"], notes) == (6, 3, ["reduced", "end"])


def test_a_reducer_may_replace_the_aggregate_and_steer(app: Queuety) -> None:
    run = over(app, reducer=Replace).then(keep).then(end, name="end").dispatch({"items": ["a", "b"]})
    done = ended(app, run)
    assert (done.status, done.state["out"], notes) == (WorkflowStatus.COMPLETED, ["a", "b"], ["a", "b", "end"])


def test_a_reducer_runs_also_where_there_is_no_item_and_as_the_only_one_where_items_are_superseded(
    app: Queuety,
) -> None:
    assert ended(app, over(app, hands_back, reducer=add_up).dispatch({"items": []})).state["sum"] == 0
    run = over(app, reducer=Replace, mode="first_success").then(end, name="end").dispatch({"items": ["a", "b", "c"]})
    assert ended(app, run).state["out"] == ["a"]


def test_a_reducer_that_fails_is_tried_again_and_no_item_with_it_even_by_a_retry(app: Queuety) -> None:
    """It has as many attempts as the step gives to each item."""
    run = over(app, tried_twice, reducer=breaks).then(end).dispatch({"items": ["a", "b"]})
    failed = ended(app, run)
    assert (failed.status, failed.error_message, failed.failed_step) == (WorkflowStatus.FAILED, "cannot reduce", 0)
    assert notes == ["a", "b", "reducing 1", "reducing 2"]
    note("mended")
    app.retry_workflow(run)
    done = ended(app, run)
    assert (done.status, done.state["out"]) == (WorkflowStatus.COMPLETED, 2)
    assert notes[4:] == ["mended", "reducing 1", "end"]


def test_a_paused_run_works_through_its_items_and_waits_before_the_next_step(app: Queuety) -> None:
    run = over(app).then(end).dispatch({"items": ["a", "b", "c"]})
    app.run_until_idle(max_jobs=1)
    app.pause_workflow(run)
    held = ended(app, run)
    assert (held.status, held.current_step, notes) == (WorkflowStatus.PAUSED, 1, ["a", "b", "c"])
    app.resume_workflow(run)
    assert ended(app, run).status is WorkflowStatus.COMPLETED
    assert notes == ["a", "b", "c", "end"]


def test_a_run_cancelled_among_its_items_works_on_no_other_and_takes_no_late_result(app: Queuety) -> None:
    run = over(app, waits).then(end).dispatch({"items": ["quick", "a", "b", "c"]})
    app.run_until_idle(max_jobs=1)
    with working(app, concurrency=2):
        until(lambda: len(notes) == 3)
        app.cancel_workflow(run)
        let_go.set()
    done = status_of(app, run)
    assert (done.status, "out" in done.state, len(notes)) == (WorkflowStatus.CANCELLED, False, 3)
    assert {job.status for job in jobs_of(app, run)} <= {JobStatus.BURIED, JobStatus.COMPLETED}
    assert app.run_until_idle() == 0

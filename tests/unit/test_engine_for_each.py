"""`for_each`: a job per item, an aggregate when enough have succeeded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from queuety.engine.decide import decide, start
from queuety.engine.items import items_at
from queuety.engine.kinds import for_each
from queuety.errors import DefinitionError
from queuety.model import (
    AddJob,
    Cancel,
    Due,
    Entry,
    ErrorInfo,
    Event,
    HandlerRef,
    Job,
    Options,
    Pause,
    Priority,
    Resume,
    RetryRun,
    Role,
    SetTimer,
    Signalled,
    Span,
    StepSpec,
    Succeeded,
    Use,
    WorkflowStatus,
)
from queuety.model.needs import NeedParts, PartRow
from tests.unit.reference import SECOND, flow, then
from tests.unit.stage import Stage

NO_WAY = ErrorInfo("no way", "ValueError")
ABC = {"items": ["a", "b", "c"]}


def each(mode: str = "all", quorum: int | None = None, reducer: str | None = None, **options: Any) -> StepSpec:
    settings: dict[str, Any] = {"items_key": "items", "result_key": "out", "mode": mode}
    if quorum is not None:
        settings["quorum"] = quorum
    return StepSpec(
        "for_each",
        "each",
        HandlerRef("app:item"),
        Options(**options),
        settings,
        reducer=HandlerRef(f"app:{reducer}") if reducer else None,
    )


def result(index: int, item: Any, job_id: int, **output: Any) -> dict[str, Any]:
    return {"index": index, "item": item, "output": output, "job_id": job_id}


def failure(index: int, item: Any, job_id: int, message: str = "boom") -> dict[str, Any]:
    return {"index": index, "item": item, "error_message": message, "job_id": job_id}


# what the items are


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({}, ()),
        ({"items": None}, ()),
        ({"items": []}, []),
        ({"items": [None, 0]}, [None, 0]),
        ({"items": {"z": 1, "a": 2}}, [1, 2]),
        ({"items": "abc"}, None),
        ({"items": 0}, None),
        ({"items": False}, None),
    ],
)
def test_items_are_a_list_or_the_values_of_a_mapping(state: dict[str, Any], found: Any) -> None:
    assert items_at(state, "items") == found


def test_anything_else_fails_the_run_at_once_and_says_what_is_needed() -> None:
    stage = Stage(flow(then("first"), each()))
    stage.succeed({"items": "abc"})
    run = stage.workflow
    assert (run.status, run.error_kind, run.failed_step) == ("failed", "ForEachUnsatisfiable", 1)
    assert run.error_message == (
        "step 'each' of workflow 41 works through state['items'], which is of type str; "
        "a list is needed, or a mapping whose values are the items"
    )
    assert run.state == {"items": "abc"}, "the step before it is not undone"


# all


def test_every_item_is_a_job_of_its_own() -> None:
    stage = Stage(flow(each(queue="wide", max_attempts=5, delay_s=2)), ABC)
    assert [
        (new.branch, new.handler, new.queue, new.max_attempts, new.due_us) for new, _, _ in stage.open.values()
    ] == [(index, "app:item", "wide", 5, 2 * SECOND) for index in range(3)]
    assert stage.workflow.runtime == {"total": 3, "next": 3, "done": 0, "failed": 0, "since": 0}
    assert stage.timers == []


def test_all_settles_with_the_last_success() -> None:
    stage = Stage(flow(each(), then("end")), ABC)
    stage.tell(stage.good(2, {"n": 2}))
    stage.tell(stage.good(0, {"n": 0}))
    assert (stage.workflow.state, stage.workflow.current_step) == (ABC, 0), "outputs of items are not merged"
    stage.tell(stage.good(1, {"n": 1}))
    aggregate = {
        "mode": "all",
        "quorum": None,
        "total": 3,
        "succeeded": 3,
        "failed": 0,
        "settled": True,
        "winner": result(2, "c", 103, n=2),
        "results": [result(0, "a", 101, n=0), result(1, "b", 102, n=1), result(2, "c", 103, n=2)],
        "failures": [],
    }
    assert stage.workflow.state == {**ABC, "out": aggregate}
    assert list(stage.workflow.state["out"]) == list(aggregate)
    assert (stage.workflow.current_step, stage.workflow.transitions) == (1, 1)
    assert stage.told_of() == [(Entry.ITEM, 2), (Entry.ITEM, 0), (Entry.ITEM, 1), (Entry.COMPLETED, None)]
    assert stage.rows[0].control == {"_output": {"n": 2}}
    assert stage.asked == [NeedParts(1, 0)] * 2, "the rows are read once, when it is settled (the stage asks twice)"


def test_one_item_is_enough() -> None:
    stage = Stage(flow(each()), {"items": {"only": 7}})
    stage.tell(stage.good(0))
    assert stage.workflow.status == "completed"
    assert stage.workflow.state["out"]["results"] == [result(0, 7, 101)]
    assert stage.workflow.state["out"]["winner"] == result(0, 7, 101)


@pytest.mark.parametrize("payload", [{}, {"items": None}, {"items": []}, {"items": {}}])
def test_no_items_settle_at_once(payload: dict[str, Any]) -> None:
    stage = Stage(flow(each()), payload)
    assert (stage.workflow.status, stage.workflow.state["out"]) == (
        "completed",
        {
            "mode": "all",
            "quorum": None,
            "total": 0,
            "succeeded": 0,
            "failed": 0,
            "settled": True,
            "winner": None,
            "results": [],
            "failures": [],
        },
    )
    assert stage.told_of() == [(Entry.RESUMED, None)]


def test_one_item_that_fails_for_good_fails_the_run_with_its_own_message() -> None:
    stage = Stage(flow(each()), ABC)
    stage.tell(stage.good(0))
    stage.tell(stage.bad(1, NO_WAY))
    run = stage.workflow
    assert (run.status, run.error_message, run.error_kind) == ("failed", "no way", "StepFailed")
    assert (run.state, stage.buried) == (ABC, {102: "no way", 103: "no way"})
    assert stage.told_of() == [(Entry.ITEM, 0), (Entry.FAILED, 1)]


def test_an_item_retries_alone_before_it_fails() -> None:
    stage = Stage(flow(each(max_attempts=2, backoff=(3.0,))), ABC)
    stage.tell(stage.bad(1, is_final=False))
    assert {new.branch: due_us for new, _, due_us in stage.open.values()} == {0: 0, 1: 3 * SECOND, 2: 0}
    assert stage.workflow.runtime == {"total": 3, "next": 3, "done": 0, "failed": 0, "since": 0}
    stage.tell(stage.bad(1, is_final=False))
    assert stage.workflow.status == "failed"


def test_an_item_cannot_steer_and_its_control_values_are_no_output() -> None:
    stage = Stage(flow(each(), then("next"), then("far")), {"items": [1]})
    stage.tell(stage.good(0, {"x": 1, "_next_step": "far", "_trace": 7, "_output": "forged"}))
    assert stage.workflow.current_step == 1
    assert stage.workflow.state["out"]["results"][0]["output"] == {"x": 1}
    assert stage.rows[0].control == {"_trace": 7, "_output": {"x": 1}}


# first success, quorum


def test_the_first_success_settles_and_supersedes_the_rest() -> None:
    stage = Stage(flow(each("first_success"), then("end")), ABC)
    stage.tell(stage.bad(0))
    assert stage.workflow.runtime == {"total": 3, "next": 3, "done": 0, "failed": 1, "since": 0}
    late = stage.good(1)
    stage.tell(stage.good(2, {"n": 2}))
    out = stage.workflow.state["out"]
    assert (out["total"], out["succeeded"], out["failed"]) == (3, 1, 1)
    assert out["winner"] == result(2, "c", 103, n=2)
    assert (out["results"], out["failures"]) == ([out["winner"]], [failure(0, "a", 101)])
    assert stage.buried == {101: "boom", 102: "superseded: step 'each' is settled without this item"}
    assert stage.branches() == [None]
    assert stage.tell(late) == []


def test_a_quorum_settles_with_exactly_as_many_as_it_needs() -> None:
    stage = Stage(flow(each("quorum", 2)), {"items": [1, 2, 3, 4]})
    stage.tell(stage.good(3), stage.bad(0), stage.good(1))
    out = stage.workflow.state["out"]
    assert (out["mode"], out["quorum"], out["total"], out["succeeded"], out["failed"]) == ("quorum", 2, 4, 2, 1)
    assert [one["index"] for one in out["results"]] == [1, 3]
    assert out["winner"]["index"] == 3
    assert stage.workflow.status == "completed"


def test_a_quorum_fails_as_soon_as_it_is_certain_and_says_why() -> None:
    stage = Stage(flow(each("quorum", 3)), {"items": [1, 2, 3, 4]})
    stage.tell(stage.bad(0))
    assert stage.workflow.status == "running"
    stage.tell(stage.bad(2, NO_WAY))
    run = stage.workflow
    assert (run.status, run.error_kind) == ("failed", "ForEachUnsatisfiable")
    assert run.error_message == (
        "step 'each' needs 3 of its items to succeed; it has 4, and 2 failed, the last one with: no way"
    )
    assert stage.told_of() == [(Entry.FAILED, 0), (Entry.FAILED, 2), (Entry.FAILED, None)]
    assert stage.branches() == []


def test_first_success_fails_once_every_item_has() -> None:
    stage = Stage(flow(each("first_success")), {"items": [1, 2]})
    stage.tell(stage.bad(1), stage.bad(0))
    assert (stage.workflow.status, stage.workflow.error_kind) == ("failed", "ForEachUnsatisfiable")


@pytest.mark.parametrize(
    ("step", "count"), [(each("first_success"), 0), (each("quorum", 1), 0), (each("quorum", 3), 2)]
)
def test_what_cannot_be_reached_fails_on_entry(step: StepSpec, count: int) -> None:
    stage = Stage(flow(step), {"items": list(range(count))})
    run = stage.workflow
    assert (run.status, run.error_kind, stage.open) == ("failed", "ForEachUnsatisfiable", {})
    assert f"it has {count}, so it cannot be settled" in (run.error_message or "")


# the reducer


def test_a_reducer_gets_the_aggregate_as_part_of_the_state_and_may_replace_it() -> None:
    stage = Stage(flow(each(reducer="sum", delay_s=60), then("next"), then("far")), ABC)
    stage.tell(stage.good(0), stage.good(1))
    stage.tell(stage.good(2))
    run = stage.workflow
    assert (run.status, run.current_step, run.transitions) == ("running", 0, 0)
    assert run.state["out"]["succeeded"] == 3
    assert (run.runtime or {})["reducing"] is True
    ((new, _, due_us),) = stage.open.values()
    assert (new.handler, new.branch, due_us) == ("app:sum", None, 0)
    stage.tell(stage.good(None, {"out": 6, "_next_step": "far"}))
    run = stage.workflow
    assert (run.current_step, run.state, run.transitions) == (2, {**ABC, "out": 6}, 1)
    assert stage.told_of()[-2:] == [(Entry.ITEM, 2), (Entry.COMPLETED, None)]


def test_a_reducer_without_items_still_runs() -> None:
    stage = Stage(flow(each(reducer="sum")))
    assert (stage.workflow.state["out"]["total"], stage.branches()) == (0, [None])
    assert stage.told_of() == [(Entry.NOTED, None)]
    stage.tell(stage.good(None, {"sum": 0}))
    assert (stage.workflow.status, stage.workflow.state["sum"]) == ("completed", 0)


def test_a_reducer_that_fails_is_retried_by_itself() -> None:
    stage = Stage(flow(each(reducer="sum", max_attempts=2)), ABC)
    stage.tell(*(stage.good(index) for index in range(3)))
    stage.tell(stage.bad(None, is_final=False))
    assert stage.workflow.status == "running"
    stage.tell(stage.bad(None, NO_WAY, is_final=False))
    assert (stage.workflow.status, stage.workflow.error_message) == ("failed", "no way")
    stage.command(RetryRun())
    ((new, attempts, _),) = stage.open.values()
    assert (new.handler, new.branch, attempts) == ("app:sum", None, 0)
    assert stage.told_of()[-1] == (Entry.RETRIED, None), "the aggregate is there already"
    stage.tell(stage.good(None))
    assert stage.workflow.status == "completed"


def test_a_reducer_that_names_no_step_fails_the_run_and_may_be_retried() -> None:
    stage = Stage(flow(each(reducer="sum")), {"items": [1]})
    stage.tell(stage.good(0))
    stage.tell(stage.good(None, {"_next_step": "nowhere"}))
    assert stage.workflow.error_kind == "DefinitionError"
    stage.command(RetryRun())
    assert stage.branches() == [None]


def test_items_that_are_superseded_do_not_disturb_the_reducer() -> None:
    stage = Stage(flow(each("first_success", reducer="sum")), {"items": list("abcd")})
    late = [stage.good(1), stage.bad(2), stage.bad(3, is_final=False)]
    stage.tell(stage.good(0), *late)
    assert (stage.branches(), sorted(stage.buried)) == ([None], [102, 103, 104])
    assert stage.told_of() == [(Entry.ITEM, 0)]
    assert stage.workflow.state["out"]["succeeded"] == 1
    kept = stage.workflow.runtime
    after = decide(stage.workflow, stage.definition, late[0], now_us=0)  # a store without a fence would let it in
    assert (after.workflow.runtime, after.workflow.state) == (kept, stage.workflow.state)


# retry


def test_a_retry_keeps_what_succeeded_and_forgets_what_failed() -> None:
    stage = Stage(flow(each("quorum", 3)), {"items": list("abcd")})
    stage.tell(stage.good(1, {"n": 1}))
    stage.tell(stage.bad(0))
    stage.tell(stage.bad(3, NO_WAY))
    stage.command(RetryRun())
    assert stage.branches() == [0, 2, 3]
    version = stage.workflow.version
    assert stage.workflow.runtime == {
        "total": 4, "next": 4, "done": 1, "failed": 0, "since": 0, "retried": version,
    }  # fmt: skip
    stage.tell(stage.bad(0))
    assert stage.workflow.status == "running", "one failure more is allowed, as at first"
    stage.tell(stage.good(3))
    stage.tell(stage.good(2))
    out = stage.workflow.state["out"]
    assert [one["index"] for one in out["results"]] == [1, 2, 3]
    assert [(one["index"], one["error_message"]) for one in out["failures"]] == [(0, "boom")]
    assert out["winner"]["index"] == 1


def test_failures_before_a_retry_are_no_part_of_the_aggregate() -> None:
    stage = Stage(flow(each("quorum", 2)), ABC)
    stage.tell(stage.bad(0), stage.bad(1))
    stage.command(RetryRun())
    stage.tell(stage.good(1), stage.good(2))
    out = stage.workflow.state["out"]
    assert (out["succeeded"], out["failed"], out["failures"]) == (2, 0, [])
    assert [*stage.buried.values()][-1] == "superseded: step 'each' is settled without this item", "it was open again"


def test_a_retry_in_mode_all_runs_what_failed_and_what_was_buried() -> None:
    stage = Stage(flow(each()), ABC)
    stage.tell(stage.good(1))
    stage.tell(stage.bad(0))
    stage.command(RetryRun())
    assert stage.branches() == [0, 2]
    stage.tell(stage.good(0), stage.good(2))
    out = stage.workflow.state["out"]
    assert (out["succeeded"], out["failed"], out["failures"]) == (3, 0, [])


def test_a_retry_of_a_run_that_failed_on_entry_enters_anew() -> None:
    stage = Stage(flow(each("quorum", 3)), {"items": [1]})
    stage.command(RetryRun())
    assert (stage.workflow.status, stage.workflow.error_kind) == ("failed", "ForEachUnsatisfiable")


def test_a_retry_with_nothing_left_to_run_settles() -> None:
    definition = flow(each(), then("end"))
    stage = Stage(definition, {"items": ["a"]})
    failed = replace(stage.workflow, status=WorkflowStatus.FAILED)  # as a budget that the aggregate broke leaves it
    facts = {NeedParts(1, 0): (PartRow(1, Entry.ITEM, 0, 101, {"n": 1}),)}
    after = decide(failed, definition, stage.commanded(RetryRun()), now_us=0, facts=facts).workflow
    assert (after.current_step, after.state["out"]["results"]) == (1, [result(0, "a", 101, n=1)])


def test_an_item_that_is_told_of_twice_counts_once() -> None:
    stage = Stage(flow(each(), then("end")), ABC)
    first = stage.good(0, {"n": 1})
    stage.tell(first)
    again = [first, replace(first, output={"n": 2})]
    workflow, rows = stage.workflow, list(stage.rows)
    for told in again:  # a store without a fence would let it in
        facts = {NeedParts(1, 0): tuple(PartRow(row.seq, row.entry, 0, 101, {"n": 1}) for row in rows)}
        decision = decide(workflow, stage.definition, told, now_us=0, facts=facts)
        workflow = decision.workflow
        assert (workflow.status, workflow.current_step) == ("running", 0)
    assert workflow.runtime == {"total": 3, "next": 3, "done": 1, "failed": 0, "since": 0}
    twice = (*(PartRow(seq, Entry.ITEM, 0, 101, {"n": seq}) for seq in (1, 2)), PartRow(3, Entry.ITEM, 1, 102))
    almost = replace(stage.workflow, runtime={**(workflow.runtime or {}), "done": 2})
    last = decide(almost, stage.definition, stage.good(2), now_us=0, facts={NeedParts(1, 0): twice})
    assert last.workflow.state["out"]["winner"] == result(0, "a", 101, n=1), "the first that was told"


# loops, pauses, cancellations


def test_a_loop_that_comes_back_starts_with_no_results() -> None:
    stage = Stage(flow(each("first_success"), then("again")), ABC)
    for round_ in range(3):
        assert stage.branches() == [0, 1, 2]
        stage.tell(stage.good(round_, {"round": round_}))
        out = stage.workflow.state["out"]
        assert (out["succeeded"], out["winner"]["output"]) == (1, {"round": round_})
        stage.succeed({"_next_step": "each"})


def test_a_pause_in_the_middle_keeps_counting() -> None:
    stage = Stage(flow(each(reducer="sum"), then("end")), ABC)
    stage.tell(stage.good(0))
    stage.command(Pause())
    stage.tell(stage.good(1))
    stage.command(Resume())
    assert stage.branches() == [2], "a resume asks for nothing twice"
    stage.command(Pause())
    stage.tell(stage.good(2))
    assert (stage.workflow.status, stage.branches()) == ("paused", [None]), "the reducer belongs to the step"
    stage.tell(stage.good(None))
    assert (stage.workflow.status, stage.workflow.current_step, stage.branches()) == ("paused", 1, [])
    stage.command(Resume())
    assert stage.branches() == [None]


def test_a_cancel_buries_every_item() -> None:
    stage = Stage(flow(each()), ABC)
    stage.tell(stage.good(0))
    stage.command(Cancel())
    assert (stage.workflow.status, stage.branches(), sorted(stage.buried)) == ("cancelled", [], [102, 103])


def test_what_means_nothing_to_it_changes_nothing() -> None:
    stage = Stage(flow(each()), ABC)
    kept = stage.workflow.runtime
    stage.tell(Due(1))
    stage.tell(Signalled("hello", {}, 900))
    assert (stage.workflow.runtime, stage.branches()) == (kept, [0, 1, 2])


# many items


def test_fifty_thousand_items_come_a_thousand_at_a_time() -> None:
    definition, payload = flow(each()), {"items": list(range(50_000))}
    decision = start(41, definition, payload, now_us=7)
    seen: list[int | None] = []
    turns = 0
    while True:
        added = [effect.job.branch for effect in decision.effects if isinstance(effect, AddJob)]
        timers = [effect for effect in decision.effects if isinstance(effect, SetTimer)]
        assert len(added) == 1_000
        seen += added
        turns += 1
        if not timers:
            break
        assert timers == [SetTimer(41, 1, 7)]
        decision = decide(decision.workflow, definition, Due(1), now_us=7)
    assert seen == list(range(50_000))
    assert turns == 50
    assert decision.workflow.runtime == {"total": 50_000, "next": 50_000, "done": 0, "failed": 0, "since": 0}
    assert decide(decision.workflow, definition, Due(1), now_us=7).workflow is decision.workflow


def test_fifty_thousand_items_settle_with_one_look_at_the_rows() -> None:
    definition, total = flow(each()), 50_000
    begun = start(41, definition, {"items": list(range(total))}, now_us=0).workflow
    rows = tuple(PartRow(seq, Entry.ITEM, total - seq, 1_000 + seq, {"n": seq}) for seq in range(1, total))
    kept = {"total": total, "next": total, "done": total - 1, "failed": 0, "since": 0}
    job = Job(
        7, Role.STEP, "default", Priority.LOW, "app:item", 1, 3, 9, 0, 0,
        workflow_id=41, step_index=0, visit=1, branch=0,
    )  # fmt: skip
    last = Succeeded(job, {"n": 0}, Span(0, 0, 1))
    almost = replace(begun, version=total - 1, runtime=kept)
    out = decide(almost, definition, last, now_us=0, facts={NeedParts(1, 0): rows}).workflow.state["out"]
    assert (out["succeeded"], len(out["results"]), out["winner"]["index"]) == (total, total, total - 1)
    assert [out["results"][0], out["results"][-1]["index"]] == [result(0, 0, 7, n=0), total - 1]


def test_the_next_thousand_come_while_the_first_are_settled_and_while_paused() -> None:
    stage = Stage(flow(each("quorum", 2_400)), {"items": list(range(2_500))})
    stage.tell(*(stage.good(index) for index in range(1_000)))
    assert (stage.workflow.status, stage.branches()) == ("running", [])
    stage.command(Pause())
    stage.fire()
    stage.tell(*(stage.good(index) for index in range(1_000, 2_000)))
    assert (stage.workflow.status, len(stage.timers)) == ("paused", 1)
    stage.command(Resume())
    stage.fire()
    assert (len(stage.branches()), stage.timers) == (500, [])
    stage.tell(*(stage.good(index) for index in range(2_000, 2_400)))
    assert (stage.workflow.status, len(stage.buried)) == ("completed", 100)


def test_items_that_never_came_to_a_job_are_superseded_with_the_rest() -> None:
    stage = Stage(flow(each("first_success", reducer="sum")), {"items": list(range(3_000))})
    due = Due(1)
    stage.tell(stage.good(500), due)
    assert (stage.branches(), stage.timers, len(stage.buried)) == ([None], [], 999)
    assert stage.workflow.state["out"]["total"] == 3_000


def test_a_first_success_waits_for_items_that_have_no_job_yet() -> None:
    stage = Stage(flow(each("first_success")), {"items": list(range(1_001))})
    stage.tell(*(stage.bad(index) for index in range(1_000)))
    assert stage.workflow.status == "running"
    stage.fire()
    stage.tell(stage.good(1_000))
    assert (stage.workflow.status, stage.workflow.state["out"]["failed"]) == ("completed", 1_000)


def test_a_retry_gives_out_what_is_missing_a_thousand_at_a_time_and_at_once() -> None:
    stage = Stage(flow(each(delay_s=60)), {"items": list(range(2_500))})
    stage.now_us = 60 * SECOND
    stage.fire()
    done = [*range(0, 1_000, 2), *range(1_900, 2_000)]
    stage.tell(*(stage.good(index) for index in done))
    stage.tell(stage.bad(1))
    assert stage.timers == []
    stage.command(RetryRun())
    missing = [index for index in range(2_500) if index not in set(done)]
    assert stage.branches() == missing[:1_000]
    assert (stage.workflow.runtime or {})["next"] == missing[999] + 1
    stage.tell(*(stage.good(index) for index in missing[:700]))
    stage.fire()
    stage.tell(*(stage.good(index) for index in missing[700:1_000]))
    assert stage.branches() == missing[1_000:]
    assert {due_us for _, _, due_us in stage.open.values()} == {60 * SECOND}, "the delay is not waited for again"
    stage.tell(*(stage.good(index) for index in missing[1_000:]))
    assert (stage.workflow.status, stage.workflow.state["out"]["succeeded"]) == ("completed", 2_500)


# what a job runs


def test_a_job_gets_its_item_and_its_index() -> None:
    spec = each(timeout_s=3)
    stage = Stage(flow(spec), {"items": {"x": "first", "y": "second"}})
    task = for_each.task(spec, stage.take(1), stage.workflow.state)
    assert (task.handler.name, task.options.timeout_s, task.use) == ("app:item", 3, Use.ITEM)
    assert (task.arguments, task.shared) == (("second", 1), None)


def test_the_values_of_a_large_mapping_are_copied_with_the_state() -> None:
    spec = each()
    stage = Stage(flow(spec), {"items": {str(number): number for number in range(1_001)}})
    assert for_each.task(spec, stage.take(7), stage.workflow.state).shared is None


@pytest.mark.parametrize(("count", "shared"), [(100, None), (101, "items")])
def test_a_large_list_is_shared_among_the_jobs(count: int, shared: str | None) -> None:
    spec = each()
    stage = Stage(flow(spec), {"items": list(range(count))})
    assert for_each.task(spec, stage.take(7), stage.workflow.state).shared == shared


def test_the_reducers_job_gets_the_aggregate() -> None:
    spec = each(reducer="sum", timeout_s=3)
    stage = Stage(flow(spec), {"items": [1]})
    stage.tell(stage.good(0))
    job = stage.take(None)
    task = for_each.task(spec, job, stage.workflow.state)
    assert (task.handler.name, task.use, task.options.timeout_s) == ("app:sum", Use.REDUCER, 3)
    assert (task.arguments, task.shared) == ((stage.workflow.state["out"],), None)
    with pytest.raises(DefinitionError, match="'each' has no reducer"):
        for_each.task(each(), job, stage.workflow.state)
    with pytest.raises(DefinitionError, match="'each' has no handler"):
        for_each.task(replace(spec, handler=None), replace(job, branch=0), stage.workflow.state)


# against a reference


moves = st.lists(
    st.tuples(st.sampled_from(["good", "good", "good", "bad", "bad", "again", "pause", "resume"]), st.integers(0, 4)),
    max_size=40,
)
modes = st.sampled_from([("all", None), ("first_success", None), ("quorum", 1), ("quorum", 2), ("quorum", 3)])


class Book:
    """The items of one visit as the specification tells of them."""

    def __init__(self, mode: str, quorum: int | None, total: int) -> None:
        self.mode, self.total = mode, total
        self.needed = total if mode == "all" else quorum or 1
        self.good: list[int] = []
        self.bad: set[int] = set()
        self.status = "failed" if self.needed > total else "completed" if total == 0 else "running"

    def end(self, item: int, *, is_good: bool) -> None:
        if is_good:
            self.good.append(item)
            self.status = "completed" if len(self.good) == self.needed else "running"
        else:
            self.bad.add(item)
            possible = self.total - len(self.bad)
            self.status = "failed" if possible < self.needed else "running"

    def again(self) -> None:
        self.bad = set()
        if self.needed <= self.total:
            self.status = "running"

    def open(self) -> set[int]:
        return set(range(self.total)) - set(self.good) - self.bad if self.status == "running" else set()


@given(modes, st.integers(0, 5), moves)
def test_a_for_each_goes_as_the_book_says(
    mode: tuple[str, int | None], total: int, moves: list[tuple[str, int]]
) -> None:
    stage, book = Stage(flow(each(*mode)), {"items": list(range(total))}), Book(*mode, total)
    for what, item in moves:
        status = stage.workflow.status
        if what in ("good", "bad") and item in book.open():
            stage.tell(stage.good(item, {"n": item}) if what == "good" else stage.bad(item))
            book.end(item, is_good=what == "good")
        elif what == "again" and status == "failed":
            stage.command(RetryRun())
            book.again()
        elif what == "pause" and status == "running":
            stage.command(Pause())
        elif what == "resume" and status == "paused":
            stage.command(Resume())
        shown = "running" if stage.workflow.status == "paused" else stage.workflow.status
        assert (shown, set(stage.branches())) == (book.status, book.open())
    if book.status == "completed":
        out = stage.workflow.state["out"]
        assert [one["index"] for one in out["results"]] == sorted(book.good)
        assert {one["index"] for one in out["failures"]} == book.bad
        assert (out["winner"] or {}).get("index") == (book.good[0] if book.good else None)
        assert (out["succeeded"], out["failed"], out["total"]) == (len(book.good), len(book.bad), total)
    event(f"ends {book.status}")


@given(modes, st.lists(st.sampled_from(["good", "bad", "wait"]), min_size=3, max_size=6), st.booleans(), st.booleans())
def test_a_batch_of_items_is_the_items_one_after_the_other(
    mode: tuple[str, int | None], outcomes: list[str], is_paused: bool, has_reducer: bool
) -> None:
    step = each(*mode, reducer="sum" if has_reducer else None)
    stage = Stage(flow(step, then("end")), {"items": outcomes})
    if is_paused:
        stage.command(Pause())
    events: list[Event] = [
        stage.good(index, {"n": index}) if what == "good" else stage.bad(index, is_final=what == "bad")
        for index, what in enumerate(outcomes)
    ]
    one_by_one, at_once = stage.copy(), stage.copy()
    for told in events:
        if told.job.id in one_by_one.held:
            one_by_one.tell(told)
    at_once.tell(*events)
    assert at_once.workflow == one_by_one.workflow
    assert at_once.rows == one_by_one.rows
    assert list(at_once.open.values()) == list(one_by_one.open.values())
    assert at_once.buried == one_by_one.buried

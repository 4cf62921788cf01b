"""`start_workflows`: a run of its own per item, with the step or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuety.engine.decide import start
from queuety.engine.kinds import start_workflows
from queuety.errors import DefinitionError
from queuety.model import Definition, Entry, ErrorKind, Fork, Pause, Resume, Rewind, StartRun, StepSpec, WorkflowStatus
from queuety.model.needs import Lacking, NeedIds
from tests.unit.reference import flow, then
from tests.unit.several import Several
from tests.unit.stage import Stage

AGENT = Definition("agent", (then("work"),), hash="a" * 64, version="7")


def starting(child: Definition | None = AGENT, **settings: Any) -> StepSpec:
    usual = {"items_key": "items", "result_key": "ids", "payload_key": "item", "inherit_state": True}
    return StepSpec("start_workflows", "s", settings={**usual, **settings}, child=child)


def payloads(stage: Stage) -> list[dict[str, Any]]:
    return [dict(run.payload) for run in stage.started]


def test_a_run_is_started_per_item_and_its_id_is_the_result() -> None:
    stage = Stage(flow(then("first"), starting(), then("end")), {"topic": "cats"})
    stage.succeed({"items": ["a", "b"], "ids": "of an earlier round"})
    assert stage.started == [
        StartRun(1000, AGENT, {"topic": "cats", "item": "a", "start_item_index": 0}),
        StartRun(1001, AGENT, {"topic": "cats", "item": "b", "start_item_index": 1}),
    ]
    run = stage.workflow
    assert (run.state["ids"], run.current_step, run.transitions) == ([1000, 1001], 2, 2)
    assert stage.told_of()[-1] == (Entry.RESUMED, None)
    assert stage.groups == {"_step_1": (1000, 1001)}, "nobody has named it, and it is not forgotten"


def test_they_start_with_the_step_or_not_at_all() -> None:
    with pytest.raises(Lacking) as lacking:
        start(41, flow(starting()), {"items": ["a", "b"]}, now_us=0)
    assert lacking.value.need == NeedIds(1, 2)
    decision = start(41, flow(starting()), {"items": ["a", "b"]}, now_us=0, facts={NeedIds(1, 2): (7, 8)})
    assert [effect.workflow_id for effect in decision.effects if isinstance(effect, StartRun)] == [7, 8]
    assert decision.workflow.state["ids"] == [7, 8]


def test_a_mapping_is_the_payload_over_the_state_and_anything_else_stands_under_its_key() -> None:
    items = [{"topic": "dogs", "_secret": 1, "item": 5}, None, [1, 2], "x", {}]
    stage = Stage(flow(starting(payload_key="task")), {"topic": "cats", "items": items})
    assert payloads(stage) == [
        {"topic": "dogs", "item": 5, "start_item_index": 0},
        {"topic": "cats", "task": None, "start_item_index": 1},
        {"topic": "cats", "task": [1, 2], "start_item_index": 2},
        {"topic": "cats", "task": "x", "start_item_index": 3},
        {"topic": "cats", "start_item_index": 4},
    ]


def test_nothing_is_inherited_unless_it_is_wanted() -> None:
    stage = Stage(flow(starting(inherit_state=False)), {"topic": "cats", "items": ["a", {"x": 1}]})
    assert payloads(stage) == [{"item": "a", "start_item_index": 0}, {"x": 1, "start_item_index": 1}]


def test_the_index_of_the_item_is_not_the_items_own() -> None:
    stage = Stage(flow(starting()), {"items": [{"start_item_index": "mine"}]})
    assert payloads(stage) == [{"start_item_index": 0}]


def test_the_values_of_a_mapping_are_items_too() -> None:
    stage = Stage(flow(starting()), {"items": {"z": 1, "a": 2}})
    assert [one["item"] for one in payloads(stage)] == [1, 2]


@pytest.mark.parametrize("payload", [{}, {"items": None}, {"items": []}])
def test_without_items_nothing_is_started_and_nothing_asked(payload: dict[str, Any]) -> None:
    stage = Stage(flow(starting(group="agents")), payload)
    assert (stage.workflow.status, stage.workflow.state["ids"], stage.started) == ("completed", [], [])
    assert (stage.groups, stage.asked) == ({"agents": ()}, [])


def test_what_is_no_list_fails_the_run_at_once() -> None:
    stage = Stage(flow(starting()), {"items": 7})
    run = stage.workflow
    assert (run.status, run.error_kind, run.failed_step, run.state) == ("failed", "StepFailed", 0, {"items": 7})
    assert "state['items'], which is of type int" in (run.error_message or "")


def test_the_last_start_of_a_group_wins() -> None:
    stage = Stage(flow(starting(group="agents"), then("again")), {"items": ["a", "b"]})
    assert stage.groups == {"agents": (1000, 1001)}
    stage.succeed({"items": ["c"], "_next_step": "s"})
    assert (stage.groups, stage.workflow.state["ids"]) == ({"agents": (1002,)}, [1002])
    assert [need for need in stage.asked if isinstance(need, NeedIds)] == [NeedIds(1, 2), NeedIds(3, 1), NeedIds(3, 1)]


def test_groups_are_as_they_were_where_a_run_goes_back_or_is_forked() -> None:
    """Rows that were rewound tell of groups too: somebody may go forward to one of them."""
    again, unnamed = replace(starting(group="crew"), name="again"), replace(starting(), name="unnamed")
    stage = Stage(flow(then("a"), starting(group="crew"), then("b"), again, then("c"), unnamed, then("d")))
    for number in range(3):
        stage.succeed({"items": [number]})
    early, late = {"crew": (1000,)}, {"crew": (1001,)}
    most = {**late, "_step_5": (1002,)}
    assert stage.groups == most
    for to_step, groups in (("s", early), ("again", late), ("unnamed", most), ("s", early)):
        stage.command(Rewind(to_step))
        assert stage.groups == groups
    for at_step, groups in (("b", early), ("c", late), ("d", most), ("s", {}), (None, early)):
        stage.command(Fork(9000, at_step))
        seed = stage.started.pop().seed
        assert seed is not None
        assert dict(seed.groups) == groups
    stage.command(Rewind("a"))
    assert stage.groups == {"crew": (stage.started[-1].workflow_id,)}, "as it is started now"


def test_a_fork_goes_back_to_the_groups_that_it_began_with() -> None:
    world = Several()
    steps = (then("a"), starting(group="crew"), then("b"), then("c"), replace(starting(group="crew"), name="again"))
    world.start(1, flow(*steps, then("d")))
    world.succeed(1, {"items": ["x"]})
    world.command(1, Fork(9, "b"))
    for _ in "bc":
        world.succeed(9)
    begun = world.runs[1].groups
    assert world.runs[9].groups != begun
    world.command(9, Rewind("b"))
    assert world.runs[9].groups == begun


def test_a_pause_holds_the_start_until_resumed() -> None:
    stage = Stage(flow(then("first"), starting()), {"items": ["a"]})
    stage.command(Pause())
    stage.succeed()
    assert (stage.started, stage.workflow.current_step) == ([], 1)
    stage.command(Resume())
    assert (len(stage.started), stage.workflow.status) == (1, "completed")


def test_a_thousand_runs_are_started_in_one_turn() -> None:
    stage = Stage(flow(starting()), {"items": list(range(1_000)), "shared": "x" * 100})
    assert [run.workflow_id for run in stage.started] == stage.workflow.state["ids"] == list(range(1000, 2000))


def test_it_has_no_jobs_and_needs_a_definition() -> None:
    stage = Stage(flow(then("a")))
    with pytest.raises(DefinitionError, match="'start_workflows', which has no jobs"):
        start_workflows.task(starting(), stage.take(None), {})
    with pytest.raises(DefinitionError, match="step 's' of workflow 41 has no definition to start"):
        start(41, flow(starting(child=None)), {"items": [1]}, now_us=0)


def test_a_state_too_large_to_be_copied_for_all_is_refused_before_any_is_started() -> None:
    items = list(range(70))
    stage = Stage(flow(starting()), {"items": items, "large": "x" * 1_000_000})
    assert stage.started == []
    run = stage.workflow
    assert (run.status, run.error_kind) == (WorkflowStatus.FAILED, ErrorKind.CONSTRAINT_VIOLATION)
    assert "inherit_state=False" in (run.error_message or "")
    assert len(Stage(flow(starting(inherit_state=False)), {"items": items, "large": "x" * 1_000_000}).started) == 70

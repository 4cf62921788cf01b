"""Keys that are taken out of the state once they have grown old: by who wrote them last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from queuety.model import (
    Branch,
    ChildSettled,
    Definition,
    DependencySettled,
    Fork,
    HandlerRef,
    PatchState,
    RetryRun,
    Rewind,
    SkipStep,
    StepSpec,
    WorkflowStatus,
)
from tests.unit.reference import delay, flow, then
from tests.unit.stage import Stage

CHILD = Definition("child", (then("work"),), hash="c" * 64)
DONE = WorkflowStatus.COMPLETED


def line(count: int, after: int, payload: dict[str, Any] | None = None) -> Stage:
    return Stage(flow(*(then(f"s{index}") for index in range(count)), prune_after=after), payload)


def pruned(*steps: StepSpec, after: int = 1, payload: dict[str, Any] | None = None) -> Stage:
    return Stage(flow(*steps, prune_after=after), payload)


def writers(stage: Stage) -> Mapping[str, int]:
    found: Mapping[str, int] = (stage.workflow.ledger or {})["writers"]
    return found


def test_a_key_goes_so_many_steps_after_the_one_that_wrote_it() -> None:
    stage = line(5, 2)
    seen = []
    for index in range(5):
        stage.succeed({f"k{index}": index})
        seen.append(list(stage.workflow.state))
    assert seen == [["k0"], ["k0", "k1"], ["k1", "k2"], ["k2", "k3"], ["k3", "k4"]]
    assert [row.removed for row in stage.rows] == [(), (), ("k0",), ("k1",), ("k2",)]


def test_after_one_step_only_its_own_keys_are_left() -> None:
    stage = line(3, 1)
    stage.succeed({"a": 1, "b": 1})
    stage.succeed({"b": 2})
    assert stage.workflow.state == {"b": 2}
    stage.succeed({})
    assert stage.workflow.state == {}


def test_the_latest_writer_counts() -> None:
    stage = line(5, 2)
    stage.succeed({"a": 0, "old": 0})
    stage.succeed({"a": 1})
    stage.succeed({})
    assert stage.workflow.state == {"a": 1}
    stage.succeed({})
    assert stage.workflow.state == {}


def test_what_the_run_was_given_stays_until_a_step_writes_it() -> None:
    stage = line(4, 1, {"order": 7, "note": "x"})
    stage.succeed({"note": "y"})
    assert stage.workflow.state == {"order": 7, "note": "y"}
    stage.succeed({})
    assert stage.workflow.state == {"order": 7}
    stage.succeed({})
    assert stage.workflow.state == {"order": 7}


def test_null_is_a_value_like_any_other() -> None:
    stage = line(3, 1, {"n": None})
    stage.succeed({"k": None, "n": None})
    assert stage.workflow.state == {"n": None, "k": None}
    stage.succeed({})
    assert stage.workflow.state == {}


def test_a_key_that_was_taken_out_can_come_again() -> None:
    stage = line(4, 1)
    stage.succeed({"k": 1})
    stage.succeed({})
    stage.succeed({"k": 2})
    assert stage.workflow.state == {"k": 2}
    stage.succeed({})
    assert stage.workflow.state == {}


def test_all_branches_write_as_their_step() -> None:
    branches = tuple(Branch(HandlerRef(f"app:{name}")) for name in "xyz")
    stage = pruned(then("a"), StepSpec("parallel", "p", branches=branches), then("b"), then("c"))
    stage.succeed({"a": 1})
    stage.tell(stage.good(2, {"z": 1}))
    stage.tell(stage.good(0, {"x": 1}))
    assert stage.workflow.state == {"a": 1, "z": 1, "x": 1}, "nothing goes while the step goes on"
    stage.tell(stage.good(1, {"y": 1}))
    assert stage.workflow.state == {"z": 1, "x": 1, "y": 1}
    assert writers(stage) == {"z": 1, "x": 1, "y": 1}
    stage.succeed({})
    assert stage.workflow.state == {}


@pytest.mark.parametrize("reducer", [False, True])
def test_an_aggregate_and_what_is_made_of_it_belong_to_their_step(reducer: bool) -> None:
    settings = {"items_key": "items", "result_key": "out", "mode": "all"}
    last = HandlerRef("app:reduce") if reducer else None
    each = StepSpec("for_each", "each", HandlerRef("app:item"), settings=settings, reducer=last)
    stage = pruned(then("plan"), each, then("b"), then("c"))
    stage.succeed({"items": [1]})
    stage.tell(stage.good(0, {"never": "merged"}))
    if reducer:
        assert "items" in stage.workflow.state
        stage.tell(stage.good(None, {"sum": 1}))
    assert list(stage.workflow.state) == (["out", "sum"] if reducer else ["out"])
    stage.succeed({})
    assert stage.workflow.state == {}


def test_what_waits_have_brought_belongs_to_them() -> None:
    signalled = StepSpec("wait_for_signal", "go", settings={"names": ["go"], "mode": "all"})
    settings = {"workflows": [7], "mode": "all", "keyed": True, "result_key": "got"}
    stage = pruned(signalled, StepSpec("wait_for_workflows", "w", settings=settings), then("b"))
    stage.stands(7, WorkflowStatus.RUNNING)
    stage.signal("go", {"said": 1})
    assert stage.workflow.state == {"said": 1}
    stage.stands(7, DONE, {"by": 7})
    stage.tell(DependencySettled(7, stage.workflow.visit))
    assert stage.workflow.state == {"got": {"7": {"by": 7}}}
    stage.succeed({})
    assert stage.workflow.state == {}


def test_ids_of_runs_that_were_started_belong_to_their_step() -> None:
    settings = {"items_key": "items", "result_key": "ids", "payload_key": "item", "inherit_state": False}
    stage = pruned(StepSpec("start_workflows", "s", settings=settings, child=CHILD), then("b"), payload={"items": [1]})
    assert stage.workflow.state == {"items": [1], "ids": [1000]}
    stage.succeed({})
    assert stage.workflow.state == {"items": [1]}


def test_what_a_child_has_written_belongs_to_its_step_and_what_it_was_given_does_not() -> None:
    """Its state is all that it was given and all that it made of it."""
    stage = pruned(
        StepSpec("run_workflow", "w", child=CHILD), then("b"), then("c"), payload={"order": {"id": 7}, "n": 1}
    )
    stage.stands(1000, DONE, {"order": {"id": 7}, "n": 2, "made": True})
    stage.tell(ChildSettled(1000, DONE, is_clean=True))
    assert (stage.workflow.state, writers(stage)) == ({"order": {"id": 7}, "n": 2, "made": True}, {"n": 0, "made": 0})
    assert stage.rows[-1].changed == {"n": 2, "made": True}
    stage.succeed({})
    assert stage.workflow.state == {"order": {"id": 7}}


def test_in_a_loop_the_latest_round_counts() -> None:
    again = StepSpec("repeat", "r", settings={"until": True, "target": "a", "state_key": "n", "expected": 2})
    stage = pruned(then("a"), then("b"), again, then("c"), after=2)
    stage.succeed({"n": 1, "first": 1})
    stage.succeed({"b": 1})
    assert stage.workflow.state == {"b": 1}, "once the repeat has settled, what step 0 wrote is gone"
    stage = pruned(then("a"), then("b"), again, then("c"), after=3)
    stage.succeed({"n": 1, "first": 1})
    stage.succeed({"b": 1})
    assert stage.workflow.current_step == 0
    stage.succeed({"n": 2})
    stage.succeed({})
    assert stage.workflow.state == {"n": 2, "first": 1, "b": 1}
    stage.succeed({})
    assert (stage.workflow.status, stage.workflow.state) == ("completed", {"b": 1})


def test_a_jump_back_prunes_by_where_it_comes_from() -> None:
    stage = line(4, 2)
    stage.succeed({"a": 0})
    stage.succeed({"b": 1})
    stage.succeed({"c": 2, "_next_step": "s0"})
    assert stage.workflow.state == {"b": 1, "c": 2}
    stage.succeed({"a": 0})
    assert stage.workflow.state == {"b": 1, "c": 2, "a": 0}, "they are of later steps than this one"


def test_a_delay_prunes_and_so_does_a_step_that_is_left_by_hand() -> None:
    stage = pruned(then("a"), delay("d", 0), delay("e", 5), then("b"))
    stage.succeed({"a": 1})
    assert (stage.workflow.current_step, stage.workflow.state) == (2, {})
    stage = line(3, 1)
    stage.succeed({"a": 1})
    stage.command(SkipStep())
    assert (stage.workflow.current_step, stage.workflow.state, stage.rows[-1].removed) == (2, {}, ("a",))


def test_what_was_set_by_hand_belongs_to_the_step_at_which_the_run_was() -> None:
    stage = line(4, 2)
    stage.succeed({"a": 0})
    stage.command(PatchState({"a": 5, "new": 1}))
    stage.succeed({})
    stage.succeed({})
    assert stage.workflow.state == {"a": 5, "new": 1}
    stage.succeed({})
    assert stage.workflow.state == {}


def test_a_retry_with_state_writes_as_the_step_that_failed() -> None:
    stage = line(3, 1)
    stage.succeed({"a": 0})
    stage.fail(is_final=True)
    stage.command(RetryRun(with_state={"a": 1}))
    stage.succeed({})
    assert stage.workflow.state == {"a": 1}
    stage.succeed({})
    assert stage.workflow.state == {}


# going back


def test_a_run_that_goes_back_has_what_it_was_given_as_it_came() -> None:
    """Step 2 had overwritten it; before it runs again, it has to find it."""
    stage = line(4, 1, {"order": 7})
    for output in ({"a": 1}, {"b": 1}, {"order": 8}, {}):
        stage.succeed(output)
    assert (stage.workflow.status, stage.workflow.state) == ("completed", {})
    stage.command(Rewind(0))
    assert stage.workflow.state == {"order": 7, "a": 1}
    stage.succeed({"b": 1})
    assert stage.workflow.state == {"order": 7, "b": 1}
    stage.succeed({"order": 8})
    stage.succeed({})
    assert stage.workflow.state == {}


def test_keys_that_had_been_taken_out_come_back_and_go_again() -> None:
    stage = line(5, 2)
    for index in range(4):
        stage.succeed({f"k{index}": index})
    stage.command(Rewind(1))
    assert stage.workflow.state == {"k0": 0, "k1": 1}
    stage.succeed({"k2": 2})
    stage.succeed({"k3": 3})
    assert stage.workflow.state == {"k2": 2, "k3": 3}


def test_no_key_goes_earlier_because_the_run_has_gone_back() -> None:
    """Written by step 3 in the first round, read by step 2 in the second."""
    stage = line(5, 2)
    for index in range(3):
        stage.succeed({f"k{index}": index})
    stage.succeed({"carried": 1, "_next_step": "s0"})
    stage.succeed({})
    stage.succeed({})
    stage.command(Rewind(0))
    stage.succeed({})
    stage.succeed({})
    assert stage.workflow.current_step == 3
    assert stage.workflow.state["carried"] == 1


def test_what_is_said_on_going_back_counts_as_given() -> None:
    stage = line(3, 1, {"order": 7})
    stage.succeed({"a": 1})
    stage.command(Rewind(0, with_state={"hint": "x"}))
    stage.succeed({})
    assert stage.workflow.state == {"order": 7, "hint": "x"}


def test_a_fork_prunes_as_its_origin_would_have() -> None:
    stage = line(4, 2, {"order": 7})
    stage.succeed({"a": 0})
    stage.succeed({"order": 8, "b": 1})
    stage.command(Fork(new_id=5000))
    stage.command(Fork(new_id=5001, at_step=1))
    here, before = (run.seed for run in stage.started)
    assert here is not None
    assert before is not None
    assert here.ledger == {"writers": {"a": 0, "order": 1, "b": 1}, "given": ["order"]}
    assert (stage.started[1].payload, before.ledger) == (
        {"order": 7, "a": 0},
        {"writers": {"a": 0}, "given": ["order"]},
    )


# by the book

outputs = st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(0, 3), max_size=3)
jumps = st.none() | st.none() | st.integers(0, 5)


@given(
    st.integers(1, 4),
    st.dictionaries(st.sampled_from("abcx"), st.none() | st.integers(), max_size=3),
    st.lists(st.tuples(outputs, jumps, outputs), max_size=25),
)
def test_pruning_is_what_the_book_says(
    after: int, payload: dict[str, Any], course: list[tuple[dict[str, Any], int | None, dict[str, Any]]]
) -> None:
    """The book keeps who wrote what, all of it, and looks at the last one."""
    branches = (Branch(HandlerRef("app:x")), Branch(HandlerRef("app:y")))
    steps = [StepSpec("parallel", "s3", branches=branches) if index == 3 else then(f"s{index}") for index in range(6)]
    stage = pruned(*steps, after=after, payload=dict(payload))
    state = dict(payload)
    wrote: list[tuple[str, int]] = []
    for output, target, other in course:
        if stage.workflow.status.is_terminal:
            break
        step = stage.workflow.current_step
        written = [output, other] if step == 3 else [output]
        if step == 3:
            stage.tell(stage.good(1, output))
            stage.tell(stage.good(0, other))
        else:
            stage.succeed({**output, **({} if target is None else {"_next_step": f"s{target}"})})
        for one in written:
            state.update(one)
            wrote += [(key, step) for key in one]
        latest = dict(wrote)
        old = [key for key in state if key in latest and latest[key] <= step - after]
        for key in old:
            del state[key]
        # once it is gone, it is nobody's; written again, it is the writer's
        wrote = [(key, writer) for key, writer in wrote if key not in old]
        assert list(stage.workflow.state.items()) == list(state.items())
        event(f"{len(old) > 0} pruned")

"""`parallel`: branches side by side, merged as they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.engine.decide import decide
from queuety.engine.kinds import parallel
from queuety.errors import DefinitionError
from queuety.model import (
    AddJob,
    Branch,
    Cancel,
    Due,
    Entry,
    ErrorInfo,
    Event,
    HandlerRef,
    Options,
    Pause,
    Resume,
    RetryRun,
    Signalled,
    StepSpec,
    WorkflowStatus,
)
from queuety.model.needs import NeedParts, PartRow
from tests.unit.reference import SECOND, flow, then
from tests.unit.stage import Stage

NO_WAY = ErrorInfo("no way", "ValueError")


def beside(*branches: Branch | str, name: str = "p") -> StepSpec:
    made = (one if isinstance(one, Branch) else Branch(HandlerRef(f"app:{one}")) for one in branches)
    return StepSpec("parallel", name, branches=tuple(made))


def test_every_branch_is_asked_for_with_its_own_handler_and_options() -> None:
    slow = Branch(HandlerRef("app:slow", {"n": 1}), Options(queue="slow", max_attempts=7, delay_s=2))
    stage = Stage(flow(beside("quick", slow), queue="usual", max_attempts=2))
    quick, late = (new for new, _, _ in stage.open.values())
    assert (quick.handler, quick.branch, quick.queue, quick.max_attempts, quick.due_us) == (
        "app:quick", 0, "usual", 2, 0,
    )  # fmt: skip
    assert (late.handler, late.config, late.branch, late.queue, late.max_attempts, late.due_us) == (
        "app:slow", {"n": 1}, 1, "slow", 7, 2 * SECOND,
    )  # fmt: skip
    assert stage.workflow.runtime == {"total": 2, "done": 0, "since": 0}


def test_a_branch_is_merged_when_it_completes_and_the_last_one_settles_the_step() -> None:
    stage = Stage(flow(then("first"), beside("a", "b"), then("end")))
    stage.succeed({"x": 0})
    stage.tell(stage.good(1, {"x": 1, "b": True}))
    run = stage.workflow
    assert (run.state, run.status, run.current_step, run.transitions) == ({"x": 1, "b": True}, "running", 1, 1)
    assert run.runtime == {"total": 2, "done": 1, "since": 1}
    stage.tell(stage.good(0, {"x": 2}))
    run = stage.workflow
    assert (run.state, run.current_step, run.transitions, run.visit) == ({"x": 2, "b": True}, 2, 2, 3)
    assert stage.told_of() == [
        (Entry.COMPLETED, None),
        (Entry.BRANCH, 1),
        (Entry.BRANCH, 0),
        (Entry.COMPLETED, None),
    ]
    assert (stage.rows[-1].job, stage.rows[-1].changed) == (None, {})
    assert stage.branches() == [None]


def test_one_branch_is_enough() -> None:
    stage = Stage(flow(beside("only")))
    stage.tell(stage.good(0, {"x": 1}))
    assert (stage.workflow.status, stage.workflow.state) == ("completed", {"x": 1})
    assert stage.told_of() == [(Entry.BRANCH, 0), (Entry.COMPLETED, None)]


def test_a_branch_cannot_steer() -> None:
    stage = Stage(flow(beside("a", "b"), then("next"), then("far")))
    stage.tell(stage.good(0, {"_next_step": "far", "_trace": 7}))
    stage.tell(stage.good(1, {"_next_step": "nowhere"}))
    assert (stage.workflow.current_step, stage.workflow.state) == (1, {})
    assert [row.control for row in stage.rows] == [{"_trace": 7}, None, None]


def test_a_branch_that_fails_for_good_fails_the_run_and_takes_its_siblings_along() -> None:
    stage = Stage(flow(beside("a", "b", "c")))
    stage.tell(stage.good(0, {"a": 1}))
    stage.tell(stage.bad(1, NO_WAY))
    run = stage.workflow
    assert (run.status, run.error_message, run.error_kind, run.failed_step) == ("failed", "no way", "StepFailed", 0)
    assert run.state == {"a": 1}, "what had completed stays merged"
    assert (stage.finished, stage.buried) == ([101], {102: "no way", 103: "no way"})


def test_a_branch_retries_alone() -> None:
    stage = Stage(flow(beside("a", Branch(HandlerRef("app:b"), Options(max_attempts=2, backoff=(3.0,))))))
    stage.tell(stage.bad(1, is_final=False))
    assert [(new.branch, due_us) for new, _, due_us in stage.open.values()] == [(0, 0), (1, 3 * SECOND)]
    assert (stage.workflow.status, stage.workflow.runtime) == ("running", {"total": 2, "done": 0, "since": 0})
    stage.tell(stage.bad(1, is_final=False))
    assert (stage.workflow.status, stage.buried[102]) == ("failed", "boom")


def test_a_retry_runs_only_branches_that_have_not_completed() -> None:
    stage = Stage(flow(beside("a", "b", "c"), then("end")))
    stage.tell(stage.good(2, {"c": 1}))
    stage.tell(stage.bad(0))
    stage.command(RetryRun())
    assert stage.branches() == [0, 1]
    assert stage.workflow.runtime == {"total": 3, "done": 1, "since": 0, "kept": [2]}
    assert stage.workflow.visit == 1, "it is the same visit"
    stage.tell(stage.good(1))
    stage.tell(stage.bad(0))
    stage.command(RetryRun())
    assert (stage.branches(), stage.workflow.runtime["kept"]) == ([0], [1, 2])
    assert stage.workflow.current_step == 0, "old completions do not count for the branch that is missing (W-07)"
    stage.tell(stage.good(0))
    assert (stage.workflow.current_step, stage.workflow.transitions) == (1, 1)


def test_a_retry_starts_with_fresh_attempts_and_without_the_delay() -> None:
    patient = Branch(HandlerRef("app:a"), Options(max_attempts=1, delay_s=60))
    stage = Stage(flow(beside(patient)))
    stage.now_us = 5 * SECOND
    stage.tell(stage.bad(0))
    stage.command(RetryRun())
    ((new, attempts, due_us),) = stage.open.values()
    assert (new.max_attempts, attempts, due_us) == (1, 0, 5 * SECOND)


def test_a_retry_with_nothing_left_to_run_goes_on() -> None:
    definition = flow(beside("a", "b"), then("end"))
    stage = Stage(definition)
    failed = replace(stage.workflow, status=WorkflowStatus.FAILED)  # as a budget that the last branch broke leaves it
    done = tuple(PartRow(seq, Entry.BRANCH, branch, 101 + branch) for seq, branch in ((1, 1), (2, 0)))
    decision = decide(failed, definition, stage.commanded(RetryRun()), now_us=0, facts={NeedParts(1, 0): done})
    assert (decision.workflow.current_step, decision.workflow.status) == (1, "running")


def test_a_loop_that_comes_back_starts_all_branches_anew() -> None:
    stage = Stage(flow(beside("a", "b"), then("again")))
    for _ in range(2):
        assert stage.branches() == [0, 1]
        stage.tell(stage.good(0), stage.good(1))
        stage.succeed({"_next_step": "p"})
    assert stage.workflow.runtime == {"total": 2, "done": 0, "since": stage.workflow.version}


def test_a_pause_lets_the_branches_finish_and_holds_what_follows() -> None:
    stage = Stage(flow(beside("a", "b"), then("end")))
    stage.command(Pause())
    stage.tell(stage.good(0, {"a": 1}))
    assert (stage.workflow.status, stage.branches()) == ("paused", [1])
    stage.tell(stage.good(1, {"b": 1}))
    run = stage.workflow
    assert (run.status, run.current_step, run.state, stage.branches()) == ("paused", 1, {"a": 1, "b": 1}, [])
    stage.command(Resume())
    assert stage.branches() == [None]


def test_a_resume_in_the_middle_asks_for_nothing_twice() -> None:
    stage = Stage(flow(beside("a", "b")))
    stage.command(Pause())
    stage.tell(stage.good(0))
    stage.command(Resume())
    assert stage.branches() == [1]


def test_a_cancel_buries_the_branches() -> None:
    stage = Stage(flow(beside("a", "b")))
    late = stage.good(0)
    stage.command(Cancel())
    assert (stage.branches(), sorted(stage.buried)) == ([], [101, 102])
    assert stage.tell(late) == []


def test_a_branch_whose_job_was_dropped_in_the_same_turn_is_late() -> None:
    stage = Stage(flow(beside("a", "b")))
    stage.tell(stage.bad(0), stage.commanded(RetryRun()), stage.good(1, {"late": True}))
    assert (stage.workflow.status, stage.workflow.state, stage.branches()) == ("running", {}, [0, 1])
    assert stage.buried == {101: "boom", 102: "boom"}
    assert stage.workflow.runtime == {"total": 2, "done": 0, "since": 0, "kept": []}


def test_what_means_nothing_to_it_changes_nothing() -> None:
    stage = Stage(flow(beside("a", "b")))
    stage.tell(Due(1))
    stage.tell(Signalled("hello", {}, 900))
    assert (stage.workflow.runtime, stage.branches()) == ({"total": 2, "done": 0, "since": 0}, [0, 1])


def test_a_job_runs_its_branch() -> None:
    spec = beside("a", Branch(HandlerRef("app:b"), Options(timeout_s=3)))
    stage = Stage(flow(spec))
    task = parallel.task(spec, stage.take(1), {})
    assert (task.handler.name, task.options.timeout_s, task.arguments) == ("app:b", 3, ())
    stray = replace(stage.take(0), branch=2)
    with pytest.raises(DefinitionError, match=r"step 'p' has 2 branches; job 101"):
        parallel.task(spec, stray, {})


def test_a_thousand_branches_are_counted_and_not_remembered() -> None:
    stage = Stage(flow(beside(*(f"b{index}" for index in range(1000)))))
    effects = stage.tell(*(stage.good(index) for index in range(999)))
    assert stage.workflow.runtime == {"total": 1000, "done": 999, "since": 0}
    assert not [effect for effect in effects if isinstance(effect, AddJob)]
    assert stage.asked == [], "no row is read to count"


moves = st.lists(
    st.tuples(st.sampled_from(["good", "good", "good", "bad", "again", "pause", "resume"]), st.integers(0, 3)),
    max_size=30,
)


def play(stage: Stage, moves: list[tuple[str, int]], expected: dict[str, Any]) -> None:
    """Let it happen, and what must come of it to `expected`: the branches done, the state."""
    for what, branch in moves:
        is_over = stage.workflow.status.is_terminal
        if what in ("good", "bad") and branch in stage.branches() and not is_over:
            if what == "bad":
                stage.tell(stage.bad(branch))
            else:
                output = {f"k{branch % 2}": stage.workflow.version}
                expected["done"].add(branch)
                expected["state"].update(output)
                stage.tell(stage.good(branch, output))
        elif what == "again" and stage.workflow.status == "failed":
            stage.command(RetryRun())
        elif what == "pause" and stage.workflow.status == "running":
            stage.command(Pause())
        elif what == "resume" and stage.workflow.status == "paused":
            stage.command(Resume())


@given(st.integers(1, 4), moves)
def test_the_step_is_settled_once_every_branch_has_succeeded_and_never_before(
    count: int, moves: list[tuple[str, int]]
) -> None:
    stage = Stage(flow(beside(*(f"b{index}" for index in range(count)))))
    expected: dict[str, Any] = {"done": set(), "state": {}}
    play(stage, moves, expected)
    assert stage.workflow.state == expected["state"]
    assert (stage.workflow.status == "completed") == (len(expected["done"]) == count)
    assert [row.job.branch for row in stage.rows if row.entry is Entry.BRANCH and row.job].count(0) <= 1
    if not stage.workflow.status.is_terminal:
        assert set(stage.branches()) == set(range(count)) - expected["done"]


@given(st.lists(st.sampled_from(["good", "bad", "wait"]), min_size=2, max_size=4), st.booleans())
def test_a_batch_of_branches_is_the_branches_one_after_the_other(outcomes: list[str], is_paused: bool) -> None:
    stage = Stage(flow(beside(*(f"b{index}" for index in range(len(outcomes)))), then("end")))
    if is_paused:
        stage.command(Pause())
    events: list[Event] = [
        stage.good(branch, {"x": branch}) if what == "good" else stage.bad(branch, is_final=what == "bad")
        for branch, what in enumerate(outcomes)
    ]
    one_by_one, at_once = stage.copy(), stage.copy()
    for event in events:
        if event.job.id in one_by_one.held:
            one_by_one.tell(event)
    at_once.tell(*events)
    assert at_once.workflow == one_by_one.workflow
    assert at_once.rows == one_by_one.rows
    assert list(at_once.open.values()) == list(one_by_one.open.values())
    assert at_once.buried == one_by_one.buried

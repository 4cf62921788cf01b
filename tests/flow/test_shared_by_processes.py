"""Two workers in processes of their own that share the work of one run, whatever its kind of step.

Most handlers wait until a second process has begun with the same work, so that no process can do it alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, bind
from tests.support import fanning
from tests.support.databases import Database
from tests.support.flowing import status_of
from tests.support.invariants import check
from tests.support.remote import Remote, remote_worker

State = dict[str, Any]


@pytest.fixture
def pair(database: Database, tmp_path: Path) -> Iterator[tuple[Remote, Remote]]:
    """Two processes; each runs two handlers at a time, so the third one of a work comes to the other."""
    with (
        remote_worker(database.url, tmp_path / "one.log", concurrency=2) as one,
        remote_worker(database.url, tmp_path / "two.log", concurrency=2) as two,
    ):
        yield one, two


@pytest.mark.paired
def test_two_processes_share_branches_items_laps_and_the_runs_that_a_run_starts(
    database: Database, tmp_path: Path, pair: tuple[Remote, Remote], rounds: int
) -> None:
    both = {one.pid for one in pair}
    with Queuety(database.url) as app:

        def ended(builder: Any, work: str, **more: Any) -> State:
            run = builder.dispatch({"log": str(tmp_path / "told"), "work": work, **more})
            done = app.wait(run, 60)
            assert done.status is WorkflowStatus.COMPLETED, done.error_message
            return dict(done.state)

        # parallel
        state = ended(app.workflow("w").parallel([bind(fanning.shared_branch, number=n) for n in range(4)]), "parallel")
        assert {state[f"branch {number}"] for number in range(4)} == both

        # for_each
        each = app.workflow("w").for_each("items", fanning.shared_item, result_key="out")
        state = ended(each, "for_each", items=list(range(6)))
        assert {entry["output"]["pid"] for entry in state["out"]["results"]} == both

        # start_workflows
        child = app.workflow("child").then(fanning.shared_run)
        state = ended(
            app.workflow("w").start_workflows("items", child, "ids").wait_for_workflows("ids"),
            "starts",
            items=[1, 2, 3],
        )
        assert {status_of(app, one).state["pid"] for one in state["ids"]} == both

        # run_workflow: the child's branches are shared, and whoever ends last wakes the parent
        child = app.workflow("child").parallel([bind(fanning.shared_branch, number=n) for n in range(3)])
        builder = app.workflow("w").run_workflow("child", child).then(fanning.where)
        for lap in range(3):
            state = ended(builder, f"child {lap}")
            assert {state[f"branch {number}"] for number in range(3)} == both
            assert set(state["pids"]) <= both

        # repeat
        group = [bind(fanning.shared_branch, number=n) for n in range(3)]
        looping = app.workflow("w").parallel(group, step_name="group").then(fanning.lap)
        state = ended(looping.repeat_until("group", condition=fanning.enough, max_iterations=4), "laps")
        assert len(state["laps"]) == 5
        assert {state[f"branch {number}"] for number in range(3)} <= both

        # groups of twenty, many at once: the next step of each starts once and sees all
        branches = [bind(fanning.branch, number=number) for number in range(20)]
        log = tmp_path / "groups"
        groups = app.workflow("w").parallel(branches).then(fanning.after)
        runs = app.dispatch_many(groups, [{"log": str(log)}] * max(rounds, 8))
        for run in runs:
            done = app.wait(run, 300)
            assert (done.status, done.state["seen"]) == (WorkflowStatus.COMPLETED, list(range(20)))
        assert Counter(run for _, run, _ in fanning.told(log)) == dict.fromkeys(runs, 1)
        check(app.door)

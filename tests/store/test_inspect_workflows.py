"""Reading workflows: their states as they are now, lists of them, and what a list costs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from queuety import Queuety
from queuety import step as marked
from queuety.errors import DefinitionError
from queuety.inspect.filters import WorkflowFilter
from queuety.inspect.states import WorkflowState
from queuety.inspect.workflows import ids_of, list_workflows, workflow_status
from queuety.model import Cancel, CleanupStatus, ErrorKind, HandlerRef, Pause, WorkflowStatus
from queuety.store.queries.workflows import deltas
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.plans import analyze, planned
from tests.support.runs import Scene, step

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@marked(max_attempts=1)
def breaks(state: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no")


@marked
def greets(state: dict[str, Any]) -> dict[str, Any]:
    return {"said": "Grüß"}


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with Scene(database.url) as made:
        yield made


def status_of(scene: Scene, workflow_id: int) -> WorkflowState:
    with scene.door.reading() as connection:
        found = workflow_status(connection, scene.tables, workflow_id)
    assert found is not None
    return found


def test_a_run_is_told_from_its_dispatch_to_its_end(scene: Scene) -> None:
    definition = scene.define(step("fetch"), step("write"), version="v2")
    run = scene.start(definition, {"city": "Köln"}, idempotency_key="k", parent_id=5, parent_step=1)

    begun = status_of(scene, run)
    assert (begun.id, begun.name, begun.status) == (run, "report", WorkflowStatus.RUNNING)
    assert (begun.state, begun.current_step, begun.current_step_name, begun.total_steps) == (
        {"city": "Köln"},
        0,
        "fetch",
        2,
    )
    assert (begun.definition_version, begun.definition_hash) == ("v2", definition.hash)
    assert (begun.idempotency_key, begun.parent_workflow_id, begun.parent_step_index) == ("k", 5, 1)
    assert begun.created_at == begun.started_at == BEGIN
    assert (begun.completed_at, begun.failed_at, begun.cancelled_at, begun.deadline_at) == (None, None, None, None)
    assert (begun.waiting_for, begun.wait_type, begun.wait_mode, begun.wait_details) == (None, None, None, None)
    assert (begun.budget, begun.artifact_count, begun.artifact_keys) == (None, 0, ())
    assert begun.compensation_status is CleanupStatus.NONE

    scene.run(run, {"rows": 3})
    assert (status_of(scene, run).current_step, status_of(scene, run).current_step_name) == (1, "write")
    scene.run(run, {"city": None, "_next_step": None})
    ended = status_of(scene, run)
    assert ended.status is WorkflowStatus.COMPLETED
    assert (ended.current_step, ended.current_step_name) == (2, None)
    assert ended.state == {"city": None, "rows": 3}
    assert ended.completed_at == BEGIN + timedelta(seconds=0.5)


def test_a_failed_run_says_what_and_where(scene: Scene) -> None:
    run = scene.start(scene.define(step("a"), step("b")))
    scene.run(run, {})
    scene.fail(scene.claim()[0], "disk full", is_final=True)

    failed = status_of(scene, run)
    assert failed.status is WorkflowStatus.FAILED
    assert (failed.error_message, failed.error_kind, failed.failed_step) == ("disk full", ErrorKind.STEP_FAILED, 1)
    assert (failed.current_step_name, failed.failed_at) == ("b", BEGIN + timedelta(seconds=0.5))


def test_a_cancelled_run_says_how_far_its_cleaning_up_is(scene: Scene) -> None:
    run = scene.start(scene.define(step("a"), on_cancel=HandlerRef("tests:undo")))
    scene.command(run, Cancel())
    cancelled = status_of(scene, run)
    assert (cancelled.status, cancelled.cancelled_at, cancelled.completed_at) == (
        WorkflowStatus.CANCELLED,
        BEGIN,
        BEGIN,
    )
    assert cancelled.compensation_status is CleanupStatus.PENDING

    scene.succeed(scene.claim()[0])
    assert status_of(scene, run).compensation_status is CleanupStatus.COMPLETED


def test_an_unknown_id_is_none(scene: Scene) -> None:
    job = scene.add_job()
    with scene.door.reading() as connection:
        assert workflow_status(connection, scene.tables, 999_999) is None
        assert workflow_status(connection, scene.tables, job) is None


def test_a_state_behind_its_snapshot_is_folded(scene: Scene) -> None:
    """With a large state only deltas are written."""
    run = scene.start(scene.define(*(step(str(n)) for n in range(4))), {"text": "x" * 5_000, "b": 1})
    scene.run(run, {"a": 1}, {"b": 2}, {"a": 3})
    with scene.door.reading() as connection:
        row = connection.execute(scene.tables.workflows.select()).mappings().one()
    assert row["state_version"] == 0
    assert status_of(scene, run).state == {"text": "x" * 5_000, "b": 2, "a": 3}


def test_a_run_whose_definition_nobody_can_read_is_listed(scene: Scene) -> None:
    run = scene.start(scene.define(step("a")))
    scene.door.write(lambda tx: tx.connection.execute(scene.tables.definitions.update().values(body="{")))
    found = status_of(scene, run)
    assert (found.current_step, found.current_step_name, found.definition_version) == (0, None, None)


def test_a_run_whose_definition_is_gone_can_be_read(scene: Scene) -> None:
    run = scene.start(scene.define(step("a")))
    scene.door.write(lambda tx: tx.connection.execute(scene.tables.definitions.delete()))
    found = status_of(scene, run)
    assert (found.current_step, found.current_step_name, found.definition_version) == (0, None, None)


def listed(scene: Scene, *, limit: Any = 50, before_id: int | None = None, **conditions: Any) -> list[int]:
    """The ids of a list, which are those that are found without reading more."""
    wanted = WorkflowFilter(**conditions)
    page: dict[str, Any] = {"now_us": scene.clock.us, "limit": limit, "before_id": before_id}
    with scene.door.reading() as connection:
        found = [run.id for run in list_workflows(connection, scene.tables, wanted, **page)]
        assert ids_of(connection, scene.tables, wanted, **page) == found
    return found


def test_lists_are_newest_first_and_meet_every_condition(scene: Scene) -> None:
    first, second = scene.define(step("a")), scene.define(step("a"), name="other")
    one, two, three = scene.start(first), scene.start(second, parent_id=41), scene.start(first)
    scene.command(two, Pause())
    scene.command(three, Pause())

    assert listed(scene) == [three, two, one]
    assert listed(scene, limit=2) == [three, two]
    assert listed(scene, limit=2, before_id=two) == [one]
    assert listed(scene, limit=0) == []
    assert listed(scene, status="paused") == [three, two]
    assert listed(scene, status=WorkflowStatus.RUNNING) == [one]
    assert listed(scene, status="completed") == []
    assert listed(scene, name="other") == [two]
    assert listed(scene, name="Other") == []
    assert listed(scene, name="report", status="paused") == [three]
    assert listed(scene, parent_id=41) == [two]


def test_wrong_conditions_are_refused(scene: Scene) -> None:
    with pytest.raises(DefinitionError, match=r"'done'.*running, paused, .*completed, failed, cancelled"):
        listed(scene, status="done")
    for limit in (-1, True, 2.5, "3"):
        with pytest.raises(DefinitionError, match="limit"):
            listed(scene, limit=limit)


def test_lists_are_found_by_tag_age_and_error(app: Queuety, clock: ManualClock) -> None:
    def listed(**conditions: Any) -> list[int]:
        found = [run.id for run in app.list_workflows(**conditions)]
        assert [run.id for run in app.list_workflows(**conditions, limit=1)] == found[:1]
        assert not found or [run.id for run in app.list_workflows(**conditions, before_id=found[0])] == found[1:]
        return found

    old = app.workflow("w").tag("eu", "vip").then(breaks).dispatch()
    app.run_until_idle()
    clock.advance(hours=1)
    young = app.workflow("w").tag("eu").wait_for_signal("go", timeout=60).dispatch()
    plain = app.workflow("w").wait_for_signal("go").dispatch()
    clock.advance(minutes=2)
    app.run_until_idle()

    assert (listed(tag="eu"), listed(tag="vip"), listed(tag="EU")) == ([young, old], [old], [])
    assert listed(tag="eu", status="failed", name="w") == [young, old]
    assert (listed(error_kind="StepFailed"), listed(error_kind=ErrorKind.WAIT_TIMEOUT)) == ([old], [young])
    assert listed(error_kind="WaitTimeout", tag="vip") == []
    assert listed(older_than=timedelta(minutes=30)) == listed(older_than=3_720) == [old]
    assert listed(older_than=3_721) == []
    assert listed(newer_than=timedelta(hours=1)) == [plain, young]
    assert listed(older_than=60, newer_than=3_600) == [plain, young]
    app.cancel_workflow(old)
    assert listed(error_kind="StepFailed") == [old], "what it failed with stays readable"
    assert listed(parent_id=1 << 70) == listed(before_id=1) == []
    found = app.workflow_status(old)
    assert found is not None
    assert found.tags == ("eu", "vip")


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"error_kind": "Gone"}, r"no error kind 'Gone'; there are StepFailed, "),
        ({"older_than": -1}, r"older_than=-1: seconds that are not negative"),
        ({"newer_than": "1d"}, r"newer_than='1d'"),
        ({"older_than": True}, r"older_than=True"),
        ({"newer_than": float("nan")}, r"newer_than=nan"),
        ({"tag": 7}, r"tag=7: a text is needed"),
        ({"parent_id": "1"}, r"parent_id='1': the id of a run is needed"),
    ],
)
def test_a_filter_that_cannot_be_right_cannot_be_made(conditions: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        WorkflowFilter(**conditions)


def test_a_filter_holds_what_was_meant() -> None:
    made = WorkflowFilter("paused", error_kind="StepFailed", older_than=timedelta(days=1))
    assert (made.status, made.error_kind, made.older_than) == (WorkflowStatus.PAUSED, ErrorKind.STEP_FAILED, 86_400.0)
    assert WorkflowFilter().is_empty
    assert not made.is_empty


def test_budgets_deadlines_and_artifacts_are_told(app: Queuety) -> None:
    limited = app.workflow("w").then(greets).wait_for_signal("go").max_transitions(9).max_state_bytes(100)
    run = limited.must_complete_within(hours=1).dispatch()
    free = app.workflow("w").then(greets).dispatch()
    app.run_until_idle()
    app.put_artifact(run, "b", 1)
    app.put_artifact(run, "a", "text", kind="text")
    found, other = app.workflow_status(run), app.workflow_status(free)
    assert found is not None
    assert other is not None
    assert found.budget == {
        "max_transitions": 9,
        "max_state_bytes": 100,
        "transitions": 1,
        "cost_units": 1,
        "started_workflows": 0,
        "public_state_bytes": len('{"said":"Grüß"}'.encode()),
    }
    assert (found.artifact_count, found.artifact_keys) == (2, ("a", "b"))
    assert found.deadline_at == BEGIN + timedelta(hours=1)
    assert (other.budget, other.artifact_count, other.artifact_keys, other.tags) == (None, 0, (), ())
    assert app.list_workflows() == [other, found]


def test_a_page_is_four_statements_whatever_is_folded(scene: Scene) -> None:
    """The page, all its deltas, all its definitions, all tags and names of artifacts."""
    definition = scene.define(step("a"), step("b"))
    runs = scene.start_many(definition, [{"text": "x" * 3_000, "n": n} for n in range(5)])
    for job in scene.claim():
        scene.succeed(job, {"m": job.workflow_id})
    with scene.door.reading() as connection:
        statements: list[str] = []
        event.listen(connection, "before_cursor_execute", lambda *call: statements.append(call[2]))
        found = list_workflows(connection, scene.tables, now_us=scene.clock.us)
    assert [run.state for run in found] == [{"text": "x" * 3_000, "n": n, "m": runs[n]} for n in reversed(range(5))]
    assert len(statements) == 4, statements


def test_more_runs_than_one_statement_folds(scene: Scene) -> None:
    definition = scene.define(step("a"), step("b"))
    runs = scene.start_many(definition, [{"text": "x" * 1_100, "n": n} for n in range(450)])
    for job in scene.claim(limit=3) + scene.claim(limit=447)[-3:]:
        scene.succeed(job, {"done": True})
    with scene.door.reading() as connection:
        found = list_workflows(connection, scene.tables, now_us=scene.clock.us, limit=1000)
    assert [run.state["n"] for run in found] == list(reversed(range(450)))
    done = [run.id for run in found if run.state.get("done")]
    assert done == [*reversed(runs[-3:]), *reversed(runs[:3])]


def test_a_row_is_folded_to_its_own_version_whatever_came_since(scene: Scene) -> None:
    run = scene.start(scene.define(step("a"), step("b")), {"text": "x" * 3_000})
    scene.run(run, {"a": 1}, {"b": 2})
    with scene.door.reading() as connection:
        assert deltas(connection, scene.tables, {run: (0, 1)}) == {run: [('{"a":1}', None)]}
        assert deltas(connection, scene.tables, {run: (1, 2)}) == {run: [('{"b":2}', None)]}


def test_a_list_by_status_or_tag_reads_one_range_of_an_index(scene: Scene) -> None:
    """Where few of many runs have the status, or the tag, nothing else is read and nothing sorted."""
    definition = scene.define(step("a"))
    runs = scene.start_many(definition, [{}] * 3_000)
    tagged = [{"tag": "rare" if run % 100 == 7 else "usual", "workflow_id": run} for run in runs]
    scene.door.write(lambda tx: tx.connection.execute(scene.tables.tags.insert(), tagged))
    workflows = scene.tables.workflows
    scene.door.write(
        lambda tx: tx.connection.execute(
            workflows.update().where(workflows.c.id % 100 == 7).values(status=WorkflowStatus.FAILED.value)
        )
    )
    analyze(scene, workflows, scene.tables.tags)
    with scene.door.reading() as connection:
        tagged_runs, ((_, by_tag), *_) = planned(
            scene,
            connection,
            lambda: ids_of(connection, scene.tables, WorkflowFilter(tag="rare"), now_us=scene.clock.us, limit=5),
        )
        assert tagged_runs == [run for run in reversed(runs) if run % 100 == 7][:5]
        assert "sort" not in by_tag.lower(), by_tag
        assert "TEMP B-TREE" not in by_tag, by_tag
        found, ((_, plan), *_) = planned(
            scene,
            connection,
            lambda: list_workflows(connection, scene.tables, WorkflowFilter("failed"), now_us=scene.clock.us, limit=5),
        )
    assert len(found) == 5
    assert "ix_queuety_workflows_status" in plan, plan
    assert "sort" not in plan.lower(), plan
    assert "TEMP B-TREE" not in plan, plan

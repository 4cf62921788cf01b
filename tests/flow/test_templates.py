"""Workflows that are registered under a name, and started by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from queuety import Queuety, WorkflowStatus, step, workflow
from queuety.errors import NotFoundError, PayloadError
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of

State = dict[str, Any]


@step
def fetch(state: State) -> State:
    note(("fetch", state))
    return {"fetched": state.get("page", "none")}


@step(max_attempts=1)
def fail(state: State) -> State:
    raise ValueError("broken")


@step
def undo(state: State) -> None:
    note("undone")


def test_a_template_is_started_by_its_name(app: Queuety) -> None:
    app.register_workflow_template(app.define_workflow("report").then(fetch, "fetch"))
    run = app.run_workflow("report", {"page": "front"})
    app.run_until_idle()
    done = status_of(app, run)
    assert (done.status, done.name) == (WorkflowStatus.COMPLETED, "report")
    assert done.state == {"page": "front", "fetched": "front"}


def test_all_that_the_builder_said_holds_for_every_run(app: Queuety, clock: ManualClock) -> None:
    builder = (
        app.define_workflow("report")
        .version("2024-1")
        .on_queue("slow")
        .must_complete_within(hours=1)
        .max_transitions(5)
        .then(fetch, "fetch")
        .compensate_with(undo)
        .then(fail, "fail")
        .compensate_on_failure()
    )
    template = app.register_workflow_template(builder)
    run = app.run_workflow("report")
    found = status_of(app, run)
    assert (found.definition_version, found.definition_hash) == ("2024-1", template.hash)
    assert found.budget is not None
    assert found.deadline_at is not None
    assert [job.queue for job in app.list_jobs(workflow_id=run)] == ["slow"]
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.FAILED
    assert notes[-1] == "undone"


def test_registered_again_it_is_another_one_and_runs_in_flight_keep_theirs(app: Queuety) -> None:
    old = app.register_workflow_template(workflow("report").then(fetch, "fetch").then(fetch, "again"))
    before = app.run_workflow("report")
    new = app.register_workflow_template(workflow("report").then(fetch, "only"))
    after = app.run_workflow("report")
    app.run_until_idle()
    assert [status_of(app, run).definition_hash for run in (before, after)] == [old.hash, new.hash]
    assert [status_of(app, run).total_steps for run in (before, after)] == [2, 1]


def test_a_key_names_one_run_and_the_builders_own_is_ignored(app: Queuety) -> None:
    app.register_workflow_template(workflow("report").idempotency_key("always").then(fetch))
    first, second = app.run_workflow("report"), app.run_workflow("report")
    assert first != second
    assert status_of(app, first).idempotency_key is None
    keyed = app.run_workflow("report", {"page": 1}, idempotency_key=" monday ")
    assert app.run_workflow("report", {"page": 2}, idempotency_key="monday") == keyed
    assert (status_of(app, keyed).idempotency_key, status_of(app, keyed).state) == ("monday", {"page": 1})


def test_nothing_is_written_for_what_is_refused(app: Queuety) -> None:
    app.register_workflow_template(workflow("report").then(fetch))
    with pytest.raises(NotFoundError):
        app.run_workflow("reports")
    with pytest.raises(PayloadError):
        app.run_workflow("report", {"when": object()})
    assert app.list_workflows() == []


def test_a_template_may_be_started_in_ones_own_transaction(app: Queuety, database: Database) -> None:
    app.register_workflow_template(workflow("report").then(fetch))
    app.run_workflow("report", idempotency_key="the definition is there")
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.connect() as connection:
        app.run_workflow("report", {"page": "back"}, connection=connection)
        connection.rollback()
    assert len(app.list_workflows()) == 1
    with engine.begin() as connection:
        run = app.run_workflow("report", {"page": "front"}, connection=connection)
    app.run_until_idle()
    assert status_of(app, run).state["fetched"] == "front"


def test_it_is_started_from_an_event_loop_too(app: Queuety) -> None:
    app.register_workflow_template(workflow("report").then(fetch))
    run = asyncio.run(app.run_workflow_async("report", {"page": "front"}, idempotency_key="k"))
    assert status_of(app, run).name == "report"

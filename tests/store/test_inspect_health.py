"""What `queuety doctor` finds: each trouble made for real, found, explained, and gone when it is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, WaitMode, workflow
from queuety import step as step_of_runs
from queuety.inspect.health import examine
from queuety.inspect.problems import of_schema
from queuety.inspect.report import Health
from queuety.model import RetryRun
from queuety.store import claims, leases, queues, workers
from queuety.store.queries import Tally
from queuety.store.queries import health as reads
from queuety.store.workers import WorkerRow
from tests.support.databases import Database
from tests.support.plans import analyze, planned
from tests.support.runs import SECOND, Scene, step

MARKS = {
    "jobs_ready": "phase IN ('ready', 'suspect', 'buried')",
    "jobs_wake": "wake_us IS NOT NULL",
    "workflows_status": "status =",
}
"""Indexes, and what stands in the statements that they serve."""


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with Scene(database.url) as made:
        yield made


def look(scene: Scene) -> Health:
    with scene.door.reading() as connection:
        return examine(
            connection, scene.tables, now_us=scene.clock.us, lease_s=30, revision="0001", needed_revision="0001"
        )


def worker(scene: Scene, *names: str, owner: int = 7) -> None:
    """A worker of these queues has just been seen."""
    scene.door.write(lambda tx: workers.enter(tx, WorkerRow(owner, "host", 100 + owner, names or ("default",), 4)))


def said(health: Health) -> list[tuple[str, str]]:
    return [(problem.severity, problem.what) for problem in health.problems]


def test_nothing_is_wrong_with_an_idle_worker(scene: Scene) -> None:
    worker(scene, "a", "b")
    health = look(scene)
    assert health.problems == ()
    assert health.is_well
    (alive,) = health.alive
    assert (alive.id, alive.host, alive.pid, alive.queues, alive.concurrency) == (7, "host", 107, ("a", "b"), 4)
    assert (health.backlog, health.next_due_s, health.stranded) == ((), None, ())
    assert [health.delayed, health.leased, health.buried, health.failed_workflows] == [Tally(0)] * 4


def test_without_a_worker_it_matters_whether_something_waits(scene: Scene) -> None:
    scene.add_job(due_us=scene.clock.us + 10 * SECOND)
    health = look(scene)
    assert said(health) == [("note", "no worker is alive")]
    assert (health.is_well, health.delayed, health.next_due_s) == (True, Tally(1), 10.0)

    scene.add_job(queue="mail")
    health = look(scene)
    assert said(health) == [("error", "no worker is alive and work is waiting")]
    assert not health.is_well
    (problem,) = health.problems
    assert problem.do == "start one: `queuety work --queue mail`"

    worker(scene, "mail")
    assert look(scene).problems == ()


def test_without_a_worker_the_queue_is_named_in_which_a_delayed_job_has_come_due(scene: Scene) -> None:
    scene.add_job(queue="mail", due_us=scene.clock.us + SECOND)
    scene.add_job(queue="held", due_us=scene.clock.us + SECOND)
    scene.door.write(lambda tx: queues.pause(tx, "held"))
    scene.clock.advance(2)
    (problem,) = look(scene).problems
    assert (problem.severity, problem.do) == ("error", "start one: `queuety work --queue mail`")


def test_a_delayed_job_of_a_paused_queue_waits_for_no_worker(scene: Scene) -> None:
    scene.add_job(queue="held", due_us=scene.clock.us + SECOND)
    scene.door.write(lambda tx: queues.pause(tx, "held"))
    scene.clock.advance(2)
    assert said(look(scene)) == [("note", "no worker is alive")]


def test_without_a_worker_a_timer_needs_any_of_them(scene: Scene) -> None:
    scene.start(scene.define(step("wait", None, "delay", settings={"seconds": 1}), step("a")))
    scene.clock.advance(2)
    (problem,) = look(scene).problems
    assert (problem.severity, problem.do) == ("error", "start one: `queuety work`")


def test_a_worker_that_has_gone_silent_is_not_alive(scene: Scene) -> None:
    worker(scene)
    scene.clock.advance(60)
    assert len(look(scene).alive) == 1
    scene.clock.advance(1)
    assert look(scene).alive == ()
    worker(scene, owner=8)
    assert said(look(scene)) == [("note", "worker 107 on host was last seen 61 s ago")]


def test_the_backlog_is_told_queue_by_queue(scene: Scene) -> None:
    worker(scene, "a")
    scene.add_job(queue="a", due_us=scene.clock.us - 7 * SECOND)
    scene.add_job(queue="a")
    scene.add_job(queue="b")
    scene.clock.advance(3)
    health = look(scene)
    assert [(one.queue, one.ready, one.oldest_s, one.is_served) for one in health.backlog] == [
        ("a", Tally(2), 10.0, True),
        ("b", Tally(1), 3.0, False),
    ]
    assert said(health) == [("error", "queue 'b': 1 ready job, the oldest due 3 s ago")]
    assert health.problems[0].why == "no living worker takes from this queue"
    scene.claim("a", "b")
    assert look(scene).backlog == ()


def test_counting_ends_at_a_cap(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuety.inspect.health.CAP", 3)
    for _ in range(3):
        scene.add_job()
        scene.add_job(due_us=scene.clock.us + SECOND)
    assert (look(scene).backlog[0].ready, look(scene).delayed) == (Tally(3), Tally(3))
    scene.add_job()
    scene.add_job(due_us=scene.clock.us + SECOND)
    assert (look(scene).backlog[0].ready, look(scene).delayed) == (
        Tally(3, is_exact=False),
        Tally(3, is_exact=False),
    )


def test_a_paused_queue_with_a_backlog(scene: Scene) -> None:
    worker(scene)
    scene.door.write(lambda tx: queues.pause(tx, "mail"))
    assert look(scene).problems == ()
    scene.add_job(queue="mail")
    health = look(scene)
    assert said(health) == [("warning", "queue 'mail': 1 ready job, the oldest due just now")]
    assert health.problems[0].do == "resume it when it should go on: queuety resume mail"


def test_workers_that_do_not_keep_up(scene: Scene) -> None:
    scene.add_job()
    scene.clock.advance(299)
    worker(scene)
    assert look(scene).problems == ()
    scene.clock.advance(1)
    assert said(look(scene)) == [("warning", "queue 'default': 1 ready job, the oldest due 5 min ago")]


def test_leases_that_nobody_takes_back(scene: Scene) -> None:
    scene.add_job()
    (job,) = scene.claim(lease_s=30)
    scene.clock.advance(60)
    worker(scene)
    health = look(scene)
    assert (health.leased, health.overdue_leases, health.problems) == (Tally(1), Tally(0), ())
    scene.clock.advance(0.1)
    health = look(scene)
    assert (health.leased, health.overdue_leases) == (Tally(1), Tally(1))
    assert said(health) == [("error", "1 job held by a worker whose lease ended more than 30 s ago")]
    scene.succeed(job)
    assert look(scene).leased == Tally(0)


def test_what_has_come_due_and_nobody_looked(scene: Scene) -> None:
    worker(scene)
    scene.add_job(due_us=scene.clock.us + SECOND)
    scene.start(scene.define(step("wait", None, "delay", settings={"seconds": 1}), step("a")))
    scene.clock.advance(31)
    assert look(scene).problems == ()
    scene.clock.advance(1)
    assert said(look(scene)) == [
        ("error", "1 delayed job due for more than 30 s that nobody has looked at"),
        ("error", "1 timer due for more than 30 s that nobody has looked at"),
    ]
    assert look(scene).next_due_s == -31


def test_suspects_are_told(scene: Scene) -> None:
    worker(scene)
    for _ in range(2):
        scene.add_job()
    scene.claim(owner=9)
    scene.door.write(lambda tx: leases.suspect(tx, leases.held_by(tx, 9), ended_by_us=None))
    health = look(scene)
    assert [(one.ready, one.suspects) for one in health.backlog] == [(Tally(0), Tally(2))]
    assert said(health) == [("warning", "queue 'default': 2 jobs set apart")]


def test_a_handler_that_no_worker_knows(scene: Scene) -> None:
    worker(scene)
    for handler in ("tests:new", "tests:new", "tests:old"):
        scene.add_job(handler)
    for job in scene.claim():
        if job.handler == "tests:new":
            now_us = scene.clock.us

            def put_off(tx: claims.Tx, job: claims.Job = job, now_us: int = now_us) -> None:
                claims.put_off(tx, job, until_us=now_us + 15 * SECOND, now_us=now_us, message="no module tests.new")

            scene.door.write(put_off)
            scene.clock.advance(5)
    health = look(scene)
    (unknown,) = health.unknown_handlers
    assert (unknown.handler, unknown.queue, unknown.jobs, unknown.since_s) == ("tests:new", "default", 2, 10.0)
    (problem,) = health.problems
    assert problem.severity == "warning"
    assert problem.what == f"handler 'tests:new': 2 jobs put off (one is {unknown.job_id}), the first 10 s ago"
    assert problem.why == "no module tests.new"


@step_of_runs
def item(state: dict[str, Any], item: Any, index: int) -> dict[str, Any]:
    return {}


def test_items_that_are_not_needed_are_no_problem(app: Queuety) -> None:
    run = app.workflow("w").for_each("xs", item, mode="first_success").dispatch({"xs": [1, 2, 3]})
    app.run_until_idle()
    assert len(app.list_jobs(workflow_id=run, status="buried")) == 2
    with app.door.reading() as connection:
        assert reads.buried(connection, app.door.tables, cap=10) == Tally(0)
        assert reads.buried(connection, app.door.tables, cap=1) == Tally(0, is_exact=False)


def test_what_has_failed_for_good(scene: Scene) -> None:
    worker(scene)
    run = scene.start(scene.define(step("a")))
    scene.add_job()
    for job in scene.claim():
        scene.fail(job, is_final=True)
    found = look(scene)
    assert (found.buried, found.failed_workflows, found.is_well) == (Tally(1), Tally(1), True)
    assert said(found) == [("warning", "1 workflow failed"), ("warning", "1 job buried")]
    scene.command(run, RetryRun())
    assert look(scene).failed_workflows == Tally(0)


def test_a_running_workflow_that_nothing_will_move(scene: Scene) -> None:
    worker(scene)
    definition = scene.define(step("a"), step("wait", None, "delay", settings={"seconds": 1}), step("b"))
    lost, waiting, ready, failed = (scene.start(definition) for _ in range(4))
    first, second, _, fourth = scene.claim()
    scene.succeed(first)
    scene.succeed(second)
    scene.fail(fourth, is_final=True)
    assert look(scene).stranded == ()
    inbox = scene.tables.inbox
    scene.door.write(lambda tx: tx.connection.execute(inbox.delete().where(inbox.c.workflow_id == lost)))
    health = look(scene)
    assert (waiting in health.stranded, ready in health.stranded, failed in health.stranded) == (False, False, False)
    assert health.stranded == (lost,)
    assert ("error", f"workflow {lost} is running and nothing will ever move it") in said(health)


@step_of_runs
def work(state: dict[str, Any]) -> dict[str, Any]:
    return {}


def stuck(app: Queuety) -> tuple[tuple[int, ...], tuple[int, ...]]:
    door = app.door
    with door.reading() as connection:
        health = examine(connection, door.tables, now_us=door.now_us(), lease_s=30)
    return health.stranded, health.unwoken


def test_a_run_that_is_parked_on_a_living_child_is_not_stranded(app: Queuety) -> None:
    kid = workflow("kid").wait_for_signal("go")
    mum = app.workflow("mum").run_workflow("kid", kid).dispatch()
    (child,) = app.list_workflows(parent_id=mum)
    assert stuck(app) == ((), ())
    app.cancel_workflow(child.id)
    assert stuck(app) == ((), ()), "the child has written to it"
    app.door.write(lambda tx: tx.connection.execute(app.door.tables.inbox.delete()))
    assert stuck(app) == ((mum,), ())


def test_a_wait_that_is_decided_and_not_told_is_found(app: Queuety) -> None:
    one, other = (app.workflow("host").wait_for_signal("go").dispatch() for _ in range(2))
    every = app.workflow("all").wait_for_workflows([one, other]).dispatch()
    any_ = app.workflow("any").wait_for_workflows([one, other], WaitMode.ANY).dispatch()
    two = app.workflow("two").wait_for_workflows([one, other], WaitMode.QUORUM, quorum=2).dispatch()
    assert stuck(app) == ((), ())
    app.run_until_idle()
    app.signal(one, "go")
    assert stuck(app) == ((), ()), "the letters are there"
    app.door.write(lambda tx: tx.connection.execute(app.door.tables.inbox.delete()))
    assert stuck(app) == ((), (any_,)), "the others have one left to wait for"
    app.cancel_workflow(other)
    app.door.write(lambda tx: tx.connection.execute(app.door.tables.inbox.delete()))
    assert stuck(app) == ((), (every, any_, two))


def test_a_wish_to_be_told_that_was_not_read_is_no_lost_word(app: Queuety) -> None:
    host = app.workflow("host").then(work).dispatch()
    waiter = app.workflow("w").wait_for_workflow(host).dispatch()
    tables = app.door.tables
    app.door.write(
        lambda tx: tx.connection.execute(
            tables.workflows.update().where(tables.workflows.c.id == host).values(status="completed")
        )
    )
    assert stuck(app) == ((), ())
    app.door.write(lambda tx: tx.connection.execute(tables.inbox.delete()))
    assert stuck(app) == ((), (waiter,))


def test_doctor_says_that_a_word_was_lost(app: Queuety) -> None:
    waiter = app.workflow("w").wait_for_workflow(app.workflow("host").then(work).dispatch()).dispatch()
    app.door.write(lambda tx: tx.connection.execute(app.door.tables.inbox.delete()))
    app.run_until_idle()
    with app.door.reading() as connection:
        health = examine(connection, app.door.tables, now_us=app.door.now_us(), lease_s=30)
    (problem,) = [problem for problem in health.problems if problem.severity == "error"]
    assert problem.what.startswith(f"workflow {waiter} waits for workflows of which nothing more will come")


def test_each_look_reads_an_index(scene: Scene) -> None:
    """SQLite uses the claim's partial index only if its condition stands in the statement as it is."""
    tables = scene.tables
    for _ in range(3):
        scene.add_job(queue="a")
    scene.add_job(due_us=scene.clock.us + SECOND)
    scene.start_many(scene.define(step("a")), [{}] * 2_000)
    jobs, workflows = tables.jobs, tables.workflows
    scene.door.write(
        lambda tx: (
            tx.connection.execute(
                jobs.update().where(jobs.c.workflow_id > 0).values(phase="completed", completed_us=1)
            ),
            tx.connection.execute(workflows.update().where(workflows.c.id % 100 > 0).values(status="completed")),
        )
    )
    analyze(scene, jobs, workflows)
    with scene.door.reading() as connection:
        health, plans = planned(
            scene, connection, lambda: examine(connection, tables, now_us=scene.clock.us, lease_s=30)
        )
    assert [one.ready for one in health.backlog] == [Tally(3)]
    read = {name: [plan for statement, plan in plans if mark in statement] for name, mark in MARKS.items()}
    assert {name: len(found) for name, found in read.items()} == {
        "jobs_ready": 8,
        "jobs_wake": 5,
        "workflows_status": 4,
    }
    for name, found in read.items():
        for plan in found:
            # MariaDB reads an index's edge while it plans, and then names no table.
            assert f"ix_queuety_{name}" in plan or not re.search(r"\bqueuety_(jobs|workflows)\b", plan), plan


def test_the_worst_stands_first(scene: Scene) -> None:
    worker(scene)
    scene.add_job()
    scene.fail(scene.claim()[0], is_final=True)
    scene.add_job(queue="nobody's")
    assert [severity for severity, _ in said(look(scene))] == ["error", "warning"]


def test_tables_of_another_version() -> None:
    assert of_schema("0001", "0001") is None
    missing, other = of_schema(None, "0001"), of_schema("0009", "0001")
    assert missing is not None
    assert missing.do == "run `queuety migrate`"
    assert other is not None
    assert other.what == "the tables are at revision 0009, this version needs 0001"

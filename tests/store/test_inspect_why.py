"""Why is it not running? Each cause made for real, and the answer that is given for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, Retry, WaitMode, step, workflow
from queuety.errors import DefinitionError, NotFoundError
from queuety.inspect.health import examine
from queuety.inspect.why import Why, explain
from queuety.model import Cancel, HandlerRef
from queuety.store import claims, leases, queues, workers
from queuety.store.workers import WorkerRow
from queuety.testing import ManualClock
from tests.support.databases import Database
from tests.support.plans import analyze, planned
from tests.support.runs import SECOND, Scene
from tests.support.runs import step as spec


@step
def work(state: dict[str, Any]) -> dict[str, Any]:
    return {}


@step
def item(state: dict[str, Any], item: Any, index: int) -> dict[str, Any]:
    return {}


@step(max_attempts=2, backoff=[100])
def fails(state: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no route\nto host")


@step(max_attempts=1)
def bad(state: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no")


@step
def later(state: dict[str, Any]) -> dict[str, Any]:
    raise Retry(after=200)


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with Scene(database.url) as made:
        yield made


def asked(scene: Scene, id_: int) -> Why:
    with scene.door.reading() as connection:
        found = explain(connection, scene.tables, id_, now_us=scene.clock.us, lease_s=30)
    assert found is not None
    json.dumps(found.nested())
    return found


def worker(scene: Scene, *names: str, owner: int = 7) -> None:
    """A worker of these queues has just been seen."""
    scene.door.write(lambda tx: workers.enter(tx, WorkerRow(owner, "host", 100 + owner, names or ("default",), 4)))


def serving(app: Queuety, *names: str) -> None:
    app.door.write(lambda tx: workers.enter(tx, WorkerRow(7, "host", 107, names or ("default",), 4)))


# jobs


def test_a_job_that_nobody_serves(scene: Scene) -> None:
    job = scene.add_job(queue="mail")
    scene.clock.advance(5)
    found = asked(scene, job)
    assert (found.id, found.kind, found.status, found.reason) == (job, "job", "pending", "no_worker")
    assert found.answer == (
        f"Job {job} (tests:job) has been ready for 5 s (since 2026-01-01T00:00:00Z). No living worker takes from queue "
        "'mail'; start one: `queuety work --queue mail`."
    )
    worker(scene, "other")
    assert "No living worker takes from queue 'mail', only from 'other'" in asked(scene, job).answer


def test_a_job_of_a_paused_queue(scene: Scene) -> None:
    job = scene.add_job()
    worker(scene)
    scene.door.write(lambda tx: queues.pause(tx, "default"))
    scene.clock.advance(61)
    found = asked(scene, job)
    assert found.reason == "queue_paused"
    assert "Queue 'default' has been paused for 1 min 1 s (since 2026-01-01T00:00:00Z)" in found.answer
    assert "`queuety resume default`" in found.answer


def test_a_job_that_waits_its_turn(scene: Scene) -> None:
    worker(scene)
    jobs = [scene.add_job() for _ in range(3)]
    scene.add_job(queue="other")
    assert [asked(scene, job).details["ahead"] for job in jobs] == [0, 1, 2]
    found = asked(scene, jobs[2])
    assert (found.reason, found.status) == ("ready", "pending")
    assert found.answer.endswith("waits its turn in queue 'default' (1 living worker). 2 jobs stand before it.")
    assert asked(scene, jobs[0]).answer.endswith("It is the next one.")


def test_counting_those_before_it_ends_at_a_cap(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuety.inspect.why.jobs.CAP", 2)
    worker(scene)
    jobs = [scene.add_job() for _ in range(4)]
    assert "2 jobs stand before it." in asked(scene, jobs[2]).answer
    assert "2+ jobs stand before it." in asked(scene, jobs[3]).answer


def test_a_job_that_is_not_due(scene: Scene) -> None:
    worker(scene)
    job = scene.add_job(due_us=scene.clock.us + 200 * SECOND)
    found = asked(scene, job)
    assert found.reason == "delayed"
    assert found.answer == f"Job {job} (tests:job) comes due in 3 min 20 s (2026-01-01T00:03:20Z)."
    scene.clock.advance(260)
    assert asked(scene, job).reason == "no_worker"
    worker(scene)
    found = asked(scene, job)
    assert found.reason == "due"
    assert "has been due for 1 min (since 2026-01-01T00:03:20Z), and no worker has looked yet." in found.answer


def test_a_job_that_backs_off(scene: Scene) -> None:
    job = scene.add_job()
    scene.fail(scene.claim()[0], "no route\nto host", took_s=1)
    found = asked(scene, job)
    assert found.reason == "backing_off"
    assert "failed in attempt 1 of 3: no route to host. The next attempt is due in 10 s (2026-01-01T00:00:11Z)." in (
        found.answer
    )
    assert "No living worker" in found.answer


def test_a_job_that_runs(scene: Scene) -> None:
    worker(scene)
    job = scene.add_job()
    (claimed,) = scene.claim()
    scene.clock.advance(4)
    until_us = scene.clock.us + 30 * SECOND
    scene.door.write(lambda tx: claims.beat(tx, claimed, until_us=until_us, progress='{"done":3}'))
    found = asked(scene, job)
    assert (found.reason, found.status) == ("running", "processing")
    assert "is being run by process 107 on host, for 4 s (since 2026-01-01T00:00:00Z), attempt 1 of 3." in found.answer
    assert (found.details["progress"], found.details["worker"]) == ({"done": 3}, 7)


def test_a_job_whose_holder_is_not_seen_any_more(scene: Scene) -> None:
    worker(scene)
    job = scene.add_job()
    scene.claim(lease_s=300)
    scene.clock.advance(100)
    found = asked(scene, job)
    assert found.reason == "holder_not_seen"
    assert "in the hands of process 107 on host, last seen 2026-01-01T00:00:00Z" in found.answer
    assert "the lease ends in 3 min 20 s (2026-01-01T00:05:00Z) and another worker takes the job" in found.answer
    scene.door.write(lambda tx: workers.leave(tx, 7))
    assert "a process that is in no register" in asked(scene, job).answer

    scene.clock.advance(201)
    found = asked(scene, job)
    assert found.reason == "lease_ended"
    assert "no worker takes it back: No living worker takes from queue 'default'" in found.answer
    worker(scene, owner=8)
    assert "a living worker takes it back by itself" in asked(scene, job).answer


def test_a_suspect(scene: Scene) -> None:
    worker(scene)
    jobs = [scene.add_job() for _ in range(2)]
    scene.claim(owner=9)
    scene.door.write(lambda tx: leases.suspect(tx, leases.held_by(tx, 9), ended_by_us=None))
    found = asked(scene, jobs[1])
    assert found.reason == "suspect"
    assert "was in hand when a process died, so it is to be run alone" in found.answer
    assert "1 suspect stands before it." in found.answer


def test_a_handler_that_no_worker_knows(scene: Scene) -> None:
    worker(scene)
    job = scene.add_job("tests:new")
    (claimed,) = scene.claim()
    until_us, now_us = scene.clock.us + 15 * SECOND, scene.clock.us
    scene.door.write(
        lambda tx: claims.put_off(tx, claimed, until_us=until_us, now_us=now_us, message="no module tests.new")
    )
    scene.clock.advance(5)
    found = asked(scene, job)
    assert found.reason == "handler_unknown"
    assert "waits for a worker that knows its handler, for 5 s" in found.answer
    assert "another is asked in 10 s" in found.answer
    assert "no module tests.new" in found.answer


def test_a_job_that_has_ended(scene: Scene) -> None:
    done, buried = scene.add_job(), scene.add_job()
    first, second = scene.claim()
    scene.succeed(first, took_s=1)
    scene.fail(second, "bad address", is_final=True, took_s=1)
    scene.clock.advance(8)
    assert asked(scene, done).reason == "completed"
    assert asked(scene, done).answer == f"Job {done} (tests:job) was completed 9 s ago (2026-01-01T00:00:01Z)."
    found = asked(scene, buried)
    assert (found.reason, found.status) == ("failed", "buried")
    assert "was given up 8 s ago (2026-01-01T00:00:02Z), after attempt 1 of 3: bad address." in found.answer


def test_the_job_of_a_step_that_is_done(scene: Scene) -> None:
    run = scene.start(scene.define(spec("a"), spec("b")))
    (job,) = scene.claim()
    scene.succeed(job)
    found = asked(scene, job.id)
    assert (found.kind, found.status, found.reason) == ("job", "completed", "completed")
    assert found.details["workflow_id"] == run


def test_an_unknown_id(app: Queuety) -> None:
    for id_ in (999_999, -1, 2**70):
        with pytest.raises(NotFoundError, match=f"no workflow and no job has the id {id_}"):
            app.why(id_)
    with pytest.raises(DefinitionError):
        app.why("1")  # type: ignore[arg-type]


# workflows


def test_a_run_is_answered_for_by_its_job(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(fails, "send").dispatch()
    serving(app)
    found = app.why(run)
    assert (found.kind, found.status, found.reason) == ("workflow", "running", "step")
    assert found.answer.startswith(f"Workflow {run} (w) stands at step 'send'. Job ")
    assert found.details["because"]["reason"] == "ready"
    app.run_until_idle()
    found = app.why(run)
    assert found.details["because"]["reason"] == "backing_off"
    assert "failed in attempt 1 of 2: no route to host. The next attempt is due in 1 min 40 s" in found.answer
    clock.advance(seconds=200)
    app.run_until_idle()
    found = app.why(run)
    assert (found.status, found.reason) == ("failed", "failed")
    assert (
        "failed now (2026-01-01T00:03:20Z) at step 'send' (StepFailed): no route to host. "
        f"`queuety workflow retry {run}`"
    ) in found.answer
    assert found.details["error_kind"] == "StepFailed"


def test_a_paused_run(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(work).then(work).dispatch()
    app.pause_workflow(run)
    clock.advance(seconds=3)
    found = app.why(run)
    assert found.reason == "paused"
    assert (
        "has been paused for 3 s (since 2026-01-01T00:00:00Z). 1 job of its present step may still finish."
        in found.answer
    )
    assert f"`queuety workflow resume {run}`" in found.answer


def test_a_paused_run_says_who_paused_it_and_why(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(work).then(work).must_complete_within(hours=1).dispatch()
    app.pause_workflow(run, actor="Ada", reason="prices are  wrong")
    clock.advance(seconds=3)
    found = app.why(run)
    assert "has been paused for 3 s (since 2026-01-01T00:00:00Z) by Ada (prices are wrong). 1 job" in found.answer
    assert "Its deadline, in 59 min 57 s (2026-01-01T01:00:00Z), counts once it goes on." in found.answer
    assert (found.details["actor"], found.details["reason"]) == ("Ada", "prices are  wrong")
    app.cancel_workflow(run, actor="Bob")
    assert app.why(run).answer == f"Workflow {run} (w) was cancelled now (2026-01-01T00:00:03Z) by Bob."


def test_an_answer_ends_with_the_deadline(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").wait_for_signal("go").must_complete_within(minutes=5).dispatch()
    clock.advance(minutes=2)
    found = app.why(run)
    assert (found.reason, found.details["deadline_at"]) == (
        "waiting_for_signal",
        "2026-01-01T00:05:00.000000+00:00",
    )
    assert found.answer.endswith("It fails unless it has ended in 3 min (2026-01-01T00:05:00Z).")
    clock.advance(minutes=4)
    late = app.why(run)
    assert late.reason == "letter_overdue"
    assert "has had a deadline due for 1 min (since 2026-01-01T00:05:00Z) that nobody has read." in late.answer
    assert late.answer.endswith(
        "Its deadline has passed, 1 min ago (2026-01-01T00:05:00Z): it fails as soon as a worker looks."
    )


def test_a_deadline_moves_nothing(app: Queuety) -> None:
    """A run that stands still for ever is found, although a letter of its own lies there for the end of its time."""
    run = app.workflow("w").then(work).must_complete_within(days=1).dispatch()
    jobs = app.door.tables.jobs
    app.door.write(lambda tx: tx.connection.execute(jobs.delete()))
    assert app.why(run).reason == "stranded"
    with app.door.reading() as connection:
        assert examine(connection, app.door.tables, now_us=app.door.now_us(), lease_s=30).stranded == (run,)


def test_a_delay(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").delay(minutes=2, step_name="nap").dispatch()
    found = app.why(run)
    assert (found.reason, found.details["due_at"]) == ("delayed", "2026-01-01T00:02:00.000000+00:00")
    assert "is delayed at step 'nap': it goes on in 2 min (2026-01-01T00:02:00Z)." in found.answer
    clock.advance(minutes=3)
    found = app.why(run)
    assert (found.reason, found.details["letter"]) == ("letter_overdue", "timer")
    assert (
        "has had a timer due for 1 min (since 2026-01-01T00:02:00Z) that nobody has read. No worker is alive"
        in found.answer
    )
    serving(app)
    assert "1 worker should have seen to it" in app.why(run).answer


def test_a_wait_for_signals(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .wait_for_signals(["a", "b"], name="hold", match_payload={"n": 1}, timeout=60, on_timeout="late")
        .then(work, "late")
        .dispatch()
    )
    app.signal(run, "a", {"n": 1})
    app.signal(run, "b", {"n": 2})
    found = app.why(run)
    assert (found.status, found.reason) == ("waiting_for_signal", "waiting_for_signal")
    assert found.answer == (
        f"Workflow {run} (w) waits at step 'hold' for all of the signals 'a' and 'b'. 'a' has come, 'b' is missing. "
        "1 signal 'b' has come whose payload is not what it asks for. It gives up in 1 min (2026-01-01T00:01:00Z); "
        f"then it goes on at step 'late'. `queuety workflow signal {run} b '{{\"n\":1}}'` sends it."
    )
    assert (found.details["matched"], found.details["unfit"]) == (["a"], {"b": 1})


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        ("wait_for_approval", "`queuety workflow approve {id}` answers it."),
        ("wait_for_decision", "`queuety workflow approve {id}` or `queuety workflow reject {id}` answers it."),
        ("wait_for_input", "`queuety workflow input {id} JSON` answers it."),
    ],
)
def test_a_wait_for_a_person_says_how_to_answer(app: Queuety, waiting: str, said: str) -> None:
    run = getattr(app.workflow("w"), waiting)().dispatch()
    assert app.why(run).answer.endswith(said.format(id=run))


def test_a_wait_for_workflows_tells_of_the_first_that_is_left(app: Queuety) -> None:
    done = app.workflow("done").then(work).dispatch()
    app.run_until_idle()
    open_ = app.workflow("open").wait_for_signal("go", step_name="hold").dispatch()
    run = (
        app.workflow("w").wait_for_workflows([done, open_, 999_999], WaitMode.QUORUM, quorum=2, name="deps").dispatch()
    )
    app.run_until_idle()
    found = app.why(run)
    assert found.reason == "waiting_for_workflows"
    assert found.answer == (
        f"Workflow {run} (w) waits at step 'deps' for 2 of 3 workflows. 1 has completed. Lost: 999999 (missing). Left: "
        f"{open_} open (waiting_for_signal). The first of them: Workflow {open_} (open) waits at step 'hold' for the "
        f"signal 'go'. `queuety workflow signal {open_} go` sends it."
    )
    assert found.details["left"] == [{"id": str(open_), "name": "open", "status": "waiting_for_signal"}]
    assert found.details["because"]["id"] == open_


def test_a_wait_that_nobody_tells_of_its_end(app: Queuety) -> None:
    host = app.workflow("host").then(work).dispatch()
    run = app.workflow("w").wait_for_workflow(host).dispatch()
    app.door.write(lambda tx: tx.connection.execute(app.door.tables.inbox.delete()))
    app.run_until_idle()
    found = app.why(run)
    assert found.reason == "not_told"
    assert "the message was lost, which is a bug" in found.answer


def test_a_child_answers_for_its_parent(app: Queuety) -> None:
    kid = workflow("kid").wait_for_signal("go", step_name="hold")
    run = app.workflow("mum").run_workflow("kid", kid, "sub").dispatch()
    (child,) = app.list_workflows(parent_id=run)
    found = app.why(run)
    assert (found.reason, found.details["child"], found.details["because"]["id"]) == ("child", child.id, child.id)
    assert found.answer == (
        f"Workflow {run} (mum) stands at step 'sub', which is the run of its child {child.id}. Workflow {child.id} "
        f"(kid) waits at step 'hold' for the signal 'go'. `queuety workflow signal {child.id} go` sends it."
    )


def test_answers_are_not_asked_for_without_end(app: Queuety) -> None:
    built = workflow("leaf").wait_for_signal("go")
    for depth in range(8):
        built = workflow(f"at{depth}").run_workflow("next", built)
    run = app.dispatch_workflow(built)
    app.run_until_idle()
    found: dict[str, Any] | None = app.why(run).nested()
    answers = 0
    while found is not None:
        answers, found = answers + 1, found["details"].get("because")
    assert answers == 6, "its own, and five others"


def test_a_run_that_failed_because_of_its_child(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("mum").run_workflow("kid", workflow("kid").then(fails), "sub").dispatch()
    app.run_until_idle()
    clock.advance(seconds=100)
    app.run_until_idle()
    (child,) = app.list_workflows(parent_id=run)
    found = app.why(run)
    assert (found.reason, found.details["error_kind"]) == ("failed", "ChildFailed")
    assert f"`queuety workflow retry {child.id}` goes on in the child" in found.answer


def test_branches_that_are_left(app: Queuety) -> None:
    run = app.workflow("w").parallel([work, later, work], "fan").dispatch()
    serving(app)
    app.run_until_idle()
    found = app.why(run)
    assert (found.reason, found.details["total"], found.details["done"]) == ("fan_out", 3, 2)
    (left,) = found.details["left"]
    assert left["branch"] == 1
    assert found.answer.startswith(
        f"Workflow {run} (w) stands at step 'fan': 2 of 3 branches are done, none is being run. Left: 1 (job "
        f"{left['job_id']}, pending). Job {left['job_id']} ("
    )
    assert "The next attempt is due in 3 min 20 s" in found.answer


def test_items_that_are_left(app: Queuety) -> None:
    run = app.workflow("w").for_each("xs", item, "out", name="each").dispatch({"xs": list(range(20))})
    app.run_until_idle(max_jobs=4)
    found = app.why(run)
    assert (found.details["total"], found.details["done"], found.details["open_jobs"]) == (20, 4, 16)
    assert "4 of 20 items are done, none is being run. Left are, among others, 4 (job " in found.answer
    assert len(found.details["left"]) == 5


def test_runs_that_have_ended(app: Queuety, clock: ManualClock) -> None:
    run = app.workflow("w").then(work).dispatch()
    app.run_until_idle()
    clock.advance(hours=2)
    found = app.why(run)
    assert (found.reason, found.answer) == (
        "completed",
        f"Workflow {run} (w) was completed 2 h ago (2026-01-01T00:00:00Z).",
    )


def test_a_cancelled_run_that_is_not_cleaned_up_yet(scene: Scene) -> None:
    run = scene.start(scene.define(spec("a"), on_cancel=HandlerRef("tests:undo")))
    scene.command(run, Cancel())
    found = asked(scene, run)
    assert found.reason == "cleaning_up"
    assert "was cancelled now (2026-01-01T00:00:00Z). What cleans up after it has not run yet. Job " in found.answer
    assert "(tests:undo)" in found.answer
    scene.succeed(scene.claim()[0])
    done = asked(scene, run)
    assert (done.reason, done.details["compensation_status"]) == ("cancelled", "completed")
    assert done.answer.endswith("It has been cleaned up after.")


def test_a_failed_run_whose_steps_are_being_undone(app: Queuety) -> None:
    builder = app.workflow("w").then(work, "pay").compensate_with(bad).then(bad, "send").max_attempts(1)
    run = builder.compensate_on_failure().dispatch()
    app.run_until_idle(max_jobs=2)
    found = app.why(run)
    assert (found.reason, found.details["compensation_status"]) == ("failed", "pending")
    assert "no. Step 'pay' is to be undone. Job " in found.answer
    assert ":bad) has been ready for 0 s" in found.answer
    assert found.answer.endswith("It cannot be retried.")
    app.run_until_idle()
    failed = app.why(run)
    assert (
        "Cleaning up after it has failed, at least in part: `queuety list --cleanup --status buried`" in failed.answer
    )


def test_a_cancelled_run_waits_for_its_child_to_clean_up(app: Queuety) -> None:
    kid = workflow("kid").wait_for_signal("go").on_cancel(work)
    run = app.workflow("mum").run_workflow("kid", kid).on_cancel(work).dispatch()
    app.cancel_workflow(run)
    (child,) = app.list_workflows(parent_id=run)
    found = app.why(run)
    assert found.reason == "awaits_child"
    assert f"It cleans up once its child {child.id} has. Workflow {child.id} (kid)" in found.answer


def test_a_definition_that_is_gone_or_of_a_newer_version(app: Queuety) -> None:
    run = app.workflow("w").then(work, "a").dispatch()
    definitions = app.door.tables.definitions
    body = '{"name":"w","steps":[{"type":"teleport","name":"a"}]}'
    app.door.write(lambda tx: tx.connection.execute(definitions.update().values(body=body)))
    found = app.why(run)
    assert (found.reason, found.details["step_type"]) == ("kind_unknown", "teleport")
    assert "stands at step 'a' of kind 'teleport', which this version of queuety does not know" in found.answer
    app.door.write(lambda tx: tx.connection.execute(definitions.delete()))
    assert app.why(run).reason == "definition_missing"


def test_a_run_that_nothing_will_move(app: Queuety) -> None:
    run = app.workflow("w").delay(minutes=1).then(work).dispatch()
    tables = app.door.tables
    app.door.write(
        lambda tx: (
            tx.connection.execute(tables.inbox.delete()),
            tx.connection.execute(tables.workflows.update().values(runtime=None)),
        )
    )
    found = app.why(run)
    assert found.reason == "stranded"
    assert "nothing will ever move it" in found.answer


def test_an_answer_reads_no_table_whole(scene: Scene) -> None:
    tables = scene.tables
    worker(scene)
    runs = scene.start_many(scene.define(spec("a"), spec("b")), [{}] * 2_000)
    for job in scene.claim(limit=500)[:100]:
        scene.succeed(job)
    analyze(scene, tables.jobs, tables.workflows, tables.history)
    with scene.door.reading() as connection:
        found, plans = planned(
            scene, connection, lambda: explain(connection, tables, runs[-1], now_us=scene.clock.us, lease_s=30)
        )
    assert found is not None
    assert found.details["because"]["details"]["ahead"] == 1_000
    assert len(plans) > 5
    whole = re.compile(r"(SCAN|Seq Scan on) queuety_(jobs|workflows|history)\b(?! USING)|queuety_(jobs|workflows) ALL ")
    assert [plan for _, plan in plans if whole.search(plan)] == []

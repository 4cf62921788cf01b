"""What a settled attempt leaves in the database, what a stale one does not, and that many at once are as each alone."""

from __future__ import annotations

import pytest

from queuety.model import Cancel, HandlerRef, Pause, Resume, RetryRun
from queuety.store import load
from queuety.store.load import Runs
from queuety.store.settle import SMALL_STATE, NotHeld
from queuety.worker.maintain import recover
from queuety.worker.outcome import Outcome
from tests.support.hands import SECOND, House, definition, failed, new_job, pause_of, single, succeeded
from tests.support.invariants import check

THREE = definition(single("one"), single("two"), single("three"))


def test_a_run_goes_from_step_to_step_and_its_state_grows(house: House) -> None:
    run = house.dispatch(THREE, {"city": "Köln"})
    hand = house.hand()
    (job,) = hand.claim()
    for number, name in enumerate(("one", "two")):
        made = hand.turn(succeeded(job, {name: number}), slots=1)
        check(house.door)
        (work,) = made.works
        job = work.job
        assert work.state == house.state(run)
        assert (job.step_index, job.visit) == (number + 1, number + 2)
    made = hand.turn(succeeded(job, {"city": "Bonn"}), slots=1)
    assert made.works == []
    row = house.row("workflows", id=run)
    assert (row["status"], row["current_step"], row["completed_us"]) == ("completed", 3, house.clock.us)
    assert list(house.state(run).items()) == [("city", "Bonn"), ("one", 0), ("two", 1)]
    assert house.rows("jobs") == []
    assert [entry["entry"] for entry in house.rows("history")] == ["completed"] * 3


def test_a_failed_attempt_is_repeated_when_due_and_the_last_one_fails_the_run(house: House) -> None:
    run = house.dispatch(definition(single(max_attempts=2, backoff=(10.0,))))
    hand = house.hand()
    (job,) = hand.claim()
    made = hand.turn(failed(job, "no paper"), slots=1)
    assert made.works == []
    assert made.next_us == house.clock.us + 10 * SECOND
    check(house.door)
    row = house.row("jobs")
    assert (row["phase"], row["due_us"], row["attempts"], row["error_message"]) == (
        "delayed",
        house.clock.us + 10 * SECOND,
        1,
        "no paper",
    )
    house.clock.advance(10)
    (work,) = hand.turn(slots=1, looks_around=True).works
    assert work.job.attempt == 2
    made = hand.turn(failed(work.job, "no ink"))
    assert [outcome.job.id for outcome in made.settled] == [work.job.id]
    row = house.row("workflows", id=run)
    assert (row["status"], row["error_message"], row["error_kind"], row["failed_step"], row["failed_us"]) == (
        "failed",
        "no ink",
        "StepFailed",
        0,
        house.clock.us,
    )
    assert (house.row("jobs")["phase"], house.row("jobs")["completed_us"]) == ("buried", house.clock.us)


def test_a_retry_without_pause_can_be_claimed_in_the_same_turn(house: House) -> None:
    house.dispatch(definition(single(backoff=(0.0,))))
    hand = house.hand()
    (job,) = hand.claim()
    made = hand.turn(failed(job), slots=1)
    assert [work.job.attempt for work in made.works] == [2]


def test_a_plain_job_keeps_its_row_and_its_own_history(house: House) -> None:
    good, bad = house.add(new_job(), new_job(max_attempts=2))
    hand = house.hand()
    jobs = {job.id: job for job in hand.claim()}
    hand.turn(succeeded(jobs[good]), failed(jobs[bad], "first"))
    house.clock.advance(10)
    (work,) = hand.turn(slots=1, looks_around=True).works
    assert (work.job.id, work.job.entries) == (bad, 1)
    hand.turn(failed(work.job, "second"))
    rows = {row["id"]: row for row in house.rows("jobs")}
    assert (rows[good]["phase"], rows[good]["entries"]) == ("completed", 1)
    assert (rows[bad]["phase"], rows[bad]["entries"], rows[bad]["error_message"]) == ("buried", 2, "second")
    assert [(row["seq"], row["final"]) for row in house.rows("history", run_id=bad)] == [(1, 0), (2, 1)]


def test_many_different_outcomes_settle_in_one_turn_as_each_alone(house: House) -> None:
    runs = house.dispatch_many(THREE, [{"n": number} for number in range(30)])
    plain = house.add(*(new_job(max_attempts=1 + number % 2) for number in range(30)))
    hand = house.hand()
    jobs = hand.claim(1000)
    assert len(jobs) == 60

    def outcome(number: int) -> Outcome:
        job = jobs[number]
        if number % 3 == 0:
            return failed(job, f"{number}", is_final=number % 2 == 0)
        return succeeded(job, {"seen": number, "n": None} if job.workflow_id else {})

    made = hand.turn(*map(outcome, range(60)), slots=1000)
    assert len(made.settled) == 60
    assert (made.lost, made.carried) == ([], [])
    check(house.door)
    wanted = sum(1 for number, job in enumerate(jobs) if job.workflow_id and number % 3)
    assert len([work for work in made.works if work.job.step_index == 1]) == wanted
    statuses = [row["status"] for row in house.rows("workflows")]
    assert statuses.count("failed") == sum(1 for number, job in enumerate(jobs) if job.workflow_id and number % 6 == 0)
    assert len(runs) == len(statuses)
    assert {row["phase"] for row in house.rows("jobs") if row["id"] in plain} == {"completed", "buried", "delayed"}


def test_a_stale_result_is_refused_and_what_came_with_it_is_settled(house: House) -> None:
    stale_run, good_run = house.dispatch_many(THREE, [{}, {}])
    (plain,) = house.add(new_job())
    hand = house.hand(lease_s=10)
    jobs = {job.workflow_id or job.id: job for job in hand.claim()}
    house.door.write(
        lambda tx: tx.cursor.execute(f"UPDATE {tx.statements.jobs} SET token = 1 WHERE workflow_id = {stale_run}")
    )
    order = hand.order([succeeded(jobs[key], {"a": 1}) for key in (good_run, stale_run)] + [succeeded(jobs[plain])])
    before = house.dump()
    with pytest.raises(NotHeld):
        hand.make(order)
    assert house.dump(without=["ids"]) == {name: rows for name, rows in before.items() if not name.endswith("_ids")}
    made = hand.turn(*order.outcomes)
    assert [outcome.job for outcome in made.lost] == [jobs[stale_run]]
    assert {outcome.job.id for outcome in made.settled} == {jobs[good_run].id, plain}
    assert house.state(stale_run) == {}
    assert house.state(good_run) == {"a": 1}


def test_the_late_result_of_an_attempt_that_the_same_process_claimed_again_is_refused(house: House) -> None:
    """A4: ownership is the claim's token, never the process."""
    run = house.dispatch(definition(single("one", backoff=(0.0,)), single("two")))
    (plain,) = house.add(new_job(options=None))
    other = house.dispatch(THREE)
    hand = house.hand(lease_s=10)
    first = {job.workflow_id or job.id: job for job in hand.claim()}
    hand.turn(succeeded(first[other]), slots=1)
    house.clock.advance(11)
    assert recover(house.door, house.definitions) == 3
    jobs = {}
    for _ in range(3):
        (work,) = hand.turn(alone=True, looks_around=True).works
        jobs[work.job.workflow_id or work.job.id] = work.job
    assert jobs.keys() == first.keys()
    assert all(jobs[key].id == first[key].id for key in (run, plain))
    late: list[Outcome] = [succeeded(first[run], {"who": "late"}), succeeded(first[plain])]
    fresh: list[Outcome] = [succeeded(jobs[other], {"o": 1}), failed(jobs[run]), failed(jobs[plain])]
    made = hand.turn(late[0], fresh[0], fresh[1], late[1], fresh[2])
    assert {outcome.job.token for outcome in made.lost} == {first[run].token, first[plain].token}
    assert [outcome for outcome in made.settled if outcome.job.token == first[run].token] == []
    assert house.state(run) == {}
    assert house.state(other) == {"o": 1}
    assert house.row("jobs", id=plain)["phase"] == "delayed"


def test_two_results_of_one_attempt_are_one(house: House) -> None:
    """Whoever reports twice must not stop the others' results."""
    run = house.dispatch(THREE)
    (plain,) = house.add(new_job())
    hand = house.hand()
    jobs = {job.workflow_id or job.id: job for job in hand.claim()}
    twice = [
        succeeded(jobs[plain]),
        succeeded(jobs[plain]),
        succeeded(jobs[run], {"a": 1}),
        succeeded(jobs[run], {"a": 2}),
    ]
    hand.turn(*twice)
    assert house.state(run) == {"a": 1}
    assert house.row("jobs", id=plain)["phase"] == "completed"


def test_a_late_result_changes_nothing_when_the_run_has_moved_on(house: House) -> None:
    run = house.dispatch(THREE)
    hand = house.hand()
    (job,) = hand.claim()
    house.steer(run, Cancel())
    before = house.dump()
    made = hand.turn(succeeded(job, {"late": True}), slots=1)
    assert made.works == []
    assert house.dump() == before


def test_what_a_cancellation_leaves(house: House) -> None:
    run = house.dispatch(definition(single(), on_cancel=HandlerRef("tests:clean")), {"a": 1})
    hand = house.hand()
    (job,) = hand.claim()
    house.steer(run, Cancel())
    check(house.door)
    row = house.row("workflows", id=run)
    assert (row["status"], row["cleanup"], row["cancelled_us"]) == ("cancelled", "pending", house.clock.us)
    assert house.row("jobs", id=job.id)["phase"] == "buried"
    (work,) = hand.turn(slots=5).works
    assert (work.job.role, work.job.handler, dict(work.state)) == ("cleanup", "tests:clean", {"a": 1})
    hand.turn(failed(work.job, "dirty"))
    check(house.door)
    house.clock.advance(60)
    (work,) = hand.turn(slots=5, looks_around=True).works
    assert work.job.attempt == 2
    hand.turn(succeeded(work.job))
    row = house.row("workflows", id=run)
    assert (row["status"], row["cleanup"], row["version"]) == ("cancelled", "completed", 3)


def test_pause_and_resume_lose_and_double_nothing(house: House) -> None:
    run = house.dispatch(THREE)
    hand = house.hand()
    (job,) = hand.claim()
    house.steer(run, Pause())
    made = hand.turn(succeeded(job, {"a": 1}), slots=5)
    assert made.works == []
    assert house.rows("jobs") == []
    check(house.door)
    house.steer(run, Resume())
    house.steer(run, Pause())
    house.steer(run, Resume())
    (job,) = hand.claim()
    assert job.step_index == 1


def test_a_failed_run_that_is_retried_forgets_its_failure(house: House) -> None:
    run = house.dispatch(THREE, {"a": 1})
    hand = house.hand()
    (job,) = hand.claim()
    hand.turn(failed(job, is_final=True))
    check(house.door)
    house.steer(run, RetryRun())
    row = house.row("workflows", id=run)
    assert [row[name] for name in ("status", "error_message", "error_kind", "failed_step", "failed_us")] == [
        "running",
        *[None] * 4,
    ]
    assert hand.work() == 3
    assert house.row("workflows", id=run)["status"] == "completed"


def test_a_delay_is_a_timer_and_no_job(house: House) -> None:
    run = house.dispatch(definition(single("one"), pause_of(60), single("two")))
    hand = house.hand()
    (job,) = hand.claim()
    made = hand.turn(succeeded(job, {"a": 1}), slots=5)
    assert (made.works, made.next_us) == ([], house.clock.us + 60 * SECOND)
    assert house.rows("jobs") == []
    timer = house.row("inbox")
    assert (timer["workflow_id"], timer["due_us"]) == (run, house.clock.us + 60 * SECOND)
    check(house.door)
    house.clock.advance(59.999999)
    assert hand.turn(slots=5, looks_around=True).works == []
    house.clock.advance(0.000001)
    assert hand.turn(slots=5).works == []
    (work,) = hand.turn(slots=5, looks_around=True).works
    assert (work.job.step_index, dict(work.state)) == (2, {"a": 1})
    assert house.rows("inbox") == []


def test_a_small_state_is_written_anew_with_each_step(house: House) -> None:
    run = house.dispatch(THREE, {"a": 1})
    hand = house.hand()
    (job,) = hand.claim()
    hand.turn(succeeded(job, {"b": 2}))
    row = house.row("workflows", id=run)
    assert (row["state"], row["state_version"], row["delta_bytes"]) == ('{"a":1,"b":2}', 1, 0)
    assert row["payload"] == '{"a":1}'


def test_of_a_large_state_only_what_changed_is_written(house: House) -> None:
    steps = definition(*(single(f"s{number}") for number in range(12)))
    run = house.dispatch(steps, {"text": "x" * 40_000})
    hand = house.hand()
    snapshot = house.row("workflows", id=run)["state"]
    (job,) = hand.claim()
    for number in range(11):
        (work,) = hand.turn(succeeded(job, {f"k{number}": "y" * 3000}), slots=1).works
        job = work.job
        assert f"k{number}" in work.state
        row = house.row("workflows", id=run)
        assert row["state"] == snapshot, number
        assert row["state_version"] == 0
    check(house.door)
    assert len(house.state(run)) == 12
    hand.turn(succeeded(job, {"text": "z" * 20_000}))
    row = house.row("workflows", id=run)
    assert (row["state_version"], row["delta_bytes"]) == (12, 0)  # the deltas outweigh the snapshot now
    assert len(house.state(run)["text"]) == 20_000


def test_what_is_written_grows_with_what_changes_and_not_with_the_state(house: House) -> None:
    """E9: a state that grows by the same piece at each step is rewritten only a few times."""
    count = 64
    run = house.dispatch(definition(*(single(f"s{number}") for number in range(count))))
    hand = house.hand()
    (job,) = hand.claim()
    written = 0
    version = 0
    for number in range(count):
        made = hand.turn(succeeded(job, {f"k{number}": "y" * 1000}), slots=1)
        row = house.row("workflows", id=run)
        if row["state_version"] != version:
            version = row["state_version"]
            written += len(row["state"])
        if made.works:
            job = made.works[0].job
    assert written < 3 * len(house.row("workflows", id=run)["state"]) + 2 * count * 1000
    assert len(house.state(run)) == count


def test_another_process_folds_what_this_one_has_written(house: House) -> None:
    run = house.dispatch(definition(*(single(f"s{number}") for number in range(4))), {"text": "x" * 5000, "n": 0})
    ours = house.hand()
    (job,) = ours.claim()
    ours.turn(succeeded(job, {"n": 1, "a": [1, {"b": None}]}))
    theirs = house.hand()
    (work,) = theirs.turn(slots=1).works
    assert list(work.state.items()) == [("text", "x" * 5000), ("n", 1), ("a", [1, {"b": None}])]
    theirs.turn(succeeded(work.job, {"n": 2}))
    (work,) = ours.turn(slots=1).works
    assert work.state["n"] == 2
    assert ours.runs.get(run) is not None


def test_a_siblings_change_is_seen_although_we_have_kept_an_older_state(house: House) -> None:
    """W-03: what a process keeps decoded is trusted only while the row has the same version."""
    run = house.dispatch(definition(*(single(f"s{number}") for number in range(4))), {"n": 0})
    ours, theirs = house.hand(), house.hand()
    (job,) = ours.claim()
    ours.turn(succeeded(job, {"n": 1}))
    kept = ours.runs.get(run)
    assert kept is not None
    assert kept.workflow.state == {"n": 1}
    (job,) = theirs.claim()
    theirs.turn(succeeded(job, {"n": 2, "theirs": True}))
    locked = house.door.write(lambda tx: load.lock(tx, ours.runs, [run]))
    assert locked[run].workflow.state == {"n": 2, "theirs": True}
    (work,) = ours.turn(slots=1).works
    assert work.state == {"n": 2, "theirs": True}
    ours.turn(succeeded(work.job, {"n": 3}))
    assert house.state(run) == {"n": 3, "theirs": True}


def test_a_mix_of_kept_outdated_and_new_runs_loads_as_each_stands(house: House) -> None:
    runs = house.dispatch_many(THREE, [{"n": number} for number in range(9)])
    ours = house.hand()
    jobs = {job.workflow_id: job for job in ours.claim(9)}
    ours.turn(*(succeeded(jobs[run], {"ours": 1}) for run in runs[:6]))
    theirs = house.hand()
    for job in theirs.claim(3):
        theirs.turn(succeeded(job, {"theirs": 1}))
    for loading in (load.lock, load.read):
        found = house.door.write(lambda tx, loading=loading: loading(tx, ours.runs, [*runs, 999_999]))  # type: ignore[misc]
        assert sorted(found) == runs
        assert {run: dict(held.workflow.state) for run, held in found.items()} == {
            run: house.state(run) for run in runs
        }


def test_the_delta_of_an_empty_result_leaves_the_snapshot(house: House) -> None:
    run = house.dispatch(THREE, {"a": "x" * SMALL_STATE})
    hand = house.hand()
    (job,) = hand.claim()
    (work,) = hand.turn(succeeded(job), slots=1).works
    assert house.row("workflows", id=run)["state_version"] == 0
    (again,) = house.door.read(lambda tx: load.read(tx, Runs(), [run])).values()
    assert again.workflow.state == work.state
    assert again.workflow.version == 1

"""No lost wake-up, proven: ends and waits, signals and waits in the same instant, many times, by several at once.

The sweep that finds lost wake-ups is switched off: what is not told at once stays untold, and the test hangs on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from queuety import Queuety, WaitMode, WorkflowStatus, step
from queuety.worker import maintain
from tests.support.databases import Database
from tests.support.flowing import note, notes
from tests.support.invariants import check
from tests.support.remote import remote_worker
from tests.support.waking import Field, at_once, faults, pairs_of

pytestmark = pytest.mark.timeout(3600)

State = dict[str, Any]
UNTOLD = "had not been told"
"""What a worker logs whose sweep has found a lost wake-up."""


@pytest.fixture
def field(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    monkeypatch.setattr(maintain, "SWEEP_EVERY_S", math.inf)
    notes.clear()
    made = Field(database.url)
    yield made
    check(made.app.door)
    made.close()


@step
def quick(state: State) -> State:
    return {"quick": True}


@step(max_attempts=1)
def fails(state: State) -> State:
    raise ValueError("no luck")


@step(max_attempts=1)
def fails_at_first(state: State) -> State:
    if (key := ("mended", state["pair"])) in notes:
        return {"quick": True}
    note(key)
    raise ValueError("no luck at first")


@step
def collect(state: State) -> State:
    return {"all": [*state["all"], state["n"]], "is_full": len(state["all"]) + 1 == state["total"]}


# ends and waits


def test_a_run_ends_while_another_begins_to_wait_for_it(field: Field, rounds: int) -> None:
    """W-04: the waiter looked before the end and registered after it, and slept for ever."""
    pairs = pairs_of(rounds)
    ends, waits = field.side(), field.side()
    held = field.app.workflow("held").wait_for_signal("go")
    others = field.app.dispatch_many(held, [{"pair": n} for n in range(pairs)])
    builder = field.app.workflow("waiter").wait_for_signal("begin").wait_for_workflow("other", "got")
    waiters = field.app.dispatch_many(builder, [{"other": other} for other in others])
    with field.workers():
        for number, (other, waiter) in enumerate(zip(others, waiters, strict=True)):
            is_lost = number % 3 == 2
            end = partial(ends.cancel_workflow, other) if is_lost else partial(ends.signal, other, "go")
            assert faults(at_once(end, partial(waits.signal, waiter, "begin"))) == []
        field.wait_for("waiter")
    expected = ["failed" if number % 3 == 2 else "completed" for number in range(pairs)]
    assert [row["status"] for row in field.rows("workflows", name="waiter")] == expected


def test_workers_end_runs_while_others_begin_to_wait_for_them(field: Field, rounds: int) -> None:
    pairs = pairs_of(rounds)
    ends = [field.app.workflow("other").then(quick), field.app.workflow("other").then(fails)]
    others = [field.app.dispatch_many(end, [{"pair": n} for n in range(pairs // 2 + 1)]) for end in ends]
    mixed = [run for both in zip(*others, strict=True) for run in both][:pairs]
    builder = field.app.workflow("waiter").then(quick).wait_for_workflow("other", "got")
    field.app.dispatch_many(builder, [{"other": other} for other in mixed])
    with field.workers(3):
        field.wait_for("waiter")
        field.wait_for("other")
    statuses = [row["status"] for row in field.rows("workflows", name="waiter")]
    assert statuses == (["completed", "failed"] * pairs)[:pairs]


def test_a_run_that_failed_completes_while_another_begins_to_wait_for_any(field: Field, rounds: int) -> None:
    """It fails, is retried and completes while it is asked; the other one of the wait never ends."""
    pairs = pairs_of(rounds)
    retries, waits = field.side(), field.side()
    never = field.app.workflow("never").wait_for_signal("go").dispatch()
    others = field.app.dispatch_many(
        field.app.workflow("other").then(fails_at_first), [{"pair": n} for n in range(pairs)]
    )
    with field.workers():
        field.wait_for("other")
        builder = field.app.workflow("waiter").wait_for_signal("begin").wait_for_workflows("both", WaitMode.ANY, "got")
        waiters = field.app.dispatch_many(builder, [{"both": [other, never]} for other in others])
        for other, waiter in zip(others, waiters, strict=True):
            acts = partial(retries.retry_workflow, other), partial(waits.signal, waiter, "begin")
            assert faults(at_once(*acts)) == []
        field.wait_for("waiter")
    assert {row["status"] for row in field.rows("workflows", name="waiter")} == {"completed"}


def test_real_processes_end_runs_while_others_begin_to_wait_for_them(
    field: Field, database: Database, tmp_path: Path, rounds: int
) -> None:
    pairs = pairs_of(rounds)
    others = field.app.dispatch_many(field.app.workflow("other").then(quick), [{"pair": n} for n in range(pairs)])
    builder = field.app.workflow("waiter").then(quick).wait_for_workflow("other", "got").wait_for_signal("go", "go")
    waiters = field.app.dispatch_many(builder, [{"other": other} for other in others])
    with remote_worker(database.url, tmp_path / "one") as one, remote_worker(database.url, tmp_path / "two") as two:
        for waiter in waiters:
            field.app.signal(waiter, "go", {"n": waiter})
        field.wait_for("waiter")
        assert [remote.stop() for remote in (one, two)] == [0, 0]
        assert UNTOLD not in one.log + two.log
    for waiter in waiters:
        state: Any = field.app.workflow_status(waiter)
        assert (state.status, state.state["go"]) == (WorkflowStatus.COMPLETED, {"n": waiter})


# signals and waits


def test_a_signal_comes_while_its_wait_begins(field: Field, rounds: int) -> None:
    pairs = pairs_of(rounds)
    tells, begins = field.side(), field.side()
    builder = field.app.workflow("w").wait_for_signal("begin").wait_for_signal("go", "got").then(quick)
    runs = field.app.dispatch_many(builder, [{"pair": n} for n in range(pairs)])
    with field.workers():
        for run in runs:
            acts = partial(tells.signal, run, "go", {"n": run}), partial(begins.signal, run, "begin")
            assert faults(at_once(*acts)) == []
        field.wait_for("w")
    for run in runs:
        state: Any = field.app.workflow_status(run)
        assert (state.status, state.state["got"]) == (WorkflowStatus.COMPLETED, {"n": run})
    assert field.rows("signals") == []


def test_signals_come_while_workers_reach_the_waits(field: Field, rounds: int) -> None:
    pairs = pairs_of(rounds)
    builder = field.app.workflow("w").then(quick).wait_for_signal("go", "got")
    runs = field.app.dispatch_many(builder, [{"pair": n} for n in range(pairs)])
    one, other = field.side(), field.side()

    def send(app: Queuety, part: int) -> None:
        for run in runs[part::2]:
            app.signal(run, "go", {"n": run})

    with field.workers():
        assert faults(at_once(partial(send, one, 0), partial(send, other, 1))) == []
        field.wait_for("w")
    for run in runs:
        state: Any = field.app.workflow_status(run)
        assert state.state["got"] == {"n": run}
    assert field.rows("signals") == []


def test_one_signal_serves_one_of_two_waits(field: Field, rounds: int) -> None:
    """H7: whether it comes before the first wait or in it, the second one goes without."""
    tells, begins = field.side(), field.side()
    builder = (
        field.app.workflow("w").wait_for_signal("begin").wait_for_signal("go").wait_for_signal("go", step_name="two")
    )
    for run in field.app.dispatch_many(builder, [{}] * pairs_of(rounds)):
        assert faults(at_once(partial(tells.signal, run, "go"), partial(begins.signal, run, "begin"))) == []
        state: Any = field.app.workflow_status(run)
        assert (state.status, state.current_step_name) == (WorkflowStatus.WAITING_FOR_SIGNAL, "two")
    assert field.rows("signals") == []


def test_a_loop_loses_none_of_the_signals_of_four_senders_and_takes_none_twice(field: Field, rounds: int) -> None:
    """H7: some come before their wait, some in it, some while the run goes round; the last ones after its end."""
    each, extra = max(10, pairs_of(rounds) // 4), 3
    total = 4 * each
    run = (
        field.app.workflow("loop")
        .wait_for_signal("one", step_name="hold")
        .then(collect)
        .repeat_until("hold", "is_full")
        .dispatch({"all": [], "total": total})
    )
    senders = [field.side() for _ in range(4)]

    def send(app: Queuety, sender: int) -> None:
        for number in range(each + extra):
            app.signal(run, "one", {"n": sender * 10_000 + number})

    with field.workers(2):
        assert faults(at_once(*(partial(send, app, sender) for sender, app in enumerate(senders)))) == []
        field.wait_for("loop")
    state: Any = field.app.workflow_status(run)
    taken = state.state["all"]
    left = [int(row["payload"].removeprefix('{"n":').removesuffix("}")) for row in field.rows("signals")]
    assert len(taken) == total
    sent = sorted(sender * 10_000 + number for sender in range(4) for number in range(each + extra))
    assert sorted(taken + left) == sent, "none is lost, none was used twice"
    for sender in range(4):
        own = [number for number in taken + left if number // 10_000 == sender]
        assert own == sorted(own), "in the order in which each was sent"


def test_many_senders_to_one_wait_for_all(field: Field, rounds: int) -> None:
    names = [f"s{number}" for number in range(8)]
    senders = [field.side() for _ in range(4)]
    builder = field.app.workflow("w").wait_for_signals(names, result_key="got")

    def send(app: Queuety, run: int, part: int) -> None:
        for name in names[part::4]:
            app.signal(run, name, {"n": name})

    for run in field.app.dispatch_many(builder, [{}] * pairs_of(rounds)):
        assert faults(at_once(*(partial(send, app, run, part) for part, app in enumerate(senders)))) == []
        state: Any = field.app.workflow_status(run)
        assert (state.status, state.state["got"]) == (WorkflowStatus.COMPLETED, {name: {"n": name} for name in names})
    assert field.rows("signals") == []


def test_two_that_start_a_run_by_its_key_and_signal_it_make_one_run_with_two_signals(field: Field, rounds: int) -> None:
    """H8: two webhooks at once for a key that is new."""
    sides = [field.side(), field.side()]
    definition = (
        field.app.workflow("w").wait_for_signal("hook", "one").wait_for_signal("hook", "two", "again").definition()
    )

    def hook(app: Queuety, key: str, number: int) -> int:
        run = app.dispatch_definition(definition, {"key": key}, idempotency_key=key)
        app.signal(run, "hook", {"n": number})
        return run

    for number in range(pairs_of(rounds)):
        key = f"order-{number}"
        results = at_once(*(partial(hook, app, key, n) for n, app in enumerate(sides)))
        assert faults(results) == []
        assert results[0] == results[1]
        state: Any = field.app.workflow_status(results[0])
        assert state.status is WorkflowStatus.COMPLETED
        assert sorted((state.state["one"]["n"], state.state["two"]["n"])) == [0, 1]


def test_nobody_waits_for_a_lock_of_another_run(field: Field, rounds: int) -> None:
    """Runs that wait for each other in a ring, ended from all sides at once: no deadlock reaches anybody."""
    size = 4
    sides = [field.side() for _ in range(size)]
    builder = field.app.workflow("ring").wait_for_signal("next").wait_for_workflow("next").wait_for_signal("end")
    with field.workers():
        for _ in range(max(2, rounds)):
            ring = field.app.dispatch_many(builder, [{}] * size)
            for run, following in zip(ring, [*ring[1:], ring[0]], strict=True):
                field.app.signal(run, "next", {"next": following})
            acts = (partial(app.cancel_workflow, run) for app, run in zip(sides, ring, strict=True))
            assert faults(at_once(*acts)) == []
        field.wait_for("ring")

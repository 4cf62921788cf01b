"""An idempotency key names one run, whoever races for it, with whatever payload, definition and tags."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, errors, step
from queuety.testing import ManualClock
from tests.support.contents import contents
from tests.support.databases import Database
from tests.support.flowing import status_of
from tests.support.invariants import check
from tests.support.remote import ROOT
from tests.support.stories import ended
from tests.support.waking import Field, at_once, faults

State = dict[str, Any]

RACERS = 8
KEYS = 6
RACE = """
import json, os, sys
from queuety import Queuety
from tests.support.remote import counted

url, racers, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
gate, opens = os.pipe()
ready, told = os.pipe()

def race(number):
    with Queuety(url) as app:
        app.door.read(lambda tx: None)
        os.write(told, b"x")
        os.read(gate, 1)
        found = []
        for key in range(keys):
            builder = app.workflow("order").then(counted).idempotency_key(f"key {key}").tag(f"racer {number}", "raced")
            if number % 2:  # another definition of the same name
                builder.version("v2").then(counted)
            if number % 3 == 0:
                builder.must_complete_within(days=1)
            found.append(builder.dispatch({"racer": number}))
    os.write(1, (json.dumps(found) + "\\n").encode())

for number in range(racers):
    if os.fork() == 0:
        os.close(opens)
        race(number)
        os._exit(0)
for _ in range(racers):
    os.read(ready, 1)
os.close(opens)  # all begin at once: there is nobody left who could write
sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(racers)))
"""
"""Processes that are forked once all is imported, and each connect by themselves."""


@step
def work(state: State) -> State:
    return {"done": True}


@pytest.mark.serial
def test_eight_processes_that_race_with_payloads_definitions_and_tags_of_their_own_start_one_run(
    database: Database,
) -> None:
    """What stands of each run is one racer's alone, and nothing is left of the others."""
    arguments = [sys.executable, "-c", RACE, database.url, str(RACERS), str(KEYS)]
    race = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert race.returncode == 0, race.stderr
    outputs = [json.loads(line) for line in race.stdout.splitlines()]
    assert len(outputs) == RACERS
    assert {tuple(ids) for ids in outputs} == {tuple(outputs[0])}
    with Queuety(database.url) as app:
        states = app.list_workflows(limit=1000)
        assert sorted(state.id for state in states) == sorted(outputs[0])
        assert [state.id for state in app.list_workflows(tag="raced")] == [state.id for state in states]
        for state in states:
            winner = state.state["racer"]
            assert isinstance(winner, int)
            assert state.tags == ("raced", f"racer {winner}")
            assert (state.total_steps, state.definition_version) == ((2, "v2") if winner % 2 else (1, None))
            assert (state.deadline_at is not None) == (winner % 3 == 0)
        left = contents(app.door)
        assert (len(left["jobs"]), len(left["tags"])) == (KEYS, 2 * KEYS)
        app.run_until_idle()
        assert {state.status for state in app.list_workflows()} == {WorkflowStatus.COMPLETED}
        check(app.door)


def test_a_key_is_free_again_once_its_run_was_purged_and_those_who_race_then_start_one(
    database: Database, clock: ManualClock, rounds: int
) -> None:
    field = Field(database.url, clock)
    try:
        sides = [field.side() for _ in range(4)]
        builders = [side.workflow("order").then(work).idempotency_key("k").tag("here") for side in sides]
        seen: list[int] = []
        for number in range(rounds):
            results = at_once(*(partial(builder.dispatch, {"n": number}) for builder in builders))
            assert faults(results) == []
            (run,) = set(results)
            assert run not in seen
            seen.append(run)
            assert builders[0].dispatch({"n": -1}) == run
            assert ended(field.app, run).state == {"n": number, "done": True}
            assert builders[1].dispatch() == run, "a run that has ended keeps its key"
            clock.advance(seconds=1)
            assert field.app.purge_workflows(0) == 1
        check(field.app.door)
    finally:
        field.close()


def test_a_key_whose_run_is_purged_while_others_ask_for_it_names_a_run_that_is_there(
    database: Database, clock: ManualClock, rounds: int
) -> None:
    """Who asks in that instant is given the old run, which is gone then, or the new one."""
    field = Field(database.url, clock)
    try:
        asks, purges = field.side(), field.side()
        builder = asks.workflow("order").then(work).idempotency_key("k").tag("here")
        for number in range(rounds + 2):
            old = builder.dispatch({"n": number})
            field.drain()
            clock.advance(seconds=1)
            results = at_once(partial(builder.dispatch, {"n": number + 100}), partial(purges.purge_workflows, 0))
            assert faults(results) == []
            found, purged = results
            assert purged == 1
            assert field.app.workflow_status(old) is None
            if found != old:
                assert status_of(field.app, found).tags == ("here",)
                field.drain()
                clock.advance(seconds=1)
                assert field.app.purge_workflows(0) == 1
            assert field.app.list_workflows() == []
        check(field.app.door)
    finally:
        field.close()


def test_a_dispatch_that_fails_leaves_its_key_to_the_next_one(app: Queuety) -> None:
    before = contents(app.door)
    builder = app.workflow("order").max_state_bytes(5).then(work).idempotency_key("k")
    with pytest.raises(errors.ConstraintViolation):
        builder.dispatch({"n": 1})
    with pytest.raises(errors.PayloadError):
        builder.dispatch({"_n": 1})
    with pytest.raises(errors.PayloadError):
        builder.dispatch({"n": {1}})
    assert contents(app.door) == before
    run = app.workflow("order").then(work).idempotency_key("k").dispatch({"n": 2})
    assert status_of(app, run).state == {"n": 2}


def test_a_fork_a_rewind_and_a_replay_take_no_key_from_anybody(app: Queuety) -> None:
    builder = app.workflow("order").then(work).wait_for_signal("go").idempotency_key("k")
    run = builder.dispatch()
    app.run_until_idle()
    other = app.fork_workflow(run)
    app.rewind_workflow(run, 0)
    assert builder.dispatch() == run
    assert (status_of(app, run).idempotency_key, status_of(app, other).idempotency_key) == ("k", None)
    app.cancel_workflow(run)
    assert builder.dispatch() == run

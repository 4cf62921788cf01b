"""Starting runs: one, many, once per key, from many processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from queuety import Queuety, WorkflowStatus, errors, step
from tests.support.databases import Database
from tests.support.flowing import status_of
from tests.support.invariants import check
from tests.support.remote import ROOT

State = dict[str, Any]


@step
def work(state: State) -> State:
    return {"done": state.get("n")}


RACER = """
import json, sys
from queuety import Queuety
from tests.support.remote import counted
with Queuety(sys.argv[1]) as app:
    builder = app.workflow("order").then(counted)
    app.door.read(lambda tx: None)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([builder.idempotency_key(f"order-{n}").dispatch() for n in range(5)]))
"""


def test_many_runs_start_in_few_statements_and_their_ids_are_in_order(app: Queuety) -> None:
    statements: list[str] = []
    app.dispatch_many(app.workflow("w").then(work), [{"n": -1}])
    app.door.on_statement = statements.append
    began = time.monotonic()
    runs = app.dispatch_many(app.workflow("w").then(work), ({"n": n} for n in range(10_000)))
    took_s = time.monotonic() - began
    app.door.on_statement = None
    assert len(statements) < 500
    assert took_s < 20
    assert len(set(runs)) == 10_000
    assert runs == sorted(runs)
    assert app.stats()["pending"] == 10_001
    assert [status_of(app, runs[n]).state for n in (0, 9_999)] == [{"n": 0}, {"n": 9_999}]
    assert app.run_until_idle(max_jobs=3) == 3
    assert status_of(app, runs[1]).state == {"n": 1, "done": 1}


def test_no_payloads_start_no_runs(app: Queuety) -> None:
    assert app.dispatch_many(app.workflow("w").then(work), []) == []
    assert app.list_workflows() == []


def test_one_bad_payload_among_many_starts_none(app: Queuety) -> None:
    payloads: list[Any] = [{"n": n} for n in range(50)]
    for bad in ({"_n": 1}, [1], {"n": float("nan")}, {"n": {1: 2}}):
        with pytest.raises(errors.PayloadError):
            app.dispatch_many(app.workflow("w").then(work), [*payloads, bad])
    assert app.list_workflows() == []
    assert app.stats()["pending"] == 0


def test_many_runs_cannot_share_one_key(app: Queuety) -> None:
    with pytest.raises(errors.DefinitionError, match="idempotency"):
        app.dispatch_many(app.workflow("w").then(work).idempotency_key("k"), [{}, {}])


def test_the_first_dispatch_of_a_key_wins_whatever_becomes_of_its_run(app: Queuety) -> None:
    builder = app.workflow("order").then(work).idempotency_key("k1")
    first = builder.dispatch({"n": 1})
    assert builder.dispatch({"n": 2}) == first
    assert app.dispatch_definition(builder.definition(), {"n": 3}, idempotency_key="k1") == first
    app.run_until_idle()
    assert builder.dispatch() == first
    assert (status_of(app, first).state, status_of(app, first).idempotency_key) == ({"n": 1, "done": 1}, "k1")
    assert len(app.list_workflows()) == 1


def test_keys_that_look_alike_and_keys_of_other_workflows_are_other_keys(app: Queuety) -> None:
    names = ["Order-1", "order-1", "order-1\u00a0x", "ordér-1", "order-1😀"]
    runs = [app.workflow("w").then(work).idempotency_key(key).dispatch() for key in names]
    runs.append(app.workflow("W").then(work).idempotency_key("order-1").dispatch())
    assert len(set(runs)) == 6
    assert [app.workflow("w").then(work).idempotency_key(key).dispatch() for key in names] == runs[:5]


def test_threads_that_race_for_one_key_all_get_the_same_run(app: Queuety) -> None:
    barrier = threading.Barrier(6)
    found: list[int] = []

    def race() -> None:
        builder = app.workflow("order").then(work).idempotency_key("k")
        barrier.wait()
        found.append(builder.dispatch())

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    assert len(app.list_workflows()) == 1


@pytest.mark.serial
def test_eight_processes_that_race_for_the_same_keys_start_one_run_each(database: Database) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, database.url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    outputs = []
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        outputs = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
            for pipe in (racer.stdin, racer.stdout):
                assert pipe is not None
                pipe.close()
    assert {tuple(ids) for ids in outputs} == {tuple(outputs[0])}
    with Queuety(database.url) as app:
        assert sorted(state.id for state in app.list_workflows()) == sorted(set(outputs[0]))
        assert app.run_until_idle() == 5
        assert {state.status for state in app.list_workflows()} == {WorkflowStatus.COMPLETED}
        check(app.door)

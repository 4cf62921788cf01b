"""The rows of a run that comes from elsewhere: written as they are, under ids of here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuety.codec import decode, encode
from queuety.model import ErrorKind, Workflow, WorkflowStatus
from queuety.store import importing, settle
from queuety.store.door import Tx
from queuety.store.importing import Belongings
from tests.support.hands import House, definition, new_job

NOW_US = 1_767_225_600_000_000


def workflow(run_id: int, state: dict[str, Any], *, version: int) -> Workflow:
    return Workflow(
        *(run_id, "copy", definition().hash, WorkflowStatus.FAILED, 0, 1, 1, version, state, NOW_US),
        error_message="no",
        error_kind=ErrorKind.STEP_FAILED,
        failed_step=0,
        failed_us=NOW_US,
    )


def event(seq: int, entry: str = "failed", **more: Any) -> dict[str, Any]:
    usual = dict.fromkeys(
        ("started_us", "job_id", "owner", "attempt", "branch", "changed", "removed", "control", "error")
    )
    return {
        **usual,
        "seq": seq,
        "entry": entry,
        "at_us": NOW_US,
        "token": seq,
        "step_index": 0,
        "visit": 1,
        "final": 0,
    } | more


JOB: dict[str, Any] = {
    **dict.fromkeys(("branch", "payload", "config", "options", "progress", "started_us")),
    "id": 70,
    "role": "step",
    "phase": "buried",
    "queue": "default",
    "priority_rank": 3,
    "due_us": NOW_US,
    "handler": "tests:gone",
    "attempts": 3,
    "max_attempts": 3,
    "step_index": 0,
    "visit": 1,
    "entries": 3,
    "error_message": "no",
    "created_us": NOW_US,
    "completed_us": NOW_US,
}

OWN = Belongings(
    history=[
        event(1, job_id=70, attempt=1, started_us=NOW_US, owner=-5),
        event(2, "noted", job_id=9, changed='{"a":"\\u0000"}'),
        event(3, job_id=70, attempt=2, started_us=NOW_US, error='{"message":"no"}', final=1),
        event(4, "signalled", control='{"_signal":{}}'),
    ],
    checkpoints=[{"seq": 3, "state": '{"a":"\\u0000"}'}],
    jobs=[JOB],
    signals=[{"seq": 4, "name": "go", "payload": "{}", "at_us": NOW_US}],
    groups=[{"name": "them", "ids": "[1,2]"}],
    artifacts=[
        {"name": "bytes", "kind": "binary", "content": None, "data": bytes(range(256)), "metadata": "{}"}
        | {"step_index": None, "created_us": 1, "updated_us": 2},
        {"name": "text", "kind": "text", "content": "ä😀", "data": None, "metadata": '{"a":1.0}'}
        | {"step_index": 0, "created_us": 3, "updated_us": 4},
    ],
    chunks=[{"visit": 7, "branch": -1, "number": number, "content": "null", "at_us": NOW_US} for number in (0, 1)],
    tags=["b", "a"],
)


def add(house: House, own: Belongings, state: dict[str, Any], payload: str, *, version: int) -> int:
    house.definitions.ensure(house.door, definition())

    def unit(tx: Tx) -> int:
        named = own.job_ids()
        run_id, *new = tx.reserve(1 + len(named))
        held = importing.add_run(tx, workflow(run_id, state, version=version), payload)
        assert held == settle.Held(held.workflow, len(encode(state)), 0, version)
        importing.add_belongings(tx, run_id, own, dict(zip(named, new, strict=True)))
        importing.add_chunks(tx, run_id, own.chunks, visit=1)
        return run_id

    return house.door.write(unit)


def test_every_row_is_there_as_it_was(house: House) -> None:
    run = add(house, OWN, {"a": "\0"}, "{}", version=4)
    (job,) = house.rows("jobs")
    kept = {name: value for name, value in JOB.items() if name != "id"}
    assert {name: job[name] for name in kept} == kept
    assert (job["workflow_id"], job["token"], job["owner"], job["wake_us"], job["suspect"]) == (
        run,
        None,
        None,
        None,
        0,
    )
    history = house.rows("history", run_id=run)
    other = history[1]["job_id"]
    ids = {70: job["id"], 9: other, None: None}
    assert history == [{**row, "run_id": run, "job_id": ids[row["job_id"]]} for row in OWN.history]
    assert len({run, job["id"], other}) == 3
    assert house.rows("checkpoints") == [{"run_id": run, **row} for row in OWN.checkpoints]
    assert house.rows("signals") == [{"workflow_id": run, **row} for row in OWN.signals]
    assert house.rows("groups") == [{"workflow_id": run, **row} for row in OWN.groups]
    assert house.rows("artifacts") == [{"workflow_id": run, **row} for row in OWN.artifacts]
    assert house.rows("chunks") == [{"workflow_id": run, **row, "visit": 1} for row in OWN.chunks]
    assert [row["tag"] for row in house.rows("tags")] == ["a", "b"]


def test_jobs_of_elsewhere_get_ids_that_nobody_has(house: House) -> None:
    """Their old ids name other things here."""
    mine = house.add(*[new_job() for _ in range(80)])
    run = add(house, OWN, {"a": "\0"}, "{}", version=4)
    copied = {row["job_id"] for row in house.rows("history", run_id=run)} - {None}
    assert copied.isdisjoint(mine)
    assert run not in mine
    assert [row["phase"] for row in house.rows("jobs", id=70)] == ["ready"]


@pytest.mark.parametrize("version", [0, 1])
def test_a_large_payload_and_a_large_state_go_apart(house: House, version: int) -> None:
    """MySQL's packet holds one value of the largest size, and not two."""
    payload = {"text": "ä" * 700_000}
    state = payload if version == 0 else {"text": "b" * 1_100_000}
    own = replace(Belongings(), history=[event(1, changed=encode(state))][:version])
    run = add(house, own, state, encode(payload), version=version)
    row = house.row("workflows", id=run)
    assert decode(row["payload"]) == payload
    assert house.state(run) == state == decode(row["state"])
    assert (row["state_version"], row["state_bytes"], row["delta_bytes"]) == (version, len(encode(state)), 0)


def test_the_largest_values_pass(house: House) -> None:
    """8 MiB each: what a run may have grown to where it comes from."""
    payload, state = {"text": "p" * (8 * 1024 * 1024 - 100)}, {"text": "s" * (8 * 1024 * 1024 - 100)}
    own = replace(Belongings(), history=[event(1, changed=encode(state))])
    run = add(house, own, state, encode(payload), version=1)
    assert house.state(run) == state

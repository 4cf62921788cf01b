"""A run as one JSON document: all of it, as of one moment, and a file that is whole or not there."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import queuety
from queuety import Queuety
from queuety.errors import NotFoundError
from queuety.testing import ManualClock
from tests.support.exports import passed
from tests.support.flowing import status_of
from tests.support.standings import HARD, STORIES, work

PARTS = {
    *("format_version", "queuety_version", "exported_at", "workflow", "definition", "earlier_definitions", "events"),
    *("checkpoints", "jobs", "signals", "groups", "artifacts", "chunks", "wait_dependencies", "timers", "logs"),
}


def test_it_has_every_part_and_is_plain_json(memory: Queuety, clock: ManualClock) -> None:
    for name, tell in STORIES.items():
        run = tell(memory, clock)
        data = memory.export_workflow(run)
        assert set(data) == PARTS
        assert json.dumps(passed(data)) == json.dumps(data, allow_nan=False), name
        assert data["workflow"]["state"] == status_of(memory, run).state
        assert [row["seq"] for row in data["events"]] == list(range(1, data["workflow"]["version"] + 1))


def test_the_run_is_told_as_the_status_tells_it(app: Queuety, clock: ManualClock) -> None:
    run = STORIES["completed"](app, clock)
    data, state = app.export_workflow(run), status_of(app, run)
    told = data["workflow"]
    assert (data["format_version"], data["queuety_version"]) == (1, queuety.__version__)
    assert data["exported_at"] == "2026-01-01T00:00:00.000000+00:00"
    assert told["payload"] == {"steady": True, **HARD}
    assert list(told["state"]) == list(state.state)
    assert (told["id"], told["name"], told["status"], told["current_step"]) == (run, "completed", "completed", 4)
    assert (told["idempotency_key"], told["tags"]) == ("once", ["done"])
    assert (told["definition_version"], told["definition_hash"]) == ("v2", state.definition_hash)
    assert told["started_at"] == told["created_at"] == state.created_at.isoformat(timespec="microseconds")
    assert state.completed_at is not None
    assert told["completed_at"] == state.completed_at.isoformat(timespec="microseconds")
    assert app.dispatch_definition(data["definition"], {"steady": True}) > run


def test_artifacts_are_there_with_their_content(app: Queuety, clock: ManualClock) -> None:
    """Scalars too: a number is no list."""
    found = app.export_workflow(STORIES["completed"](app, clock))["artifacts"]
    content = {one["key"]: (one["encoding"], one["content"]) for one in found}
    assert content.pop("bytes")[0] == "base64"
    assert content == {
        "null": ("json", None),
        "false": ("json", False),
        "zero": ("json", 0),
        "empty": ("json", ""),
        "object": ("json", {"b": 1.0, "a": "x\0y"}),
        "page": ("text", "<h1>😀</h1>\n"),
    }


def test_what_a_run_waits_for_is_there(app: Queuety, clock: ManualClock) -> None:
    data = app.export_workflow(STORIES["waiting_for_signals"](app, clock))
    assert [(signal["name"], signal["payload"]) for signal in data["signals"]] == [
        ("one", {"n": 1.0, "emoji": "😀"}),
        ("other", {"kept": [None]}),
    ]
    assert [(timer["kind"], timer["due_at"]) for timer in data["timers"]] == [
        ("timer", "2026-01-02T00:00:00.000000+00:00")
    ]
    parked = app.export_workflow(STORIES["parked_on_a_child"](app, clock))
    (child,) = app.list_workflows(name="inner")
    assert parked["wait_dependencies"] == [{"workflow_id": child.id, "name": "inner", "status": "waiting_for_signal"}]
    assert parked["definition"]["steps"][0]["workflow"]["name"] == "inner"


def test_the_definitions_of_before_a_migration_are_there(app: Queuety) -> None:
    old = app.workflow("w").then(work, "one").wait_for_signal("go")
    run = old.dispatch()
    app.run_until_idle()
    was = app.export_workflow(run)
    new = app.workflow("w").then(work, "one").then(work, "two").wait_for_signal("go")
    new.dispatch()
    app.migrate_workflow(run, status_of(app, new.dispatch()).definition_hash)
    data = app.export_workflow(run)
    assert data["definition"] != was["definition"]
    assert data["earlier_definitions"] == {was["workflow"]["definition_hash"]: was["definition"]}
    again = app.replay_workflow(passed(data))
    told = [(event.event, event.step_name) for event in app.workflow_timeline(run)]
    assert [(event.event, event.step_name) for event in app.workflow_timeline(again)][: len(told)] == told
    assert app.export_workflow(again)["earlier_definitions"] == data["earlier_definitions"]


@pytest.mark.parametrize("unknown", [999_999, 0, -1, 2**70])
def test_an_unknown_id_is_not_found(app: Queuety, unknown: int) -> None:
    with pytest.raises(NotFoundError, match=f"no workflow has the id {unknown}"):
        app.export_workflow(unknown)


def test_it_is_of_one_moment(app: Queuety) -> None:
    """Somebody settles steps between any two of its statements: none of that is in it."""
    run = app.workflow("w").then(work).then(work).then(work).then(work).wait_for_signal("go").dispatch({"n": 1})
    app.run_until_idle(max_jobs=1)
    before = passed(app.export_workflow(run))
    seen: list[str] = []
    with Queuety(app.door.engine.url.render_as_string(hide_password=False), clock=app.door.clock) as other:

        def hook(statement: str) -> None:
            if "SELECT" in statement:
                seen.append(statement)
            if len(seen) in (2, 3, 4):
                other.run_until_idle(max_jobs=1)

        app.door.on_statement = hook
        data = app.export_workflow(run)
        app.door.on_statement = None
    assert len(seen) > 8
    assert app.export_workflow(run)["workflow"]["version"] > 3
    assert passed(data) == before


def test_a_large_state_is_folded(app: Queuety) -> None:
    """Its snapshot is older than the run."""
    run = app.workflow("w").then(work).then(work).dispatch({"large": "ä" * 5000})
    app.run_until_idle()
    data = app.export_workflow(run)
    assert data["workflow"]["state"] == {"large": "ä" * 5000, "worked": 2}
    assert status_of(app, app.replay_workflow(passed(data))).state == data["workflow"]["state"]


# Files


@pytest.fixture
def run(memory: Queuety) -> int:
    return memory.workflow("w").wait_for_signal("go").dispatch(HARD)


def test_a_file_is_written_and_read(memory: Queuety, run: int, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    memory.export_workflow_to_file(run, path)
    assert json.loads(path.read_text("utf-8")) == passed(memory.export_workflow(run))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    new = memory.replay_workflow_from_file(str(path), actor="Ann")
    assert status_of(memory, new).state == HARD
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_file_that_is_there_is_left_as_it_is(memory: Queuety, run: int, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"run.json is there already and was left as it is; .*replace=True"):
        memory.export_workflow_to_file(run, path)
    assert path.read_text() == "mine"
    memory.export_workflow_to_file(run, path, replace=True)
    assert json.loads(path.read_text("utf-8"))["workflow"]["id"] == run
    assert os.listdir(tmp_path) == ["run.json"]


def appears(path: Path, of: Callable[..., Any]) -> Callable[..., Any]:
    """The function, just before which somebody else makes that file."""

    def late(*arguments: Any, **more: Any) -> Any:
        path.write_text("theirs")
        return of(*arguments, **more)

    return late


@pytest.mark.parametrize("has_links", [True, False])
def test_of_two_that_write_at_once_one_is_refused(
    memory: Queuety, run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """Also on a file system without hard links."""
    path = tmp_path / "run.json"

    def no_links(*_: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", appears(path, os.link if has_links else no_links))
    with pytest.raises(FileExistsError):
        memory.export_workflow_to_file(run, path)
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_file_system_without_links_takes_it_too(
    memory: Queuety, run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    memory.export_workflow_to_file(run, tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text("utf-8"))["workflow"]["id"] == run
    assert os.listdir(tmp_path) == ["run.json"]


@pytest.mark.parametrize("replace", [True, False])
def test_nothing_is_left_of_a_file_that_could_not_be_written(
    memory: Queuety, run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        memory.export_workflow_to_file(run, tmp_path / "run.json", replace=replace)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_no_json_is_named(memory: Queuety, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(queuety.errors.PayloadError, match=r"^Invalid export data: .*run.json is not valid JSON"):
        memory.replay_workflow_from_file(path)

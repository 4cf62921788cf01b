"""Exports that were cut, edited or made up: refused in words that name the place, with nothing written."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from queuety import Queuety, Settings
from queuety.errors import DefinitionError, PayloadError
from queuety.testing import ManualClock
from tests.support.exports import Export, passed
from tests.support.standings import STORIES

Edit = Callable[[Export], object]


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Queuety, Export]]:
    """A database in memory, and a run of it with something in every part of its export."""
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    with Queuety("sqlite://", clock=clock) as app:
        data = passed(app.export_workflow(STORIES["completed"](app, clock)))
        data["groups"] = [{"name": "them", "ids": [7, 8]}]
        yield app, data


@pytest.fixture
def app(made: tuple[Queuety, Export]) -> Queuety:
    return made[0]


@pytest.fixture
def export(made: tuple[Queuety, Export]) -> Export:
    """The export, to be edited."""
    return copy.deepcopy(made[1])


def runs(app: Queuety) -> int:
    table = app.door.tables.workflows
    with app.door.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def put(*path: str | int, value: object) -> Edit:
    """Puts the value at this place."""

    def edit(data: Export) -> None:
        there: Any = data
        for key in path[:-1]:
            there = there[key]
        there[path[-1]] = value

    return edit


def without(*path: str | int) -> Edit:
    def edit(data: Export) -> None:
        there: Any = data
        for key in path[:-1]:
            there = there[key]
        del there[path[-1]]

    return edit


MADE_UP = {
    "seq": 4,
    "entry": "resumed",
    "visit": 4,
    "at": "2026-01-01T00:00:00Z",
    "token": 0,
    "final": False,
    "changed": {"worked": 1},
    "control": {"_used": "x"},
}

BAD: dict[str, tuple[Edit, str]] = {
    "no workflow": (without("workflow"), "workflow is missing"),
    "a list as workflow": (put("workflow", value=[]), "workflow: an object is needed"),
    "no version of the form": (without("format_version"), "format_version: this version reads 1, not None"),
    "a later form": (put("format_version", value=2), "format_version: this version reads 1, not 2"),
    "an unknown status": (
        put("workflow", "status", value="asleep"),
        r"workflow.status: one of running, .* not 'asleep'",
    ),
    "no name": (without("workflow", "name"), "workflow.name is missing"),
    "null as name": (put("workflow", "name", value=None), "workflow.name is null"),
    "a number as name": (put("workflow", "name", value=7), "workflow.name: text is needed, not 7"),
    "a name too long": (put("workflow", "name", value="n" * 256), "workflow.name: 256 characters, where at most 255"),
    "NUL in a name": (put("workflow", "name", value="a\0b"), "workflow.name: text holds no NUL"),
    "half a character": (put("workflow", "name", value="a\ud800"), "workflow.name: half of a surrogate pair"),
    "true as step": (put("workflow", "current_step", value=True), "workflow.current_step: a whole number from 0"),
    "a step too large": (put("workflow", "current_step", value=2**31), "workflow.current_step: a whole number from 0"),
    "not at its end": (put("workflow", "current_step", value=1), "workflow.current_step is 1 of 4, which a completed"),
    "another status": (put("workflow", "status", value="running"), "workflow.current_step is 4 of 4, which a running"),
    "another length": (put("workflow", "total_steps", value=9), "workflow.total_steps is 9, but the definition has 4"),
    "no end": (
        put("workflow", "completed_at", value=None),
        "workflow.completed_at is missing, which a completed run has",
    ),
    "no time": (put("workflow", "created_at", value="yesterday"), "workflow.created_at: a time in ISO 8601"),
    "no offset": (
        put("workflow", "created_at", value="2026-01-01T00:00:00"),
        "workflow.created_at: a time in ISO 8601",
    ),
    "NaN": (put("workflow", "state", "x", value=math.nan), "workflow.state.x: nan is not JSON"),
    "a huge number": (put("workflow", "payload", "x", value=2**63), "workflow.payload.x: an integer outside"),
    "our own key": (
        put("workflow", "payload", "_x", value=1),
        "workflow.payload._x: keys that start with _ are reserved",
    ),
    "our own key in a delta": (put("events", 0, "changed", "_x", value=1), r"events\[0\].changed._x: keys that start"),
    "another state": (
        put("workflow", "state", "worked", value=2),
        "state is not what .* give; they differ in 'worked'",
    ),
    "less state": (without("workflow", "state", "worked"), "workflow.state is not what .* they differ in 'worked'"),
    "1.0 for 1": (put("workflow", "state", "integer", value=1.0), "workflow.state is not what .* differ in 'integer'"),
    "another delta": (put("events", 3, "changed", "worked", value=5), "workflow.state is not what"),
    "a row too few": (without("events", 1), r"events\[1\].seq is 3, where 2 must follow"),
    "the last row missing": (without("events", -1), "workflow.version is 4, but the last event is 3"),
    "an unknown entry": (put("events", 0, "entry", value="dreamt"), r"events\[0\].entry: one of"),
    "a later visit": (put("events", 0, "visit", value=9), r"events\[0\].visit is 9, and the run is at visit 4"),
    "an error without words": (put("events", 0, "error", value={"type": "x"}), r"events\[0\].error.message: text is"),
    "events as an object": (put("events", value={}), "events: a list is needed"),
    "a number as event": (put("events", 0, value=1), r"events\[0\]: an object is needed, not 1"),
    "removed as text": (
        put("events", 0, "removed", value=[1]),
        r"events\[0\].removed\[0\] is 1, which does not belong",
    ),
    "an edited definition": (
        put("definition", "steps", 0, "name", value="x"),
        "definition: its hash is .* was changed",
    ),
    "an edited hash": (put("workflow", "definition_hash", value="0" * 64), "definition: its hash is .* names '0000"),
    "a broken definition": (put("definition", "steps", value=[]), "definition: workflow 'completed': steps must be"),
    "no definition": (put("definition", value=None), "definition is missing: the database that the run was exported"),
    "a wrong earlier one": (put("earlier_definitions", value={"ab": {}}), "earlier_definitions.ab: definition: name"),
    "a checkpoint that is none": (
        put("checkpoints", value=[{"seq": 1, "state": {"x": 1}}]),
        "checkpoints: the state as of 1 is not what the events before it give",
    ),
    "a signal of nobody": (
        put("signals", value=[{"seq": 1, "name": "go", "payload": {}, "at": "2026-01-01T00:00:00Z"}]),
        r"signals\[0\].seq is 1, and no event tells of such a signal",
    ),
    "a chunk of the past": (
        put("chunks", value=[{"visit": 1, "branch": None, "number": 0, "content": 1, "at": "2026-01-01T00:00:00Z"}]),
        r"chunks\[0\].visit is 1, which is settled",
    ),
    "a chunk without content": (
        put("chunks", value=[{"visit": 4, "branch": None, "number": 0, "at": "2026-01-01T00:00:00Z"}]),
        r"chunks\[0\].content is missing",
    ),
    "a group of words": (
        put("groups", 0, "ids", value=["1"]),
        r"groups\[0\].ids\[0\] is '1', which does not belong there",
    ),
    "a group of nobody": (put("groups", 0, "ids", value=[0]), r"groups\[0\].ids: ids of workflows are needed"),
    "no base64": (put("artifacts", 0, "content", value="%%%"), r"artifacts\[0\].content: bytes in base64 are needed"),
    "bytes as JSON": (
        put("artifacts", 0, "encoding", value="json"),
        r"artifacts\[0\].encoding: 'json' does not go with",
    ),
    "an artifact without content": (without("artifacts", 0, "content"), r"artifacts\[0\].content is missing"),
    "a loop of words": (put("workflow", "loops", value={"a": 1}), "workflow.loops: the index of a step and the number"),
    "a ledger of words": (
        put("workflow", "ledger", value={"cost": "much"}),
        "workflow.ledger: cost and started are whole",
    ),
    "cleaned up after": (
        put("workflow", "compensation_status", value="failed"),
        "workflow.compensation_status is failed",
    ),
    "a tag twice": (put("workflow", "tags", value=["a", "a"]), "workflow.tags: 'a' is there twice"),
    "a rewind to nowhere": (
        put("events", 3, value={**MADE_UP, "entry": "rewound"}),
        r"events\[3\].control._rewound is missing, which tells what was rewound",
    ),
    "a control of words": (
        put(
            "events",
            3,
            value=MADE_UP,
        ),
        r"events\[3\].control._used is not of its form",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused_by_name(app: Queuety, export: Export, name: str) -> None:
    edit, message = BAD[name]
    edit(export)
    before = runs(app)
    with pytest.raises((PayloadError, DefinitionError), match=f"^Invalid export data: .*{message}"):
        app.replay_workflow(export)
    assert runs(app) == before


@pytest.mark.parametrize("data", [None, [], "text", 7, {}])
def test_what_is_no_export_at_all_is_refused(app: Queuety, data: Any) -> None:
    with pytest.raises(PayloadError, match=r"^Invalid export data: "):
        app.replay_workflow(data)


def test_the_whole_of_it_is_as_it_should_be(app: Queuety, export: Export) -> None:
    """What is edited above would be replayed."""
    app.replay_workflow(export)


def test_a_value_above_the_limit_is_refused(export: Export) -> None:
    with (
        Queuety("sqlite://", settings=Settings(max_value_bytes=300)) as small,
        pytest.raises(
            PayloadError, match=r"Invalid export data: workflow.payload is .* more than the limit of 300 bytes"
        ),
    ):
        small.replay_workflow(export)


def test_an_actor_that_is_none_is_refused(app: Queuety, export: Export) -> None:
    with pytest.raises(DefinitionError, match="actor="):
        app.replay_workflow(export, actor="")


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["running", "failed", "completed", "cancelled", "pending", "2026-01-01T00:00:00+00:00", "a\ud800", "\0"]
    ),
    st.just([]),
    st.just({}),
    st.just({"_x": 1}),
    st.just([[{"a": 1}]]),
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in it, containers too."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


_EXPORTS: list[tuple[Queuety, list[Export]]] = []


def exports() -> tuple[Queuety, list[Export]]:
    """A database, and runs of all kinds out of it; made once."""
    if not _EXPORTS:
        clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        app = Queuety("sqlite://", clock=clock)
        _EXPORTS.append((app, [passed(app.export_workflow(tell(app, clock))) for tell in STORIES.values()]))
    return _EXPORTS[0]


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_done_to_an_export_it_is_replayed_whole_or_refused(data: Any) -> None:
    app, all_of = exports()
    export = copy.deepcopy(data.draw(st.sampled_from(all_of)))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, key = data.draw(st.sampled_from(places(export)))
        there: Any = export
        for part in path:
            there = there[part]
        what = data.draw(st.sampled_from(["put", "delete", "twice"]))
        if what == "put":
            there[key] = copy.deepcopy(data.draw(LEAVES))
        elif what == "delete":
            del there[key]
        elif isinstance(there, list):
            there.insert(int(key), copy.deepcopy(there[int(key)]))
    before, refusal, run = runs(app), None, 0
    try:
        run = app.replay_workflow(export)
    except (PayloadError, DefinitionError) as error:
        refusal = str(error)
    if refusal is not None:
        assert refusal.startswith("Invalid export data: ")
        assert runs(app) == before
        return
    state = app.workflow_status(run)
    assert state is not None
    assert app.export_workflow(run)["workflow"]["state"] == state.state
    app.workflow_timeline(run)
    app.list_jobs(workflow_id=run, cleanup=True)
    app.why(run)

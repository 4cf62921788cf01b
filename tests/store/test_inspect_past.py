"""Reading the state after a step: the latest, whatever has come since, and for few rows in a long run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queuety import Queuety, step
from queuety.errors import DefinitionError
from queuety.inspect.past import workflow_state_at
from queuety.model import Entry
from queuety.store.queries import past
from tests.support.databases import Database
from tests.support.hands import House, definition, single
from tests.support.pasts import live, tell

UNKNOWN = 987_654_321


@step
def count(state: dict[str, Any]) -> dict[str, Any]:
    return {"n": state.get("n", 0) + 1}


@step
def keep(state: dict[str, Any]) -> dict[str, Any]:
    return {"kept": state["n"]}


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    """Without a look at the invariants: the runs here have lived without working."""
    with House(database.url) as made:
        yield made


def asked(house: House, run: int, step: int | str) -> dict[str, Any] | None:
    with house.door.reading() as connection:
        return workflow_state_at(connection, house.door.tables, run, step)


def test_the_latest_visit_counts_by_index_and_by_name(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .then(count, "count")
        .repeat_until("count", "n", 3, name="loop")
        .then(keep)
        .wait_for_signal("go", step_name="wait", result_key="got")
        .then(count, "last")
        .dispatch({"p": 1})
    )
    app.run_until_idle()
    assert app.workflow_state_at(run, "count") == app.workflow_state_at(run, 0) == {"p": 1, "n": 3}
    assert app.workflow_state_at(run, "loop") == {"p": 1, "n": 3}
    assert app.workflow_state_at(run, "2") == app.workflow_state_at(run, 2) == {"p": 1, "n": 3, "kept": 3}
    assert app.workflow_state_at(run, "wait") is None
    app.signal(run, "go", {"x": 1})
    app.run_until_idle()
    assert app.workflow_state_at(run, "wait") == {"p": 1, "n": 3, "kept": 3, "got": {"x": 1}}
    assert app.workflow_state_at(run, 4) == app.workflow_status(run).state  # type: ignore[union-attr]
    app.rewind_workflow(run, 0)
    assert app.workflow_state_at(run, 2) == {"p": 1, "n": 3, "kept": 3}, "what was is still told"
    assert [app.workflow_state_at(run, step) for step in (5, -1, 1 << 70, "nobody")] == [None] * 4
    assert [app.workflow_state_at(id_, 0) for id_ in (UNKNOWN, -1)] == [None, None]
    for wrong in (None, True, 1.5):
        with pytest.raises(DefinitionError, match="the index of a step is needed, or its name"):
            app.workflow_state_at(run, wrong)  # type: ignore[arg-type]


def test_few_rows_are_read_of_a_long_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What 10,000 steps cost is what the steps since the last checkpoint cost."""
    run = house.dispatch(definition(single("a"), single("b"), single("c")), {"p": 1})
    tell(house, run, {"entry": Entry.COMPLETED, "step_index": 1, "changed": {"b": 1}})
    live(house, run, 2_000, at_once=250)
    read: list[int] = []
    deltas = past.deltas

    def counting(*arguments: Any, **more: Any) -> Any:
        rows = deltas(*arguments, **more)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(past, "deltas", counting)
    assert asked(house, run, 0) == {"p": 1, "b": 1, "n": 2_001, "odd": 2_001}
    assert asked(house, run, "b") == {"p": 1, "b": 1}
    assert len(read) == 2
    assert max(read) <= 300


def test_a_state_that_was_pruned_is_none(house: House) -> None:
    run = house.dispatch(definition(single("a"), single("b")), {"p": 1})
    tell(house, run, {"entry": Entry.COMPLETED, "step_index": 1, "changed": {"b": 1}})
    live(house, run, 5)
    history = house.door.tables.history
    house.door.write(lambda tx: tx.connection.execute(history.delete().where(history.c.seq <= 3)))
    assert asked(house, run, 1) is None
    assert asked(house, run, 0) is None, "nothing says what stands before the first row"

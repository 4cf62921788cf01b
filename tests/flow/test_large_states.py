"""A state that many results fill: it has a limit, the same on every database, and what is over it harms nobody."""

from __future__ import annotations

from typing import Any, Final

import pytest

from queuety import Queuety, Settings, WorkflowStatus, step
from tests.support.databases import Database
from tests.support.flowing import note, notes, status_of
from tests.support.invariants import check

PIECE: Final = 1_000_000
LIMIT: Final = 3_500_000


@step(max_attempts=1)
def piece(state: dict[str, Any]) -> dict[str, Any]:
    note(len(state))
    return {f"piece {len(state)}": state["letter"] * (PIECE // len(state["letter"].encode()))}


@step(max_attempts=1)
def again(state: dict[str, Any]) -> dict[str, Any]:
    return {"piece 1": "x" * PIECE}


@pytest.mark.parametrize("letter", ["x", "\N{SNOWMAN}"])
def test_a_state_grows_up_to_its_limit_and_no_further(database: Database, letter: str) -> None:
    with Queuety(database.url, settings=Settings(max_value_bytes=LIMIT)) as app:
        builder = app.workflow("large")
        for number in range(3):
            builder = builder.then(piece, name=f"piece {number}")
        builder = builder.then(again)
        fits = builder.dispatch({"letter": letter})
        grows = builder.then(piece, name="too much").then(piece, name="never").dispatch({"letter": letter})
        app.run_until_idle()
        assert status_of(app, fits).status is WorkflowStatus.COMPLETED
        state = status_of(app, grows)
        assert state.status is WorkflowStatus.FAILED
        assert "state with this result is 4," in str(state.error_message)
        assert sorted(state.state) == ["letter", "piece 1", "piece 2", "piece 3"]
        assert sorted(notes) == [1, 1, 2, 2, 3, 3, 4]
        app.cancel_workflow(grows)
        check(app.door)

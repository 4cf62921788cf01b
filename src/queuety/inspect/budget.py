"""What a run may use up, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queuety.codec import decode, encode, size
from queuety.inspect.outline import Outline
from queuety.model import Json
from queuety.store.queries import Record


def budget_of(row: Record, state: Mapping[str, Json], outline: Outline) -> dict[str, Json] | None:
    """The limits that are set, under their names, and how far each counter is; None if nothing is limited.

    `state` is the run's public state; its bytes are those of its compact text in UTF-8.
    """
    if not outline.limits:
        return None
    ledger: Mapping[str, Any] = (decode(row["ledger"]) if row["ledger"] else None) or {}
    return {
        **outline.limits,
        "transitions": row["transitions"],
        "cost_units": ledger.get("cost", 0),
        "started_workflows": ledger.get("started", 0),
        "public_state_bytes": size(encode(state)),
    }

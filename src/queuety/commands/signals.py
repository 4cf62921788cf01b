"""Signals: a fact for one run from outside, kept until a wait uses it."""

from __future__ import annotations

from queuety.commands.definitions import Definitions
from queuety.commands.steer import NOBODY, By, tell
from queuety.model import Signalled, State
from queuety.store.door import Door


def send_signal(
    door: Door,
    definitions: Definitions,
    workflow_id: int,
    name: str,
    payload: State,
    *,
    by: By = NOBODY,
    max_bytes: int | None = None,
) -> None:
    """Keeps the signal, and lets the wait that it satisfies go on in the same transaction; once, whatever is lost.

    `payload` is checked JSON. Raises `NotFoundError` for an unknown id; nothing is changed. If what follows cannot be
    decided, the run fails and the signal stays kept.
    """

    def event_of(operation: int) -> Signalled:
        return Signalled(name, payload, operation, by.actor, by.reason)

    tell(door, definitions, workflow_id, event_of, max_bytes=max_bytes, dry_run=by.dry_run)

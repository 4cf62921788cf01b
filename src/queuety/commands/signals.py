"""Signals: a fact for one run from outside, kept until a wait uses it."""

from __future__ import annotations

from queuety.commands.definitions import Definitions
from queuety.commands.steer import tell
from queuety.model import Signalled, State
from queuety.store.door import Door


def send_signal(
    door: Door, definitions: Definitions, workflow_id: int, name: str, payload: State, *, max_bytes: int | None = None
) -> None:
    """Keeps the signal, and lets the wait that it satisfies go on in the same transaction; once, whatever is lost.

    `payload` is checked JSON. Raises `NotFoundError` for an unknown id; nothing is changed. If what follows cannot be
    decided, the run fails and the signal stays kept.
    """
    tell(door, definitions, workflow_id, lambda operation: Signalled(name, payload, operation), max_bytes=max_bytes)

"""What runs have put aside, for people: the content as it was given, times as datetimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from queuety.codec import decode
from queuety.inspect.states import moment
from queuety.model import Json
from queuety.store import artifacts
from queuety.store.door import Tx

JSON: Final = "json"
"""The kind whose content is any JSON value."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something that a run has put aside under a key. Times are aware, in UTC.

    `content` is a JSON value if the kind is `json`, else the text or the bytes that were given; None in a list that was
    asked for without. `step_index` is the step that put it there, None if none did.
    """

    key: str
    kind: str
    content: Json | bytes
    metadata: dict[str, Json]
    step_index: int | None
    created_at: datetime
    updated_at: datetime


def artifact(tx: Tx, workflow_id: int, key: str) -> Artifact | None:
    """What the run has put aside under this key, or None."""
    found = artifacts.get(tx, workflow_id, key)
    return None if found is None else _shown(found)


def artifacts_of(tx: Tx, workflow_id: int, *, include_content: bool) -> Sequence[Artifact]:
    """All that the run has put aside, by key."""
    return [_shown(one) for one in artifacts.listed(tx, workflow_id, with_content=include_content)]


def _shown(stored: artifacts.Artifact) -> Artifact:
    content: Any = stored.content if stored.data is None else stored.data
    if stored.kind == JSON and stored.content is not None:
        content = decode(stored.content)
    return Artifact(
        stored.key,
        stored.kind,
        content,
        decode(stored.metadata),
        stored.step_index,
        moment(stored.created_us),
        moment(stored.updated_us),
    )

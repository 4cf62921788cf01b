"""Artifacts of handlers: checked, then written at once behind the attempt's lease, from a thread or the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from queuety.codec import checked, checked_mapping, encode, size
from queuety.define import typed
from queuety.define.names import check_name
from queuety.errors import InvalidStateError, LeaseLost, PayloadError
from queuety.model import Job
from queuety.store import artifacts, claims
from queuety.store.door import Door, Tx
from queuety.worker.aside import Aside
from queuety.worker.attempt import Attempt

JSON: Final = "json"
"""The kind whose content is any JSON value and is given back as one."""
BINARY: Final = "binary"
"""The kind whose content must be bytes."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """An artifact as it is stored: `text` is JSON of the kind `json` and plain text of others, `data` bytes.

    One of the two is None. `metadata` is a JSON text.
    """

    key: str
    kind: str
    text: str | None
    data: bytes | None
    metadata: str


def parcel(key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None, *, max_bytes: int) -> Parcel:
    """The artifact, checked. Raises `DefinitionError` for a key or a kind that is none, `PayloadError` for content that
    does not fit the kind, for metadata that is no mapping of JSON, and if both together are larger than a value may be.
    """
    key, kind = check_name(key, what="key"), check_name(kind, what="kind")
    about = encode(checked_mapping(typed.json_form({} if metadata is None else metadata), what="metadata"))
    text, data = _packed(content, kind, max_bytes)
    found = size(about) + (len(data) if data is not None else size(text or ""))
    if found > max_bytes:
        raise PayloadError(
            f"artifact {key!r} with its metadata is {found:,} bytes, more than the limit of {max_bytes:,} bytes "
            "(Settings.max_value_bytes); store it elsewhere and keep a reference"
        )
    return Parcel(key, kind, text, data, about)


def _packed(content: Any, kind: str, max_bytes: int) -> tuple[str | None, bytes | None]:
    """The content as text or as bytes."""
    is_binary = isinstance(content, bytes | bytearray | memoryview)
    if kind == JSON:
        if is_binary:
            raise PayloadError(f'content is bytes, which JSON cannot hold; give kind="{BINARY}"')
        return encode(checked(typed.json_form(content), what="content", max_bytes=max_bytes)), None
    if is_binary:
        return None, bytes(content)
    if kind == BINARY or type(content) is not str:
        wanted = "bytes are" if kind == BINARY else "text or bytes are"
        raise PayloadError(
            f"content is a {type(content).__name__}; of the kind {kind!r} {wanted} needed, any JSON value of the kind "
            f"{JSON!r}"
        )
    if "\x00" in content:
        raise PayloadError('content: text holds no NUL; give its encode() and kind="binary"')
    checked(content, what="content")
    return content, None


class Keeper(Protocol):
    """Where artifacts of running attempts are kept."""

    def put(self, job: Job, parcel: Parcel) -> None:
        """Keep it, or replace what was there, at once. Raises `LeaseLost`; then nothing was written."""


class StoredArtifacts:
    """The artifacts in the database."""

    def __init__(self, door: Door, *, lease_s: float) -> None:
        self._door = door
        self._lease_us = round(lease_s * 1_000_000)

    def put(self, job: Job, parcel: Parcel) -> None:
        """Keep it, or replace what was there, and renew the lease. Raises `LeaseLost`; then nothing was written."""

        def unit(tx: Tx) -> bool:
            until_us = tx.now_us() + self._lease_us
            if job.workflow_id is None or not claims.beat(tx, job, until_us=until_us, progress=None):
                return False
            return put(tx, job.workflow_id, parcel, step_index=job.step_index, is_fenced=True)

        if not self._door.write(unit):
            raise LeaseLost(
                f"attempt {job.attempt} of job {job.id} has lost its lease; artifact {parcel.key!r} was not kept"
            )


def put(tx: Tx, workflow_id: int, parcel: Parcel, *, step_index: int | None, is_fenced: bool = False) -> bool:
    """Keeps the artifact of a run, or replaces what it had under that key; False if there is no such run.

    `is_fenced`: the transaction has extended the lease of one of its jobs.
    """
    return artifacts.put(
        tx,
        workflow_id,
        parcel.key,
        kind=parcel.kind,
        content=parcel.text,
        data=parcel.data,
        metadata=parcel.metadata,
        step_index=step_index,
        now_us=tx.now_us(),
        is_fenced=is_fenced,
    )


class Shelf:
    """Artifacts for attempts. Without `kept_in` there is nowhere to keep them, and putting one fails."""

    def __init__(
        self,
        kept_in: Keeper | None,
        aside: Aside,
        *,
        give_up: Callable[[Attempt], object],
        max_bytes: int,
    ) -> None:
        self._kept_in = kept_in
        self._aside = aside
        self._give_up = give_up
        self._max_bytes = max_bytes

    def put(self, attempt: Attempt, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None) -> None:
        """Write here and now."""
        write = self._written(attempt, key, content, kind, metadata)
        try:
            write()
        except LeaseLost:
            self._give_up(attempt)
            raise

    async def put_async(
        self, attempt: Attempt, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None
    ) -> None:
        """Write in a thread; the content is that of the moment of the call."""
        write = self._written(attempt, key, content, kind, metadata)
        try:
            await self._aside.short(write)
        except LeaseLost:
            self._give_up(attempt)
            raise

    def _written(
        self, attempt: Attempt, key: str, content: Any, kind: str, metadata: Mapping[str, Any] | None
    ) -> Callable[[], None]:
        """What writes it, all being checked."""
        job = attempt.work.job
        if job.workflow_id is None:
            raise InvalidStateError(f"job {job.id} is of no workflow: only steps and what cleans up keep artifacts")
        if self._kept_in is None:
            raise InvalidStateError(f"artifacts of {job.handler} cannot be kept here")
        made = parcel(key, content, kind, metadata, max_bytes=self._max_bytes)
        attempt.check_held()
        return partial(self._kept_in.put, job, made)

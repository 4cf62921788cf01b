"""What a run has in each table as plain JSON, and back: the columns that travel, and what each may hold.

The way out shows a column as it is, JSON as a value and a time in ISO 8601. The way back is strict: what no database
here could hold, or no reader here understand, is a `PayloadError` that names the place. No SQL.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from queuety.codec import checked, decode, encode
from queuety.errors import PayloadError
from queuety.model import CleanupStatus, Entry, ErrorKind, JobPhase, Json, LetterKind, Role, WorkflowStatus
from queuety.store.schema import HANDLER, NAME
from queuety.store.side import NO_BRANCH

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_INTEGER: Final = 2**31 - 1
_BIG: Final = 2**63 - 1

FORMAT_VERSION: Final = 1
"""Which form of the document this version of the package writes, and the only one that it reads."""

JSON_KIND: Final = "json"
"""The kind of artifacts whose content is a JSON value."""

CONTROL_VALUES: Final = 4
"""How many values of the largest size a row's `control` may hold beside each other: a handler's own, what it has noted,
and all that a stream has yielded."""


def invalid(where: str, problem: str) -> PayloadError:
    """What is raised of a place in an export that cannot be right."""
    return PayloadError(f"Invalid export data: {where}{problem}")


class Shape(Protocol):
    """What a column holds, as JSON and as it is stored."""

    def shown(self, stored: Any) -> Json:
        """The JSON of what the database holds, which is not NULL."""

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:
        """What the database is to hold for this JSON, which is not null. Raises `PayloadError`."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    least: int = 0
    most: int = _BIG

    def shown(self, stored: Any) -> Json:
        return int(stored)

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:  # noqa: ARG002 - a shape's signature
        if type(value) is not int or not self.least <= value <= self.most:
            raise invalid(where, f": a whole number from {self.least} to {self.most} is needed, not {_short(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """Plain text of at most `longest` characters, or as long as a value may be."""

    longest: int | None = None

    def shown(self, stored: Any) -> Json:
        return str(stored)

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:
        if type(value) is not str:
            raise invalid(where, f": text is needed, not {_short(value)}")
        if "\x00" in value:
            raise invalid(where, ": text holds no NUL")
        if self.longest is not None and len(value) > self.longest:
            raise invalid(where, f": {len(value)} characters, where at most {self.longest} may stand")
        return checked(value, what=f"Invalid export data: {where}", max_bytes=max_bytes)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these words."""

    words: Collection[str]

    def shown(self, stored: Any) -> Json:
        return str(stored)

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:  # noqa: ARG002 - a shape's signature
        if type(value) is not str or value not in self.words:
            raise invalid(where, f": one of {', '.join(self.words)} is needed, not {_short(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: microseconds since the epoch, UTC; in ISO 8601 with its offset outside."""

    def shown(self, stored: Any) -> Json:
        return (_EPOCH + timedelta(microseconds=int(stored))).isoformat(timespec="microseconds")

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:  # noqa: ARG002 - a shape's signature
        try:
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return (moment - _EPOCH) // _MICROSECOND
        except (TypeError, ValueError, OverflowError):
            pass
        raise invalid(where, f": a time in ISO 8601 with its offset is needed, not {_short(value)}")


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no; 1 or 0 in the database."""

    def shown(self, stored: Any) -> Json:
        return bool(stored)

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:  # noqa: ARG002 - a shape's signature
        if type(value) is not bool:
            raise invalid(where, f": true or false is needed, not {_short(value)}")
        return int(value)


@dataclass(frozen=True, slots=True)
class Rank:
    """A priority, which the database holds the other way round: the most urgent is 0 there."""

    top: int = 3

    def shown(self, stored: Any) -> Json:
        return self.top - int(stored)

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:
        return self.top - int(Whole(0, self.top).stored(value, where, max_bytes))


@dataclass(frozen=True, slots=True)
class JsonText:
    """JSON as text, of this Python type at the top (None for any), a list's `items` of that one.

    A state has no key that starts with `_`. `values` is how many values of the largest size it may hold.
    """

    of: type | None = None
    items: type | None = None
    is_state: bool = False
    values: int = 1

    def shown(self, stored: Any) -> Json:
        return decode(stored)

    def stored(self, value: Json, where: str, max_bytes: int) -> Any:
        if self.of is not None and type(value) is not self.of:
            wanted = "an object" if self.of is dict else "a list"
            raise invalid(where, f": {wanted} is needed, not {_short(value)}")
        found = checked(value, what=f"Invalid export data: {where}", max_bytes=self.values * max_bytes)
        if self.items is not None:
            for place, item in enumerate(found):
                if type(item) is not self.items:
                    raise invalid(f"{where}[{place}]", f" is {_short(item)}, which does not belong there")
        if self.is_state:
            for key in found:
                if key.startswith("_"):
                    raise invalid(f"{where}.{key}", ": keys that start with _ are reserved")
        return encode(found)


@dataclass(frozen=True, slots=True)
class Field:
    """A column by its name in the export. It may be null, or missing, if it is `optional`, and is `absent` then in the
    database. Where null is a value like others, it `has_null`."""

    name: str
    column: str
    shape: Shape
    optional: bool = False
    absent: int | None = None
    has_null: bool = False

    def shown(self, kept: Any) -> Json:
        """The JSON of what the database holds."""
        is_absent = kept is None or (self.absent is not None and kept == self.absent)
        return None if is_absent else self.shape.shown(kept)


def shown(fields: Sequence[Field], row: Mapping[str, Any]) -> dict[str, Json]:
    """The row as an export has it."""
    return {field.name: field.shown(row[field.column]) for field in fields}


def stored(fields: Sequence[Field], value: Any, where: str, *, max_bytes: int) -> dict[str, Any]:
    """The row that an export's object stands for, by column. Raises `PayloadError`."""
    if type(value) is not dict:
        raise invalid(where, f": an object is needed, not {_short(value)}")
    row: dict[str, Any] = {}
    for field in fields:
        found, place = value.get(field.name), f"{where}.{field.name}"
        if found is not None or (field.has_null and field.name in value):
            row[field.column] = field.shape.stored(found, place, max_bytes)
        elif field.optional:
            row[field.column] = field.absent
        else:
            raise invalid(place, " is null" if field.name in value else " is missing")
    return row


def artifact_shown(row: Mapping[str, Any]) -> dict[str, Json]:
    """An artifact as an export has it; `encoding` says what its content is: `json`, `text` or `base64`."""
    if row["data"] is not None:
        encoding, content = "base64", b64encode(row["data"]).decode()
    elif row["kind"] == JSON_KIND:
        encoding, content = "json", decode(row["content"])
    else:
        encoding, content = "text", row["content"]
    return {**shown(ARTIFACT, row), "encoding": encoding, "content": content}


def artifact_stored(value: Any, where: str, *, max_bytes: int) -> dict[str, Any]:
    """The row that an export's artifact stands for. Raises `PayloadError`."""
    row = {**stored(ARTIFACT, value, where, max_bytes=max_bytes), "content": None, "data": None}
    encoding, content, place = value.get("encoding"), value.get("content"), f"{where}.content"
    if "content" not in value:
        raise invalid(place, " is missing")
    if (encoding == "json") != (row["kind"] == JSON_KIND):
        raise invalid(f"{where}.encoding", f": {_short(encoding)} does not go with the kind {_short(row['kind'])}")
    if encoding == "json":
        row["content"] = JsonText().stored(content, place, max_bytes)
    elif encoding == "text":
        row["content"] = Words().stored(content, place, max_bytes)
    elif encoding == "base64":
        row["data"] = _bytes(content, place, max_bytes)
    else:
        raise invalid(f"{where}.encoding", f": json, text or base64 is needed, not {_short(encoding)}")
    return row


def _bytes(content: Any, where: str, max_bytes: int) -> bytes:
    try:
        found = b64decode(content, validate=True)
    except (TypeError, ValueError):
        raise invalid(where, ": bytes in base64 are needed") from None
    if len(found) > max_bytes:
        raise invalid(where, f": {len(found):,} bytes, more than the limit of {max_bytes:,} bytes")
    return found


def _short(value: Any) -> str:
    """A short and safe picture of a value, whatever it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, str | int | float):
        text = ascii(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"an object of type {type(value).__name__}"


_ID: Final = Whole(1)
_INDEX: Final = Whole(0, _INTEGER)
_COUNT: Final = Whole(0, 2**62)  # it will be counted on
_VISIT: Final = Whole(1, 2**62)
_ANY: Final = Whole(-(2**63))
_NAME: Final = Words(NAME)
_TIME: Final = Moment()
_STATE: Final = JsonText(dict, is_state=True)
_OBJECT: Final = JsonText(dict)

WORKFLOW: Final = (
    Field("id", "id", _ID),
    Field("name", "name", _NAME),
    Field("status", "status", OneOf([word.value for word in WorkflowStatus])),
    Field("current_step", "current_step", _INDEX),
    Field("total_steps", "total_steps", _INDEX),
    Field("definition_hash", "definition_hash", Words(64)),
    Field("payload", "payload", _STATE),
    Field("visit", "visit", _VISIT),
    Field("version", "version", _COUNT),
    Field("transitions", "transitions", _COUNT),
    Field("runtime", "runtime", JsonText(dict, values=CONTROL_VALUES), optional=True),
    Field("loops", "loops", _OBJECT, optional=True),
    Field("ledger", "ledger", _OBJECT, optional=True),
    Field("error_message", "error_message", Words(), optional=True),
    Field("error_kind", "error_kind", OneOf([word.value for word in ErrorKind]), optional=True),
    Field("failed_step", "failed_step", _INDEX, optional=True),
    Field("compensation_status", "cleanup", OneOf([word.value for word in CleanupStatus])),
    Field("parent_workflow_id", "parent_id", _ID, optional=True),
    Field("parent_step_index", "parent_step", _INDEX, optional=True),
    Field("idempotency_key", "idempotency_key", _NAME, optional=True),
    Field("created_at", "created_us", _TIME),
    Field("completed_at", "completed_us", _TIME, optional=True),
    Field("failed_at", "failed_us", _TIME, optional=True),
    Field("cancelled_at", "cancelled_us", _TIME, optional=True),
    Field("deadline_at", "deadline_us", _TIME, optional=True),
)
"""The run itself; its state stands beside these."""

STATE: Final = Field("state", "state", _STATE)
TAG: Final = _NAME

EVENT: Final = (
    Field("seq", "seq", _VISIT),
    Field("entry", "entry", OneOf([word.value for word in Entry])),
    Field("at", "at_us", _TIME),
    Field("started_at", "started_us", _TIME, optional=True),
    Field("step_index", "step_index", _INDEX, optional=True),
    Field("visit", "visit", _VISIT),
    Field("branch", "branch", _INDEX, optional=True),
    Field("job_id", "job_id", _ID, optional=True),
    Field("attempt", "attempt", _INDEX, optional=True),
    Field("token", "token", _ANY),
    Field("owner", "owner", _ANY, optional=True),
    Field("final", "final", Flag()),
    Field("changed", "changed", _STATE, optional=True),
    Field("removed", "removed", JsonText(list, items=str), optional=True),
    Field("control", "control", JsonText(dict, values=CONTROL_VALUES), optional=True),
    Field("error", "error", _OBJECT, optional=True),
)

CHECKPOINT: Final = (Field("seq", "seq", _COUNT), Field("state", "state", _STATE))

JOB: Final = (
    Field("id", "id", _ID),
    Field("role", "role", OneOf([Role.STEP.value, Role.CLEANUP.value])),
    Field("phase", "phase", OneOf([word.value for word in JobPhase])),
    Field("queue", "queue", _NAME),
    Field("priority", "priority_rank", Rank()),
    Field("handler", "handler", Words(HANDLER)),
    Field("attempts", "attempts", _INDEX),
    Field("max_attempts", "max_attempts", _INDEX),
    Field("available_at", "due_us", _TIME),
    Field("step_index", "step_index", _INDEX, optional=True),
    Field("visit", "visit", _VISIT, optional=True),
    Field("branch", "branch", _INDEX, optional=True),
    Field("entries", "entries", _INDEX),
    Field("payload", "payload", _OBJECT, optional=True),
    Field("config", "config", _OBJECT, optional=True),
    Field("options", "options", _OBJECT, optional=True),
    Field("progress", "progress", JsonText(), optional=True),
    Field("error_message", "error_message", Words(), optional=True),
    Field("created_at", "created_us", _TIME),
    Field("started_at", "started_us", _TIME, optional=True),
    Field("completed_at", "completed_us", _TIME, optional=True),
)

SIGNAL: Final = (
    Field("seq", "seq", _VISIT),
    Field("name", "name", _NAME),
    Field("payload", "payload", _OBJECT),
    Field("at", "at_us", _TIME),
)

GROUP: Final = (Field("name", "name", _NAME), Field("ids", "ids", JsonText(list, items=int)))

CHUNK: Final = (
    Field("visit", "visit", _VISIT),
    Field("branch", "branch", _INDEX, optional=True, absent=NO_BRANCH),
    Field("number", "number", _COUNT),
    Field("content", "content", JsonText(), has_null=True),
    Field("at", "at_us", _TIME),
)

ARTIFACT: Final = (
    Field("key", "name", _NAME),
    Field("kind", "kind", _NAME),
    Field("metadata", "metadata", _OBJECT),
    Field("step_index", "step_index", _INDEX, optional=True),
    Field("created_at", "created_us", _TIME),
    Field("updated_at", "updated_us", _TIME),
)
"""An artifact without its content, which is one of three things."""

TIMER: Final = (
    Field("kind", "kind", OneOf([LetterKind.TIMER.value, LetterKind.DEADLINE.value])),
    Field("visit", "visit", _VISIT, optional=True),
    Field("due_at", "due_us", _TIME),
)

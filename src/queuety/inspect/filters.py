"""What runs somebody means: conditions that are checked when they are said, for lists and for what is done to many."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import timedelta

from queuety.define.options import MAX_SECONDS
from queuety.errors import DefinitionError
from queuety.inspect.limits import checked_text
from queuety.model import ErrorKind, WorkflowStatus


@dataclass(frozen=True, slots=True)
class WorkflowFilter:
    """The runs that meet every condition given; None is no condition.

    `status` (one, or several of which a run has any) and `error_kind` may be given by name. `older_than` and
    `newer_than` are ages, counted from when a run was created: a number of seconds or a `timedelta`, afterwards always
    seconds. Raises `DefinitionError` for what cannot be right.
    """

    status: WorkflowStatus | str | Collection[WorkflowStatus | str] | None = None
    name: str | None = None
    parent_id: int | None = None
    tag: str | None = None
    error_kind: ErrorKind | str | None = None
    older_than: timedelta | float | None = None
    newer_than: timedelta | float | None = None

    def __post_init__(self) -> None:
        if self.status is not None:
            object.__setattr__(self, "status", _checked_statuses(self.status))
        if self.error_kind is not None:
            object.__setattr__(self, "error_kind", checked_error_kind(self.error_kind))
        for what in ("older_than", "newer_than"):
            if (age := getattr(self, what)) is not None:
                object.__setattr__(self, what, checked_age(age, what=what))
        for what in ("name", "tag"):
            if (value := getattr(self, what)) is not None:
                checked_text(value, what=what)
        if self.parent_id is not None and type(self.parent_id) is not int:
            raise DefinitionError(f"parent_id={self.parent_id!r}: the id of a run is needed")

    @property
    def is_empty(self) -> bool:
        """True if it has no condition, so that every run meets it."""
        return all(getattr(self, field.name) is None for field in fields(self))


def checked_status(status: WorkflowStatus | str) -> WorkflowStatus:
    """The status of this name. Raises `DefinitionError` that names those that there are."""
    try:
        return WorkflowStatus(status)
    except ValueError:
        known = ", ".join(WorkflowStatus)
        raise DefinitionError(f"there is no workflow status {status!r}; there are {known}") from None


def _checked_statuses(
    given: WorkflowStatus | str | Collection[WorkflowStatus | str],
) -> WorkflowStatus | tuple[WorkflowStatus, ...]:
    """The status, or the several ones, each once. Raises `DefinitionError` for an unknown one, and for none at all."""
    if isinstance(given, str) or not isinstance(given, Collection):
        return checked_status(given)
    found = tuple(dict.fromkeys(checked_status(status) for status in given))
    if not found:
        raise DefinitionError("status=(): at least one is needed, or None for any")
    return found


def checked_error_kind(kind: ErrorKind | str) -> ErrorKind:
    """The kind of this name. Raises `DefinitionError` that names those that there are."""
    try:
        return ErrorKind(kind)
    except ValueError:
        known = ", ".join(ErrorKind)
        raise DefinitionError(f"there is no error kind {kind!r}; there are {known}") from None


def checked_age(age: object, *, what: str) -> float:
    """An age in seconds, not negative. Raises `DefinitionError` naming `what`."""
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
        raise DefinitionError(f"{what}={age!r}: seconds that are not negative, or a timedelta of them, are needed")
    return float(seconds)

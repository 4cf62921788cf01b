"""What can be set, each also in the environment. Read once, when the application object is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

from queuety.errors import DefinitionError

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings with their defaults. A field `x` may be given as `QUEUETY_X` in the environment; `none` means None.

    lease_seconds: how long a job stays a worker's own without being renewed; it is renewed three times as often.
    timeout_seconds: the time limit of a handler that names none; None for no limit.
    idle_poll_seconds: the longest pause between two questions to the database.
    jitter: the largest share by which an exponential or linear back-off is lengthened at random.
    max_value_bytes: the largest payload, result, state or artifact, encoded.
    handler_grace_seconds: how long a job waits for a worker that knows its handler before it is buried.
    retention_days: how long completed and cancelled runs and completed jobs are kept; None keeps them.
    history_days: how long what happened to a run is kept while the run is; None keeps it as long as that.
    sqlite_synchronous: FULL survives a power cut; NORMAL may lose the last commits in one, and is faster.
    grace_seconds: how long a worker that is told to stop waits for running handlers.
    pool_size, pool_timeout_seconds: connections that are kept (as many more under load), and the wait for one.
    connect_timeout_seconds, network_timeout_seconds, lock_timeout_seconds: the longest waits for a server.
    patience_seconds: how long a transaction is repeated before `StoreUnavailable`.
    """

    lease_seconds: float = 30.0
    timeout_seconds: float | None = 3600.0
    idle_poll_seconds: float = 1.0
    jitter: float = 0.1
    max_value_bytes: int = 8 * MiB
    handler_grace_seconds: float = 3600.0
    retention_days: float | None = 7.0
    history_days: float | None = None
    sqlite_synchronous: Literal["FULL", "NORMAL"] = "FULL"
    grace_seconds: float = 30.0
    pool_size: int = 5
    pool_timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 5.0
    network_timeout_seconds: float = 30.0
    lock_timeout_seconds: float = 5.0
    patience_seconds: float = 10.0

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and type(None) in getattr(hints[field.name], "__args__", ()):
                continue
            _check(field.name, value)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings that the environment names, and the defaults of the others. Raises `DefinitionError`."""
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {}
        for field in fields(cls):
            name = f"QUEUETY_{field.name.upper()}"
            text = environment.get(name, "").strip()
            if text:
                given[field.name] = _parse(name, field.name, text)
        return cls(**given)


_WHOLE = frozenset({"max_value_bytes", "pool_size"})
_KEEPING = frozenset({"retention_days", "history_days"})
"""Where elsewhere zero may mean to keep all, and here would delete it."""
_MAY_BE_ZERO = frozenset({"jitter", "handler_grace_seconds", "grace_seconds"})


def _parse(variable: str, name: str, text: str) -> Any:
    if text.lower() == "none":
        return None
    if name == "sqlite_synchronous":
        return text.upper()
    read: Callable[[str], Any] = int if name in _WHOLE else float
    try:
        return read(text)
    except ValueError:
        kind = "a whole number" if name in _WHOLE else "a number"
        raise DefinitionError(f"{variable}={text!r} in the environment: {kind} is needed") from None


def _check(name: str, value: Any) -> None:
    if name == "sqlite_synchronous":
        if value not in ("FULL", "NORMAL"):
            raise DefinitionError(f"sqlite_synchronous={value!r}: FULL or NORMAL is needed")
        return
    is_number = isinstance(value, int if name in _WHOLE else (int, float)) and not isinstance(value, bool)
    if not is_number or not (value >= 0 if name in _MAY_BE_ZERO else value > 0) or value == float("inf"):
        least = "not negative" if name in _MAY_BE_ZERO else "above zero"
        keep = "; None keeps all" if name in _KEEPING else ""
        raise DefinitionError(f"{name}={value!r}: a finite number that is {least} is needed{keep}")
    if name == "jitter" and value > 1:
        raise DefinitionError(f"jitter={value!r}: a share from 0 to 1 is needed")

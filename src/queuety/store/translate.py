"""Drivers' errors into ours, here and nowhere else. What a code means stands with its dialect; this asks it.

An error may come bare from a driver's cursor (the hot path) or wrapped by SQLAlchemy; both say the same here.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import exc

from queuety.errors import SchemaError, StoreError, StoreUnavailable
from queuety.store.dialects import Dialect, Fault

_CLASSES: Final[dict[Fault, type[StoreError]]] = {
    Fault.BUSY: StoreUnavailable,
    Fault.TRANSIENT: StoreUnavailable,
    Fault.GONE: StoreUnavailable,
    Fault.POOLER: StoreUnavailable,
    Fault.FULL: StoreUnavailable,
    Fault.REFUSED: StoreUnavailable,
    Fault.DUPLICATE: StoreError,
    Fault.SCHEMA: SchemaError,
    Fault.FATAL: StoreError,
}


def fault_of(error: BaseException, dialect: Dialect) -> Fault | None:
    """What the error means, or None if it is not a database's error at all."""
    if isinstance(error, exc.DBAPIError):
        if error.connection_invalidated:
            return Fault.GONE
        return dialect.fault_of(error.orig) if isinstance(error.orig, Exception) else Fault.FATAL
    if isinstance(error, dialect.driver_error):
        return dialect.fault_of(error)
    if isinstance(error, exc.TimeoutError):  # of the pool, which has waited already
        return Fault.REFUSED
    if isinstance(error, exc.SQLAlchemyError):
        return Fault.FATAL
    return None


def is_duplicate(error: BaseException, dialect: Dialect) -> bool:
    """True if a unique key was taken. On PostgreSQL the transaction is then of no more use, but for a savepoint."""
    return fault_of(error, dialect) is Fault.DUPLICATE


def translated(error: BaseException, fault: Fault, dialect: Dialect, *, tried: str) -> StoreError:
    """Our error for it, to be raised `from` the driver's. `tried` says what was not done."""
    original = error.orig if isinstance(error, exc.DBAPIError) and isinstance(error.orig, Exception) else error
    if isinstance(original, exc.TimeoutError):
        found, advice = "all connections are in use", "raise the pool's size, or end what holds them"
    elif fault is Fault.SCHEMA:
        found, advice = _words(original), "the tables are missing or of another version; run `queuety migrate`"
    else:
        found = _words(original)
        advice = dialect.advice(original, fault) if isinstance(original, dialect.driver_error) else "see the cause"
    return _CLASSES[fault](f"{dialect.place}: {tried}: {found}; {advice}")


def _words(error: BaseException) -> str:
    """The driver's message on one line."""
    arguments = error.args
    if len(arguments) == 2 and isinstance(arguments[0], int):  # PyMySQL: a code and a message
        said = f"{arguments[1] or 'the connection is closed'} ({arguments[0]})"
    else:
        said = str(error)
    state = getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)
    line = "; ".join(part.strip() for part in said.splitlines() if part.strip()) or type(error).__name__
    return f"{line} ({state})" if state else line

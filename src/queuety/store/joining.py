"""A caller's own transaction: which connection it is on, and whether a dispatch may be part of it."""

from __future__ import annotations

import sys
from typing import Any

from sqlalchemy import Connection, Engine

from queuety.errors import DefinitionError
from queuety.store.dialects import Dialect


def joinable(theirs: object, engine: Engine, dialect: Dialect) -> Connection:
    """The connection that `theirs` is, or works on, if what is written there shares its fate and can be found again.

    `engine` and `dialect` are our own. Raises `DefinitionError` for anything else. It may begin their transaction.
    """
    found = _connection_of(theirs)
    if not isinstance(found, Connection):
        raise DefinitionError(
            f"connection={type(theirs).__name__}: an SQLAlchemy Connection or Session is needed "
            f"(of an AsyncConnection or AsyncSession, what its `run_sync` passes)"
        )
    if found.dialect.name not in dialect.names:
        raise DefinitionError(f"connection= leads to {found.dialect.name}; the tables are in {dialect.place}")
    if found.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        raise DefinitionError(
            "connection= is in AUTOCOMMIT, where a rollback takes nothing back; use a connection with a transaction, "
            "or dispatch without connection="
        )
    if (elsewhere := dialect.leads_elsewhere(found, engine)) is not None:
        raise DefinitionError(f"connection= leads to {elsewhere}; the tables are in {dialect.place}")
    return found


def _connection_of(theirs: Any) -> object:
    """What a session works on; anything else as it is. Whoever has a session has imported the ORM already: 50 ms."""
    orm = sys.modules.get("sqlalchemy.orm")
    return theirs.connection() if orm is not None and isinstance(theirs, orm.Session | orm.scoped_session) else theirs

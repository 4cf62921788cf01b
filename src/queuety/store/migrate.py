"""The tables of this version: made, brought up to date, or refused. The revisions stand in `migrations/versions`.

Alembic is imported only when something is to be done: looking whether all is well is one small read.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from queuety.errors import SchemaError
from queuety.store.door import Door
from queuety.store.turns import turn_for
from queuety.store.tx import Tx

if TYPE_CHECKING:
    from alembic.config import Config

WAIT_S: Final = 60.0
"""How long one try waits for another process that migrates."""

PATIENCE_S: Final = 180.0
"""How long it is tried: a table that is in use is given up after 3 s each time, so that workers go on meanwhile."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Revisions, the oldest first, and the folders that hold them."""

    revisions: tuple[str, ...]
    folders: tuple[Path, ...]

    @property
    def head(self) -> str:
        """The newest one, which the code needs."""
        return self.revisions[-1]


_HERE: Final = Path(__file__).parent / "migrations"

CHAIN: Final = Chain(revisions=("0001", "0002", "0003"), folders=(_HERE / "versions",))


@dataclass(frozen=True, slots=True)
class Standing:
    """The revision that the tables have (None: there are none) and the one that this version needs."""

    found: str | None
    needed: str

    @property
    def is_current(self) -> bool:
        """True if there is nothing to do."""
        return self.found == self.needed


def standing(door: Door, chain: Chain = CHAIN) -> Standing:
    """What there is and what is needed: one read."""
    if door.dialect.is_unmade():
        return Standing(None, chain.head)
    try:
        return Standing(door.read(lambda tx: _recorded(door, tx)), chain.head)
    except SchemaError:
        return Standing(None, chain.head)


def ensure(door: Door, *, auto_migrate: bool = True, chain: Chain = CHAIN) -> None:
    """Returns once the tables are those of this version; what it found is remembered by the door.

    Raises `SchemaError` if they are newer, or are missing or older and `auto_migrate` is off; nothing was changed.
    """
    if door.has_schema:
        return
    there = standing(door, chain)
    if not there.is_current:
        _refuse_newer(door, there.found, chain)
        if not auto_migrate:
            state = "there are no tables" if there.found is None else f"the tables are at revision {there.found}"
            raise SchemaError(
                f"{door.dialect.place}: {state} under the prefix {door.tables.prefix!r} and this version needs "
                f"{there.needed}; run `queuety migrate`"
            )
        migrate(door, chain)
    door.has_schema = True


def migrate(door: Door, chain: Chain = CHAIN) -> Standing:
    """Makes the tables or brings them up to date, whoever else tries at the same time; gives back what it found before.

    Raises `SchemaError` if they are newer than this version, `StoreUnavailable` if they stay in use for minutes.
    """
    engine = door.dialect.migration_engine(door.engine)
    try:
        with door.line(engine) as line:
            found = door.write(lambda tx: _upgrade(door, tx, chain), on=line, patience_s=PATIENCE_S)
    finally:
        if engine is not door.engine:
            engine.dispose()
    return Standing(found, chain.head)


def version_table(door: Door) -> str:
    """Where the revision is recorded."""
    return f"{door.tables.prefix}schema_version"


def _recorded(door: Door, tx: Tx) -> str | None:
    tx.cursor.execute(f"SELECT version_num FROM {version_table(door)}")
    row = tx.cursor.fetchone()
    return None if row is None else str(row[0])


def _refuse_newer(door: Door, found: str | None, chain: Chain) -> None:
    if found is not None and found not in chain.revisions:
        raise SchemaError(
            f"{door.dialect.place}: the tables are at revision {found}, and this version of queuety knows only up to "
            f"{chain.head}; install the version that made them, or a newer one"
        )


def _upgrade(door: Door, tx: Tx, chain: Chain) -> str | None:
    """Under the lock: looks again, then does what is left. Every step can be repeated, for a try that broke off."""
    name = version_table(door)
    door.dialect.lock_migrations(tx.connection, name, WAIT_S)
    try:
        found = None
        if inspect(tx.connection).has_table(name):
            found = tx.connection.execute(text(f"SELECT version_num FROM {name}")).scalar()
        _refuse_newer(door, found, chain)
        if found != chain.head:
            if found is not None:
                _build_indexes(door, found, chain)
            _run(door, tx.connection, chain)
    except BaseException:
        with suppress(SQLAlchemyError):  # the connection may be what broke; its end ends the lock too
            door.dialect.unlock_migrations(tx.connection, name)
        raise
    door.dialect.unlock_migrations(tx.connection, name)
    return found


def _build_indexes(door: Door, found: str, chain: Chain) -> None:
    """Builds the indexes that the revisions to come would have on tables that are there and may be large.

    Apart and before anything else is done, where that spares who writes: nothing but the lock of the migration is held
    meanwhile.
    """
    from alembic.script import ScriptDirectory

    revisions = ScriptDirectory.from_config(_config(chain)).iterate_revisions(chain.head, found)
    wanted = [index for revision in revisions for index in getattr(revision.module, "INDEXES", ())]
    build_index = door.dialect.build_index
    if not wanted or build_index is None:
        return
    prefix = door.tables.prefix
    apart = Engine(door.engine.pool.recreate(), door.engine.dialect, door.engine.url)
    try:
        with door.line(apart) as line:
            connection = line.connection().execution_options(isolation_level="AUTOCOMMIT")
            for index in wanted:
                name, table = f"ix_{prefix}{index.name}", f"{prefix}{index.table}"
                if not inspect(connection).has_table(table):  # one that these revisions make
                    continue
                build_index(connection, name, table, index.columns, index.where)
    finally:
        apart.dispose()


def _config(chain: Chain) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _escaped(_HERE))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(_escaped(folder) for folder in chain.folders))
    return config


def _run(door: Door, connection: Connection, chain: Chain) -> None:
    from alembic import command

    config = _config(chain)
    config.attributes.update(
        connection=connection,
        version_table=version_table(door),
        prefix=door.tables.prefix,
        collation=door.dialect.identifier_collation(connection),
    )
    # Alembic keeps what it is doing in module globals.
    turn = turn_for("alembic", door.dialect.place)
    turn.take(time.monotonic() + PATIENCE_S)
    try:
        command.upgrade(config, "head")
    finally:
        turn.give()


def _escaped(path: Path) -> str:
    """For a configuration value, where % begins a reference."""
    return str(path).replace("%", "%%")

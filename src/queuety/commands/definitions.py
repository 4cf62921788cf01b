"""Definitions in the database: one row per hash, written before and apart from the run that first needs it."""

from __future__ import annotations

from threading import Lock

from queuety.codec import decode, encode
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_to_json
from queuety.errors import NotFoundError
from queuety.model import Definition
from queuety.store.door import Door, Tx


class Definitions:
    """Every definition that this process has met, decoded once. Thread-safe."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[str, Definition] = {}
        self._stored: set[str] = set()
        self._lock = Lock()

    def get(self, tx: Tx, definition_hash: str) -> Definition:
        """The definition with this hash. Raises `NotFoundError` if the database has none."""
        known = self._known.get(definition_hash)
        if known is not None:
            return known
        p = tx.statements.parameter
        tx.cursor.execute(f"SELECT body FROM {tx.tables.definitions.name} WHERE hash = {p}", [definition_hash])
        row = tx.cursor.fetchone()
        if row is None:
            raise NotFoundError(f"no definition with hash {definition_hash} is in the database")
        definition = definition_from_json(decode(row[0]), self._registry)
        with self._lock:
            self._known[definition_hash] = definition
        return definition

    def ensure(self, door: Door, definition: Definition, *, now_us: int) -> None:
        """Makes sure that the database has this definition, in a transaction of its own.

        Were it part of the caller's transaction, an uncommitted definition would make every other dispatcher of it wait.
        """
        if definition.hash in self._stored:
            return

        def unit(tx: Tx) -> None:
            self.ensure_in(tx, definition, now_us=now_us)

        door.write(unit)
        self.remember(definition)

    def ensure_in(self, tx: Tx, definition: Definition, *, now_us: int) -> None:
        """The same inside an open transaction; what the process remembers is left alone, since it may be rolled back."""
        if definition.hash in self._stored:
            return
        p = tx.statements.parameter
        table = tx.tables.definitions.name
        tx.cursor.execute(f"SELECT 1 FROM {table} WHERE hash = {p}", [definition.hash])
        if tx.cursor.fetchone() is None:
            body = encode(definition_to_json(definition))
            tx.cursor.execute(
                f"INSERT INTO {table} (hash, name, version, body, created_us) "
                f"VALUES ({p}, {p}, {p}, {p}, {p}){tx.statements.bulk.or_leave('hash')}",
                [definition.hash, definition.name, definition.version, body, now_us],
            )

    def remember(self, definition: Definition) -> None:
        """Notes that the database has this definition for good."""
        with self._lock:
            self._stored.add(definition.hash)
            self._known[definition.hash] = definition

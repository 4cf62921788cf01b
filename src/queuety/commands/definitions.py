"""Definitions in the database: one row per hash, written before and apart from the run that first needs it."""

from __future__ import annotations

from threading import Lock

from queuety.codec import decode, encode
from queuety.define.wire import definition_from_json, definition_to_json, nested
from queuety.errors import DefinitionError, NotFoundError, PayloadError
from queuety.model import Definition
from queuety.store import definitions
from queuety.store.door import Door, Tx


class Definitions:
    """Every definition that this process has met, decoded once. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, Definition] = {}
        self._stored: set[str] = set()
        self._lock = Lock()

    def get(self, tx: Tx, definition_hash: str) -> Definition:
        """The definition with this hash. Raises `NotFoundError` if the database has none, `DefinitionError` if what it
        has cannot be read."""
        known = self._known.get(definition_hash)
        if known is not None:
            return known
        body = definitions.body_of(tx, definition_hash)
        if body is None:
            raise NotFoundError(f"no definition with hash {definition_hash} is in the database")
        try:
            form = decode(body)
        except PayloadError as error:
            raise DefinitionError(f"the definition with hash {definition_hash}: {error}") from error
        definition = definition_from_json(form, None)
        with self._lock:
            self._known[definition_hash] = definition
        return definition

    def ensure(self, door: Door, definition: Definition) -> None:
        """Makes sure that the database has this definition, in a transaction of its own.

        Were it part of the caller's transaction, an uncommitted definition would make every other dispatcher wait.
        """
        if definition.hash not in self._stored:
            door.write(lambda tx: self.ensure_in(tx, definition))
            self._remember(definition)

    def ensure_in(self, tx: Tx, definition: Definition) -> None:
        """The same inside an open transaction; nothing is remembered of it, since it may be rolled back."""
        if definition.hash in self._stored:
            return
        # Those of the runs that it starts first: who finds a definition finds all that it needs.
        for one in (*nested(definition), definition):
            definitions.add(
                tx,
                definition_hash=one.hash,
                name=one.name,
                version=one.version,
                body=encode(definition_to_json(one)),
                now_us=tx.now_us(),
            )

    def _remember(self, definition: Definition) -> None:
        with self._lock:
            for one in (*nested(definition), definition):
                self._stored.add(one.hash)
                self._known[one.hash] = one

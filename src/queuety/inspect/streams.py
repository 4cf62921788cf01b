"""What a run's streaming steps yield, followed from the first chunk to the last, from whatever process.

A chunk stands in a row of its own until its step is settled; the transaction that deletes those rows writes a history
row that keeps them all. So a reader looks at the rows first and at the history after them: what it then finds settled
it has at most read before, and how far it had read says what is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuety.codec import decode
from queuety.model import Json, WorkflowStatus
from queuety.store.queries import streams
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Reader:
    """How far the chunks of one run have been read. Not thread-safe."""

    def __init__(self, workflow_id: int) -> None:
        self.workflow_id = workflow_id
        self.has_ended = False
        """Whether the run had ended when it was looked at: then nothing more comes."""
        self._seq = 0
        self._given: dict[tuple[int, int], int] = {}  # how many chunks of each visit and branch

    def read(self, connection: Connection, tables: Tables) -> list[Json] | None:
        """The chunks that have come since the last look, in order; None if there is no such run.

        Several reads make one look, each as of its own moment, in the order that loses nothing.
        """
        at = streams.position(connection, tables, self.workflow_id)
        if at is None:
            return None
        visit: int = at["visit"]
        known = {branch: count for (of, branch), count in self._given.items() if of == visit}
        rows = streams.ahead(connection, tables, self.workflow_id, visit, known)
        chunks = self._settled(connection, tables, at["version"])
        for row in rows:
            key = (visit, row["branch"])
            if row["number"] >= self._given.get(key, 0):
                self._given[key] = row["number"] + 1
                chunks.append(decode(row["content"]))
        self._given = {key: count for key, count in self._given.items() if key[0] == visit}
        self.has_ended = WorkflowStatus(at["status"]).is_terminal and len(rows) < streams.MOST
        return chunks

    def _settled(self, connection: Connection, tables: Tables, version: int) -> list[Json]:
        """What steps and branches have yielded that were settled up to this version, without what was given already."""
        chunks: list[Json] = []
        if version == self._seq:
            return chunks
        rows = streams.settled(connection, tables, self.workflow_id, after_seq=self._seq, upto_seq=version)
        self._seq = version
        for row in rows:
            control: dict[str, Any] = decode(row["control"])
            whole = control["_chunks"]
            if not isinstance(whole, list):  # a handler's own value, kept before it was refused
                continue
            key = (row["visit"], streams.ALONE if row["branch"] is None else row["branch"])
            given = self._given.get(key, 0)
            chunks += whole[given:]
            self._given[key] = max(given, len(whole))
        return chunks

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
        self._visit = 0
        self._last: dict[int, int] = {}
        self._given: dict[int, int] = {}

    def read(self, connection: Connection, tables: Tables) -> list[Json] | None:
        """The chunks that have come since the last look, in order; None if there is no such run.

        Several reads make one look, each as of its own moment, in the order that loses nothing.
        """
        at = streams.position(connection, tables, self.workflow_id)
        if at is None:
            return None
        is_over = WorkflowStatus(at["status"]).is_terminal
        known = self._last if at["visit"] == self._visit else {}
        rows = streams.ahead(connection, tables, self.workflow_id, at["visit"], known)
        chunks = self._settled(connection, tables, at["version"])
        if at["visit"] != self._visit:
            self._visit, self._last, self._given = at["visit"], {}, {}
        for row in rows:
            branch = row["branch"]
            self._last[branch] = row["number"]
            self._given[branch] = self._given.get(branch, 0) + 1
            chunks.append(decode(row["content"]))
        self.has_ended = is_over and len(rows) < streams.MOST
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
            branch = streams.ALONE if row["branch"] is None else row["branch"]
            given = 0
            if row["visit"] == self._visit:
                given = self._given.pop(branch, 0)
                self._last.pop(branch, None)
            chunks += control.get("_chunks", [])[given:]
        return chunks

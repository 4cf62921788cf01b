"""Verbs of queues."""

from __future__ import annotations

from queuety.app.core import Core
from queuety.define.names import check_name
from queuety.inspect import jobs
from queuety.store import claims, queues


class QueueVerbs(Core):
    """What can be done with queues."""

    def pause(self, queue: str) -> None:
        """Has workers start nothing more of this queue; what runs is finished. Pausing twice is pausing once."""
        name = check_name(queue, what="queue")
        self._write(lambda tx: queues.pause(tx, name))

    def resume(self, queue: str) -> None:
        """Has workers take from this queue again."""
        name = check_name(queue, what="queue")
        self._write(lambda tx: queues.resume(tx, name))

    def is_paused(self, queue: str) -> bool:
        """Whether this queue is paused."""
        return check_name(queue, what="queue") in self.paused_queues()

    def paused_queues(self) -> list[str]:
        """The names of all paused queues, sorted."""
        return sorted(self.door.read(claims.paused_queues))

    def stats(self, queue: str | None = None) -> dict[str, int]:
        """How many jobs stand where: `pending`, `processing`, `completed`, `failed`, `buried`."""
        with self.door.reading() as connection:
            return jobs.stats(connection, self._door.tables, queue)

"""The verb that explains."""

from __future__ import annotations

from queuety.app.core import Core, known_id
from queuety.errors import NotFoundError
from queuety.inspect.why import Why, explain


class WhyVerbs(Core):
    """What answers questions."""

    def why(self, id_: int) -> Why:
        """Why this workflow or job is not running, or that it is; their ids are one sequence.

        Raises `NotFoundError` if neither has the id.
        """
        found: Why | None = None
        if known_id(id_, "id") is not None:
            with self.door.reading() as connection:
                found = explain(
                    connection,
                    self._door.tables,
                    id_,
                    now_us=self._door.now_us(),
                    lease_s=self.settings.lease_seconds,
                )
        if found is None:
            raise NotFoundError(f"no workflow and no job has the id {id_}")
        return found

"""What streaming steps yield, chunk by chunk, while they run. Every function works inside an open transaction."""

from __future__ import annotations

from queuety.codec import decode
from queuety.model import Job, Json
from queuety.store import claims
from queuety.store.side import branch_of
from queuety.store.statements import CHUNK_COLUMNS
from queuety.store.tx import Tx


def append(tx: Tx, job: Job, number: int, content_text: str, *, now_us: int, until_us: int) -> bool:
    """Keeps the chunk (JSON text) of this attempt's visit and extends its lease; False, and nothing is written, if the
    lease is lost.

    `number` counts from 0 over all attempts of the visit. Said twice, as after a COMMIT of unknown outcome, it is kept
    once: only the holder of the lease writes, so it is the same chunk.
    """
    if job.workflow_id is None or job.visit is None or not claims.beat(tx, job, until_us=until_us, progress=None):
        return False
    statements = tx.statements
    values = ", ".join([statements.parameter] * len(CHUNK_COLUMNS))
    tx.cursor.execute(
        f"INSERT INTO {statements.chunks} ({', '.join(CHUNK_COLUMNS)}) "
        f"VALUES ({values}){statements.bulk.or_leave('number')}",
        [job.workflow_id, job.visit, branch_of(job.branch), number, content_text, now_us],
    )
    return True


def existing(tx: Tx, workflow_id: int, visit: int, branch: int | None) -> list[Json]:
    """The chunks that this visit has yielded so far, in order."""
    p = tx.statements.parameter
    tx.cursor.execute(
        f"SELECT content FROM {tx.statements.chunks} "
        f"WHERE workflow_id = {p} AND visit = {p} AND branch = {p} ORDER BY number",
        [workflow_id, visit, branch_of(branch)],
    )
    return [decode(row[0]) for row in tx.cursor.fetchall()]

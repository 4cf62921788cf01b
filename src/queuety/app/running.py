"""Verbs that run handlers or do chores, and the parts that a worker is made of."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from queuety import codec
from queuety.app.core import Core, checked_timeout, read_count
from queuety.define.names import check_name
from queuety.define.options import read_seconds
from queuety.errors import DefinitionError, LeaseLost
from queuety.model import Job as ClaimedJob
from queuety.model import Json
from queuety.store import claims
from queuety.store.door import Tx
from queuety.worker.alone import Alone
from queuety.worker.artifacts import StoredArtifacts
from queuety.worker.drain import Drain
from queuety.worker.execute import Executor
from queuety.worker.loop import Loop
from queuety.worker.maintain import recover
from queuety.worker.outcome import Outcome
from queuety.worker.streaming import StoredChunks
from queuety.worker.terms import Terms
from queuety.worker.wake import Wakes


class RunningVerbs(Core):
    """What runs handlers."""

    def worker(
        self, queues: str | Sequence[str] = ("default",), concurrency: int = 10, *, grace_seconds: float | None = None
    ) -> Alone:
        """A worker in this process; its `run()` blocks until `stop()`, SIGTERM or SIGINT.

        `queues` in strict order; at most `concurrency` handlers at a time. No supervisor: a thread renews its leases,
        so code that holds the interpreter lock for longer than a lease is fenced, and a blocking handler that is over
        its time limit keeps its thread until the process ends. `queuety work` has neither limit.
        """
        terms = self.terms(queues, concurrency, grace_seconds=grace_seconds)
        return Alone(self, terms)

    def run_until_idle(
        self,
        queues: str | Sequence[str] | None = None,
        timeout: float | None = None,
        max_jobs: int | None = None,
    ) -> int:
        """Runs here and now everything that is due, one after the other in claim order; says how many handlers ran.

        It ends when nothing is due, when `max_jobs` handlers have run or `timeout` seconds have passed (what has begun
        is finished). All queues without `queues`. For scripts and tests.
        """
        limit = checked_timeout(timeout)
        if max_jobs is not None:
            read_count(max_jobs, "max_jobs", least=0)
        names = None if queues is None else queue_names(queues)
        owner = secrets.randbits(63)
        executor = self._executor(1)(_nobody, owner)
        drain = Drain(
            self.door,
            self.definitions,
            executor,
            owner=owner,
            queues=names,
            lease_s=self.settings.lease_seconds,
            defaults=self.terms("default", 1).defaults,
        )
        try:
            return drain.run(time_s=limit, most=max_jobs)
        finally:
            executor.stop()

    def recover(self) -> int:
        """Takes back now what workers held whose leases have ended; says how many jobs. Workers do it by themselves."""
        return recover(self.door, self.definitions)

    def terms(
        self,
        queues: str | Sequence[str],
        concurrency: int,
        *,
        grace_seconds: float | None = None,
        is_supervised: bool = False,
        takes_suspects_only: bool = False,
    ) -> Terms:
        """How a worker of this application works. Raises `DefinitionError`."""
        read_count(concurrency, "concurrency", least=1)
        settings = self.settings
        return Terms(
            queues=queue_names(queues),
            concurrency=concurrency,
            lease_s=settings.lease_seconds,
            idle_poll_s=settings.idle_poll_seconds,
            grace_s=settings.grace_seconds if grace_seconds is None else read_seconds(grace_seconds, "grace_seconds"),
            handler_grace_s=settings.handler_grace_seconds,
            timeout_s=settings.timeout_seconds,
            jitter=settings.jitter,
            max_value_bytes=settings.max_value_bytes,
            retention_days=settings.retention_days,
            history_days=settings.history_days,
            is_supervised=is_supervised,
            takes_suspects_only=takes_suspects_only,
        )

    def worker_loop(self, terms: Terms, *, on_stuck: Callable[[ClaimedJob], None] | None = None) -> Loop:
        """The loop of one process on these terms; what this process dispatches wakes it at once."""
        door = self.door
        wakes = Wakes(idle_poll_s=terms.idle_poll_s, mark=door.dialect.news_mark())
        self._listeners.add(wakes)
        make = self._executor(terms.concurrency, on_stuck=on_stuck)
        return Loop(door, self.definitions, terms, make_executor=make, wakes=wakes)

    def _executor(
        self, concurrency: int, *, on_stuck: Callable[[ClaimedJob], None] | None = None
    ) -> Callable[[Callable[[Outcome], None], int], Executor]:
        def make(report: Callable[[Outcome], None], owner: int) -> Executor:
            return Executor(
                self.registry,
                concurrency=concurrency,
                report=report,
                heartbeat=self._beat,
                chunks=StoredChunks(self._door, lease_s=self.settings.lease_seconds),
                artifacts=StoredArtifacts(self._door, lease_s=self.settings.lease_seconds),
                now_us=self._door.now_us,
                owner=owner,
                max_value_bytes=self.settings.max_value_bytes,
                on_stuck=on_stuck,
            )

        return make

    def _beat(self, job: ClaimedJob, progress: Mapping[str, Json] | None) -> None:
        """Extends the lease of a running attempt. Raises `LeaseLost`."""
        text = None if progress is None else codec.encode(progress)

        def unit(tx: Tx) -> bool:
            until_us = tx.now_us() + round(self.settings.lease_seconds * 1_000_000)
            return claims.beat(tx, job, until_us=until_us, progress=text)

        if not self._door.write(unit):
            raise LeaseLost(f"attempt {job.attempt} of job {job.id} has lost its lease; nothing of it will be kept")


def _nobody(_: Outcome) -> None:
    """Takes what an executor reports when each outcome is waited for instead."""


def queue_names(queues: str | Sequence[str]) -> tuple[str, ...]:
    """The queues in order: a name, several separated by commas, or a list. Raises `DefinitionError`."""
    if not isinstance(queues, Iterable):
        raise DefinitionError(f"queues={queues!r}: the name of a queue is needed, or a list of names")
    given: Iterable[Any] = queues.split(",") if isinstance(queues, str) else queues
    trimmed = [name.strip() if isinstance(name, str) else name for name in given]
    names = tuple(dict.fromkeys(check_name(name, what="queue") for name in trimmed if name != ""))
    if not names:
        raise DefinitionError(f"queues={queues!r}: at least one name is needed")
    return names

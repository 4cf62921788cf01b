"""A worker and its supervisor are stopped together for longer than a lease: a machine that slept, a frozen VM."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.invariants import check
from tests.support.working import works_in

pytestmark = [pytest.mark.paired, pytest.mark.timeout(180)]

LEASE_S = 2.0


def test_what_was_in_hand_when_all_were_stopped_is_not_run_again(database: Database, tmp_path: Path) -> None:
    with works_in(tmp_path, database.url, lease_s=LEASE_S) as (works, app):
        import working_app  # type: ignore[import-not-found]

        supervisor = works.work(workers=2, concurrency=2)
        runs = [working_app.run_of(working_app.held).dispatch() for _ in range(4)]
        seen = [works.witness.sees() for _ in runs]
        processes = {supervisor.pid, *(one.pid for one in seen)}
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(2 * LEASE_S)
        # The workers wake first, and look for leases that have ended before anybody could renew theirs.
        for pid in sorted(processes - {supervisor.pid}):
            os.kill(pid, signal.SIGCONT)
        works.waits_for("time has leapt")
        os.kill(supervisor.pid, signal.SIGCONT)
        threading.Event().wait(1.5 * LEASE_S)
        for one in seen:
            one.answer("done")
        states = [app.wait(run, timeout=60).state for run in runs]
        assert [(state["answer"], state["attempt"]) for state in states] == [("done", 1)] * 4
        check(app.door)

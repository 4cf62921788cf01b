"""A PostgreSQL primary and its synchronous standby, which is promoted when the primary is killed under load."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from queuety import Queuety
from tests.clusters.load import SETTINGS, Crew
from tests.clusters.servers import Script, tell, workers_at
from tests.support.invariants import check

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]

URL = (
    "postgresql+psycopg://postgres@/postgres?host=127.0.0.1,127.0.0.1&port=56001,56002&target_session_attrs=read-write"
)
WAVES = 60
SWITCHES = (("a", "b"), ("b", "a"), ("a", "b"))
"""Who is killed, and who is promoted."""

pause = threading.Event()


def test_a_primary_is_killed_and_its_standby_promoted_and_every_run_ends_right(pair: Script, tmp_path: Path) -> None:
    with Queuety(URL, settings=SETTINGS) as app, workers_at([URL, URL], tmp_path) as workers:
        with Crew([URL], WAVES) as crew:
            for old, new in SWITCHES:
                pause.wait(3)
                assert crew.works, "too little to do"
                pair("kill9", old)
                pair("promote", new)
                pair("lift", new)
                pause.wait(1)
                pair("reseed", old, new)
                pair("sync", new)
            wrong = crew.ended(app, 240)
        tell(app, crew, workers, kills=len(SWITCHES))
        assert not wrong, "\n".join(wrong)
        assert workers.alive() == 2
        check(app.door)

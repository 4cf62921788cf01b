"""PgBouncer in transaction mode: backends are ended under load all the time, and the pooler itself is killed."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from queuety import Queuety
from tests.clusters.load import SETTINGS, Crew
from tests.clusters.servers import Script, tell, workers_at
from tests.support.invariants import check

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]

POOLED = "postgresql+psycopg://postgres@127.0.0.1:56432/postgres"
WAVES = 60
EVERY_S = 0.5
POOLER_AT = 12
"""Before which round of ending backends the pooler is killed."""
END_SOME = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' "
    "AND pid <> pg_backend_pid() AND (state LIKE 'idle in%' OR state = 'active' OR random() < 0.3)"
)

pause = threading.Event()


@pytest.mark.parametrize("way", ["?prepare_threshold=none", ""])
def test_backends_and_the_pooler_are_killed_and_every_run_ends_right(pooled: Script, tmp_path: Path, way: str) -> None:
    url = POOLED + way
    with Queuety(url, settings=SETTINGS) as app, workers_at([url, url], tmp_path) as workers:
        ended = rounds = 0
        with Crew([url], WAVES) as crew:
            while crew.works:
                pause.wait(EVERY_S * (0.5 + random.random()))
                ended += int(pooled("sql", "a", END_SOME))
                rounds += 1
                if rounds == POOLER_AT:
                    pooled("kill9", "pooler")
                    pause.wait(1)
                    pooled("pooler")
            wrong = crew.ended(app, 240)
        tell(app, crew, workers, kills=ended + (rounds >= POOLER_AT))
        assert rounds >= POOLER_AT, "too little to do"
        assert not wrong, "\n".join(wrong)
        assert workers.alive() == 2
        check(app.door)

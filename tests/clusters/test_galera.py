"""Three Galera nodes with a worker at each, one of them killed in the middle of everything."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuety import Queuety
from tests.clusters.load import SETTINGS, Crew
from tests.clusters.servers import Script, folder, need, tell, workers_at
from tests.support.invariants import check

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]

PORTS = (33061, 33062, 33063)
WAVES = 90
"""Eight runs each, of each of the callers."""
KILLED = ("3", "2", "1", "2", "3", "1")
pause = threading.Event()
PROVIDERS = ("/usr/lib", "/usr/lib64")


def provider() -> Path | None:
    return next((found for root in PROVIDERS for found in Path(root).glob("*/libgalera_smm.so")), None)


@pytest.fixture
def galera() -> Iterator[Script]:
    """Three nodes, each of which takes part; told to `kill9 N` and `start N`."""
    library = provider()
    need("galera", ["mariadbd", "mariadb-install-db", "mariadb", "rsync", "lsof", "bash"], library)
    with folder("mysql") as base:
        script = Script("galera.sh", {"GALERA_BASE": str(base), "GALERA_PROVIDER": str(library)})
        try:
            script("init")
            script("start", "1", "boot")
            script("start", "2")
            script("start", "3")
            script("sql", "1", "CREATE DATABASE queuety CHARACTER SET utf8mb4")
            yield script
        finally:
            script("stopall", must=False)


def url(port: int) -> str:
    return f"mysql+pymysql://root@127.0.0.1:{port}/queuety"


def test_nodes_are_killed_under_runs_of_every_kind_and_all_of_them_end_right(galera: Script, tmp_path: Path) -> None:
    urls = [url(port) for port in PORTS]
    with Queuety(urls[0], settings=SETTINGS) as app, workers_at(urls, tmp_path) as workers:
        with Crew(urls, WAVES) as crew:
            for node in KILLED:
                pause.wait(random.random() + 1)
                assert crew.works, "too little to do"
                galera("kill9", node)
                pause.wait(3)
                galera("start", node)
            wrong = crew.ended(app, 240)
        tell(app, crew, workers, kills=len(KILLED))
        assert not wrong, "\n".join(wrong)
        assert workers.alive() == len(PORTS)
        check(app.door)

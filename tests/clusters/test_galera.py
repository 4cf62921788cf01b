"""Three Galera nodes with a worker at each, one of them killed in the middle of everything."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queuety import Queuety, WaitMode, WorkflowStatus
from tests.clusters.load import SETTINGS, Crew, count, told
from tests.clusters.servers import Script, folder, need, tell, workers_at
from tests.support.flowing import status_of, until
from tests.support.invariants import check

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]

PORTS = (33061, 33062, 33063)
WAVES = 90
"""Eight runs each, of each of the callers."""
KILLED = ("3", "2", "1", "2", "3", "1")
pause = threading.Event()
PAIRS = 200
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


def test_a_run_is_found_through_another_node_right_after_its_dispatch(galera: Script, tmp_path: Path) -> None:
    urls = [url(port) for port in PORTS]
    with ExitStack() as stack:
        stack.enter_context(workers_at(urls, tmp_path))
        near, far, busy = (stack.enter_context(Queuety(one, settings=SETTINGS)) for one in urls)
        ending = threading.Event()

        def keep_busy() -> None:
            while not ending.wait(0.05):
                busy.dispatch_many(busy.workflow("large").then(count), [{"text": "x" * 20_000}] * 20)

        crowd = threading.Thread(target=keep_busy)
        crowd.start()
        try:
            waiting = far.workflow("waiting").wait_for_workflows("ids", WaitMode.ANY, "seen").then(count)
            waiters = []
            for _ in range(PAIRS):
                run = told(near).dispatch()
                waiters.append(waiting.dispatch({"ids": [run]}))
                run = told(near).dispatch()
                for name in ("go", "left", "right"):
                    far.signal(run, name, {})
            for waiter in waiters:
                (run,) = status_of(far, waiter).state["ids"]
                for name in ("left", "go", "right"):
                    far.signal(run, name, {})
        finally:
            ending.set()
            crowd.join()
        until(lambda: not far.list_workflows(WorkflowStatus.WAITING_FOR_WORKFLOWS, limit=1), within_s=120)
        until(lambda: not far.list_workflows(WorkflowStatus.RUNNING, limit=1), within_s=120)
        found = Counter(run.status for run in far.list_workflows(limit=1_000_000))
        assert set(found) == {WorkflowStatus.COMPLETED}, found
        check(far.door)

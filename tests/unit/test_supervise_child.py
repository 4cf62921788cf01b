"""A supervisor's child, in a process of its own, with an application that needs no database; and a worker alone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from queuety.errors import StoreUnavailable
from queuety.worker import signals
from queuety.worker.alone import Alone
from queuety.worker.messages import Lines, Order, Status
from queuety.worker.terms import Terms
from tests.support.children import PATIENCE_S

TERMS = Terms(queues=("critical", "default"), concurrency=3, lease_s=0.3, grace_s=30.0, is_supervised=True)

APP = """
import os, sys, threading, types
from queuety.errors import StoreUnavailable

LOG = os.environ["CHILD_LOG"]

def note(*words):
    with open(LOG, "a") as log:
        print(*words, file=log)

class Loop:
    owner = 4711
    def __init__(self, on_stuck):
        self.on_stuck, self.is_over, self.is_stopping = on_stuck, threading.Event(), threading.Event()
    def run(self):
        note("run")
        if "stuck" in MODE:
            threading.Thread(target=threading.Event().wait).start()  # not a daemon: it would keep the process for ever
            job = types.SimpleNamespace(id=12, handler="shop:hang")
            threading.Thread(target=self.on_stuck, args=(job,)).start()
        if "crash" in MODE:
            raise RuntimeError("the loop broke")
        self.is_over.wait()
    def stop(self, *, at_once=False):
        note("stop", at_once)
        if at_once or "patient" not in MODE:
            self.is_over.set()

class Door:
    def write(self, unit, **_):
        note("renew")
        if "orphan" in MODE:
            loop.is_over.set()
        return 0

class App:
    door, definitions, outages = Door(), None, 2
    def worker_loop(self, terms, *, on_stuck=None):
        global loop
        if "outage" in MODE and self.outages:
            self.outages -= 1
            raise StoreUnavailable("not there yet")
        note("terms", *terms.queues, terms.concurrency, terms.is_supervised)
        loop = Loop(on_stuck)
        return loop

app = App()
not_an_app = 3
"""


class Parent:
    """A child process and the test's ends of its pipes."""

    def __init__(self, directory: Path, mode: str, target: str = "childs_app:app", retire_s: float = 5.0) -> None:
        (directory / "childs_app.py").write_text(f"MODE = {mode!r}\n{APP}")
        self.log = directory / "log"
        self.log.touch()
        child_control, self.control = os.pipe()
        self.status, child_status = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "queuety.worker.child", str(child_control), str(child_status)],
            pass_fds=(child_control, child_status),
            env={**os.environ, "CHILD_LOG": str(self.log)},
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(child_control)
        os.close(child_status)
        self.lines = Lines(self.status)
        self.send(Order(target, TERMS, (str(directory), *sys.path), retire_s).line())

    def send(self, line: bytes) -> None:
        os.write(self.control, line)

    def status_with(self, is_it: Callable[[Status], object]) -> Status:
        """The next status that is such; the others are passed over."""
        deadline = time.monotonic() + PATIENCE_S
        while select.select([self.status], [], [], deadline - time.monotonic())[0]:
            for status in map(Status.from_line, self.lines.read()):
                if is_it(status):
                    return status
            assert not self.lines.is_at_end, self.process.communicate()
        raise AssertionError("it has not told in time")

    def hang_up(self) -> None:
        os.close(self.control)
        self.control = -1

    def end(self) -> tuple[int, str]:
        """Its exit code and what it wrote to stderr, once it has ended."""
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr

    def noted(self) -> list[str]:
        return self.log.read_text().splitlines()

    def stops(self) -> list[str]:
        """How its loop was told to stop."""
        return [line for line in self.noted() if line.startswith("stop")]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self.status)
        if self.control >= 0:
            os.close(self.control)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Parent]]:
    parents: list[Parent] = []

    def make(mode: str = "", **options: Any) -> Parent:
        parents.append(Parent(tmp_path, mode, **options))
        return parents[-1]

    yield make
    for parent in parents:
        parent.close()


Start = Callable[..., Parent]


def test_a_child_tells_its_number_beats_and_stops_when_told(start: Start) -> None:
    child = start()
    assert child.status_with(lambda status: status.owner).owner == 4711
    assert child.status_with(lambda _: True).owner == 4711  # the next beat says the same
    child.send(b"stop\n")
    assert child.end() == (0, "")
    assert child.noted()[0] == "terms critical default 3 True"
    assert child.stops() == ["stop False"]


def test_it_stops_at_once_after_having_been_told_to_stop(start: Start) -> None:
    child = start("patient")
    child.status_with(lambda status: status.owner)
    child.send(b"stop\nstop now\n")
    assert child.end() == (0, "")
    assert child.stops() == ["stop False", "stop True"]


def test_it_ignores_the_interrupt_of_the_terminal_and_obeys_sigterm(start: Start) -> None:
    child = start()
    child.status_with(lambda status: status.owner)
    child.process.send_signal(signal.SIGINT)
    child.status_with(lambda _: True)
    assert child.process.poll() is None
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == (0, "")


def test_without_a_supervisor_it_renews_by_itself_and_finishes(start: Start) -> None:
    child = start("patient orphan")
    child.status_with(lambda status: status.owner)
    child.hang_up()
    code, stderr = child.end()
    assert code == 0
    assert "lost its supervisor" in stderr
    assert "renew" in child.noted()
    assert child.stops() == ["stop False"]


def test_it_retires_when_a_handler_does_not_stop_and_ends_although_its_thread_does_not(start: Start) -> None:
    child = start("stuck")
    status = child.status_with(lambda status: status.retiring)
    assert "job 12 (shop:hang) is over its time limit" in (status.retiring or "")
    assert status.owner == 4711
    assert child.end()[0] == 0
    assert child.stops() == ["stop False"]


def test_a_retiring_child_gives_back_what_does_not_end_in_time(start: Start) -> None:
    child = start("stuck patient", retire_s=0.05)
    assert child.end()[0] == 0
    assert child.stops() == ["stop False", "stop True"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module:app", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("childs_app:nothing", "DefinitionError: 'childs_app:nothing': childs_app has no nothing"),
        ("childs_app:not_an_app", "DefinitionError: 'childs_app:not_an_app' is a int; a Queuety is needed"),
        ("childs_app", "DefinitionError: 'childs_app' names no application"),
    ],
)
def test_it_tells_why_it_cannot_work(start: Start, target: str, reason: str) -> None:
    child = start(target=target)
    status = child.status_with(lambda status: status.failed)
    assert (status.failed or "").startswith(reason)
    code, stderr = child.end()
    assert code == 1
    assert reason.partition(": ")[2] in stderr


def test_it_tells_that_its_loop_broke(start: Start) -> None:
    child = start("crash")
    assert child.status_with(lambda status: status.failed).failed == "RuntimeError: the loop broke"
    assert child.end()[0] == 1


def test_it_waits_for_a_database_that_is_not_there_yet(start: Start) -> None:
    child = start("outage")
    child.status_with(lambda status: status.owner)
    child.send(b"stop\n")
    code, stderr = child.end()
    assert code == 0
    assert stderr.count("the database cannot be reached, trying again") == 2


def test_it_can_be_stopped_before_it_has_a_database(start: Start) -> None:
    child = start("outage")
    child.send(b"stop\n")
    assert child.end()[0] == 0
    assert "run" not in child.noted()


# A worker without a supervisor


class FakeLoop:
    owner = 1

    def __init__(self) -> None:
        self.runs = threading.Event()
        self.is_over = threading.Event()
        self.stops: list[bool] = []

    def run(self) -> None:
        self.runs.set()
        assert self.is_over.wait(PATIENCE_S)

    def stop(self, *, at_once: bool = False) -> None:
        self.stops.append(at_once)
        self.is_over.set()


class FakeApp:
    def __init__(self, outages: int = 0) -> None:
        self.loop = FakeLoop()
        self.outages = outages
        self.has_failed = threading.Event()
        self.definitions = None
        self.renewals = threading.Event()

    @property
    def door(self) -> Any:
        return self

    def write(self, unit: object, **_: object) -> int:
        self.renewals.set()
        return 0

    def worker_loop(self, terms: Terms, *, on_stuck: Any = None) -> FakeLoop:
        if self.outages:
            self.outages -= 1
            self.has_failed.set()
            raise StoreUnavailable("not there")
        return self.loop


def alone(app: FakeApp) -> Alone:
    return Alone(cast(Any, app), TERMS)


def running(worker: Alone) -> threading.Thread:
    thread = threading.Thread(target=worker.run)
    thread.start()
    return thread


def test_a_worker_alone_renews_and_returns_when_it_is_stopped() -> None:
    app = FakeApp()
    worker = alone(app)
    thread = running(worker)
    assert app.loop.runs.wait(PATIENCE_S)
    assert app.renewals.wait(PATIENCE_S)
    worker.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert app.loop.stops == [False]


def test_it_may_be_stopped_before_it_runs() -> None:
    app = FakeApp()
    worker = alone(app)
    worker.stop(at_once=True)
    worker.run()
    assert not app.loop.runs.is_set()


def test_it_may_be_stopped_while_the_database_is_away() -> None:
    app = FakeApp(outages=1_000_000)
    worker = alone(app)
    thread = running(worker)
    assert app.has_failed.wait(PATIENCE_S)
    worker.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


ALONE = """
import signal, sys
from tests.unit.test_supervise_child import FakeApp, alone

class Patient(FakeApp):
    pass

app = FakeApp()
def stop(*, at_once=False):
    print("stop", at_once, flush=True)
    if at_once:
        app.loop.is_over.set()
app.loop.stop = stop
run = app.loop.run
app.loop.run = lambda: (print("runs", flush=True), run())
before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
alone(app).run()
print("as before", before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)))
"""


def test_signals_stop_it_in_the_main_thread_and_are_put_back() -> None:
    with subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stop False\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stop True\n"
        assert process.stdout.readline() == "as before True\n"
    assert process.returncode == 0


FORKED = """
import multiprocessing, signal, sys
from queuety.worker.signals import StopSignals

with StopSignals() as signals:
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=signal.pause) for _ in range(20)]
    for process in processes:
        process.start()
        process.terminate()
    for process in processes:
        process.join(30)
    print({process.exitcode for process in processes}, signals.take())
    signal.raise_signal(signal.SIGTERM)
    print(signals.take())
"""


def test_a_signal_to_a_forked_child_ends_it_and_not_the_worker() -> None:
    said = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split() == ["{-15}", "0", "1"], said.stderr


def test_a_signal_and_its_echo_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout 60 queuety work` sends two SIGTERM: handlers were cut off without their grace time."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with signals.StopSignals() as counted:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert counted.take() == 1
        signal.raise_signal(signal.SIGINT)
        assert counted.take() == 1
        now[0] += signals.ECHO_S
        signal.raise_signal(signal.SIGTERM)
        assert counted.take() == 1

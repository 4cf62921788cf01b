"""A supervisor's children that do what a test says, and a desk without a database."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from queuety.errors import StoreUnavailable
from queuety.worker.desk import Hands
from queuety.worker.messages import Status

PATIENCE_S = 30.0
"""How long a test waits for what must happen; it usually takes milliseconds."""

CHILD = """
import os, select, socket, sys
stage, control, status = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
line = socket.socket(socket.AF_UNIX)
line.connect(stage)
def say(text):
    line.sendall(text.encode() + b"\\n")
say(f"pid {os.getpid()}")
fds, rest = [control, line], {control: b"", line: b""}
while True:
    for fd in select.select(fds, [], [])[0]:
        try:
            piece = os.read(fd if fd is control else fd.fileno(), 65536)
        except ConnectionResetError:
            piece = b""
        if not piece and fd is control:
            say("eof")
            fds.remove(control)
            continue
        if not piece:
            os._exit(99)
        *lines, rest[fd] = (rest[fd] + piece).split(b"\\n")
        for text in lines:
            if fd is control:
                say("heard " + text.decode())
            elif text.startswith(b"exit "):
                os._exit(int(text[5:]))
            else:
                os.write(status, text + b"\\n")
                say("told")
"""


class Actor:
    """One fake child: it passes on what it hears, and tells its supervisor what the test gives it to tell."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_S)
        self._connection = connection
        self._lines = connection.makefile("r")
        self._heard: deque[str] = deque()
        self.pid = int(self._expect("pid "))
        self.order = json.loads(self._expect("heard "))

    @property
    def takes_suspects_only(self) -> bool:
        return bool(self.order["terms"]["takes_suspects_only"])

    def hears(self) -> str:
        """What its supervisor tells it next; `eof` when nobody is left who could."""
        text = self._heard.popleft() if self._heard else self._lines.readline().rstrip("\n")
        return text.removeprefix("heard ")

    def tell(self, owner: int | None = None, retiring: str | None = None, failed: str | None = None) -> None:
        """Has it tell this; it has when this returns."""
        self._connection.sendall(Status(owner, retiring, failed).line())
        while (text := self._lines.readline().rstrip("\n")) != "told":
            assert text, "the child is dead"
            self._heard.append(text)

    def exit(self, code: int) -> None:
        self._connection.sendall(f"exit {code}\n".encode())

    def dies(self) -> None:
        """Waits until the process is gone."""
        try:
            while self._lines.readline():
                continue
        except ConnectionResetError:
            pass

    def _expect(self, beginning: str) -> str:
        text = self._lines.readline().rstrip("\n")
        assert text.startswith(beginning), text
        return text.removeprefix(beginning)


class Stage:
    """Where fake children report; `program` is what starts one."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "stage"
        script = directory / "child.py"
        script.write_text(CHILD)
        self.program = (sys.executable, "-S", "-E", str(script), str(self.path))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._listener.settimeout(PATIENCE_S)
        self._connections: list[socket.socket] = []

    def enters(self) -> Actor:
        """The next child that is started."""
        connection, _ = self._listener.accept()
        self._connections.append(connection)
        return Actor(connection)

    def is_empty(self, for_s: float) -> bool:
        """True if no child is started meanwhile."""
        self._listener.settimeout(for_s)
        try:
            self._connections.append(self._listener.accept()[0])
        except TimeoutError:
            return True
        finally:
            self._listener.settimeout(PATIENCE_S)
        return False

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._listener.close()


class FakeDesk:
    """Notes what it is asked, in `calls`; fails as often as `failures` says; answers with `suspects` and `hands`."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self.failures = 0
        self.suspects = 0
        self.hands = Hands(0)
        self.owners: Callable[[], Collection[int]] = tuple

    def next_call(self, name: str) -> tuple[Any, ...]:
        """The next call of this name; others are passed over."""
        while True:
            found = self.calls.get(timeout=PATIENCE_S)
            if found[0] == name:
                return found

    def open(self, owners: Callable[[], Collection[int]]) -> None:
        self.owners = owners
        self.calls.put(("open",))

    def close(self) -> None:
        self.calls.put(("close",))

    def end_dead(self, owner: int) -> None:
        self._fail("end_dead")
        self.calls.put(("end_dead", owner))

    def end_killed(self, owner: int, late: Collection[int]) -> None:
        self._fail("end_killed")
        self.calls.put(("end_killed", owner, tuple(late)))

    def count_suspects(self) -> int:
        self.calls.put(("count_suspects",))
        return self.suspects

    def hands_of(self, owner: int) -> Hands:
        self.calls.put(("hands_of", owner))
        return self.hands

    def _fail(self, name: str) -> None:
        if self.failures:
            self.failures -= 1
            self.calls.put(("failed", name))
            raise StoreUnavailable("the test has taken the database away")


class Running:
    """A supervisor at work in a thread."""

    def __init__(self, run: Callable[[], int]) -> None:
        self._codes: SimpleQueue[int | BaseException] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[], int]) -> None:
        try:
            self._codes.put(run())
        except BaseException as error:
            self._codes.put(error)

    def code(self) -> int:
        """Its exit code, once it has ended."""
        result = self._codes.get(timeout=PATIENCE_S)
        self._thread.join(PATIENCE_S)
        if isinstance(result, BaseException):
            raise result
        return result


@contextmanager
def stage_in(directory: Path) -> Iterator[Stage]:
    """A stage for one test."""
    stage = Stage(directory)
    try:
        yield stage
    finally:
        stage.close()

"""A child process as its supervisor sees it: started, listened to, told, killed, reaped. No rules of when."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from typing import Final

from queuety.worker.messages import Lines, Order, Status
from queuety.worker.signals import held_back

_log = logging.getLogger("queuety.worker")

NO_PIDFD: Final = -1


class Proc:
    """One child. Belongs to the supervisor's thread; only that thread reaps it, so its pid cannot become another's.

    `last_beat` and `started` are seconds of the monotonic clock. `kill_by` is when it is killed if it still lives; once
    it was killed, `late` holds the ids of the jobs that are to fail for it (usually none).
    """

    def __init__(self, process: subprocess.Popen[bytes], control: int, status: int, *, suspects_only: bool) -> None:
        self._process = process
        self._control = control
        self._lines = Lines(status)
        self.fd = status
        self.pid = process.pid
        self.pidfd = _pidfd_of(process.pid)
        self.suspects_only = suspects_only
        self.started = time.monotonic()
        self.last_beat = self.started
        self.status = Status()
        self.kill_by: float | None = None
        self.late: Collection[int] | None = None
        self.is_retiring = False
        self.asked_about_by: float | None = None
        """When its work is asked after again while it is silent; infinity while an answer is awaited."""

    @classmethod
    def start(cls, program: Sequence[str], order: Order) -> Proc:
        """Starts `program` with two more arguments, the ends of the pipes, and sends it the order. Raises `OSError`."""
        control_read, control_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            with held_back():
                process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [*program, str(control_read), str(status_write)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(control_read, status_write),
                )
        except BaseException:
            os.close(control_write)
            os.close(status_read)
            raise
        finally:
            os.close(control_read)
            os.close(status_write)
        os.set_blocking(control_write, False)
        os.set_blocking(status_read, False)
        proc = cls(process, control_write, status_read, suspects_only=order.terms.takes_suspects_only)
        proc._send(order.line())
        return proc

    @property
    def owner(self) -> int | None:
        """Its number in the leases; None until it has told."""
        return self.status.owner

    @property
    def was_killed(self) -> bool:
        """True once its supervisor has killed it."""
        return self.late is not None

    def listen(self) -> bool:
        """Takes in what it has told, without waiting; True if that was something."""
        lines = self._lines.read()
        for line in lines:
            try:
                self.status = Status.from_line(line)
            except ValueError as error:
                _log.warning("worker process %d: %s", self.pid, error)
        if lines:
            self.last_beat = time.monotonic()
        return bool(lines)

    @property
    def is_silenced(self) -> bool:
        """True once nothing more can come: it has closed its end, mostly by dying."""
        return self._lines.is_at_end

    def tell(self, word: str) -> None:
        """Sends it a word, if it still listens."""
        self._send(word.encode() + b"\n")

    def kill(self, *, late: Collection[int] = ()) -> None:
        """Ends it at once; the jobs in `late` are to fail for it."""
        if self.late is None:
            self.late = late
            self._process.send_signal(signal.SIGKILL)

    def exit_code(self) -> int | None:
        """Its exit code once it is dead (a negative one names a signal), else None. Reaps it."""
        return self._process.poll()

    def close(self) -> None:
        """After its death: takes in what it told last, and releases what it was talked to through."""
        while self.listen():
            continue
        os.close(self._control)
        os.close(self.fd)
        if self.pidfd != NO_PIDFD:
            os.close(self.pidfd)

    def _send(self, line: bytes) -> None:
        try:
            os.write(self._control, line)
        except (BrokenPipeError, BlockingIOError):
            # It is dead, or has not read for so long that the pipe is full: what it must do is then done to it.
            _log.debug("worker process %d does not listen", self.pid)


def death_of(code: int) -> str:
    """An exit code in words.

    >>> death_of(-9), death_of(1)
    ('was ended by SIGKILL', 'ended with exit code 1')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _pidfd_of(pid: int) -> int:
    """What becomes readable when the process ends; -1 where there is no such thing, and its pipe must tell."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return NO_PIDFD

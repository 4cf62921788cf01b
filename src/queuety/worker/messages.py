"""What a supervisor and its children say to each other, in lines of text over two pipes.

On the control pipe: first the order, a line of JSON; later `STOP` or `STOP_NOW`. Its end means that the supervisor is
gone. On the status pipe: a `Status` in JSON at once when something changes, and every `BEAT_S` while the child lives.
Each tells everything, so that none may be missed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from queuety.worker.terms import Terms

STOP: Final = "stop"
STOP_NOW: Final = "stop now"
BEAT_S: Final = 1.0

_PIECE: Final = 65536
_REASON_CHARACTERS: Final = 300
"""A status must fit into what a pipe takes whole or not at all: 4096 bytes on Linux."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to do: `app` is `module:attribute`, `path` the module search path of the supervisor.

    When it retires it has `retire_s` for what else it runs. `log_level` holds unless the application sets up its log.
    `workflows` are the folders whose workflow files it loads, with those in them.
    """

    app: str
    terms: Terms
    path: Sequence[str] = ()
    retire_s: float = 5.0
    log_level: int = logging.WARNING
    workflows: Sequence[str] = ()

    def line(self) -> bytes:
        """The order as it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: str) -> Order:
        """What `line` wrote."""
        fields = json.loads(line)
        terms = fields.pop("terms")
        queues = tuple(terms.pop("queues"))
        return cls(terms=Terms(queues=queues, **terms), **fields)


@dataclass(frozen=True, slots=True)
class Status:
    """What a child tells of itself: its number in the leases, why it takes no more jobs, why it could not work."""

    owner: int | None = None
    retiring: str | None = None
    failed: str | None = None

    def line(self) -> bytes:
        """The status as it is sent."""
        fields = (self.owner, _short(self.retiring), _short(self.failed))
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    @classmethod
    def from_line(cls, line: str) -> Status:
        """What `line` wrote. Raises `ValueError` for anything else."""
        fields = json.loads(line)
        if not isinstance(fields, list) or len(fields) != 3:
            raise ValueError(f"no status of a child: {line[:100]!r}")
        owner, retiring, failed = fields
        return cls(owner, retiring, failed)


def _short(reason: str | None) -> str | None:
    return None if reason is None else reason[:_REASON_CHARACTERS]


class Lines:
    """The lines that arrive on a pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._rest = b""
        self.is_at_end = False

    def read(self) -> list[str]:
        """The lines that one read completes; waits for it only if the pipe blocks."""
        try:
            piece = os.read(self.fd, _PIECE)
        except BlockingIOError:
            return []
        self.is_at_end = self.is_at_end or not piece
        *whole, self._rest = (self._rest + piece).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]

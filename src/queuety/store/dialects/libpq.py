"""The hot path's way to PostgreSQL: statements are sent as they come, and answered when somebody asks.

A statement through psycopg's cursor takes 65 µs of this process's time, and a round trip of its own. Through
`psycopg.pq` it takes 12, and a transaction's writes share a round trip: eight statements and their COMMIT in 0.49 ms
instead of 1.06 (the best of 1,500 on a busy machine). Everything else about the connection stays psycopg's.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
from psycopg import DataError, OperationalError, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.waiting import Ready, Wait

BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"

MOST_PREPARED: Final = 200
"""So many statements a connection has prepared at most; further ones are parsed each time."""

_JSON_ONLY: Final = re.compile(rb"\\[^\"\\]")
"""An escape that an array does not know, or what looks like one."""

MOST_KNOWN: Final = 1000
"""So many statements are remembered as sent before; some are made for one occasion."""

_DONE: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_FAULTY: Final = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)


class Answer:
    """What came of one statement; nothing yet, as long as `result` is None."""

    __slots__ = ("at", "prepares", "result", "rows")

    def __init__(self, prepares: str | None = None) -> None:
        self.prepares = prepares
        """The statement that this is the preparation of, and no run."""
        self.result: Any = None
        self.rows: list[tuple[Any, ...]] | None = None
        self.at = 0


class Prepared:
    """The statements of one connection: by their text, how they are sent. One for each connection, as long as it lives.

    A statement is prepared when it is run for the second time.
    """

    __slots__ = ("names", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.names: dict[str, bytes] = {}


class PipelineCursor:
    """A cursor for one transaction, in libpq's pipeline mode. It begins the transaction itself, with its first
    statement; `leave` ends the mode, and the transaction is left to the connection.

    An error of a statement is raised by whoever waits next: a fetch, a count or `settle`.
    """

    __slots__ = ("_is_open", "_last", "_pg", "_prepared", "_waiting", "connection")

    def __init__(self, raw: Any, prepared: Prepared) -> None:
        self.connection = raw
        self._pg = raw.pgconn
        self._prepared = prepared
        self._waiting: deque[Answer] = deque()
        self._last = Answer()
        self._is_open = False

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> None:
        """Sends it. Raises `DataError` for a value that cannot be sent."""
        values = [None if value is None else _encoded(value) for value in parameters]
        pg, known = self._pg, self._prepared
        if not self._is_open:
            self._open()
        name = known.names.get(statement)
        if name is not None:
            pg.send_query_prepared(name, values)
        else:
            text = known.texts.get(statement)
            if text is None:
                if len(known.texts) >= MOST_KNOWN:
                    known.texts.clear()
                text = known.texts[statement] = _numbered(statement)
                pg.send_query_params(text, values)
            elif not self._may_prepare(statement):
                pg.send_query_params(text, values)
            else:
                name = name_of(text)
                pg.send_prepare(name, text)
                self._waiting.append(Answer(statement))
                known.names[statement] = name
                pg.send_query_prepared(name, values)
        self._last = Answer()
        self._waiting.append(self._last)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows of the last statement that were not fetched yet."""
        rows = self._rows()
        rest, self._last.at = rows[self._last.at :], len(rows)
        return rest

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row of the last statement; None if there is no more."""
        rows, at = self._rows(), self._last.at
        if at >= len(rows):
            return None
        self._last.at = at + 1
        return rows[at]

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has found or changed."""
        return self.counted()()

    def counted(self) -> Callable[[], int]:
        """The same for later, when other statements have been sent; -1 for one that was never run."""
        answer = self._last

        def count() -> int:
            if answer.result is None:
                self.settle()
            is_done = answer.result.status in _DONE
            return int(answer.result.command_tuples or 0) if is_done else -1

        return count

    def settle(self) -> None:
        """Waits for all answers. Raises the first error among them; the transaction is of no more use then."""
        if self._waiting:
            error = self.connection.wait(self._exchange())
            if error is not None:
                raise error

    def leave(self) -> None:
        """Leaves the pipeline mode; what is still on its way is waited for, and what came of it forgotten."""
        if not self._is_open:
            return
        self._is_open = False
        if self._pg.status != pq.ConnStatus.OK:
            return  # whoever uses it next is told
        if self._waiting:
            self.connection.wait(self._exchange())
        self._pg.exit_pipeline_mode()

    def _may_prepare(self, statement: str) -> bool:
        """The plan of a statement with a limit must know that limit. Planned for any, a claim among a million jobs that
        are ready reads and sorts them all: 694 ms instead of 0.4."""
        if "LIMIT %s" in statement or self.connection.prepare_threshold is None:
            return False
        return len(self._prepared.names) < MOST_PREPARED

    def _open(self) -> None:
        pg = self._pg
        pg.enter_pipeline_mode()
        self._is_open = True
        if pg.transaction_status == pq.TransactionStatus.IDLE:
            pg.send_query_params(BEGIN, None)
            self._waiting.append(Answer())

    def _exchange(self) -> Generator[Wait, Ready, Exception | None]:
        """Sends what is buffered and takes in every answer up to here."""
        pg, waiting, first = self._pg, self._waiting, None
        pg.pipeline_sync()
        while pg.flush():
            ready = yield Wait.RW
            if ready and ready & Ready.R:  # nothing, when it is told to go on after an interrupt
                pg.consume_input()
        while True:
            while pg.is_busy():
                yield Wait.R
                pg.consume_input()
            result = pg.get_result()
            if result is None:  # the end of one statement's answer
                if pg.status != pq.ConnStatus.OK:  # nothing more will come
                    raise first or OperationalError("the connection is closed")
                continue
            status = result.status
            if status == pq.ExecStatus.PIPELINE_SYNC:
                return first
            if status in _FAULTY:
                first = first or error_from_result(result, "utf-8")
            if not waiting:  # the server says goodbye
                continue
            answer = waiting.popleft()
            answer.result = result
            if answer.prepares is not None and status != pq.ExecStatus.COMMAND_OK:
                self._prepared.names.pop(answer.prepares, None)

    def _rows(self) -> list[tuple[Any, ...]]:
        answer = self._last
        if answer.rows is None:
            if answer.result is None:
                self.settle()
            decoder: Any = Transformer(self.connection)
            decoder.set_pgresult(answer.result)
            answer.rows = decoder.load_rows(0, answer.result.ntuples, tuple)
        return answer.rows


def _numbered(statement: str) -> bytes:
    """The statement with libpq's placeholders.

    >>> _numbered("SELECT %s, '%%' WHERE id = %s")
    b"SELECT $1, '%' WHERE id = $2"
    """
    first, *others = statement.split("%s")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(others, 1))]).replace("%%", "%").encode()


def name_of(text: bytes) -> bytes:
    """Says what it stands for: where a pooler mixes sessions up, a name of ours never means another statement."""
    return b"queuety_" + blake2b(text, digest_size=12).hexdigest().encode()


def _encoded(value: Any) -> bytes:
    """A value as text; its type is what the statement says.

    >>> _encoded(7), _encoded("a"), _encoded([1, None]), _encoded(['"', "a\\nb"]), _encoded([b"a"])
    (b'7', b'a', b'{1,null}', b'{"\\\\"","a\\nb"}', b'{"\\\\\\\\x61"}')
    """
    if isinstance(value, int):
        return str(int(value)).encode()
    if isinstance(value, str):
        return _checked(value).encode()
    if isinstance(value, list):
        return _array(value)
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    raise DataError(f"a {type(value).__name__} cannot be sent: it is no number, text, list or bytes")


def _array(values: list[Any]) -> bytes:
    """A column of values. As JSON it is written in a tenth of the time, and means the same unless there are bytes, or
    escapes that only JSON has."""
    if bytes not in set(map(type, values)):
        text = msgspec.json.encode(values)
        if b"\\" not in text or not _JSON_ONLY.search(text):
            return b"{" + text[1:-1] + b"}"
    return f"{{{','.join(map(_element, values))}}}".encode()


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    if isinstance(value, str):
        return '"' + _checked(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    raise DataError(f"a {type(value).__name__} cannot be sent in a list")


def _checked(text: str) -> str:
    if "\0" in text:  # libpq would end the text there
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text

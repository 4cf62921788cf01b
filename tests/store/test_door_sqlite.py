"""What only SQLite can do to us: locks of a file, one connection's memory, full disks, wrong files."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.pool import StaticPool

from queuety.errors import DefinitionError, StoreError, StoreUnavailable
from queuety.store.dialects import Limits, sqlite
from queuety.store.door import Door, Tx


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queuety.db"


@pytest.fixture
def door(path: Path) -> Iterator[Door]:
    made = Door.open(f"sqlite:///{path}", limits=Limits(patience_s=0.3))
    made.write(lambda tx: tx.cursor.execute("CREATE TABLE things (name TEXT PRIMARY KEY)"))
    yield made
    made.close()


@pytest.fixture
def memory() -> Iterator[Door]:
    made = Door.open("sqlite://")
    made.write(lambda tx: tx.cursor.execute("CREATE TABLE things (name TEXT PRIMARY KEY)"))
    yield made
    made.close()


def add(tx: Tx, name: str = "a") -> None:
    tx.cursor.execute("INSERT INTO things (name) VALUES (?)", [name])


def nothing(_tx: Tx) -> None:
    """Only opens a transaction."""


def count(door: Door) -> int:
    with door.reading() as connection:
        return int(connection.execute(text("SELECT count(*) FROM things")).scalar_one())


def pragma(tx: Tx, name: str) -> object:
    return tx.cursor.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_file_is_opened_durable_and_without_waiting_inside(door: Door, path: Path) -> None:
    found = door.read(
        lambda tx: [pragma(tx, name) for name in ("journal_mode", "synchronous", "busy_timeout", "journal_size_limit")]
    )
    assert found == ["wal", 2, 0, sqlite.WAL_LIMIT]
    normal = Door.open(f"sqlite:///{path}", limits=Limits(sqlite_synchronous="NORMAL"))
    assert normal.read(lambda tx: pragma(tx, "synchronous")) == 1
    normal.close()


def test_an_unknown_synchronous_is_refused() -> None:
    with pytest.raises(DefinitionError, match="FULL or NORMAL"):
        Door.open("sqlite://", limits=Limits(sqlite_synchronous="OFF"))  # type: ignore[arg-type]


def test_a_reader_is_not_kept_waiting_by_a_writer(door: Door) -> None:
    def unit(tx: Tx) -> int:
        add(tx)
        return count(door)

    assert door.write(unit) == 0
    assert count(door) == 1


def test_another_program_s_lock_ends_patience_with_a_clear_error(door: Door, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another connection holds the write lock"):
        door.write(add)
    other.execute("COMMIT")
    door.write(add)
    other.close()
    assert count(door) == 1


def test_another_program_s_lock_is_waited_for(path: Path, door: Door) -> None:
    patient = Door.open(f"sqlite:///{path}")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    tried = threading.Event()

    def hook(statement: str) -> None:
        tried.set()

    patient.on_statement = hook
    thread = threading.Thread(target=lambda: patient.write(add))
    thread.start()
    assert tried.wait(10)
    other.execute("COMMIT")
    thread.join(10)
    assert count(door) == 1
    patient.close()
    other.close()


def test_a_write_inside_a_write_is_an_error_at_once(door: Door) -> None:
    began = time.monotonic()
    with pytest.raises(StoreError, match="inside another transaction of this thread"):
        door.write(lambda _tx: door.write(add), patience_s=30)
    assert time.monotonic() - began < 10
    door.write(add)


def write_many(url: str, number: int, turns: int, slowest: object) -> None:
    door = Door.open(url)
    worst = 0.0
    for turn in range(turns):
        began = time.monotonic()
        door.write(lambda tx: add(tx, f"{number}-{turn}"))  # noqa: B023 - called before the loop goes on
        worst = max(worst, time.monotonic() - began)
    slowest.put(worst)  # type: ignore[attr-defined]
    door.close()


def test_processes_share_a_file_without_an_error(door: Door, path: Path) -> None:
    fresh = multiprocessing.get_context("spawn")
    slowest = fresh.SimpleQueue()
    writers = [
        fresh.Process(target=write_many, args=(f"sqlite:///{path}", number, 100, slowest)) for number in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert count(door) == 400
    assert max(slowest.get() for _ in writers) < 5


def test_memory_is_one_database_for_all_threads(memory: Door) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for turn in range(50):
                memory.write(lambda tx: add(tx, f"{number}-{turn}"))  # noqa: B023 - called before the loop goes on
                assert count(memory) > 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert count(memory) == 200


def test_memory_can_be_read_inside_a_transaction_of_the_same_thread(memory: Door) -> None:
    def unit(tx: Tx) -> int:
        add(tx)
        return count(memory)

    assert memory.write(unit) == 1
    with memory.reading() as connection:
        assert count(memory) == 1
        assert connection.execute(text("SELECT count(*) FROM things")).scalar() == 1


def test_memory_survives_errors_and_loses_nothing(memory: Door) -> None:
    lost = sqlite3.OperationalError("disk I/O error")
    lost.sqlite_errorcode = sqlite3.SQLITE_IOERR
    broken = [lost]

    def unit(tx: Tx) -> None:
        add(tx)
        if broken:
            raise broken.pop()

    memory.write(lambda tx: add(tx, "before"))
    memory.write(unit)
    with pytest.raises(ZeroDivisionError):
        memory.write(lambda _tx: 1 / 0)
    assert count(memory) == 2


def test_memory_of_the_parent_is_refused_in_a_fork(memory: Door) -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            writer.send(count(memory))
        except StoreError as error:
            writer.send(str(error))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert "belongs to the process that forked this one" in str(reader.recv())


def test_memory_inside_the_caller_s_transaction_is_never_rolled_back() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    door = Door.open(engine)
    door.write(lambda tx: tx.cursor.execute("CREATE TABLE things (name TEXT PRIMARY KEY)"))
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO things (name) VALUES ('theirs')"))
        with pytest.raises(StoreError, match="inside a transaction of yours"):
            door.write(add)
        with door.joined(connection) as tx:
            add(tx, "ours")
    assert count(door) == 2
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:///file:x?mode=memory&cache=shared&uri=true",
        "sqlite:///file:x.db?cache=shared&uri=true",
    ],
)
def test_shared_memory_is_refused(url: str) -> None:
    with pytest.raises(DefinitionError, match="use sqlite://"):
        Door.open(url)


def test_an_engine_with_a_database_per_thread_is_refused() -> None:
    with pytest.raises(DefinitionError, match="StaticPool"):
        Door.open(create_engine("sqlite://"))


def test_a_uri_of_a_file_is_opened(path: Path) -> None:
    door = Door.open(f"sqlite:///file:{path}?uri=true")
    door.write(lambda tx: tx.cursor.execute("CREATE TABLE things (name TEXT PRIMARY KEY)"))
    assert path.exists()
    assert str(path) in door.dialect.place
    door.close()


def test_an_engine_whose_listener_begins_is_usable(path: Path, door: Door) -> None:
    """SQLAlchemy's documented recipe for SQLite: a deferred BEGIN of its own."""
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def connected(raw: sqlite3.Connection, _record: object) -> None:
        raw.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: object) -> None:
        connection.exec_driver_sql("BEGIN")  # type: ignore[attr-defined]

    theirs = Door.open(engine)
    theirs.write(add)
    assert count(theirs) == 1
    engine.dispose()


def test_a_missing_directory_is_named_and_not_made(tmp_path: Path) -> None:
    door = Door.open(f"sqlite:///{tmp_path}/missing/queuety.db")
    with pytest.raises(StoreUnavailable, match=r"missing/queuety\.db cannot be opened: its directory does not exist"):
        door.read(nothing)
    assert not (tmp_path / "missing").exists()


def test_a_directory_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it is a directory"):
        Door.open(f"sqlite:///{tmp_path}").read(nothing)


def test_a_file_that_is_no_database_is_left_as_it_was(path: Path) -> None:
    path.write_bytes(b"this is a letter, not a database. " * 100)
    door = Door.open(f"sqlite:///{path}")
    for run in (door.read, door.write):
        with pytest.raises(StoreError, match="the file is not an SQLite database"):
            run(nothing)
    assert path.read_bytes().startswith(b"this is a letter")
    door.close()


def test_a_full_disk_writes_nothing_and_goes_on_when_there_is_room(door: Door) -> None:
    def pages(tx: Tx, limit: int) -> None:
        tx.cursor.execute(f"PRAGMA max_page_count = {limit}")

    letters = "".join(random.choices("abcdef", k=100_000))
    with door.line() as line:
        door.read(lambda tx: pages(tx, 5), on=line)
        with pytest.raises(StoreUnavailable, match="free some space on its disk; nothing was half written"):
            door.write(lambda tx: (add(tx, "small"), add(tx, letters)), on=line)
        assert count(door) == 0
        door.read(lambda tx: pages(tx, 100_000), on=line)
        door.write(lambda tx: add(tx, letters), on=line)
    assert count(door) == 1


def test_room_that_comes_back_in_time_is_used(door: Door) -> None:
    letters = "".join(random.choices("abcdef", k=100_000))
    tries = []

    def unit(tx: Tx) -> None:
        tries.append(1)
        tx.cursor.execute(f"PRAGMA max_page_count = {5 if len(tries) < 3 else 100_000}")
        add(tx, letters)

    door.write(unit, patience_s=20)
    assert len(tries) == 3
    assert count(door) == 1


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with a blank"
    folder.mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/vda / ext4 rw 0 0\nserver:/export {str(folder).replace(' ', chr(92) + '040')} nfs4 rw,vers=4.2 0 0\n"
    )
    monkeypatch.setattr(sqlite, "MOUNTS", str(mounts))
    with pytest.raises(StoreUnavailable, match=r"network file system \(nfs4\)"):
        Door.open(f"sqlite:///{folder}/queuety.db").read(nothing)
    door = Door.open(f"sqlite:///{tmp_path}/queuety.db")
    door.read(nothing)
    door.close()
    monkeypatch.setattr(sqlite, "MOUNTS", str(tmp_path / "missing"))
    door = Door.open(f"sqlite:///{folder}/queuety.db")
    door.read(nothing)
    door.close()


def test_the_host_clock_jumps_and_is_followed_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    from queuety.store import clock as clocks

    steady, wall = [5_000_000_000], [1_700_000_000_000_000_000]
    monkeypatch.setattr(clocks, "steady_ns", lambda: steady[0])
    monkeypatch.setattr(time, "time_ns", lambda: wall[0])
    clock = clocks.DatabaseClock(None, lambda measure: measure(None))
    assert clock.now_us() == 1_700_000_000_000_000
    wall[0] += 3_600_000_000_000
    steady[0] += 999_000_000
    assert clock.now_us() == 1_700_000_000_999_000
    steady[0] += 1_000_000
    assert clock.now_us() == 1_700_003_600_000_000


def test_a_replaced_file_is_noticed_by_every_connection(tmp_path: Path, path: Path, door: Door) -> None:
    with door.line() as line:
        door.write(lambda tx: add(tx, "by a pooled connection"))
        door.write(lambda tx: add(tx, "by a line"), on=line)
        another = sqlite3.connect(tmp_path / "another.db")
        another.execute("CREATE TABLE things (name TEXT PRIMARY KEY)")
        another.close()
        for leftover in path.parent.glob("queuety.db-*"):
            leftover.unlink()
        os.replace(tmp_path / "another.db", path)

        assert count(door) == 0
        assert door.read(lambda tx: tx.cursor.execute("SELECT count(*) FROM things").fetchone()[0], on=line) == 0
        door.write(lambda tx: add(tx, "a"), on=line)
        door.write(lambda tx: add(tx, "b"))
    with sqlite3.connect(path) as raw:
        assert [name for (name,) in raw.execute("SELECT name FROM things ORDER BY name")] == ["a", "b"]
    raw.close()


def test_a_deleted_file_is_missed_and_not_made_anew(path: Path, door: Door) -> None:
    door.write(lambda tx: add(tx, "kept"))
    door.close()
    kept = path.read_bytes()
    door.write(lambda tx: add(tx, "lost"))
    for one in path.parent.glob("queuety.db*"):
        one.unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="deleted or moved while it was in use"):
            door.write(lambda tx: add(tx, "b"))
        with pytest.raises(StoreUnavailable, match="put it back"):
            count(door)
    assert not path.exists()
    path.write_bytes(kept)
    assert count(door) == 1

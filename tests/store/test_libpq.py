"""The hot path's cursor on PostgreSQL: what is sent is what was meant, and nothing that goes wrong is missed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from queuety.errors import StoreError
from queuety.store.dialects.libpq import PipelineCursor
from queuety.store.door import Door, Tx
from queuety.store.settle import NotHeld
from tests.support.databases import Databases, Unreachable, required_kinds

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(
    ["", "NULL", "null", '"', "\\", '\\"', "{}", ",", "\\n", "\n", "\\u0000", "%s", "é", "\x7f"]
)
NUMBERS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def door(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    try:
        place = databases.place("postgresql")
    except Unreachable as reason:
        if "postgresql" in required_kinds():
            pytest.fail(f"no database to test on: postgresql: {reason}", pytrace=False)
        pytest.skip(f"no database to test on: postgresql: {reason}")
    with _opened(place.fresh(tmp_path_factory.mktemp("libpq")).url) as made:
        made.write(lambda tx: tx.cursor.execute("CREATE TABLE things (id bigint PRIMARY KEY, n bigint NOT NULL)"))
        yield made


class _opened:
    def __init__(self, url: str) -> None:
        self.door = Door.open(url)

    def __enter__(self) -> Door:
        return self.door

    def __exit__(self, *_: object) -> None:
        self.door.close()


def asked(door: Door, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    def unit(tx: Tx) -> list[tuple[Any, ...]]:
        tx.cursor.execute(statement, parameters)
        return list(tx.cursor.fetchall())

    return door.write(unit)


@settings(max_examples=60)
@given(st.lists(st.none() | TEXTS), st.lists(st.none() | NUMBERS), st.lists(st.none() | st.binary(max_size=20)))
def test_lists_arrive_as_they_were(door: Door, texts: list[Any], numbers: list[Any], blobs: list[Any]) -> None:
    assert [row[0] for row in asked(door, "SELECT * FROM unnest(%s::text[])", texts)] == texts
    assert [row[0] for row in asked(door, "SELECT * FROM unnest(%s::bigint[])", numbers)] == numbers
    assert [row[0] for row in asked(door, "SELECT * FROM unnest(%s::bytea[])", blobs)] == blobs


@settings(max_examples=60)
@given(TEXTS, NUMBERS, st.binary(max_size=20))
def test_values_arrive_as_they_were(door: Door, word: str, number: int, blob: bytes) -> None:
    found = asked(door, "SELECT %s::text, %s::bigint, %s::bytea, %s::text, '%%'", word, number, blob, None)
    assert found == [(word, number, blob, None, "%")]


@pytest.mark.parametrize("value", ["a\0b", ["a\0b"]])
def test_a_text_that_libpq_would_cut_off_is_refused(door: Door, value: Any) -> None:
    with pytest.raises(StoreError, match="NUL"):
        asked(door, "SELECT %s::text[]" if isinstance(value, list) else "SELECT %s::text", value)


@pytest.mark.parametrize("value", [1.5, ["a", 1.5j], {"a": 1}])
def test_what_has_no_form_of_its_own_is_refused(door: Door, value: Any) -> None:
    with pytest.raises((StoreError, TypeError)):
        asked(door, "SELECT %s::text", value)


def test_rows_are_fetched_once_each(door: Door) -> None:
    def unit(tx: Tx) -> None:
        tx.cursor.execute("SELECT * FROM generate_series(1, 3)")
        assert tx.cursor.fetchone() == (1,)
        assert tx.cursor.fetchall() == [(2,), (3,)]
        assert tx.cursor.fetchone() is None

    door.write(unit)


def test_what_goes_wrong_unasked_is_raised_before_the_commit(door: Door) -> None:
    def unit(tx: Tx) -> None:
        tx.cursor.execute("INSERT INTO things VALUES (%s, 1)", [1])
        tx.cursor.execute("INSERT INTO things VALUES (%s, 1)", [1])
        tx.cursor.execute("INSERT INTO things VALUES (%s, 1)", [2])

    with pytest.raises(StoreError, match="duplicate key"):
        door.write(unit)
    assert asked(door, "SELECT * FROM things") == []
    door.write(lambda tx: tx.cursor.execute("DELETE FROM things"))  # the connection is as good as new


def test_too_few_rows_count_for_more_than_what_fails_after_them(door: Door) -> None:
    """Of a stale attempt the first thing that is found out must be that it is stale."""

    def unit(tx: Tx) -> None:
        tx.cursor.execute("DELETE FROM things WHERE id = %s", [77])
        tx.expect(tx.cursor.counted(), 1, NotHeld)  # type: ignore[attr-defined]
        tx.cursor.execute("INSERT INTO things VALUES (%s, 1), (%s, 1)", [1, 1])
        tx.cursor.execute("DELETE FROM things WHERE id = %s", [78])
        tx.expect(tx.cursor.counted(), 0, NotHeld)  # type: ignore[attr-defined]

    with pytest.raises(NotHeld):
        door.write(unit)


def test_writes_share_a_round_trip(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    exchange = PipelineCursor._exchange

    def counting(cursor: PipelineCursor) -> Any:
        waited.append(len(cursor._waiting))
        return exchange(cursor)

    monkeypatch.setattr(PipelineCursor, "_exchange", counting)

    def unit(tx: Tx) -> None:
        for _ in range(5):
            tx.cursor.execute("UPDATE things SET n = n + 1 WHERE id = %s", [1])

    with door.line() as line:
        door.write(_nothing, on=line)
        assert waited == []
        door.write(unit, on=line)
    assert waited == [7]  # BEGIN, a preparation, five statements


def test_what_is_limited_is_planned_for_its_limit(door: Door) -> None:
    """Planned for any limit, the first of many rows are found by sorting all of them."""

    def unit(tx: Tx) -> list[str]:
        for _ in range(20):
            tx.cursor.execute("SELECT id FROM things ORDER BY id LIMIT %s", [1])
            tx.cursor.execute("SELECT id FROM things WHERE id = %s", [1])
        tx.cursor.execute("SELECT statement FROM pg_prepared_statements WHERE name LIKE 'queuety_%%'")
        return [row[0] for row in tx.cursor.fetchall()]

    found = door.write(unit)
    assert "SELECT id FROM things WHERE id = $1" in found
    assert [statement for statement in found if "LIMIT" in statement] == []


@pytest.mark.parametrize("asks", [True, False])
def test_a_connection_that_is_cut_in_the_middle_is_replaced(door: Door, asks: bool) -> None:
    pids: list[int] = []

    def unit(tx: Tx) -> None:
        tx.cursor.execute("SELECT pg_backend_pid()")
        pids.append(int(tx.cursor.fetchone()[0]))
        tx.cursor.execute("INSERT INTO things VALUES (%s, 1)", [9])
        if len(pids) == 1:
            tx.cursor.execute("SELECT pg_terminate_backend(%s)", pids)
        tx.cursor.execute("UPDATE things SET n = 2 WHERE id = %s", [9])
        if asks:
            assert tx.cursor.rowcount == 1
        tx.cursor.execute("DELETE FROM things WHERE id = %s", [9])

    with door.line() as line:
        door.write(unit, on=line)
    assert len(pids) == 2
    assert pids[0] != pids[1]
    assert asked(door, "SELECT * FROM things") == []


def test_statements_of_one_occasion_are_not_kept_for_ever(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuety.store.dialects.libpq.MOST_KNOWN", 20)
    monkeypatch.setattr("queuety.store.dialects.libpq.MOST_PREPARED", 5)
    kept: list[tuple[int, int]] = []

    def unit(tx: Tx) -> None:
        for number in range(100):
            for _ in range(3):
                tx.cursor.execute(f"SELECT {number}")
                assert tx.cursor.fetchall() == [(number,)]
        prepared = tx.cursor._prepared  # type: ignore[attr-defined]
        kept.append((len(prepared.texts), len(prepared.names)))

    with door.line() as line:
        door.write(unit, on=line)
    assert kept[0][0] <= 20
    assert kept[0][1] == 5


def test_the_toolkit_joins_in(door: Door) -> None:
    def unit(tx: Tx) -> int:
        tx.cursor.execute("INSERT INTO things VALUES (%s, 1)", [5])
        count = tx.connection.execute(text("SELECT count(*) FROM things WHERE id = 5")).scalar_one()
        tx.cursor.execute("DELETE FROM things WHERE id = %s", [5])
        return int(count)

    assert door.write(unit) == 1
    assert asked(door, "SELECT * FROM things") == []


def test_an_interrupt_while_waiting_leaves_a_usable_connection(door: Door) -> None:
    def unit(tx: Tx) -> None:
        tx.cursor.execute("SELECT pg_sleep(30)")
        tx.cursor.fetchall()

    with door.line() as line:
        door.read(_nothing, on=line)
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGUSR1))

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, interrupt)
        timer.start()
        began = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                door.write(unit, on=line)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert time.monotonic() - began < 10
        assert door.read(_one, on=line) == 1


def _nothing(_tx: Tx) -> None:
    pass


def _one(tx: Tx) -> int:
    tx.cursor.execute("SELECT 1")
    return int(tx.cursor.fetchone()[0])


def test_a_connection_of_another_encoding_goes_its_own_way(door: Door) -> None:
    url = door.engine.url.update_query_dict({"client_encoding": "latin1"})
    with _opened(url.render_as_string(hide_password=False)) as other:

        def unit(tx: Tx) -> str:
            assert isinstance(tx.cursor, psycopg.Cursor)
            tx.cursor.execute("SELECT %s::text", ["é"])
            return str(tx.cursor.fetchone()[0])

        assert other.write(unit) == "é"

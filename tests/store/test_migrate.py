"""The tables: made once however many start at once, brought up to date, refused when they are newer."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from queuety.codec import encode
from queuety.define.wire import definition_to_json
from queuety.errors import SchemaError, StoreUnavailable
from queuety.model import Definition
from queuety.store import migrate
from queuety.store.door import Door, Tx
from queuety.store.migrate import CHAIN, Chain, Standing, ensure, standing
from tests.support.databases import Database
from tests.support.hands import House, definition, pause_of, single
from tests.support.invariants import check

SECOND = '''
"""A column and an index more, for the tests.

Revision ID: {own}
Revises: {before}
"""

from sqlalchemy import BigInteger, Column

from queuety.store.migrations.steps import add_column, create_index

revision = "{own}"
down_revision = "{before}"


def upgrade() -> None:
    add_column("workers", Column("extra_us", BigInteger, nullable=True))
    create_index("workers_extra", "workers", "extra_us")
'''


@pytest.fixture
def door(fresh_database: Database) -> Iterator[Door]:
    made = Door.open(fresh_database.url)
    yield made
    made.on_statement = None
    made.close()


@pytest.fixture
def later(tmp_path: Path) -> Chain:
    """A version of the package with one revision more."""
    folder = tmp_path / "later"
    folder.mkdir()
    (folder / "next.py").write_text(SECOND.format(own="test_next", before=CHAIN.head))
    return Chain((*CHAIN.revisions, "test_next"), (*CHAIN.folders, folder))


def differences(door: Door, metadata: MetaData) -> list[Any]:
    """What Alembic would change in the database to have it look like this, under the door's prefix."""
    own = migrate.version_table(door)

    def concerns_us(name: str | None, kind: str, _parents: Any) -> bool:
        return kind != "table" or (name is not None and name.startswith(door.tables.prefix) and name != own)

    with door.reading() as connection:
        options = {"compare_type": True, "include_name": concerns_us}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def tables(door: Door) -> set[str]:
    with door.reading() as connection:
        return set(inspect(connection).get_table_names())


def test_the_chain_is_what_the_folder_holds() -> None:
    config = Config()
    config.set_main_option("path_separator", "newline")
    config.set_main_option("script_location", str(CHAIN.folders[0].parent))
    config.set_main_option("version_locations", str(CHAIN.folders[0]))
    script = ScriptDirectory.from_config(config)
    assert tuple(reversed([revision.revision for revision in script.walk_revisions()])) == CHAIN.revisions


def test_what_is_migrated_is_what_the_code_expects(door: Door) -> None:
    ensure(door)
    assert differences(door, door.tables.metadata) == []
    assert standing(door) == Standing(CHAIN.head, CHAIN.head)


def test_the_comparison_sees_a_difference(door: Door) -> None:
    ensure(door)
    changed = MetaData()
    for table in door.tables.metadata.tables.values():
        table.to_metadata(changed)
    changed.tables[door.tables.workers.name].append_column(Column("extra", Integer))
    Table(f"{door.tables.prefix}more", changed, Column("id", Integer, primary_key=True))
    assert {found[0] for found in differences(door, changed)} == {"add_column", "add_table"}


def test_identifiers_compare_exactly(door: Door) -> None:
    """Case, accents and blanks at the end make another key, on every database."""
    ensure(door)
    keys = ["order-1", "Order-1", "order-1 ", "\u00f6rder-1", "o\u0308rder-1", "order-1\u200b", "\U0001f600"]
    queues = door.tables.queues

    def unit(tx: Tx) -> list[str]:
        tx.connection.execute(queues.insert(), [{"name": key, "changes": 0} for key in keys])
        found = tx.connection.execute(queues.select().order_by(queues.c.name)).all()
        for key in keys:
            assert [row.name for row in tx.connection.execute(queues.select().where(queues.c.name == key))] == [key]
        return [row.name for row in found]

    assert door.write(unit) == sorted(keys, key=str.encode)


def test_a_large_text_fits(door: Door) -> None:
    ensure(door)
    body = "\U0001f600" * 1_000_000
    definitions = door.tables.definitions
    row = {"hash": "h", "name": "n", "body": body, "created_us": 1}
    door.write(lambda tx: tx.connection.execute(definitions.insert(), row))
    with door.reading() as connection:
        assert connection.execute(definitions.select()).one().body == body


def test_looking_again_costs_one_read_and_then_none(door: Door) -> None:
    ensure(door)
    again = Door(door.engine, door.dialect, door.tables, door.limits, owns_engine=False)
    seen: list[str] = []
    again.on_statement = seen.append
    ensure(again)
    assert [statement for statement in seen if statement != "BEGIN"] == [
        f"SELECT version_num FROM {migrate.version_table(again)}"
    ]
    seen.clear()
    ensure(again)
    assert seen == []
    again.on_statement = None


def test_prefixes_live_side_by_side(door: Door, fresh_database: Database) -> None:
    ensure(door)
    other = Door.open(fresh_database.url, table_prefix="other_")
    assert standing(other).found is None
    ensure(other)
    assert differences(other, other.tables.metadata) == []
    assert differences(door, door.tables.metadata) == []
    other.close()


def test_without_leave_nothing_is_made(door: Door, later: Chain) -> None:
    with pytest.raises(SchemaError, match=r"there are no tables .* this version needs \w+; run `queuety migrate`"):
        ensure(door, auto_migrate=False)
    assert tables(door) == set()
    ensure(door)
    ensure(door, auto_migrate=False)
    door.has_schema = False
    with pytest.raises(SchemaError, match=rf"at revision {CHAIN.head} .* needs test_next; run `queuety migrate`"):
        ensure(door, auto_migrate=False, chain=later)


def test_newer_tables_are_refused_and_left(door: Door, later: Chain) -> None:
    ensure(door, chain=later)
    door.has_schema = False
    before = tables(door)
    for run in (ensure, migrate.migrate):
        with pytest.raises(SchemaError, match=f"at revision test_next, .* knows only up to {CHAIN.head}; install"):
            run(door)
    assert tables(door) == before
    assert standing(door) == Standing("test_next", CHAIN.head)


def test_an_upgrade_keeps_the_rows(door: Door, later: Chain) -> None:
    ensure(door)
    queues = door.tables.queues
    door.write(lambda tx: tx.connection.execute(queues.insert(), {"name": "kept", "changes": 3}))
    assert migrate.migrate(door, later) == Standing(CHAIN.head, "test_next")
    assert migrate.migrate(door, later) == Standing("test_next", "test_next")
    with door.reading() as connection:
        assert connection.execute(queues.select()).one() == ("kept", None, 3)
        assert "extra_us" in {column["name"] for column in inspect(connection).get_columns(door.tables.workers.name)}


def test_runs_of_the_first_version_go_on_after_the_upgrade(fresh_database: Database, tmp_path: Path) -> None:
    """Tables at 0001 with a run, its job, its timer and its history; every row stays, and the run is worked on."""
    folder = tmp_path / "first"
    folder.mkdir()
    shutil.copyfile(CHAIN.folders[0] / "0001_tables.py", folder / "0001_tables.py")
    with House(fresh_database.url) as house:
        door = house.door
        migrate.migrate(door, Chain(("0001",), (folder,)))
        assert standing(door) == Standing("0001", CHAIN.head)
        steps = definition(single("one"), pause_of(60), single("two"))
        body = encode(definition_to_json(steps))
        rows: dict[str, list[dict[str, Any]]] = {
            "definitions": [
                {"hash": steps.hash, "name": steps.name, "version": None, "body": body, "created_us": 1},
            ],
            "workflows": [run_of(steps, 1, step=1, runtime='{"due_us":5}'), run_of(steps, 2, step=0, runtime=None)],
            "history": [
                {"run_id": 1, "seq": 1, "entry": "completed", "at_us": 1, "token": 9, "job_id": 7, "attempt": 1}
                | {"step_index": 0, "visit": 1, "final": 0, "changed": '{"a":1}'},
            ],
            "inbox": [{"id": 4, "workflow_id": 1, "due_us": 5, "kind": "timer", "visit": 2, "body": None}],
            "jobs": [
                {"id": 5, "role": "step", "phase": "ready", "queue": "default", "priority_rank": 3, "due_us": 1}
                | {"handler": "tests:handler", "attempts": 0, "max_attempts": 3, "suspect": 0, "workflow_id": 2}
                | {"step_index": 0, "visit": 1, "entries": 0, "created_us": 1},
            ],
        }

        def fill(tx: Tx) -> None:
            for name, found in rows.items():
                for row in found:
                    columns = ", ".join(row)
                    values = ", ".join(f":{column}" for column in row)
                    tx.connection.execute(
                        text(f"INSERT INTO {door.tables.prefix}{name} ({columns}) VALUES ({values})"), row
                    )
            tx.connection.execute(text(f"UPDATE {door.tables.prefix}ids SET next = 100"))

        door.write(fill)
        before = {name: _columns(door, name, list(found[0])) for name, found in rows.items()}
        assert migrate.migrate(door) == Standing("0001", CHAIN.head)
        assert {name: _columns(door, name, list(found[0])) for name, found in rows.items()} == before
        assert differences(door, door.tables.metadata) == []
        assert [(row["loops"], row["watched"]) for row in house.rows("workflows")] == [(None, 0), (None, 0)]
        check(door)
        hand = house.hand()
        hand.work()
        house.clock.advance(61)
        hand.work()
        assert [(row["status"], row["transitions"]) for row in house.rows("workflows")] == [("completed", 3)] * 2
        check(door)


def run_of(steps: Definition, number: int, *, step: int, runtime: str | None) -> dict[str, Any]:
    """A row as 0001 has it: the run has settled so many steps."""
    state = '{"a":1}' if step else "{}"
    return {
        "id": number,
        "name": steps.name,
        "definition_hash": steps.hash,
        "status": "running",
        "version": step,
        "visit": step + 1,
        "current_step": step,
        "total_steps": len(steps.steps),
        "payload": "{}",
        "state": state,
        "state_version": step,
        "state_bytes": len(state),
        "delta_bytes": 0,
        "runtime": runtime,
        "transitions": step,
        "cleanup": "none",
        "created_us": 1,
    }


def _columns(door: Door, name: str, columns: list[str]) -> list[tuple[Any, ...]]:
    with door.reading() as connection:
        found = connection.execute(text(f"SELECT {', '.join(columns)} FROM {door.tables.prefix}{name} ORDER BY 1, 2"))
        return [tuple(row) for row in found]


def start(url: str, chain: Chain, begin: Any, results: Any) -> None:
    door = Door.open(url)
    begin.wait(60)
    try:
        ensure(door, chain=chain)
        results.put(standing(door, chain).found)
    except BaseException as error:
        results.put(repr(error))
    finally:
        door.close()


@pytest.mark.slow
def test_twenty_starters_make_the_tables_once(door: Door, fresh_database: Database, later: Chain) -> None:
    """From nothing to the second revision, all at the same moment."""
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([__name__])
    begin, results = fresh.Barrier(20), fresh.SimpleQueue()
    starters = [fresh.Process(target=start, args=(fresh_database.url, later, begin, results)) for _ in range(20)]
    for starter in starters:
        starter.start()
    answers = [results.get() for _ in starters]
    for starter in starters:
        starter.join(60)
    assert answers == ["test_next"] * 20
    with door.reading() as connection:
        assert connection.execute(text(f"SELECT version_num FROM {migrate.version_table(door)}")).all() == [
            ("test_next",)
        ]
        assert connection.execute(door.tables.ids.select()).all() == [("runs", 1)]


def test_a_migration_that_breaks_anywhere_is_finished_by_the_next(door: Door, later: Chain, rounds: int) -> None:
    """Before every statement in turn: nothing, or on MySQL a first half, is left; the next try completes it."""
    seen: list[str] = []
    door.on_statement = seen.append
    migrate.migrate(door, later)
    door.on_statement = None
    changes = [n for n, statement in enumerate(seen) if statement.lstrip().split(" ")[0] in CHANGING]
    assert len(changes) > 10
    for broken in changes[:: max(1, len(changes) // rounds)]:
        wipe(door)
        left = [broken]

        def hook(statement: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise RuntimeError(statement)

        door.on_statement = hook
        with pytest.raises(RuntimeError):
            migrate.migrate(door, later)
        door.on_statement = None
        migrate.migrate(door, later)
        expected = MetaData()
        for table in door.tables.metadata.tables.values():
            table.to_metadata(expected)
        assert {found[0] for found in differences(door, expected)} == {"remove_column", "remove_index"}
        assert standing(door, later).is_current


CHANGING = {"CREATE", "ALTER", "INSERT", "UPDATE", "DELETE", "COMMIT"}


def wipe(door: Door) -> None:
    reflected = MetaData()
    with door.engine.begin() as connection:
        reflected.reflect(connection)
        reflected.drop_all(connection)


def test_a_migration_waits_for_another_and_then_gives_up(
    door: Door, fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "WAIT_S", 1.0)
    monkeypatch.setattr(migrate, "PATIENCE_S", 0.5)
    other = Door.open(fresh_database.url)

    def unit(tx: Tx) -> None:
        tx.dialect.lock_migrations(tx.connection, migrate.version_table(door), 1)
        with pytest.raises(StoreUnavailable):
            migrate.migrate(door)
        tx.dialect.unlock_migrations(tx.connection, migrate.version_table(door))

    assert standing(door).found is None
    if door.dialect.writer_key() is not None:
        monkeypatch.setattr("queuety.store.dialects.sqlite.SETUP_S", 0.5)
        blocker = create_engine(fresh_database.url, poolclass=NullPool)
        with blocker.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                migrate.migrate(door)
            connection.rollback()
    else:
        other.write(unit)
    assert tables(door) == set()
    migrate.migrate(door)
    assert standing(door).is_current
    other.close()


def test_alembic_is_not_imported_when_there_is_nothing_to_do(door: Door, fresh_database: Database) -> None:
    ensure(door)
    program = (
        "import sys\n"
        "from queuety.store.door import Door\n"
        "from queuety.store.migrate import ensure\n"
        f"door = Door.open({fresh_database.url!r})\n"
        "ensure(door)\n"
        "door.close()\n"
        "print('alembic' in sys.modules)\n"
    )
    source = Path(migrate.__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=source)
    assert ran.stdout.strip() == "False"


def test_asking_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "typo.db"
    door = Door.open(f"sqlite:///{path}")
    with pytest.raises(SchemaError, match="queuety migrate"):
        ensure(door, auto_migrate=False)
    door.close()
    assert not path.exists()

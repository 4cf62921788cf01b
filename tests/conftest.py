"""What every test can ask for: a database of each kind, an application on it, a clock that is moved by hand."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import settings

from tests.support.databases import KINDS, Database, Databases, Place, Unreachable, opened, required_kinds

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.testing import ManualClock

PROOF = bool(os.environ.get("QUEUETY_TEST_PROOF"))
"""`make proof`: many more rounds than a change has to wait for."""

SERVERS = tuple(kind for kind in KINDS if kind != "sqlite")

MISSING = "no database to test on: "
"""How the reason begins when a test is skipped for want of a server; the summary counts by it."""

IN_TURNS = bool(os.environ.get("QUEUETY_TEST_IN_TURNS"))
"""Scenarios are told on SQLite, and every second one on one of the servers too; which one, its name decides. Both
servers are met by every subject, in half the time. Without it each is told on all three."""

SCENARIOS = ("tests/flow/", "tests/crash/", "tests/faces/")
"""Where they stand. What depends on the database, above all `tests/store`, is always told on each."""

# Two cores shared by several processes make any deadline a coin toss.
settings.register_profile("usual", deadline=None, print_blob=True)
settings.register_profile("proof", deadline=None, print_blob=True, max_examples=5_000)
settings.load_profile("proof" if PROOF else "usual")


def pytest_configure() -> None:
    try:
        required_kinds()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not IN_TURNS:
        return
    kinds = {id(item): kind for item in items if (kind := _kind_of_scenario(item)) is not None}
    on_sqlite = {_told(item, "sqlite") for item in items if kinds.get(id(item)) == "sqlite"}
    left_out = [item for item in items if _is_another_s_turn(item, kinds.get(id(item)), on_sqlite)]
    if left_out:
        chosen = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in chosen]
        config.hook.pytest_deselected(items=left_out)


def _kind_of_scenario(item: pytest.Item) -> str | None:
    """The database that a scenario is told on; None for what is none, or needs none."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    if not item.location[0].startswith(SCENARIOS):
        return None
    kind = item.callspec.params.get("database_kind")
    return None if kind is None else str(kind)


def _told(item: pytest.Item, kind: str) -> str:
    """The scenario, whatever it is told on."""
    return item.nodeid.replace(kind, "")


def _is_another_s_turn(item: pytest.Item, kind: str | None, on_sqlite: set[str]) -> bool:
    """Whether the scenario is told elsewhere this time."""
    if kind is None or kind == "sqlite":
        return False
    name = _told(item, kind)
    number = crc32(name.encode())
    if kind != SERVERS[number % len(SERVERS)]:
        return True
    return name in on_sqlite and number // len(SERVERS) % 2 == 1


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """The databases of this process; tests ask for `database` or `fresh_database` instead."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with opened(tmp_path_factory.mktemp("databases"), worker) as mine:
        yield mine


@pytest.fixture(params=KINDS)
def database_kind(request: pytest.FixtureRequest) -> str:
    """`sqlite`, `postgresql` and `mysql` in turn: whatever asks for it runs on each."""
    kind: str = request.param
    return kind


@pytest.fixture
def place(databases: Databases, database_kind: str) -> Place:
    """Where databases of this kind are had; skips the test if nowhere, or fails it if QUEUETY_TEST_REQUIRE names it."""
    try:
        return databases.place(database_kind)
    except Unreachable as reason:
        message = f"{MISSING}{database_kind}: {reason}"
        if database_kind in required_kinds():
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


@pytest.fixture
def database(place: Place, tmp_path: Path) -> Database:
    """A database (`.kind`, `.url`) with Queuety's tables and no run in them, on each kind in turn."""
    return place.database(tmp_path)


@pytest.fixture
def fresh_database(place: Place, tmp_path: Path) -> Database:
    """A database without any table, on each kind in turn."""
    return place.fresh(tmp_path)


@pytest.fixture
def memory_url() -> str:
    """SQLite in memory, for what needs no second process."""
    return "sqlite:///:memory:"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at the first moment of 2026 (UTC) until it is advanced."""
    from queuety.testing import ManualClock

    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def app(database: Database, clock: ManualClock) -> Iterator[Queuety]:
    """An application on each kind of database in turn, by the clock that is moved by hand."""
    from queuety import Queuety

    with Queuety(database.url, clock=clock) as made:
        yield made


@pytest.fixture
def rounds() -> int:
    """How often a test of chance repeats itself: a few times, or many under `make proof`."""
    return 200 if PROOF else 3


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each kind of database that could not be had."""
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if reason.startswith(MISSING):
            skipped[reason.removeprefix(MISSING)] += 1
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"{count} tests skipped, {MISSING}{reason}", yellow=True)

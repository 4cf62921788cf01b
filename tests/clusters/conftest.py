"""Only `make proof` collects these, and skips those whose programs are missing: the summary says which."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.pairs import pair_of_servers
from tests.clusters.servers import Script
from tests.conftest import PROOF

collect_ignore_glob = [] if PROOF else ["test_*.py"]


@pytest.fixture
def pair() -> Iterator[Script]:
    """A PostgreSQL primary `a` and its synchronous standby `b`."""
    with pair_of_servers() as made:
        yield made


@pytest.fixture
def pooled() -> Iterator[Script]:
    """The same with PgBouncer before the primary."""
    with pair_of_servers("pgbouncer") as made:
        made("pooler")
        yield made

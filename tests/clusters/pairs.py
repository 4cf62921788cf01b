"""A PostgreSQL primary and its synchronous standby, made for a test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clusters.servers import Script, folder, need


def _programs() -> Path | None:
    """Where the server's programs lie: not always on PATH."""
    if (asked := shutil.which("pg_config")) is not None:
        said = subprocess.run([asked, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
        if (Path(said) / "initdb").exists():
            return Path(said)
    found = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    return Path(found).resolve().parent if found else None


@contextmanager
def pair_of_servers(*programs: str) -> Iterator[Script]:
    """Primary `a` and standby `b`; told to `kill9`, `promote` and so on. Skips without these programs."""
    binaries = _programs()
    need("a pair of postgresql", ["psql", "runuser", "pkill", "bash", *programs], binaries)
    with folder("postgres") as base:
        script = Script("pg_pair.sh", {"PG_PAIR_BASE": str(base), "PG_BIN": str(binaries)})
        try:
            said = script("init")
            assert "sync" in said, said
            yield script
        finally:
            script("kill9", "pooler", must=False)
            for name in ("a", "b"):
                script("stop", name, must=False)

"""The benchmark measures what it says it does; how fast it is nobody asserts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_prints_its_table_and_writes_its_figures(tmp_path: Path) -> None:
    figures = tmp_path / "bench.json"
    few = ["--only", "sqlite", "--rounds", "2", "--workflows", "40", "--pending", "200", "--floor-seconds", "0.1"]
    few += ["--sizes", "tiny"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *few, "--json", str(figures)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "as a share of the floor" in done.stdout
    found = json.loads(figures.read_text())
    (line,) = found["lines"]
    assert line["database"] == "sqlite FULL"
    assert all(value > 0 for name, value in line.items() if name != "database")
    (kinds,) = found["kinds"]
    assert [(one["items"], one["in_threads"]) for one in kinds["items"]] == [(10, False), (20, False)]
    assert all(one["per_second"] > 0 and one["peak_mb"] > 0 for one in kinds["items"])
    assert all(value > 0 for name, value in kinds.items() if name not in ("database", "items", "idle"))
    assert [kinds["idle"][parked]["statements"] for parked in ("0", "10")] == [1, 1]

"""`python -m benchmarks.child MODULE:FUNCTION JSON`: one measurement in a process of its own.

The function is called with what the JSON object holds; what it returns is printed as JSON, with the peak memory of the
process. The module is imported under its own name, so that handlers and those who watch them are the same objects.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.memory import peak_mb

TIMEOUT_S = 300.0


def in_child(function: Callable[..., dict[str, Any]], **given: Any) -> dict[str, Any]:
    """What the function returns in a process of its own, and `peak_mb`."""
    command = [sys.executable, "-m", "benchmarks.child", f"{function.__module__}:{function.__name__}"]
    done = subprocess.run(
        [*command, json.dumps(given)], stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(name: str, given: str) -> None:
    """Calls it."""
    module, _, function = name.partition(":")
    found = getattr(import_module(module), function)(**json.loads(given))
    json.dump({**found, "peak_mb": peak_mb()}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

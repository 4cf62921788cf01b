"""Workflow files in tests: what a test has loaded is forgotten after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from queuety.define import files
from queuety.define.registry import Registry


@contextmanager
def forgotten() -> Iterator[None]:
    """Forgets what is loaded inside, as a process that ends does."""
    finder = files._finder
    roots, singles, known = list(finder.roots), dict(finder.singles), set(sys.modules)
    try:
        yield
    finally:
        finder.roots[:], finder.singles = roots, singles
        files._forget(
            [name for name in sys.modules if name not in known and name.startswith("queuety_files.")], Registry()
        )

"""For tests of programs that use Queuety: a clock that is moved by hand. The database to test on is SQLite in memory.

The pytest plugin (installed with the package) has the fixtures `queuety_clock` and `queuety_app`.
"""

from __future__ import annotations

from queuety.testing.clock import ManualClock

__all__ = ["ManualClock"]

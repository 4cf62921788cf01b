"""The demo's application, for `queuety --app queuety.demo.app:app`; it reads its database from the environment.

Its lease is short, so that nobody has to wait until what a killed worker held is taken back.
"""

from __future__ import annotations

from typing import Final

from queuety import Queuety, Settings

SETTINGS: Final = Settings(lease_seconds=3.0, idle_poll_seconds=0.5, grace_seconds=5.0)

app: Final = Queuety(settings=SETTINGS)

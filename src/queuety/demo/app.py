"""The demo's application, for `queuety --app queuety.demo.app:app`; it reads its database from the environment."""

from __future__ import annotations

from typing import Final

from queuety import Queuety
from queuety.demo.steps import SETTINGS

app: Final = Queuety(settings=SETTINGS)

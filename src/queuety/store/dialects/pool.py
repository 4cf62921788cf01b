"""Connections that have rested in a pool: those that may have died meanwhile are found out before they are used."""

from __future__ import annotations

import time
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

REST_S: Final = 1.0
"""A connection that rested for longer is asked before it is used: one small round trip at most once a second each."""


def watch(engine: Engine) -> None:
    """Has the pool ask a connection that has rested for `REST_S` whether it still lives, and replace it if not."""

    @event.listens_for(engine, "checkin")
    def rests(_raw: object, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def wakes(raw: Any, record: Any, _proxy: object) -> None:
        since = record.info.get("rests_since")
        if since is None or time.monotonic() - since < REST_S:
            return
        try:
            alive = engine.dialect.do_ping(raw)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error
        if not alive:
            raise DisconnectionError

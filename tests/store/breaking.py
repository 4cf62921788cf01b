"""Errors as drivers raise them, and connections that are really cut, for the door's tests."""

from __future__ import annotations

import os
import socket
import sqlite3
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]


def driver_error(kind: str, what: str) -> Exception:
    """What the driver of this kind of database raises for `deadlock`, `lost` or `duplicate`."""
    if kind == "sqlite":
        code = {
            "deadlock": sqlite3.SQLITE_BUSY,
            "lost": sqlite3.SQLITE_IOERR,
            "duplicate": sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        }[what]
        error = sqlite3.OperationalError(what)
        error.sqlite_errorcode = code
        return error
    if kind == "postgresql":
        if what == "lost":
            return psycopg.OperationalError("the connection is lost")
        return psycopg.errors.lookup({"deadlock": "40P01", "duplicate": "23505"}[what])(what)
    failure: Exception = pymysql.OperationalError({"deadlock": 1213, "lost": 2013, "duplicate": 1062}[what], what)
    return failure


def cut(connection: Any) -> None:
    """Shuts the socket of a driver's connection (PostgreSQL or MySQL), as a network does."""
    if isinstance(connection, psycopg.Connection):
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
    else:
        connection._sock.shutdown(socket.SHUT_RDWR)

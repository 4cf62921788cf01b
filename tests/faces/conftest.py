"""A project of the user's, as the command line finds it: a folder with a module, and a database."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Project
from tests.support.databases import Database

SHOP = """
from queuety import Queuety, current, job, step, workflow

app = Queuety()

@step
def fetch(state):
    return {"name": state.get("name", "nobody")}

@step(max_attempts=1)
def greet(state):
    if state["name"] == "Eve":
        raise ValueError("no greeting for [bold]Eve[/bold]\\x1b[2J\\nsecond line")
    return {"greeting": "Hello " + state["name"]}

@step
def sweep(state):
    return {"swept": True}

@job
def mail(to, copies=1):
    if to == "nobody":
        raise ValueError("nobody has no address")

greeting = app.workflow("greeting").then(fetch).then(greet, name="greet").on_cancel(sweep)
slow = app.workflow("slow").delay(hours=1).then(fetch)

def made():
    return Queuety()

def building(app):
    return app.workflow("built").then(fetch)

def alone():
    return workflow("alone").then(fetch)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("QUEUETY_APP", "QUEUETY_DATABASE_URL", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    known = set(sys.modules)
    yield place
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def project(folder: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The working directory with `shop.py` in it; its application has a database of each kind in turn."""
    return _project(folder, database.url, monkeypatch)


@pytest.fixture
def local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The same on an SQLite file of its own, for what does not depend on the database."""
    return _project(folder, f"sqlite:///{folder / 'local.db'}", monkeypatch)


def _project(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    (folder / "shop.py").write_text(SHOP)
    monkeypatch.setenv("QUEUETY_DATABASE_URL", url)
    monkeypatch.setenv("QUEUETY_APP", "shop:app")
    return Project(folder, url)

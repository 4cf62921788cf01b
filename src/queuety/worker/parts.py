"""What processes that work need of the application, and how a new process finds it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from queuety.commands.definitions import Definitions
from queuety.errors import DefinitionError
from queuety.model import Job
from queuety.store.door import Door
from queuety.worker.loop import Loop
from queuety.worker.terms import Terms


class AppParts(Protocol):
    """What `queuety.Queuety` gives to those who run its jobs."""

    @property
    def door(self) -> Door:
        """The way to the database. Raises `StoreUnavailable` if its tables are to be seen to first and cannot be."""

    @property
    def definitions(self) -> Definitions:
        """Every definition that this process has met."""

    def worker_loop(self, terms: Terms, *, on_stuck: Callable[[Job], None] | None = None) -> Loop:
        """A loop on these terms; `on_stuck` gets the job of a handler that is over its limit and does not stop.

        Raises `StoreUnavailable` while the database cannot be reached.
        """


def load_app(target: str, workflows: Sequence[str] = ()) -> AppParts:
    """The application that `module:attribute` names, or that the function gives back which it names.

    `workflows` are folders whose workflow files are loaded too. Raises `DefinitionError` if there is no application, or
    a file cannot be loaded, `NotFoundError` if a folder is not there. What the module raises when it is imported
    passes.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise DefinitionError(f"{target!r} names no application; module:attribute is needed, such as shop.jobs:app")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise DefinitionError(f"{target!r}: {module_name} has no {path}") from None
    if callable(found) and not hasattr(found, "worker_loop"):
        found = found()
    if not callable(getattr(found, "worker_loop", None)):
        raise DefinitionError(f"{target!r} is a {type(found).__name__}; a Queuety is needed")
    for folder in workflows:
        found.load_workflows(folder, recursive=True)
    app: AppParts = found
    return app

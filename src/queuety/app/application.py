"""The one object that a program makes: all verbs together, each in the file of its subject."""

from __future__ import annotations

from queuety.app.asynchronous import AsyncVerbs
from queuety.define.builder import WorkflowBuilder


class Queuety(AsyncVerbs):
    """Durable workflows and jobs in the database that you already have.

    Thread-safe; may be made before a fork. Every verb that talks to the database also exists as `…_async`.
    """

    def workflow(self, name: str) -> WorkflowBuilder:
        """A builder of a workflow of this name, which `dispatch()` starts here. Raises `DefinitionError`."""
        return WorkflowBuilder(name, dispatcher=self, registry=self.registry)

    define_workflow = workflow

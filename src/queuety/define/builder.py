"""The builder of workflows: what a user writes becomes a `Definition`, which nothing can change any more.

Wrong use is refused at the call. Nothing here touches a database: `dispatch` asks the application that made the
builder. Its methods stand in `building`, one subject a file; `forms` says how a new kind of step is added.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

from queuety.define.building.children import Children
from queuety.define.building.cleanup import Cleanup
from queuety.define.building.guards import Limits
from queuety.define.building.run import RunOptions
from queuety.define.building.steps import Steps
from queuety.define.building.waits import SignalWaits, WorkflowWaits
from queuety.define.names import check_tags
from queuety.define.registry import Registry
from queuety.define.wire import definition_to_json, read_label
from queuety.errors import DefinitionError
from queuety.model import Definition, Json


class Dispatcher(Protocol):
    """What starts workflows: an application."""

    def dispatch_workflow(self, builder: WorkflowBuilder, payload: Any = None, *, connection: Any = None) -> int:
        """Starts what the builder describes, under its idempotency key if it has one; the new run's id."""

    async def dispatch_workflow_async(
        self, builder: WorkflowBuilder, payload: Any = None, *, connection: Any = None
    ) -> int:
        """The same, without blocking the event loop."""


class WorkflowBuilder(Steps, SignalWaits, WorkflowWaits, Children, RunOptions, Limits, Cleanup):
    """Describes a workflow, step by step; every method gives back the builder.

    Each raises `DefinitionError` for what cannot be right. Steps may be added after a dispatch: every dispatch takes
    what the builder holds at that moment.
    """

    def __init__(self, name: str, *, registry: Registry | None = None, dispatcher: Dispatcher | None = None) -> None:
        super().__init__(name, registry)
        self._dispatcher = dispatcher
        self._key: str | None = None
        self._tags: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<workflow {self._name!r}, {len(self._steps)} steps>"

    @property
    def name(self) -> str:
        """The name of the workflow."""
        return self._name

    @property
    def key(self) -> str | None:
        """The idempotency key, if one was set."""
        return self._key

    def idempotency_key(self, key: str) -> Self:
        """Lets only the first dispatch of this workflow under this key start a run; later ones give its id."""
        self._key = read_label(key, f"workflow {self._name!r}: idempotency_key")
        return self

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the runs that this builder starts, in the order they were given."""
        return self._tags

    def tag(self, *names: str) -> Self:
        """Gives the runs these tags, by which `list_workflows(tag=…)` finds them; each once, at most 50 in all.

        They belong to the dispatch, as the idempotency key does: they are no part of the definition and its hash, and
        the runs that a step starts do not get them.
        """
        self._tags = check_tags((*self._tags, *names), what=f"workflow {self._name!r}: tag")
        return self

    def build(self, registry: Registry | None = None) -> Definition:
        """The definition of what was described so far, with its hash.

        `registry` is the application's, for a builder that was made without one; it tells what the aliases mean.
        Raises `DefinitionError` for a workflow without steps, or one where `on_timeout` names no step.
        """
        return self._captured(registry or Registry())

    def definition(self) -> dict[str, Json]:
        """The definition as JSON, for `app.dispatch_definition`; without the idempotency key and the tags."""
        return definition_to_json(self.build())

    def dispatch(self, payload: Any = None, *, connection: Any = None) -> int:
        """Starts a run with this payload as its first state; the run's id.

        `connection` is an SQLAlchemy `Connection` or `Session`: the run then starts when the caller commits. Raises
        `DefinitionError` for a workflow without steps, `PayloadError` for a payload that is no JSON; then nothing is
        written.
        """
        return self._application().dispatch_workflow(self, payload, connection=connection)

    async def dispatch_async(self, payload: Any = None, *, connection: Any = None) -> int:
        """`dispatch` without blocking the event loop; `connection` may be an `AsyncConnection` or `AsyncSession`."""
        return await self._application().dispatch_workflow_async(self, payload, connection=connection)

    def _application(self) -> Dispatcher:
        if self._dispatcher is None:
            raise DefinitionError(
                f"workflow {self._name!r} was made without an application; start it with "
                "app.dispatch_workflow(builder, payload), or make it with app.workflow(name)"
            )
        return self._dispatcher


def workflow(name: str) -> WorkflowBuilder:
    """A builder without an application, to be started with `app.dispatch_workflow(builder, payload)`."""
    return WorkflowBuilder(name)

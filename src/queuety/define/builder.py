"""The builder of workflows: what a user writes becomes a `Definition`, which nothing can change any more.

Wrong use is refused at the call. Nothing here touches a database: `dispatch` asks the application that made the
builder. A new kind of step is a method that calls `_add`, and an entry in the table of kinds in `wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, Self, Unpack

from queuety.define.marks import Bound, HandlerKind, HandlerLike
from queuety.define.names import check_name
from queuety.define.options import HandlerOptions, merged, options_from, read_attempts, read_priority, read_queue
from queuety.define.registry import Registry
from queuety.define.wire import MAX_STEPS, definition_to_json, delay_settings, hashed, read_label
from queuety.errors import DefinitionError
from queuety.model import Definition, HandlerRef, Json, Options, Priority, StepSpec


class Dispatcher(Protocol):
    """What starts workflows: an application."""

    def dispatch_workflow(self, builder: WorkflowBuilder, payload: Any = None, *, connection: Any = None) -> int:
        """Starts what the builder describes, under its idempotency key if it has one; the new run's id."""

    async def dispatch_workflow_async(
        self, builder: WorkflowBuilder, payload: Any = None, *, connection: Any = None
    ) -> int:
        """The same, without blocking the event loop."""


class WorkflowBuilder:
    """Describes a workflow, step by step; every method gives back the builder.

    Each raises `DefinitionError` for what cannot be right. Steps may be added after a dispatch: every dispatch takes
    what the builder holds at that moment.
    """

    def __init__(self, name: str, *, registry: Registry | None = None, dispatcher: Dispatcher | None = None) -> None:
        self._name = check_name(name, what="the name of a workflow")
        self._registry = registry
        self._dispatcher = dispatcher
        self._steps: list[StepSpec] = []
        self._explicit: set[str] = set()
        self._open: dict[int, Bound] = {}  # steps whose alias only the application knows
        self._open_on_cancel: Bound | None = None
        self._run = Definition(self._name, ())
        self._key: str | None = None

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

    def then(self, handler: HandlerLike, name: str | None = None, **options: Unpack[HandlerOptions]) -> Self:
        """Adds a step: a marked function, a class derived from `Step`, a `bind(…)` of one, or a registered alias.

        The options are those of `@step`, for this step only. `name` is what `_next_step` calls it; its index otherwise.
        """
        where = self._where(name)
        own = options_from(options, where=where)
        target = self._deferred(handler)
        if target is not None:
            index = len(self._steps)
            self._add("single", name, str(index), HandlerRef(target.target, target.config or None), own)
            self._open[index] = target
            return self
        ref, theirs = (self._registry or Registry()).ref(handler, HandlerKind.STEP, where=where)
        return self._add("single", name, str(len(self._steps)), ref, merged(own, theirs))

    def delay(
        self,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        step_name: str | None = None,
    ) -> Self:
        """Adds a durable pause of the sum, which holds no worker; 0 is allowed."""
        parts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        settings = delay_settings(parts, self._where(step_name))
        delays = sum(spec.kind == "delay" for spec in self._steps)
        return self._add("delay", step_name, f"delay_{delays}", settings=settings)

    def on_cancel(self, handler: HandlerLike) -> Self:
        """Has a handler run with the public state, as a durable job, when the run has been cancelled."""
        self._open_on_cancel = self._deferred(handler)
        if self._open_on_cancel is not None:
            return self._set(on_cancel=None)
        where = f"workflow {self._name!r}: on_cancel"
        ref, _ = (self._registry or Registry()).ref(handler, HandlerKind.STEP, where=where)
        return self._set(on_cancel=ref)

    def on_queue(self, queue: str) -> Self:
        """Runs the steps that name no queue on this one."""
        return self._set(queue=read_queue(queue, f"workflow {self._name!r}: queue"))

    def with_priority(self, priority: Priority | int | str) -> Self:
        """Gives the steps that name no priority this one."""
        return self._set(priority=read_priority(priority, f"workflow {self._name!r}: priority"))

    def max_attempts(self, attempts: int) -> Self:
        """Tries the steps that do not say how often at most this often each."""
        return self._set(max_attempts=read_attempts(attempts, f"workflow {self._name!r}: max_attempts"))

    def version(self, label: str) -> Self:
        """Labels the definition for people; runs carry the label."""
        return self._set(version=read_label(label, f"workflow {self._name!r}: version"))

    def idempotency_key(self, key: str) -> Self:
        """Lets only the first dispatch of this workflow under this key start a run; later ones give its id."""
        self._key = read_label(key, f"workflow {self._name!r}: idempotency_key")
        return self

    def build(self, registry: Registry | None = None) -> Definition:
        """The definition of what was described so far, with its hash.

        `registry` is the application's, for a builder that was made without one; it tells what the aliases mean.
        """
        if not self._steps:
            raise DefinitionError(f"workflow {self._name!r} has no steps; add one with then()")
        steps = list(self._steps)
        on_cancel = self._run.on_cancel
        if self._open or self._open_on_cancel is not None:
            aliases = registry or self._registry or Registry()
            for index, target in self._open.items():
                where = f"step {index} of workflow {self._name!r}"
                ref, theirs = aliases.ref(target, HandlerKind.STEP, where=where)
                steps[index] = replace(steps[index], handler=ref, options=merged(steps[index].options, theirs))
            if self._open_on_cancel is not None:
                where = f"workflow {self._name!r}: on_cancel"
                on_cancel, _ = aliases.ref(self._open_on_cancel, HandlerKind.STEP, where=where)
        return hashed(replace(self._run, steps=tuple(steps), on_cancel=on_cancel))

    def definition(self) -> dict[str, Json]:
        """The definition as JSON, for `app.dispatch_definition`; without the idempotency key."""
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

    def _add(
        self,
        kind: str,
        name: str | None,
        default_name: str,
        handler: HandlerRef | None = None,
        options: Options = Options(),
        settings: Mapping[str, Json] | None = None,
    ) -> Self:
        if len(self._steps) >= MAX_STEPS:
            raise DefinitionError(f"workflow {self._name!r} has more than {MAX_STEPS} steps")
        found = self._unused(default_name) if name is None else self._chosen(name)
        self._steps.append(StepSpec(kind, found, handler, options, dict(settings or {})))
        return self

    def _chosen(self, name: str) -> str:
        where = f"workflow {self._name!r}: the name of step {len(self._steps)}"
        check_name(name, what=where)
        for index, spec in enumerate(self._steps):
            if spec.name == name:
                raise DefinitionError(f"{where}: step {index} already has the name {name!r}")
        self._explicit.add(name)
        return name

    def _unused(self, default: str) -> str:
        """The default name, with _2, _3, … if another step got it by default; one chosen by hand is in the way."""
        taken = {spec.name for spec in self._steps}
        if default in self._explicit:
            raise DefinitionError(
                f"workflow {self._name!r}: step {len(self._steps)} would be named {default!r}, as another step was by "
                "hand; give one of them another name"
            )
        name, count = default, 1
        while name in taken:
            count += 1
            name = f"{default}_{count}"
        return name

    def _deferred(self, handler: Any) -> Bound | None:
        """The target, if it is an alias that only an application can know and this builder has none."""
        if self._registry is not None:
            return None
        target = handler if isinstance(handler, Bound) else Bound(handler, {})
        if not isinstance(target.target, str) or ":" in target.target:
            return None
        check_name(target.target, what=f"workflow {self._name!r}: the name of a handler")
        return target

    def _set(self, **values: Any) -> Self:
        self._run = replace(self._run, **values)
        return self

    def _where(self, name: str | None) -> str:
        called = "" if name is None else f" ({name!r})"
        return f"step {len(self._steps)}{called} of workflow {self._name!r}"

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

"""What the aliases of a definition mean, for one that was described before its application was known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from queuety.define.forms import FORMS
from queuety.define.marks import Bound, HandlerKind
from queuety.define.options import merged
from queuety.define.registry import Registry
from queuety.define.wire import RUN_HANDLERS, hashed
from queuety.errors import DefinitionError
from queuety.model import Branch, Definition, HandlerRef, Options, StepSpec, Use


def looked_up(definition: Definition, registry: Registry) -> Definition:
    """The definition, and those of the runs that it starts, with their hashes.

    Every handler that goes by an alias is looked up, and its own options fill what the step leaves open (those of
    what cleans up fill nothing). A child that has its hash is taken as it is. Raises `DefinitionError` naming the step
    for an alias that the registry has not.
    """
    called = f"workflow {definition.name!r}"
    steps = tuple(_step(spec, registry, f"step {index} of {called}") for index, spec in enumerate(definition.steps))
    cleaning: dict[str, Any] = {
        key: _cleaning(getattr(definition, key), registry, f"{called}: {key}") for key in RUN_HANDLERS
    }
    return hashed(replace(definition, steps=steps, **cleaning))


def is_alias(name: str) -> bool:
    """True for a name that only the registry of an application can lead from; others say where the code is."""
    return ":" not in name


def _step(spec: StepSpec, registry: Registry, where: str) -> StepSpec:
    handler, options, reducer, child = spec.handler, spec.options, spec.reducer, spec.child
    if handler is not None:
        handler, options = _handler(handler, options, FORMS[spec.kind].use, registry, where)
    branches = tuple(
        Branch(*_handler(branch.handler, branch.options, Use.STEP, registry, f"{where}: branch {number}"))
        for number, branch in enumerate(spec.branches)
    )
    if reducer is not None:
        reducer, _ = _handler(reducer, Options(), Use.REDUCER, registry, f"{where}: reducer")
    if child is not None and not child.hash:
        try:
            child = looked_up(child, registry)
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from error
    return replace(
        spec,
        handler=handler,
        options=options,
        branches=branches,
        reducer=reducer,
        child=child,
        compensation=_cleaning(spec.compensation, registry, f"{where}: compensation"),
    )


def _cleaning(ref: HandlerRef | None, registry: Registry, where: str) -> HandlerRef | None:
    return None if ref is None else _handler(ref, Options(), Use.CLEANUP, registry, where)[0]


def _handler(ref: HandlerRef, options: Options, use: Use, registry: Registry, where: str) -> tuple[HandlerRef, Options]:
    if not is_alias(ref.name) and not registry.has_alias(ref.name):
        return ref, options
    ref, own = registry.ref(Bound(ref.name, ref.config or {}), HandlerKind.STEP, where=where, use=use)
    return ref, merged(options, own)

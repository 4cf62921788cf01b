"""The JSON form of a definition, its hash, and the strict way back.

`definition_to_json` writes one shape for one meaning, so that equal definitions have equal hashes. The way back also
takes the other shapes of the specification (4.14): `class` for `handler`, `retry`, `timeout` as `{"seconds": …}`,
options inside `config`, `payload` for what `bind` gives. The form::

    {"name": "report", "queue": …, "priority": "high", "max_attempts": …, "version": …, "on_cancel": HANDLER,
     "steps": [{"type": "single", "name": "fetch", "handler": HANDLER, "timeout": 30, …},
               {"type": "delay", "name": "delay_0", "seconds": 60},
               {"type": "parallel", "name": "2", "branches": [HANDLER NAME, {"handler": HANDLER, "queue": …}]},
               {"type": "for_each", "name": "3", "handler": HANDLER, "reducer": HANDLER, "items_key": "urls", …},
               {"type": "repeat", "name": "repeat_until_4", "until": true, "target": "fetch", "condition": HANDLER},
               {"type": "run_workflow", "name": "5", "workflow": {"name": "child", "steps": […]}}]}

where HANDLER is a name or `{"handler": name, "config": {…}}`, and what is not set is left out. The settings of each
kind stand in `forms`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from queuety.codec import canonical, checked_mapping
from queuety.define.checks import MAX_NESTING, MAX_STEPS, check_jumps, count_steps
from queuety.define.entries import known_keys, ref_from_json, ref_to_json, step_from_json, step_to_json
from queuety.define.names import check_name
from queuety.define.options import read_attempts, read_priority, read_queue
from queuety.define.registry import Registry
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Definition, Json, StepSpec, Use


def definition_to_json(definition: Definition) -> dict[str, Json]:
    """The definition as JSON, without its hash; a fresh copy."""
    form: dict[str, Json] = {"name": definition.name}
    for key in ("version", "queue", "max_attempts"):
        if (value := getattr(definition, key)) is not None:
            form[key] = value
    if definition.priority is not None:
        form["priority"] = definition.priority.name.lower()
    if definition.on_cancel is not None:
        form["on_cancel"] = ref_to_json(definition.on_cancel)
    form["steps"] = [step_to_json(spec, definition_to_json) for spec in definition.steps]
    return form


def definition_hash(definition: Definition) -> str:
    """64 hex digits over the JSON form: equal for equal definitions, whatever process, order of keys or payload."""
    return _hash_of(definition_to_json(definition))


def hashed(definition: Definition) -> Definition:
    """The definition with its hash filled in.

    Raises `DefinitionError` if something in it is nested so deep that nobody could read it back.
    """
    form = definition_to_json(definition)
    _checked(form, f"workflow {definition.name!r}")
    return replace(definition, hash=_hash_of(form))


def definition_from_json(form: Any, registry: Registry | None = None) -> Definition:
    """The definition that a JSON form describes, with its hash.

    With a registry every handler is looked up and its own options fill what the step leaves open, as in the builder;
    None takes a stored definition as it is, whether or not its handlers can be found here. Raises `DefinitionError`
    naming the step and the key.
    """
    return _definition(_checked(form, "definition"), registry, 1)


def nested(definition: Definition) -> Iterator[Definition]:
    """The definitions of the runs that this one starts, and of those that they start, each before its own."""
    for spec in definition.steps:
        if spec.child is not None:
            yield spec.child
            yield from nested(spec.child)


def read_label(value: object, where: str) -> str:
    """A version or a key as a user gave it, without the blanks around it."""
    return check_name(value.strip() if isinstance(value, str) else value, what=where)


_RUN_READERS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "version": read_label,
    "queue": read_queue,
    "priority": read_priority,
    "max_attempts": read_attempts,
}

_WORKFLOW_KEYS: Final = frozenset({"name", "steps", "on_cancel", *_RUN_READERS})


def _checked(form: Any, what: str) -> dict[str, Json]:
    try:
        return checked_mapping(form, what=what)
    except PayloadError as error:
        raise DefinitionError(str(error)) from error


def _hash_of(form: Json) -> str:
    return hashlib.sha256(canonical(form).encode()).hexdigest()


def _definition(form: Mapping[str, Json], registry: Registry | None, level: int) -> Definition:
    """The definition of a checked form that stands at this level, 1 for the outermost one."""
    known_keys(form, _WORKFLOW_KEYS, "definition")
    name = check_name(form.get("name"), what="definition: name")
    if level > MAX_NESTING:
        raise DefinitionError(f"workflow {name!r} stands more than {MAX_NESTING} levels deep in others")
    entries = form.get("steps")
    if type(entries) is not list or not entries:
        raise DefinitionError(f"workflow {name!r}: steps must be a list with at least one step")
    if len(entries) > MAX_STEPS:
        raise DefinitionError(f"workflow {name!r} has {len(entries)} steps; at most {MAX_STEPS} are allowed")

    def child_from_json(child: Json, where: str) -> Definition:
        if type(child) is not dict:
            raise DefinitionError(f"{where}: workflow must be a JSON object, not {child!r}")
        try:
            return _definition(child, registry, level + 1)
        except DefinitionError as error:
            raise DefinitionError(f"{where}: {error}") from error

    steps: list[StepSpec] = []
    taken: dict[str, int] = {}
    for index, entry in enumerate(entries):
        spec = step_from_json(entry, index, registry, child_from_json)
        other = taken.setdefault(spec.name, index)
        if other != index:
            raise DefinitionError(f"step {index}: step {other} already has the name {spec.name!r}")
        steps.append(spec)
    if (total := count_steps(steps)) > MAX_STEPS:
        raise DefinitionError(
            f"workflow {name!r} has {total} steps with its children's; at most {MAX_STEPS} are allowed"
        )
    options: dict[str, Any] = {
        key: read(form[key], f"workflow {name!r}: {key}")
        for key, read in _RUN_READERS.items()
        if form.get(key) is not None
    }
    on_cancel = form.get("on_cancel")
    if on_cancel is not None:
        on_cancel, _ = ref_from_json(on_cancel, registry, f"workflow {name!r}: on_cancel", Use.CLEANUP)
    definition = Definition(name=name, steps=tuple(steps), on_cancel=on_cancel, **options)
    check_jumps(definition)
    return hashed(definition)

"""The JSON form of a definition, its hash, and the strict way back.

`definition_to_json` writes one shape for one meaning, so that equal definitions have equal hashes. The way back also
takes the other shapes of the specification (4.14): `class` for `handler`, `compensate_with` for `compensation`,
`retry`, `resources`, `timeout` as `{"seconds": …}`, `must_complete_within` in its parts, options inside `config`,
`payload` for what `bind` gives. The form::

    {"name": "report", "queue": …, "priority": "high", "max_attempts": …, "version": …,
     "must_complete_within": 90, "prune_state_after": 2, "compensate_on_failure": true, "max_transitions": …,
     "max_for_each_items": …, "max_state_bytes": …, "max_cost_units": …, "max_started_workflows": …,
     "on_cancel": HANDLER, "on_deadline": HANDLER,
     "steps": [{"type": "single", "name": "fetch", "handler": HANDLER, "timeout": 30, …, "compensation": HANDLER},
               {"type": "delay", "name": "delay_0", "seconds": 60},
               {"type": "parallel", "name": "2", "branches": [HANDLER NAME, {"handler": HANDLER, "queue": …}]},
               {"type": "for_each", "name": "3", "handler": HANDLER, "reducer": HANDLER, "items_key": "urls", …},
               {"type": "repeat", "name": "repeat_until_4", "until": true, "target": "fetch", "condition": HANDLER},
               {"type": "run_workflow", "name": "5", "workflow": {"name": "child", "steps": […]}}]}

where HANDLER is a name or `{"handler": name, "config": {…}}`, times are in seconds, and what is not set is left out.
The settings of each kind stand in `forms`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from queuety.codec import canonical, checked_mapping
from queuety.define.checks import MAX_NESTING, MAX_STEPS, check_deadline, check_jumps, count_steps
from queuety.define.entries import known_keys, ref_from_json, ref_to_json, step_from_json, step_to_json
from queuety.define.forms.form import read_count, read_flag
from queuety.define.names import check_name
from queuety.define.options import (
    UNITS,
    plain_number,
    read_attempts,
    read_priority,
    read_queue,
    read_seconds,
    read_sum,
)
from queuety.define.registry import Registry
from queuety.errors import DefinitionError, PayloadError
from queuety.model import Definition, Guards, Json, Priority, StepSpec, Use


def definition_to_json(definition: Definition) -> dict[str, Json]:
    """The definition as JSON, without its hash; a fresh copy."""
    form: dict[str, Json] = {"name": definition.name}
    for key, (field, _) in _RUN_READERS.items():
        value = getattr(definition, field)
        if value is None or value is False:
            continue
        if isinstance(value, Priority):
            value = value.name.lower()
        form[key] = plain_number(value) if isinstance(value, float) else value
    for key in LIMITS:
        if (limit := getattr(definition.guards, key, None)) is not None:
            form[key] = limit
    for key in RUN_HANDLERS:
        if (ref := getattr(definition, key)) is not None:
            form[key] = ref_to_json(ref)
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


def read_within(value: object, where: str) -> float:
    """How long a run may take: a number of seconds, or a mapping of its parts, 1 second and above."""
    if not isinstance(value, Mapping):
        return read_seconds(value, where, least=1)
    known_keys(value, frozenset(UNITS), where)
    return read_sum(value, where, least=1)


LIMITS: Final = tuple(field.name for field in fields(Guards))
"""What a run may use up at most, under the names that the builder and JSON have for it."""

RUN_HANDLERS: Final = ("on_cancel", "on_deadline")
"""The handlers of the run itself."""

_RUN_READERS: Final[Mapping[str, tuple[str, Callable[[object, str], Any]]]] = {
    "version": ("version", read_label),
    "queue": ("queue", read_queue),
    "priority": ("priority", read_priority),
    "max_attempts": ("max_attempts", read_attempts),
    "must_complete_within": ("deadline_s", read_within),
    "prune_state_after": ("prune_after", read_count),
    "compensate_on_failure": ("compensates_on_failure", read_flag),
}
"""Options of the run by their JSON keys: the field of `Definition`, and how it is read."""

_WORKFLOW_KEYS: Final = frozenset({"name", "steps", *_RUN_READERS, *LIMITS, *RUN_HANDLERS})


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
    options = _run_options(form, registry, f"workflow {name!r}")
    definition = Definition(name=name, steps=tuple(steps), **options)
    check_jumps(definition)
    if registry is not None:
        check_deadline(definition)
    return hashed(definition)


def _run_options(form: Mapping[str, Json], registry: Registry | None, where: str) -> dict[str, Any]:
    """The fields of `Definition` that stand beside its name and its steps, as far as the form gives them."""
    given = {key: value for key, value in form.items() if value is not None}
    options = {
        field: read(given[key], f"{where}: {key}") for key, (field, read) in _RUN_READERS.items() if key in given
    }
    limits = {key: read_count(given[key], f"{where}: {key}") for key in LIMITS if key in given}
    if limits:
        options["guards"] = Guards(**limits)
    for key in RUN_HANDLERS:
        if key in given:
            options[key], _ = ref_from_json(given[key], registry, f"{where}: {key}", Use.CLEANUP)
    return options

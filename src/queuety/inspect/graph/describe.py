"""What a step does, in the words of its kind; from its definition alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from queuety.inspect.graph.labels import called, counted, duration, handler, listed, value
from queuety.model import StepSpec

SHOWN: Final = 6
"""How many of a step's branches, signals or runs are named."""

KINDS: Final[Mapping[str, str]] = {
    "single": "step",
    "parallel": "parallel",
    "for_each": "for each",
    "repeat": "repeat",
    "delay": "delay",
    "wait_for_signal": "wait for signal",
    "wait_for_workflows": "wait for workflows",
    "run_workflow": "run workflow",
    "start_workflows": "start workflows",
}
"""How the kinds are called."""


def kind_called(kind: str) -> str:
    """The kind of step for people; one that this version does not know by its own name."""
    return KINDS.get(kind, kind)


def what_it_does(spec: StepSpec) -> tuple[str, ...]:
    """A line or a few about the step; none for a kind that this version does not know."""
    describe = _DESCRIBE.get(spec.kind)
    return () if describe is None else describe(spec, spec.settings)


def condition_of(spec: StepSpec) -> str:
    """What a repeat step asks: it goes back until, or while, that holds."""
    settings = spec.settings
    word = "until" if settings.get("until") else "while"
    if spec.handler is not None:
        return f"{word} {handler(spec.handler)}"
    return f"{word} {settings.get('state_key')} = {value(settings.get('expected'))}"


def _single(spec: StepSpec, _: Mapping[str, Any]) -> tuple[str, ...]:
    return (handler(spec.handler),)


def _parallel(spec: StepSpec, _: Mapping[str, Any]) -> tuple[str, ...]:
    names = [f"∥ {handler(branch.handler)}" for branch in spec.branches[:SHOWN]]
    left = len(spec.branches) - len(names)
    return (*names, f"∥ and {left:,} more") if left else tuple(names)


def _for_each(spec: StepSpec, settings: Mapping[str, Any]) -> tuple[str, ...]:
    lines = [f"{handler(spec.handler)} for each of {settings.get('items_key')}"]
    mode = settings.get("mode")
    if mode == "first_success":
        lines.append("until one has succeeded")
    elif mode == "quorum":
        lines.append(f"until {settings.get('quorum')} have succeeded")
    if spec.reducer is not None:
        lines.append(f"then {handler(spec.reducer)}")
    return tuple(lines)


def _repeat(spec: StepSpec, settings: Mapping[str, Any]) -> tuple[str, ...]:
    most = settings.get("max_iterations")
    limit = () if most is None else (f"at most {counted(most, 'time')}",)
    return (f"back to {settings.get('target')} {condition_of(spec)}", *limit)


def _delay(_: StepSpec, settings: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"waits {duration(settings.get('seconds', 0))}",)


def _signal(_: StepSpec, settings: Mapping[str, Any]) -> tuple[str, ...]:
    names = _some(settings.get("names", []))
    human = settings.get("human")
    awaited = listed(names, "or" if settings.get("mode") == "any" else "and")
    if human == "decision":
        first = f"waits for a decision: {awaited}"
    elif human in ("approval", "input"):
        first = f"waits for {'an approval' if human == 'approval' else 'input'}: {awaited}"
    else:
        first = f"waits for {awaited}"
    if settings.get("match_payload") is not None:
        first += f" with {value(settings['match_payload'])}"
    lines = [first]
    if (key := settings.get("correlation_key")) is not None:
        lines.append(f"of the same {key}")
    if (timeout := settings.get("timeout")) is not None:
        target = settings.get("on_timeout")
        then = "it fails" if target is None else f"to {target}"
        lines.append(f"after {duration(timeout)} {then}")
    return tuple(lines)


def _workflows(_: StepSpec, settings: Mapping[str, Any]) -> tuple[str, ...]:
    group, workflows, mode = settings.get("group"), settings.get("workflows"), settings.get("mode", "all")
    if group is not None:
        those = f"the group {group}"
    elif isinstance(workflows, list):
        those = f"{'workflow' if len(workflows) == 1 else 'the workflows'} {listed(_some(workflows), 'and')}"
    else:
        those = f"the {'workflow' if settings.get('keyed') is False else 'workflows'} in {workflows}"
    needed = {"any": "any of ", "quorum": f"{settings.get('quorum')} of "}.get(mode, "")
    if (
        mode == "all"
        and settings.get("keyed") is not False
        and not (isinstance(workflows, list) and len(workflows) < 2)
    ):
        needed = "all of "
    return (f"waits for {needed}{those}",)


def _run(spec: StepSpec, _: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"runs {_child(spec)}",)


def _start(spec: StepSpec, settings: Mapping[str, Any]) -> tuple[str, ...]:
    group = settings.get("group")
    as_group = () if group is None else (f"as the group {group}",)
    return (f"starts {_child(spec)} for each of {settings.get('items_key')}", *as_group)


def _child(spec: StepSpec) -> str:
    return "?" if spec.child is None else spec.child.name


def _some(names: list[Any]) -> list[str]:
    shown = [called(str(name)) if not isinstance(name, str) else name for name in names[:SHOWN]]
    left = len(names) - len(shown)
    return [*shown, f"{left:,} more"] if left else shown


_DESCRIBE: Final[Mapping[str, Callable[[StepSpec, Mapping[str, Any]], tuple[str, ...]]]] = {
    "single": _single,
    "parallel": _parallel,
    "for_each": _for_each,
    "repeat": _repeat,
    "delay": _delay,
    "wait_for_signal": _signal,
    "wait_for_workflows": _workflows,
    "run_workflow": _run,
    "start_workflows": _start,
}

"""Workflows at random: every kind of step, nested, with handlers whose behaviour stands in their configuration.

A handler's `config` is `{"set": what it returns, "count"?: key that it raises by one, "jump"?: {"to", "below"},
"fails": how often it fails before it succeeds, "final"?: its failures allow no further attempt, "only"?: the index of
the one item that fails, "until"?: a condition holds from that count on, "every"?: at each multiple}`. `returned` is
what such a handler does: user code, so both the world and the reference call it.

Loops end: a step that jumps back counts itself and stops jumping, and every repeat step has a limit or counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from queuety.model import Branch, Definition, HandlerRef, Options, StepSpec

ROOTS = (10_000_001, 10_000_002)
"""The ids of the runs that a test starts, known before, so that definitions can name them."""

NOBODY = 9_999_999
"""An id that no run has."""

DEEPEST = 3

SIGNAL_NAMES = ("go", "stop", "go", "stop", "approved", "rejected")
"""Few, so that what is sent and what is waited for meet."""

THEMES = (
    ("single", "single", "delay", "parallel", "for_each", "wait_for_signal", "repeat", "wait_for_workflows"),
    ("single", "wait_for_signal", "wait_for_signal", "wait_for_signal", "repeat"),
    ("single", "single", "repeat", "repeat", "delay"),
    ("single", "for_each", "for_each", "parallel"),
    ("single", "wait_for_workflows", "wait_for_workflows", "delay"),
)
"""The kinds that one story is mostly made of: what goes wrong together is found where it stands together."""

Payload = dict[str, Any]

Place = int | str | None
"""Which job of a step: the index of its branch or item, "reducer", or None where there is but one."""


@dataclass(frozen=True)
class Story:
    """What a test starts, and the signals that every run of a definition is sent, by the definition's name."""

    roots: tuple[Definition, ...]
    payloads: tuple[Payload, ...]
    signals: dict[str, tuple[tuple[str, Payload], ...]]


def returned(config: Payload, state: Payload, *arguments: Any) -> Payload:
    """What a handler with this configuration returns, when it does not fail."""
    output = dict(config.get("set") or {})
    if "every" in config:
        return {"_matched": _count(state, config["count"]) % config["every"] == 0}
    if "until" in config:
        return {"_matched": _count(state, config["count"]) >= config["until"]}
    if arguments:
        output["got"] = arguments[0]["succeeded"] if len(arguments) == 1 else list(arguments)
    if "count" in config:
        output[config["count"]] = _count(state, config["count"]) + 1
    jump = config.get("jump")
    if jump is not None and (jump["below"] is None or output[config["count"]] < jump["below"]):
        output["_next_step"] = jump["to"]
    return output


def fails_now(config: Payload, place: Place, failures: int) -> bool:
    """Whether the handler fails this time, having failed so often already at this place of the visit."""
    return failures < config.get("fails", 0) and config.get("only", place) == place


def _count(state: Payload, key: str) -> int:
    found = state.get(key)
    return found if isinstance(found, int) else 0


values = st.sampled_from([0, 1, True, "1", None, [1], {"k": 1}, 1.0])
states = st.dictionaries(st.sampled_from("abc"), values, max_size=2)
item_lists = st.lists(st.sampled_from([1, 2, "x", {"a": 5, "_b": 6}, {"items": [1]}, [3], None]), max_size=3)
payloads = st.builds(
    lambda items, state, c: {**state, **({} if items is None else {"items": items}), **({} if c is None else {"c": c})},
    st.sampled_from([[1, 2]]) | item_lists | st.sampled_from([None, {"x": 1, "y": 2}, 7, []]),
    states,
    st.sampled_from([1, 1, "1", None]),
)
signals = st.tuples(
    st.sampled_from(SIGNAL_NAMES),
    st.dictionaries(st.sampled_from(["k", "c", "a", "_s"]), st.sampled_from([1, 1, 1, "1", True, 2]), max_size=3),
)


no_signals: st.SearchStrategy[list[tuple[str, Payload]]] = st.just([])


@dataclass(frozen=True)
class _Frame:
    """What the steps of one definition are drawn by. `has_ids`: the state may hold ids of runs from the start."""

    draw: st.DrawFn
    theme: tuple[str, ...]
    path: str
    depth: int = 0
    has_ids: bool = False

    def child(self, index: int, before: list[StepSpec]) -> Definition:
        """A definition for the runs that the step after these starts."""
        has_ids = self.has_ids or _has_started(before)
        return _definition(_Frame(self.draw, self.theme, f"{self.path}.{index}", self.depth + 1, has_ids))


def _has_started(before: list[StepSpec]) -> bool:
    return any(spec.kind == "start_workflows" for spec in before)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """One or two runs to start, each with its signals and those of the runs that they start."""
    theme = draw(st.sampled_from(THEMES))
    roots = tuple(_definition(_Frame(draw, theme, f"d{number}")) for number in range(draw(st.integers(1, 2))))
    names = [one.name for one in every_definition(roots)]
    return Story(
        roots,
        tuple(draw(payloads) for _ in roots),
        {
            name: tuple(draw(st.lists(signals, max_size=6) if "wait_for_signal" in theme else no_signals))
            for name in names
        },
    )


def every_definition(roots: Iterable[Definition]) -> list[Definition]:
    """These, and those of the runs that they start, and so on."""
    found: list[Definition] = []
    for one in roots:
        children = [spec.child for spec in one.steps if spec.child is not None]
        found += [one, *every_definition(children)]
    return found


def _definition(frame: _Frame) -> Definition:
    draw, name, depth = frame.draw, frame.path, frame.depth
    count = draw(st.integers(1, 6 if depth == 0 else 4 - depth))
    names = [f"s{index}" for index in range(count)]
    steps: list[StepSpec] = []
    while len(steps) < count:
        steps.append(_step(frame, names, steps))
    undo = draw(st.sampled_from([None, None, 0, 1, 4]))
    return Definition(
        name,
        tuple(steps),
        max_attempts=draw(st.sampled_from([None, 2])),
        on_cancel=None if undo is None else HandlerRef(f"app:undo_{name}", {"fails": undo}),
        hash=name.ljust(64, "0"),
    )


def _step(frame: _Frame, names: list[str], before: list[StepSpec]) -> StepSpec:
    """The step after these. Where runs were started, those that wait for them are likelier."""
    draw, path, depth, index = frame.draw, frame.path, frame.depth, len(before)
    kinds = list(frame.theme)
    if depth < DEEPEST:
        kinds += ["run_workflow", "start_workflows"] * (2 if "wait_for_workflows" in frame.theme else 1)
    if before and before[-1].kind == "start_workflows":
        kinds += ["wait_for_workflows"] * 4 + ["run_workflow"] * 3 * (depth < DEEPEST)
    if not before and frame.has_ids:
        kinds += ["wait_for_workflows"] * 2
    kind = draw(st.sampled_from(kinds))
    name = names[index]
    if kind == "delay":
        return StepSpec(kind, name, settings={"seconds": draw(st.sampled_from([0, 1, 7]))})
    if kind == "parallel":
        branches = tuple(
            Branch(
                _handler(draw, path, name, set_key=draw(st.sampled_from([f"p{number}", f"p{number}", "a"]))), options
            )
            for number, options in enumerate(draw(st.lists(st.builds(_options, attempts), min_size=1, max_size=3)))
        )
        return StepSpec(kind, name, branches=branches)
    if kind == "for_each":
        return _for_each(draw, path, names, name)
    if kind == "repeat":
        return _repeat(draw, path, names, before)
    if kind == "wait_for_signal":
        return StepSpec(kind, name, settings=_signal_wait(draw, names[index + 1 :]))
    if kind == "wait_for_workflows":
        return StepSpec(kind, name, settings=_workflow_wait(draw, path, has_ids=frame.has_ids or _has_started(before)))
    if kind == "run_workflow":
        return StepSpec(kind, name, child=frame.child(index, before))
    if kind == "start_workflows":
        settings: Payload = {
            "items_key": draw(st.sampled_from(["items", "items", "items", "a", "ids"])),
            "result_key": draw(st.sampled_from(["ids", "ids", "a"])),
            "payload_key": "item",
            "inherit_state": draw(st.booleans()),
        }
        if draw(st.booleans()):
            settings["group"] = "g"
        return StepSpec(kind, name, settings=settings, child=frame.child(index, before))
    return StepSpec(kind, name, _handler(draw, path, name, targets=names), _options(draw(attempts), draw(delays)))


attempts = st.sampled_from([None, None, 1, 2])
delays = st.sampled_from([None, None, None, 3.0])


def _options(max_attempts: int | None, delay_s: float | None = None) -> Options:
    return Options(max_attempts=max_attempts, backoff=(1.0, 2.0), delay_s=delay_s)


def _handler(
    draw: st.DrawFn, path: str, name: str, *, targets: list[str] | None = None, set_key: str | None = None
) -> HandlerRef:
    """A handler of a step; with `targets` one that counts itself and may steer, with `set_key` one that sets that."""
    config: Payload = {"set": draw(states), "fails": draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 4]))}
    if config["fails"] and draw(st.sampled_from([False, False, True])):
        config["final"] = True
    if set_key is not None:
        config["set"] = {set_key: draw(values), **({"_next_step": "s0"} if draw(st.booleans()) else {})}
    if targets is not None:
        config["count"] = f"n_{path}_{name}"
        if draw(st.sampled_from([False, False, True])):
            wish = draw(st.sampled_from([*targets, *targets, None, "nowhere", 7]))
            config["jump"] = {"to": wish, "below": draw(st.sampled_from([2, 3, None])) if wish not in targets else 2}
    return HandlerRef(f"app:{path}_{name}", config)


def _for_each(draw: st.DrawFn, path: str, names: list[str], name: str) -> StepSpec:
    mode = draw(st.sampled_from(["all", "all", "first_success", "quorum"]))
    settings: Payload = {
        "items_key": draw(st.sampled_from(["items", "items", "items", "items", "a", "nothing"])),
        "result_key": draw(st.sampled_from(["r", "r", "a"])),
        "mode": mode,
    }
    if mode == "quorum":
        settings["quorum"] = draw(st.integers(1, 3))
    item = _handler(draw, path, name)
    if item.config and draw(st.booleans()):
        item = HandlerRef(item.name, {**item.config, "only": draw(st.integers(0, 2))})
    reducer = _handler(draw, path, f"{name}_reducer", targets=names) if draw(st.booleans()) else None
    return StepSpec("for_each", name, item, _options(draw(attempts), draw(delays)), settings, reducer=reducer)


def _repeat(draw: st.DrawFn, path: str, names: list[str], before: list[StepSpec]) -> StepSpec:
    """Mostly over a step that counts itself, so that the loop has something to go by."""
    index = len(before)
    counting = [number for number, spec in enumerate(before) if spec.kind == "single"] or [index]
    counts = draw(st.sampled_from(counting))
    settings: Payload = {
        "until": draw(st.booleans()),
        "target": draw(st.sampled_from([names[counts], names[counts], names[0], names[index]])),
        "max_iterations": draw(st.sampled_from([1, 2, 1, 0])),
    }
    counted = f"n_{path}_{names[counts]}"
    if draw(st.booleans()):
        settings["state_key"] = draw(st.sampled_from([counted, counted, "a"]))
        settings["expected"] = draw(st.sampled_from([2, 1, None, True]))
        return StepSpec("repeat", names[index], settings=settings)
    config = {"count": counted, "fails": draw(st.sampled_from([0, 0, 1, 4]))}
    config[draw(st.sampled_from(["every", "until"]))] = draw(st.sampled_from([2, 2, 1, 3]))
    condition = HandlerRef(f"app:{path}_{names[index]}", config)
    return StepSpec("repeat", names[index], condition, _options(draw(attempts)), settings)


def _signal_wait(draw: st.DrawFn, later: list[str]) -> Payload:
    names: list[str] = draw(st.sampled_from([["go"], ["go", "stop"], ["stop", "go"], ["stop", "rejected"]]))
    settings: Payload = {"names": names, "mode": draw(st.sampled_from(["all", "any"]))}
    if draw(st.sampled_from([False, False, False, True])):
        outcomes = {"approved": "approved", "rejected": "rejected"}
        settings = {"names": ["approved", "rejected"], "mode": "any", "human": "decision", "outcomes": outcomes}
    if draw(st.booleans()):
        settings["result_key"] = draw(st.sampled_from(["w", "a"]))
    if draw(st.sampled_from([False, False, True])):
        settings["match_payload"] = {"k": 1}
    if draw(st.sampled_from([False, False, False, True])):
        settings["correlation_key"] = "c"
    if draw(st.booleans()):
        settings["timeout"] = draw(st.sampled_from([5, 0]))
        if draw(st.booleans()) and later:
            settings["on_timeout"] = draw(st.sampled_from(later))
    return settings


def _workflow_wait(draw: st.DrawFn, path: str, *, has_ids: bool) -> Payload:
    """Mostly for runs that may be there."""
    settings: Payload = {"mode": draw(st.sampled_from(["all", "any", "all", "quorum", "any"])), "keyed": True}
    sources = ["literal", "literal", "literal", "ids"]
    if has_ids:
        sources = ["ids"] * 8 + ["group"] * 3 + ["literal"] * 3 + ["a", "nothing"]
    source = draw(st.sampled_from(sources))
    if source == "group":
        settings["group"] = "g"
    elif source == "literal":
        mine, other = ROOTS if path.startswith("d0") else ROOTS[::-1]
        settings["workflows"] = draw(st.lists(st.sampled_from([other, other, other, other, mine, NOBODY]), max_size=3))
    else:
        settings["workflows"] = source
    if settings["mode"] == "quorum":
        settings["quorum"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        settings["result_key"] = draw(st.sampled_from(["w", "a"]))
    if settings["mode"] == "all" and draw(st.sampled_from([False, False, False, True])):
        settings["keyed"] = False
    return settings

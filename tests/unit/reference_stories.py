"""Stories at random whose definitions have limits, deadlines, pruning, and handlers that undo what was done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from queuety.model import Definition, Guards, HandlerRef, StepSpec
from tests.support.definitions_at_random import Story, stories


@st.composite
def dressed(draw: st.DrawFn) -> Story:
    """A story, plain or with some of all this. Runs that others start have no limit that they could break at once."""
    story = draw(stories())
    wardrobe = draw(st.sampled_from(["plain", "limits", "undo", "undo", "all", "all"]))
    if wardrobe == "plain":
        return story
    return replace(story, roots=tuple(_dressed(draw, root, wardrobe, is_root=True) for root in story.roots))


def _dressed(draw: st.DrawFn, definition: Definition, wardrobe: str, *, is_root: bool) -> Definition:
    how: dict[str, Any] = {}
    if wardrobe != "limits":
        how["compensates_on_failure"] = draw(st.sampled_from([True, True, False]))
    if wardrobe != "undo":
        how["guards"] = _guards(draw, is_root=is_root)
        how["prune_after"] = draw(st.sampled_from([None, None, 1, 2, 3]))
        how["deadline_s"] = draw(st.sampled_from([None, None, 3.0, 9.0]))
        how["on_deadline"] = _undo(draw, f"late_{definition.name}") if how["deadline_s"] else None
    steps = tuple(_dressed_step(draw, definition.name, spec, wardrobe) for spec in definition.steps)
    return replace(definition, steps=steps, **how)


def _dressed_step(draw: st.DrawFn, path: str, spec: StepSpec, wardrobe: str) -> StepSpec:
    child = None if spec.child is None else _dressed(draw, spec.child, wardrobe, is_root=False)
    spec = replace(spec, child=child)
    if wardrobe != "limits":
        spec = replace(spec, compensation=_undo(draw, f"undo_{path}_{spec.name}"))
    if wardrobe != "undo":
        units = draw(st.sampled_from([None, None, None, 0, 2]))
        branches = tuple(replace(branch, options=replace(branch.options, cost_units=units)) for branch in spec.branches)
        spec = replace(spec, options=replace(spec.options, cost_units=units), branches=branches)
    return spec


def _undo(draw: st.DrawFn, name: str) -> HandlerRef | None:
    fails = draw(st.sampled_from([None, 0, 0, 0, 1, 4]))
    return None if fails is None else HandlerRef(f"app:{name}", {"fails": fails})


def _guards(draw: st.DrawFn, *, is_root: bool) -> Guards | None:
    """A few limits, each of them seldom."""
    if draw(st.booleans()):
        return None
    cost = draw(st.sampled_from([None, None, 1, 3, 6]))
    if not is_root:
        return Guards(max_cost_units=cost)
    return Guards(
        max_transitions=draw(st.sampled_from([None, None, 2, 5, 9])),
        max_for_each_items=draw(st.sampled_from([None, None, 1, 2])),
        max_state_bytes=draw(st.sampled_from([None, None, 60, 120, 250])),
        max_cost_units=cost,
        max_started_workflows=draw(st.sampled_from([None, None, 1, 3])),
    )

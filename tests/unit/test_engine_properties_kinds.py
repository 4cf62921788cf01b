"""Every kind of step, nested, with limits, deadlines, compensation and repairs, in random courses of events: against
the reference and the laws that always hold."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from queuety.model import AppendHistory, Workflow
from tests.conftest import PROOF
from tests.support.definitions_at_random import Story
from tests.unit.reference_foretold import Foretold, TooLong
from tests.unit.reference_observed import Observed
from tests.unit.reference_past import Past
from tests.unit.reference_play import Play
from tests.unit.reference_runs import Run
from tests.unit.reference_stories import dressed
from tests.unit.reference_words import LOOSE
from tests.unit.reference_world import Paper

tapes = st.binary(max_size=120) | st.binary(min_size=60, max_size=300)
usual = settings(
    max_examples=5_000 if PROOF else 220,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def text_of(value: Any, *, without: Collection[str] = ("job_id",), names: dict[int, str] | None = None) -> str:
    """A value as text that tells 1, 1.0 and true apart. Ids of runs are replaced by `names`."""

    def plain(one: Any) -> Any:
        if isinstance(one, dict):
            return {plain_key(key): plain(inner) for key, inner in one.items() if key not in without}
        if isinstance(one, list | tuple):
            return [plain(inner) for inner in one]
        return names.get(one, one) if names and type(one) is int else one

    def plain_key(key: str) -> str:
        return names.get(int(key), key) if names and key.isdecimal() else key

    return json.dumps(plain(value), sort_keys=True)


def outcome(run: Workflow | Run, **how: Any) -> dict[str, Any]:
    """What must come out of a run."""
    if isinstance(run, Workflow):
        error = None if run.error_kind is None else (run.error_kind.value, run.failed_step)
        step = run.current_step
    else:
        error = None if run.error is None else (run.error[0], run.error[2])
        step = run.step
    return {
        "status": str(run.status),
        "error": error,
        "state": text_of(run.state, **how),
        "step": step,
        "visit": run.visit,
        "transitions": run.transitions,
        "cleanup": str(run.cleanup),
    }


def used_up(run: Workflow | Run) -> tuple[int, int]:
    """Cost units, and runs that were started."""
    if isinstance(run, Workflow):
        ledger = run.ledger or {}
        return ledger.get("cost", 0), ledger.get("started", 0)
    return run.means.cost, run.means.started


def played(story: Story, tape: bytes, **how: Any) -> Play:
    try:
        return Play(story, tape, **how).act()
    except TooLong:
        event("too long")
        assume(False)
        raise


def cleaned(paper: Paper) -> list[tuple[str, str]]:
    """What was cleaned up, in order: the handler, and the state of then (`null`: the present one)."""
    found = []
    past = Past(paper.payload, paper.rows, paper.workflow, paper.signals, paper.groups)
    for row in paper.rows:
        if row.job is not None and (row.entry == "cleaned" or (row.entry == "uncleaned" and row.is_final)):
            seq = (row.job.payload or {}).get("seq")
            found.append((row.job.handler, text_of(None if seq is None else past.state_at(seq))))
    return found


def assert_was_so_all_the_time(run_id: int, play: Play, told: Run) -> None:
    """Before each thing that happened, the state was what the reference says. In a batch, before the first of them."""
    marks = play.logs[run_id]
    for number in range(1, len(marks)):
        if marks[number].states is not marks[number - 1].states:
            assert text_of(marks[number].states[run_id]) == text_of(told.trail[number])


@usual
@given(dressed(), tapes, st.booleans())
def test_every_run_goes_as_the_reference_says(story: Story, tape: bytes, repairs: bool) -> None:
    play = played(story, tape, repairs=repairs)
    observed = Observed(play)
    for run_id, paper in play.world.runs.items():
        told = observed.tell(run_id)
        assert outcome(paper.workflow) == outcome(told)
        assert used_up(paper.workflow) == used_up(told)
        assert cleaned(paper) == [(name, text_of(state)) for name, state in told.cleanups]
        assert_was_so_all_the_time(run_id, play, told)
        event(f"ends {paper.workflow.status} {paper.workflow.error_kind or ''}")
        assert [(one.name, one.payload) for one in paper.signals] == told.signals
        if told.error is not None and told.error[0] == "StepFailed" and told.error[1] is not None:
            assert paper.workflow.error_message == told.error[1]
    for run_id, (definition, payload) in observed.expected.items():
        paper = play.world.runs[run_id]
        assert paper.definition is definition
        assert text_of(paper.payload) == text_of(payload)
    for seen in play.seen:
        event(seen)


@usual
@given(dressed(), tapes, st.booleans())
def test_what_must_come_does_not_depend_on_the_schedule(story: Story, tape: bytes, batches: bool) -> None:
    try:
        foretold = Foretold(story)
    except TooLong:
        event("too long")
        assume(False)
        raise
    if foretold.is_open:
        event("open")
        return
    event("certain")
    play = played(story, tape, is_rough=False, batches=batches)
    if not play.logs:
        event("not started")
        return
    names = named(play)
    assert sorted(names.values()) == sorted(foretold.names.values())
    by_name = {name: run_id for run_id, name in foretold.names.items()}
    for run_id, name in names.items():
        workflow = play.world.runs[run_id].workflow
        told = foretold.runs[by_name[name]]
        assert outcome(workflow, without=LOOSE, names=names) == outcome(told, without=LOOSE, names=foretold.names)


@settings(usual, max_examples=5_000 if PROOF else 140)  # each is played twice
@given(dressed(), tapes, st.booleans(), st.binary(min_size=1, max_size=20))
def test_processes_that_die_change_nothing(story: Story, tape: bytes, repairs: bool, deaths: bytes) -> None:
    """Whatever they did is done again by others: the same rows, but for the tokens."""
    calm = played(story, tape, repairs=repairs)
    deadly = played(story, tape, repairs=repairs, deaths=deaths)
    assert calm.world.runs.keys() == deadly.world.runs.keys()
    for run_id, paper in calm.world.runs.items():
        twin = deadly.world.runs[run_id]
        assert paper.workflow == twin.workflow
        assert [untokened(row) for row in paper.rows] == [untokened(row) for row in twin.rows]
        assert [one.new for one in paper.jobs.values()] == [one.new for one in twin.jobs.values()]


def untokened(row: AppendHistory) -> AppendHistory:
    job = None if row.job is None else replace(row.job, token=0)
    return replace(row, job=job, token=0 if job else row.token)


def named(play: Play) -> dict[int, str]:
    """How each run came about, as `Foretold.names`."""
    names = {run_id: f"root{run_id % 10 - 1}" for run_id in play.world.runs if run_id < 10_000_003}
    for (parent, visit), ids in sorted(play.world.allotted.items()):
        for number, run_id in enumerate(ids):
            names[run_id] = f"{names[parent]}/{visit}.{number}"
    return names

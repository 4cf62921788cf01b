"""Having runs decided inside an open transaction that holds their locks: facts are read when the engine lacks them,
and runs that a decision starts are started with it.

The engine is asked again with what it lacked until it has decided; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from queuety.codec import encode
from queuety.engine.decide import decide_all, start
from queuety.engine.derail import derailed
from queuety.engine.faults import FAULTS
from queuety.engine.protocol import NO_FACTS, Facts
from queuety.errors import ConstraintViolation, DefinitionError, InvalidStateError, StoreError
from queuety.model import (
    AddWorkflow,
    AppendHistory,
    CleanupStatus,
    Definition,
    Effect,
    ErrorInfo,
    Event,
    StartRun,
    State,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import Lacking, Need, NeedGroup, NeedIds, NeedParts, NeedSignals, NeedStanding, Standing
from queuety.store.door import Tx
from queuety.store.facts import read_facts

_NOTHING_YET: Final[Mapping[type, Any]] = {NeedSignals: (), NeedGroup: None, NeedParts: ()}
"""What a run that is only being started cannot have."""

_STARTED: Final = Standing(WorkflowStatus.RUNNING, CleanupStatus.NONE)
"""How a run stands that is started in the same transaction: it has no row yet."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run, and what has happened to it.

    With a `fault` that cannot be decided, or not be written, and the run fails of it; then `definition` may be None.
    """

    workflow: Workflow
    definition: Definition | None
    events: Sequence[Event]
    fault: Exception | None = None


OnFault = Callable[[Workflow, Exception], ErrorInfo]
"""Why a run fails that cannot be decided; it is told once."""


class _LackingOf(Exception):
    """Facts that runs lack."""

    def __init__(self, needs: Mapping[int, Collection[Need]]) -> None:
        super().__init__(needs)
        self.needs = needs


class _Unstarted(Exception):
    """A run that was to be started cannot be: a limit of its own, its definition."""

    def __init__(self, run_id: int, error: Exception) -> None:
        super().__init__(run_id, error)
        self.run_id = run_id
        self.error = error


def decide_cases(
    tx: Tx, cases: Iterable[Case], *, now_us: int, max_bytes: int | None = None, on_fault: OnFault | None = None
) -> list[Effect]:
    """What the events of these runs lead to, in the order given, with the runs that are started by it.

    A state that a step without a handler of its own would make larger than `max_bytes` is a fault of its run. Without
    `on_fault`, faults are raised. `InvalidStateError` (a command that a status forbids) and `StoreError` always are.
    """
    found: list[Effect] = []
    facts: dict[int, dict[Need, Any]] = {}
    left = list(cases)
    made: dict[int, list[Effect]] = {}
    order = [case.workflow.id for case in left]
    why: dict[int, ErrorInfo] = {}
    while left:
        lacking: dict[int, Collection[Need]] = {}
        again: list[Case] = []
        for case in left:
            run_id = case.workflow.id
            try:
                if case.fault is not None and on_fault is not None:
                    if run_id not in why:
                        why[run_id] = on_fault(case.workflow, case.fault)
                    made[run_id] = _derail(case, why[run_id], facts, now_us=now_us)
                else:
                    made[run_id] = _decide(case, facts, now_us=now_us, max_bytes=max_bytes)
            except _LackingOf as lack:
                again.append(case)
                lacking.update(lack.needs)
            except (InvalidStateError, StoreError):
                raise
            except FAULTS as error:
                if on_fault is None or case.fault is not None:
                    raise
                again.append(replace(case, fault=error))
        _read(tx, lacking, facts)
        left = again
    for run_id in order:
        found += made[run_id]
    return found


def start_all(
    tx: Tx, starts: Sequence[StartRun], *, now_us: int, idempotency_key: str | None = None
) -> tuple[list[AddWorkflow], list[Effect]]:
    """The rows of the runs to be started, in order, and all else: rows of runs that they start at once, their jobs.

    Raises `DefinitionError` and `PayloadError` as the engine's `start`.
    """
    facts: dict[int, dict[Need, Any]] = {}
    while True:
        try:
            roots: list[AddWorkflow] = []
            effects: list[Effect] = []
            lacking: dict[int, Collection[Need]] = {}
            among = frozenset(asked.workflow_id for asked in starts)
            for asked in starts:
                try:
                    row, *more = _started(asked, facts, among, now_us=now_us, idempotency_key=idempotency_key)
                except _LackingOf as lack:
                    lacking.update(lack.needs)
                    continue
                except _Unstarted as within:
                    raise within.error from None
                if isinstance(row, AddWorkflow):
                    roots.append(row)
                effects += more
            if not lacking:
                return roots, effects
        except RecursionError as error:
            raise ConstraintViolation("the runs that this one starts are nested too deeply to be started") from error
        _read(tx, lacking, facts)


def _derail(case: Case, error: ErrorInfo, facts: Mapping[int, Facts], *, now_us: int) -> list[Effect]:
    """What becomes of a run that fails by itself. Raises `_LackingOf`."""
    run_id = case.workflow.id
    try:
        return derailed(
            case.workflow,
            error,
            now_us=now_us,
            events=case.events,
            definition=case.definition,
            facts=facts.get(run_id, NO_FACTS),
        )
    except Lacking as lack:
        raise _LackingOf({run_id: lack.needs}) from None


def _decide(case: Case, facts: dict[int, dict[Need, Any]], *, now_us: int, max_bytes: int | None) -> list[Effect]:
    """The whole decision. Raises `_LackingOf`.

    A step that would start a run which cannot be fails there; what was decided before it stands.
    """
    run_id = case.workflow.id
    if case.definition is None:
        raise DefinitionError(f"workflow {run_id} has no definition to be decided by")
    own = facts.setdefault(run_id, {})
    while True:
        try:
            effects = decide_all(case.workflow, case.definition, case.events, now_us=now_us, facts=own)
        except Lacking as lack:
            raise _LackingOf({run_id: lack.needs}) from None
        if max_bytes is not None:
            _check_sizes(case.workflow, effects, max_bytes)
        try:
            return _with_starts(effects, facts, frozenset(), now_us=now_us)
        except _Unstarted as unstarted:
            need = _drawn_for(own, unstarted.run_id)
            if need is None:  # one that somebody has asked for
                raise unstarted.error from None
            own[need] = unstarted.error


def _drawn_for(own: Facts, new_id: int) -> NeedIds | None:
    """What the id of a new run was an answer to."""
    drawn = ((need, ids) for need, ids in own.items() if isinstance(need, NeedIds) and isinstance(ids, tuple))
    return next((need for need, ids in drawn if new_id in ids), None)


def _with_starts(
    effects: Sequence[Effect], facts: Mapping[int, Facts], among: frozenset[int], *, now_us: int
) -> list[Effect]:
    """The effects with every `StartRun` replaced by what starts that run. Raises `_LackingOf` for all of them, and
    `_Unstarted`.

    `among` are the runs that are being started around this one.
    """
    if StartRun not in map(type, effects):  # as of most runs, of which thousands may be started at once
        return list(effects)
    among |= {effect.workflow_id for effect in effects if isinstance(effect, StartRun)}
    found: list[Effect] = []
    lacking: dict[int, Collection[Need]] = {}
    for effect in effects:
        if isinstance(effect, StartRun):
            try:
                found += _started(effect, facts, among, now_us=now_us)
            except _LackingOf as lack:
                lacking.update(lack.needs)
            except _Unstarted as within:
                raise _Unstarted(effect.workflow_id, within.error) from None
            except StoreError:
                raise
            except FAULTS as error:
                raise _Unstarted(effect.workflow_id, error) from None
        else:
            found.append(effect)
    if lacking:
        raise _LackingOf(lacking)
    return found


def _started(
    asked: StartRun,
    facts: Mapping[int, Facts],
    among: frozenset[int],
    *,
    now_us: int,
    idempotency_key: str | None = None,
) -> list[Effect]:
    """The row of a new run, then what is written beside it. Raises `_LackingOf`, `_Unstarted` and as `start`."""
    run_id = asked.workflow_id
    own: dict[Need, Any] = {need: _with_new(need, fact, among) for need, fact in facts.get(run_id, NO_FACTS).items()}
    decision = None
    while decision is None:
        try:
            decision = start(
                run_id,
                asked.definition,
                asked.payload,
                now_us=now_us,
                parent_id=asked.parent_id,
                parent_step=asked.parent_step,
                idempotency_key=idempotency_key,
                seed=asked.seed,
                facts=own,
            )
        except Lacking as lack:
            unknown = [need for need in lack.needs if type(need) not in _NOTHING_YET]
            if unknown:
                raise _LackingOf({run_id: unknown}) from None
            own |= {need: _NOTHING_YET[type(need)] for need in lack.needs}
    row = AddWorkflow(decision.workflow, asked.payload)
    return [row, *_with_starts(decision.effects, facts, among, now_us=now_us)]


def _with_new(need: Need, fact: Any, among: frozenset[int]) -> Any:
    """A fact that was read, with the runs that are being started and have no row yet."""
    if not isinstance(need, NeedStanding) or isinstance(fact, Exception):
        return fact
    return {**dict.fromkeys(among.intersection(need.ids), _STARTED), **fact}


def _read(tx: Tx, lacking: Mapping[int, Collection[Need]], facts: dict[int, dict[Need, Any]]) -> None:
    """Reads what is lacking. Where that needs to know of a run which only a newer version can read, the answer is an
    error: the run fails at the step that asks, and can be retried once every worker is of that version.

    Raises `StoreError` if reading brings nothing new, which would go on for ever.
    """
    if not lacking:
        return
    strange: dict[int, str] = {}
    for run_id, answers in read_facts(tx, lacking, strange=strange).items():
        facts.setdefault(run_id, {}).update(answers)
    for run_id, needs in lacking.items():
        own = facts.setdefault(run_id, {})
        if run_id in strange:
            error = DefinitionError(f"{strange[run_id]}; retry the run when every worker has been upgraded")
            own.update(dict.fromkeys(needs, error))
        for need in needs:
            if need not in own:
                raise StoreError(f"workflow {run_id} needs {need}, which could not be read")


def _check_sizes(workflow: Workflow, effects: Iterable[Effect], max_bytes: int) -> None:
    """Raises `ConstraintViolation` if what a step has put together is larger than a value may be.

    What handlers return was checked where they ran; this is for results of branches, of other runs, for signals, and
    for what people say by hand.
    """
    merged: dict[str, Any] = {}
    gone: set[str] = set()
    for effect in effects:
        if type(effect) is AppendHistory and effect.changed and (effect.job is None or effect.job.branch is not None):
            merged.update(effect.changed)
            for key in effect.removed or ():
                merged.pop(key, None)
                gone.add(key)
        elif type(effect) is StartRun and effect.seed is not None and (size := _size_of(effect.payload)) > max_bytes:
            raise ConstraintViolation(
                f"the state of the fork would take {size} bytes, more than {max_bytes} (Settings.max_value_bytes); "
                "give it less with_state, or raise the limit"
            )
    if not merged:
        return
    size = len(encode(merged).encode())
    if size > max_bytes:
        what = f"what step {workflow.current_step} would merge takes {size} bytes"
    elif size > max_bytes // 8 and (size := _size_of(_without(workflow.state, gone) | merged)) > max_bytes:
        what = f"the state would take {size} bytes with what step {workflow.current_step} merges"
    else:
        return
    raise ConstraintViolation(
        f"{what}, more than {max_bytes} (Settings.max_value_bytes); let the handlers return less, keep it elsewhere "
        "and return a reference, or raise the limit"
    )


def _without(state: State, gone: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in gone}


def _size_of(state: State) -> int:
    return len(encode(state).encode())

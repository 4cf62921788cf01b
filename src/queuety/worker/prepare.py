"""What claimed jobs need to be run, read in the transaction that has claimed them: their state, step and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from queuety.commands.definitions import Definitions
from queuety.errors import DefinitionError
from queuety.model import Failed, Job, Role, State
from queuety.store import load, past
from queuety.store.door import Tx
from queuety.store.load import Held, Runs
from queuety.worker.outcome import Returned, Unhandled, Work, broken
from queuety.worker.works import Defaults, orphaned, stateless, work_of


@dataclass(slots=True)
class Prepared:
    """`works` can be run. `unprepared` are what became of the others at once; `held` are the runs of all of them."""

    works: list[Work] = field(default_factory=list)
    unprepared: list[Failed | Unhandled] = field(default_factory=list)
    held: dict[int, Held] = field(default_factory=dict)


def prepare(
    tx: Tx,
    jobs: Sequence[Job],
    known: Mapping[int, Held],
    *,
    runs: Runs,
    definitions: Definitions,
    defaults: Defaults,
) -> Prepared:
    """Finds what each job needs: its workflow's state as it is now, or was when the step settled that it undoes.

    `known` are the runs that the transaction has at hand, as they are stored by it.
    """
    made = Prepared()
    strangers = {job.workflow_id for job in jobs if job.workflow_id is not None} - known.keys()
    unreadable: dict[int, str] = {}
    around = load.read(tx, runs, strangers, strange=unreadable)
    moments = {job.id: moment for job in jobs if (moment := moment_of(job)) is not None}
    states = past.states_at(tx, moments.values()) if moments else {}
    for job in jobs:
        if job.workflow_id is None:
            made.works.append(work_of(job, None, None, defaults))
            continue
        if job.workflow_id in unreadable:
            reason = unreadable[job.workflow_id]
            made.unprepared.append(Unhandled(job, f"this version of queuety cannot read its workflow: {reason}"))
            continue
        found = known.get(job.workflow_id) or around.get(job.workflow_id)
        if found is None:
            made.unprepared.append(orphaned(job, now_us=tx.now_us()))
            continue
        made.held[job.workflow_id] = found
        state: State = found.workflow.state
        if (moment := moments.get(job.id)) is not None:
            if moment not in states:
                made.unprepared.append(stateless(job, moment[1], now_us=tx.now_us()))
                continue
            state = states[moment]
        try:
            definition = definitions.get(tx, found.workflow.definition_hash)
            size = found.state_bytes + found.delta_bytes
            made.works.append(work_of(job, found.workflow, definition, defaults, state=state, state_characters=size))
        except DefinitionError as error:
            made.unprepared.append(Unhandled(job, f"this version of queuety cannot read the definition: {error}"))
        except LookupError as error:
            made.unprepared.append(broken(Returned(job), error, now_us=tx.now_us()))
    return made


def moment_of(job: Job) -> past.Moment | None:
    """The run and the row of its history as of which this job gets the state; None for the present one."""
    if job.role is not Role.CLEANUP or job.workflow_id is None or not job.payload:
        return None
    seq = job.payload.get("seq")
    return None if type(seq) is not int else (job.workflow_id, seq)

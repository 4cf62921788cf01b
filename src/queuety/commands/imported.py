"""An export read strictly: either everything of it can be written here and hangs together, or an error names the key.

Nothing is written. What each field may hold is said in `store/portable.py`, what fields mean to each other here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from queuety.codec import canonical, decode, encode
from queuety.commands import controls
from queuety.define.wire import definition_from_json
from queuety.errors import DefinitionError
from queuety.model import (
    CleanupStatus,
    Definition,
    Entry,
    ErrorKind,
    JobPhase,
    Json,
    State,
    Workflow,
    WorkflowStatus,
)
from queuety.model.deltas import fold
from queuety.store import portable
from queuety.store.importing import Belongings, Row
from queuety.store.portable import Field, invalid
from queuety.store.settle import CHECKPOINT_EVERY

_CLOSED: Final = (JobPhase.COMPLETED.value, JobPhase.BURIED.value)

_ENDS: Final = {
    WorkflowStatus.COMPLETED: ("completed_us",),
    WorkflowStatus.FAILED: ("failed_us", "error_message", "error_kind", "failed_step"),
    WorkflowStatus.CANCELLED: ("cancelled_us", "completed_us"),
}
"""What is known of a run that has ended so."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A run out of an export. `workflow` has its id of there; `payload` is JSON text; `definitions` are all that it
    needs, the present one last."""

    workflow: Workflow
    payload: str
    definitions: tuple[Definition, ...]
    own: Belongings

    @property
    def definition(self) -> Definition:
        """What the run does."""
        return self.definitions[-1]


def read_export(data: Any, *, max_bytes: int) -> Imported:
    """The run that an export holds. Raises `PayloadError` and `DefinitionError` that name what cannot be right."""
    if not isinstance(data, Mapping):
        raise invalid("", f"an object is needed, not {type(data).__name__}")
    if type(data.get("workflow")) is not dict:
        raise invalid("workflow", " is missing" if "workflow" not in data else ": an object is needed")
    version = data.get("format_version")
    if type(version) is not int or version != portable.FORMAT_VERSION:
        raise invalid("format_version", f": this version reads {portable.FORMAT_VERSION}, not {ascii(version)[:60]}")
    run = portable.stored(portable.WORKFLOW, data["workflow"], "workflow", max_bytes=max_bytes)
    definition = _definition(data.get("definition"), "definition", run["definition_hash"])
    history = _records(data, "events", portable.EVENT, max_bytes)
    checkpoints = _records(data, "checkpoints", portable.CHECKPOINT, max_bytes)
    _check_run(run, definition)
    _check_history(run, history)
    folded, checkpoints = _folded(run, history, checkpoints)
    state = _state(data["workflow"], folded, max_bytes)
    own = Belongings(
        history=history,
        checkpoints=checkpoints,
        jobs=[row for row in _records(data, "jobs", portable.JOB, max_bytes) if row["phase"] in _CLOSED],
        signals=_records(data, "signals", portable.SIGNAL, max_bytes),
        groups=_records(data, "groups", portable.GROUP, max_bytes),
        artifacts=[
            portable.artifact_stored(value, f"artifacts[{place}]", max_bytes=max_bytes)
            for place, value in enumerate(_list(data, "artifacts"))
        ],
        chunks=_records(data, "chunks", portable.CHUNK, max_bytes),
        tags=[
            portable.TAG.stored(value, f"workflow.tags[{place}]", max_bytes)
            for place, value in enumerate(_list(data["workflow"], "tags", "workflow."))
        ],
    )
    _check_belongings(run, own)
    return Imported(_workflow(run, state), run["payload"], (*_earlier(data), definition), own)


def _list(data: Mapping[str, Any], key: str, where: str = "") -> list[Any]:
    found = data.get(key, [])
    if type(found) is not list:
        raise invalid(f"{where}{key}", ": a list is needed")
    return found


def _records(data: Mapping[str, Any], key: str, fields: Sequence[Field], max_bytes: int) -> list[dict[str, Any]]:
    return [
        portable.stored(fields, value, f"{key}[{place}]", max_bytes=max_bytes)
        for place, value in enumerate(_list(data, key))
    ]


def _earlier(data: Mapping[str, Any]) -> Iterable[Definition]:
    found = data.get("earlier_definitions", {})
    if type(found) is not dict:
        raise invalid("earlier_definitions", ": an object is needed")
    for hash_, form in found.items():
        yield _definition(form, f"earlier_definitions.{ascii(hash_)[1:-1][:64]}", hash_)


def _definition(form: Json, where: str, hash_: str) -> Definition:
    """The definition, if it is the one that this hash stands for."""
    if form is None:
        raise invalid(where, " is missing: the database that the run was exported from did not have it")
    try:
        definition = definition_from_json(form, None)
    except DefinitionError as error:
        raise DefinitionError(f"Invalid export data: {where}: {error}") from error
    if definition.hash != hash_:
        raise DefinitionError(
            f"Invalid export data: {where}: its hash is {definition.hash}, where the run names {ascii(hash_)[:70]}; it "
            "was changed after it was exported"
        )
    return definition


def _check_run(run: Row, definition: Definition) -> None:
    """Whether the parts of the run's own row go together, and with what the run does."""
    status, step, total = WorkflowStatus(run["status"]), run["current_step"], run["total_steps"]
    if total != len(definition.steps):
        raise invalid("workflow.total_steps", f" is {total}, but the definition has {len(definition.steps)}")
    is_done = status is WorkflowStatus.COMPLETED
    if step > total or (step == total) != is_done:
        raise invalid("workflow.current_step", f" is {step} of {total}, which a {status} run does not stand at")
    names = {field.column: field.name for field in portable.WORKFLOW}
    for column in _ENDS.get(status, ()):
        if run[column] is None:
            raise invalid(f"workflow.{names[column]}", f" is missing, which a {status} run has")
    if run["failed_step"] is not None and run["failed_step"] >= total:
        raise invalid("workflow.failed_step", f" is {run['failed_step']}, but there are {total} steps")
    may_be_cleaned = status in (WorkflowStatus.FAILED, WorkflowStatus.CANCELLED)
    if run["cleanup"] != CleanupStatus.NONE.value and not may_be_cleaned:
        raise invalid("workflow.compensation_status", f" is {run['cleanup']}, and a {status} run is never cleaned up")
    _check_counts(run)


def _check_counts(run: Row) -> None:
    """Whether what the engine counts is counted as it does."""
    ledger = _decoded(run, "ledger")
    if not controls.map_of(controls.is_index, controls.is_count)(_decoded(run, "loops")):
        raise invalid("workflow.loops", ": the index of a step and the number of its jumps are needed")
    if not all(controls.is_count(ledger.get(key, 0)) for key in ("cost", "started")):
        raise invalid("workflow.ledger", ": cost and started are whole numbers")
    if not controls.map_of(controls.is_text, controls.is_count)(ledger.get("writers", {})):
        raise invalid("workflow.ledger.writers", ": steps by the key that they wrote are needed")
    undo = ledger.get("undo", {})
    if (
        type(undo) is not dict
        or not controls.list_of(controls.is_text)(undo.get("then", []))
        or not (undo.get("before") is None or controls.is_count(undo["before"]))
    ):
        raise invalid("workflow.ledger.undo", ": a row to begin before and the handlers that follow are needed")


def _check_history(run: Row, history: Sequence[Row]) -> None:
    """Whether the rows follow each other up to the run's version."""
    following = history[0]["seq"] if history else run["version"] + 1
    for place, row in enumerate(history):
        if row["seq"] != following:
            raise invalid(f"events[{place}].seq", f" is {row['seq']}, where {following} must follow")
        following += 1
        if row["visit"] > run["visit"]:
            raise invalid(f"events[{place}].visit", f" is {row['visit']}, and the run is at visit {run['visit']}")
        _check_event(row, f"events[{place}]")
    if following != run["version"] + 1:
        raise invalid("workflow.version", f" is {run['version']}, but the last event is {following - 1}")


def _check_event(row: Row, where: str) -> None:
    if row["error"] is not None:
        error = decode(row["error"])
        for key in ("message", "type"):
            if type(error.get(key)) is not str:
                raise invalid(f"{where}.error.{key}", ": text is needed")
        if "traceback" not in error or not isinstance(error["traceback"], str | None):
            raise invalid(f"{where}.error.traceback", ": text or null is needed")
        if error.get("kind") not in [word.value for word in ErrorKind]:
            raise invalid(f"{where}.error.kind", ": the kind of an error is needed")
    control = None if row["control"] is None else decode(row["control"])
    wrong = controls.fault_of(Entry(row["entry"]), control, is_attempt=row["job_id"] is not None)
    if wrong is not None:
        missing = f" is missing, which tells what was {row['entry']}"
        raise invalid(f"{where}.control.{wrong}", " is not of its form" if wrong in (control or {}) else missing)


def _folded(
    run: Row, history: Sequence[Row], checkpoints: Sequence[Row]
) -> tuple[dict[str, Json] | None, list[dict[str, Any]]]:
    """The state that the deltas give, and the states to be kept on the way, so that no earlier one is far from one.

    Where the first rows were pruned, and no state as of the last of them is there, nothing is known before the first
    checkpoint; without any, None.
    """
    first_seq = history[0]["seq"] if history else run["version"] + 1
    known = {row["seq"]: row["state"] for row in checkpoints}
    if len(known) != len(checkpoints) or not all(max(1, first_seq - 1) <= seq <= run["version"] for seq in known):
        raise invalid("checkpoints", ": one for each row, and only as of rows that are there, is needed")
    base = run["payload"] if first_seq == 1 else known.get(first_seq - 1)
    state: dict[str, Json] | None = None if base is None else decode(base)
    kept = {seq: text for seq, text in known.items() if seq == first_seq - 1}
    settled = 0
    for row in history:
        seq, settles = row["seq"], Entry(row["entry"]).settles
        if state is not None and (row["changed"] is not None or row["removed"] is not None):
            state = fold(state, [(decode(row["changed"] or "{}"), decode(row["removed"] or "[]"))])
        if seq in known:
            told = decode(known[seq])
            if state is not None and canonical(told) != canonical(state):
                raise invalid("checkpoints", f": the state as of {seq} is not what the events before it give")
            state = told if state is None else state
        settled += settles
        if state is not None and (seq in known or (settles and settled % CHECKPOINT_EVERY == 0)):
            kept[seq] = encode(state)
    return state, [{"seq": seq, "state": text} for seq, text in sorted(kept.items())]


def _state(exported: Mapping[str, Any], state: dict[str, Json] | None, max_bytes: int) -> dict[str, Json]:
    """The state that is shown, if it is the one that the history gives; the order of keys is the history's."""
    row = portable.stored([portable.STATE], exported, "workflow", max_bytes=max_bytes)
    shown: dict[str, Json] = decode(row["state"])
    if state is None or canonical(shown) == canonical(state):
        return shown if state is None else state
    other = [
        key
        for key in {**shown, **state}
        if key not in shown or key not in state or canonical(shown[key]) != canonical(state[key])
    ]
    raise invalid("workflow.state", f" is not what payload and events give; they differ in {ascii(other[0])[:60]}")


def _check_belongings(run: Row, own: Belongings) -> None:
    first_seq = own.history[0]["seq"] if own.history else run["version"] + 1
    told = {row["seq"] for row in own.history if row["entry"] == Entry.SIGNALLED.value}
    for place, row in enumerate(own.signals):
        if row["seq"] not in told and not row["seq"] < first_seq:
            raise invalid(f"signals[{place}].seq", f" is {row['seq']}, and no event tells of such a signal")
    for place, row in enumerate(own.groups):
        if not all(0 < id_ < 1 << 63 for id_ in decode(row["ids"])):
            raise invalid(f"groups[{place}].ids", ": ids of workflows are needed")
    for place, row in enumerate(own.jobs):
        if row["attempts"] > row["max_attempts"] or row["completed_us"] is None:
            raise invalid(f"jobs[{place}]", f" is {row['phase']}, and does not say how that came")
    yielded: dict[int, list[int]] = {}
    for place, row in enumerate(own.chunks):
        if row["visit"] != run["visit"] or run["status"] == WorkflowStatus.COMPLETED.value:
            raise invalid(f"chunks[{place}].visit", f" is {row['visit']}, which is settled")
        yielded.setdefault(row["branch"], []).append(row["number"])
    if any(sorted(numbers) != list(range(len(numbers))) for numbers in yielded.values()):
        raise invalid("chunks", ": the numbers of a branch must be 0, 1, 2 … without a gap")
    _refuse_twice("signals", (row["seq"] for row in own.signals))
    _refuse_twice("groups", (row["name"] for row in own.groups))
    _refuse_twice("artifacts", (row["name"] for row in own.artifacts))
    _refuse_twice("jobs", (row["id"] for row in own.jobs))
    _refuse_twice("workflow.tags", own.tags)


def _refuse_twice(where: str, names: Iterable[Any]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise invalid(where, f": {ascii(twice[0])[:60]} is there twice")


def _workflow(run: Row, state: State) -> Workflow:
    """The run as it was exported, under its id of there."""
    return Workflow(
        id=run["id"],
        name=run["name"],
        definition_hash=run["definition_hash"],
        status=WorkflowStatus(run["status"]),
        current_step=run["current_step"],
        total_steps=run["total_steps"],
        visit=run["visit"],
        version=run["version"],
        state=state,
        created_us=run["created_us"],
        runtime=_decoded(run, "runtime") or None,
        transitions=run["transitions"],
        parent_id=run["parent_id"],
        parent_step=run["parent_step"],
        idempotency_key=run["idempotency_key"],
        error_message=run["error_message"],
        error_kind=ErrorKind(run["error_kind"]) if run["error_kind"] else None,
        failed_step=run["failed_step"],
        cleanup=CleanupStatus(run["cleanup"]),
        completed_us=run["completed_us"],
        failed_us=run["failed_us"],
        cancelled_us=run["cancelled_us"],
        loops=_decoded(run, "loops") or None,
        deadline_us=run["deadline_us"],
        ledger=_decoded(run, "ledger") or None,
    )


def _decoded(run: Row, column: str) -> dict[str, Json]:
    found: dict[str, Json] = {} if run[column] is None else decode(run[column])
    return found

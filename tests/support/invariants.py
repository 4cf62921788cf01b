"""What must hold of the whole database whenever nobody is inside a transaction, whatever happened before.

`check` reads every row once. The letters are those of the specification's appendix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Table, select

from queuety.codec import decode
from queuety.model import State
from queuety.model.deltas import fold
from queuety.store.door import Door

Row = Mapping[str, Any]

OPEN = ("ready", "delayed", "suspect", "leased")
TERMINAL = ("completed", "failed", "cancelled")
OVER = ("completed", "cancelled")
"""Those that no retry brings back."""

SETTLING = ("completed", "resumed", "skipped")
"""What tells in the history that a step was left."""

SETTLING = ("completed", "resumed", "skipped")
"""Rows that tell that a step was left."""

GIVING_UP = ("rewound", "migrated", "replayed")
"""Rows that tell that a visit is over without that."""


class Broken(AssertionError):
    """Something that must always hold does not; one line for each."""


def check(door: Door) -> None:
    """Raises `Broken` with everything that is wrong with any run, job or message in the database."""
    found = list(problems(door))
    if found:
        raise Broken("\n".join(found))


def problems(door: Door) -> Iterable[str]:
    """What is wrong, one line each."""
    tables = door.tables
    with door.reading() as connection:

        def rows(table: Table) -> list[Row]:
            return [dict(row) for row in connection.execute(select(table)).mappings()]

        workflows, jobs, history, inbox, ids = map(
            rows, (tables.workflows, tables.jobs, tables.history, tables.inbox, tables.ids)
        )
        signals, groups, watchers, chunks = map(rows, (tables.signals, tables.groups, tables.watchers, tables.chunks))
        checkpoints, tags, artifacts = map(rows, (tables.checkpoints, tables.tags, tables.artifacts))
        steps = {row["hash"]: decode(row["body"])["steps"] for row in rows(tables.definitions)}
    history.sort(key=lambda row: (row["run_id"], row["seq"]))
    by_run: dict[int, list[Row]] = defaultdict(list)
    for row in history:
        by_run[row["run_id"]].append(row)
    jobs_of: dict[int, list[Row]] = defaultdict(list)
    letters_to: dict[int, list[Row]] = defaultdict(list)
    for job in jobs:
        yield from _wrong_with_job(job)
        if job["workflow_id"] is None:
            yield from _wrong_with_plain_job(job, by_run[job["id"]])
        else:
            jobs_of[job["workflow_id"]].append(job)
    for letter in inbox:
        letters_to[letter["workflow_id"]].append(letter)
    known = {workflow["id"]: workflow for workflow in workflows}
    # A run may ask to be told of one that never was; it is answered.
    expected = {letter["workflow_id"] for letter in inbox if letter["kind"] != "subscribe"}
    expected |= {row["workflow_id"] for row in (*signals, *groups, *watchers, *chunks, *tags, *artifacts)}
    expected |= {row["run_id"] for row in checkpoints if row["run_id"] > 0}
    expected |= by_run.keys() - {job["id"] for job in jobs if job["workflow_id"] is None}
    # Of a long run that is being purged the rest is noted.
    noted = {-row["run_id"] for row in checkpoints if row["run_id"] < 0}
    for workflow_id in sorted((jobs_of.keys() | expected) - known.keys() - noted):
        yield f"workflow {workflow_id} is not there, but something waits for it"
    kept: dict[int, list[Row]] = defaultdict(list)
    for checkpoint in checkpoints:
        kept[checkpoint["run_id"]].append(checkpoint)
    for workflow in workflows:
        letters = letters_to[workflow["id"]]
        timers = [letter for letter in letters if letter["kind"] == "timer"]
        own = by_run[workflow["id"]], kept[workflow["id"]], jobs_of[workflow["id"]], timers
        for problem in (
            *_wrong_with_workflow(workflow, *own),
            *_wrong_with_boundaries(workflow, by_run, known),
            *_wrong_with_deadline(workflow, letters),
            *_wrong_with_wait(workflow, steps, known, letters_to, watchers),
        ):
            yield f"workflow {workflow['id']} ({workflow['status']}): {problem}"
    yield from _wrong_with_what_is_kept(known, by_run, signals, watchers, chunks)
    yield from _wrong_with_ids(workflows, jobs, inbox, ids)


def _wrong_with_workflow(
    workflow: Row, history: list[Row], checkpoints: list[Row], jobs: list[Row], timers: list[Row]
) -> Iterable[str]:
    status, visit, step = workflow["status"], workflow["visit"], workflow["current_step"]
    open_jobs = [job for job in jobs if job["phase"] in OPEN and job["role"] != "cleanup"]
    outstanding = len(open_jobs) + len(timers)
    said = f"{len(open_jobs)} open jobs and {len(timers)} timers"
    runtime = _runtime(workflow)
    if status in TERMINAL and outstanding:
        yield f"it has ended and still has {said} (I2)"
    if status == "running" and "total" in runtime:
        if outstanding == 0:
            yield "nothing is outstanding of a step with several jobs (I3)"
    elif status == "running" and outstanding != (0 if "child" in runtime else 1):
        yield f"{said} are outstanding instead of one thing (I3)"
    if status == "paused" and outstanding > 1 and "total" not in runtime:
        yield f"{outstanding} things are outstanding in a paused run (I3)"
    if status == "waiting_for_signal" and (len(open_jobs), len(timers)) != (0, 1 if "due_us" in runtime else 0):
        yield f"it waits for a signal with {said} (I3)"
    if status == "waiting_for_workflows" and outstanding:
        yield f"it waits for workflows with {said} (I3)"
    for job in open_jobs:
        if (job["visit"], job["step_index"]) != (visit, step):
            yield f"job {job['id']} is of visit {job['visit']}, the run is at {visit} (I1)"
    for timer in timers:
        if timer["visit"] != visit:
            yield f"a timer is of visit {timer['visit']}, the run is at {visit} (I1)"
    first = _first(workflow, history)
    if [row["seq"] for row in history] != list(range(first, workflow["version"] + 1)):
        yield f"version {workflow['version']}, but the history's rows are {[row['seq'] for row in history]}"
    elif first > 1 and (base := _base(workflow, first, checkpoints)) is None:
        yield f"the history begins with row {first}, and no state is kept that the rows before have led to"
    else:
        yield from _wrong_with_state(workflow, history, base if first > 1 else None)
        yield from _wrong_with_checkpoints(workflow, history, checkpoints, base if first > 1 else None)
    yield from _wrong_with_end(workflow, jobs)


def _runtime(workflow: Row) -> State:
    """What the current step keeps for its visit."""
    found: State = decode(workflow["runtime"]) if workflow["runtime"] else {}
    return found


def _wrong_with_wait(
    workflow: Row,
    steps: Mapping[str, list[State]],
    known: Mapping[int, Row],
    letters_to: Mapping[int, list[Row]],
    watchers: list[Row],
) -> Iterable[str]:
    """Whether somebody will tell a run that waits for others: a lost wake-up is found here.

    `steps` are those of the definitions, by hash.
    """
    own_id, visit, runtime = workflow["id"], workflow["visit"], _runtime(workflow)
    if any(letter["kind"] not in ("timer", "deadline") for letter in letters_to.get(own_id, ())):
        return
    if workflow["status"] == "running" and "child" in runtime:
        child = known.get(runtime["child"])
        is_told = bool(letters_to.get(runtime["child"]))
        if not is_told and (child is None or child["status"] in TERMINAL):
            yield f"it is parked on workflow {runtime['child']}, which has ended"
    if workflow["status"] == "waiting_for_workflows":
        asked = {row["workflow_id"] for row in watchers if (row["waiter_id"], row["visit"]) == (own_id, visit)}
        for other in runtime["ids"]:
            for letter in letters_to.get(other, ()):
                if letter["kind"] == "subscribe" and decode(letter["body"])["waiter"] == own_id:
                    asked.add(other)
        going = [other for other in runtime["ids"] if other in known and known[other]["status"] not in OVER]
        if untold := [other for other in going if other not in asked]:
            yield f"nobody will tell it of the end of the runs {untold}"
        entry = steps[workflow["definition_hash"]][workflow["current_step"]]
        if _is_decided(entry, [known[other]["status"] if other in known else "gone" for other in runtime["ids"]]):
            yield f"its wait for the runs {runtime['ids']} is decided (I4)"


def _is_decided(entry: State, statuses: list[str]) -> bool:
    """Whether these runs can change nothing any more for a wait; `entry` is its step in the definition."""
    if entry["type"] != "wait_for_workflows":
        return False
    completed = statuses.count("completed")
    active = sum(status not in (*TERMINAL, "gone") for status in statuses)
    needed = {"all": len(statuses), "any": 1}.get(entry["mode"]) or entry["quorum"]
    return bool(completed >= needed or completed + active < needed)


def _wrong_with_what_is_kept(
    known: Mapping[int, Row],
    by_run: Mapping[int, list[Row]],
    signals: list[Row],
    watchers: list[Row],
    chunks: list[Row],
) -> Iterable[str]:
    for signal in signals:
        run, rows = known.get(signal["workflow_id"]), by_run[signal["workflow_id"]]
        told = {row["seq"] for row in rows if row["entry"] == "signalled"}
        if run is not None and signal["seq"] >= _first(run, rows) and signal["seq"] not in told:
            yield f"workflow {signal['workflow_id']} keeps signal {signal['seq']}, of which its history does not tell"
    for row in watchers:
        watched = known.get(row["workflow_id"])
        if watched is None:
            continue
        if watched["status"] in OVER:
            yield f"workflow {watched['id']} has ended, and {row['waiter_id']} was not told"
        if not watched["watched"]:
            yield f"workflow {watched['id']} does not know that {row['waiter_id']} watches it"
    numbers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for chunk in chunks:
        numbers[chunk["workflow_id"], chunk["visit"], chunk["branch"]].append(chunk["number"])
    for (run_id, visit, branch), found in numbers.items():
        if sorted(found) != list(range(len(found))):
            yield f"workflow {run_id}, visit {visit}, branch {branch}: the chunks are {sorted(found)}"
        run = known.get(run_id)
        if run is not None and (run["status"] == "completed" or run["visit"] != visit):
            yield f"workflow {run_id} ({run['status']}) is at visit {run['visit']} and has chunks of visit {visit}"


def _first(workflow: Row, history: list[Row]) -> int:
    """The first row of a history, of which the beginning may have been pruned: one that is not there if all of it."""
    return int(history[0]["seq"]) if history else int(workflow["version"]) + 1


def _base(workflow: Row, first: int, checkpoints: list[Row]) -> tuple[int, State] | None:
    """The earliest state that is known of a history that begins with this row, and the row that it is as of."""
    known = [(row["seq"], row["state"]) for row in checkpoints]
    fitting = [
        (seq, state) for seq, state in (*known, (workflow["state_version"], workflow["state"])) if seq >= first - 1
    ]
    if not fitting:
        return None
    seq, state = min(fitting, key=lambda found: found[0])
    return seq, decode(state)


def _wrong_with_boundaries(workflow: Row, by_run: Mapping[int, list[Row]], known: Mapping[int, Row]) -> Iterable[str]:
    history = by_run[workflow["id"]]
    merged = Counter((row["visit"], row["branch"]) for row in history if row["entry"] in (*SETTLING, "branch"))
    for (visit, branch), count in merged.items():
        if count > 1:
            yield f"{count} results were merged in visit {visit}, branch {branch} (I1)"
    tokens = Counter((row["job_id"], row["token"]) for row in history if row["job_id"] is not None)
    for (job_id, _), count in tokens.items():
        if count > 1:
            yield f"one attempt of job {job_id} was settled {count} times (I1)"
    if any(row["entry"] == "replayed" for row in history):
        return
    is_whole = _first(workflow, history) == 1
    # A visit ends with a boundary, or somebody takes the run elsewhere: the last row of each visit is that one.
    ended = {row["visit"] for row in history if row["entry"] in (*SETTLING, "rewound", "migrated")}
    begun = 1 if is_whole else min((row["visit"] for row in history), default=workflow["visit"])
    if missing := set(range(begun, workflow["visit"])) - ended:
        yield f"visits {sorted(missing)} have ended without a row (I7)"
    settled = _settled_before(workflow["version"] + 1, workflow, by_run, known)
    if settled is not None and workflow["transitions"] != settled:
        yield f"{workflow['transitions']} transitions, but {settled} steps have settled (I7)"


def _settled_before(seq: int, workflow: Row, by_run: Mapping[int, list[Row]], known: Mapping[int, Row]) -> int | None:
    """How many steps have settled before this row, with those of the run that it was forked off; None if that is not
    known any more, because rows or that run are gone."""
    run_id = workflow["id"]
    if _first(workflow, by_run[run_id]) > 1:
        return None
    history = [row for row in by_run[run_id] if row["seq"] < seq]
    own = sum(row["entry"] in SETTLING for row in history)
    is_forked = bool(history) and history[0]["entry"] == "forked"
    origin_id = decode(history[0]["control"])["_forked"].get("from") if is_forked else None
    if origin_id is None:  # its first row may tell of a run that was forked off it
        return own
    origin = known.get(origin_id)
    if origin is None or _first(origin, by_run[origin["id"]]) > 1:
        return None
    for row in by_run[origin["id"]]:
        if row["entry"] == "forked" and decode(row["control"])["_forked"].get("to") == run_id:
            before = _settled_before(row["seq"], origin, by_run, known)
            return None if before is None else own + before
    raise Broken(f"workflow {run_id} was forked off {origin['id']}, whose history does not tell of it")


def _wrong_with_deadline(workflow: Row, letters: list[Row]) -> Iterable[str]:
    """Whether somebody will tell a run of its deadline while that means something, and nobody does afterwards."""
    status, told = workflow["status"], [letter for letter in letters if letter["kind"] == "deadline"]
    if status in OVER and told:
        yield f"it has ended and will be told {len(told)} times of its deadline"
    if status not in (*TERMINAL, "paused") and workflow["deadline_us"] is not None and not told:
        yield "nobody will tell it of its deadline"


def _wrong_with_state(workflow: Row, history: list[Row], base: tuple[int, State] | None) -> Iterable[str]:
    """`base` is what is known of a run whose first rows were pruned."""
    since, before = base or (0, decode(workflow["payload"]))
    snapshot = decode(workflow["state"])
    stored = fold(snapshot, _deltas(row for row in history if row["seq"] > workflow["state_version"]))
    folded = fold(before, _deltas(row for row in history if row["seq"] > since))
    if (stored, list(stored)) != (folded, list(folded)):
        yield f"its state is {stored!r}, its payload and deltas give {folded!r}"
    if any(key.startswith("_") for key in stored):
        yield f"its state holds a key of ours: {sorted(stored)} (I5)"
    if workflow["state_bytes"] != len(workflow["state"]):
        yield f"its snapshot has {len(workflow['state'])} characters, not {workflow['state_bytes']}"
    characters = sum(
        len(row["changed"] or "") + len(row["removed"] or "")
        for row in history
        if row["seq"] > workflow["state_version"]
    )
    if workflow["delta_bytes"] != characters:
        yield f"the deltas since its snapshot have {characters} characters, not {workflow['delta_bytes']}"


def _wrong_with_checkpoints(
    workflow: Row, history: list[Row], checkpoints: list[Row], base: tuple[int, State] | None
) -> Iterable[str]:
    """A state that is kept beside the history is what its rows give until there."""
    since, before = base or (0, decode(workflow["payload"]))
    for kept in checkpoints:
        if kept["seq"] < since or kept["seq"] > workflow["version"]:
            yield f"a state is kept as of row {kept['seq']}, which is of no use"
            continue
        rows = (row for row in history if since < row["seq"] <= kept["seq"])
        folded, stored = fold(before, _deltas(rows)), decode(kept["state"])
        if (stored, list(stored)) != (folded, list(folded)):
            yield f"the state kept as of row {kept['seq']} is not what its history gives"


def _deltas(rows: Iterable[Row]) -> Iterable[tuple[State, list[str]]]:
    for row in rows:
        yield decode(row["changed"]) if row["changed"] else {}, decode(row["removed"]) if row["removed"] else []


def _wrong_with_end(workflow: Row, jobs: list[Row]) -> Iterable[str]:
    status = workflow["status"]
    is_at_end = workflow["current_step"] == workflow["total_steps"]
    if (status == "completed") != is_at_end:
        yield f"it stands at step {workflow['current_step']} of {workflow['total_steps']} (I9)"
    if status == "failed" and None in (workflow["error_message"], workflow["error_kind"], workflow["failed_step"]):
        yield "it does not say why it failed (I11)"
    for moment, wanted in (("failed_us", "failed"), ("cancelled_us", "cancelled")):
        if status == wanted and workflow[moment] is None:
            yield f"{moment} is not set"
    if status == "completed" and workflow["completed_us"] is None:
        yield "completed_us is not set"
    pending = [job for job in jobs if job["role"] == "cleanup" and job["phase"] in OPEN]
    # One that is cancelled while it runs another begins once that one is clean.
    left = (decode(workflow["ledger"]) if workflow["ledger"] else {}).get("left")
    cleaning = 1 if workflow["cleanup"] == "pending" and not _runtime(workflow).get("awaits") and not left else 0
    if len(pending) != cleaning:
        yield f"cleanup is {workflow['cleanup']}, and {len(pending)} jobs of it are open"


def _wrong_with_job(job: Row) -> Iterable[str]:
    phase, name = job["phase"], f"job {job['id']} ({job['phase']})"
    is_held = job["token"] is not None and job["owner"] is not None
    is_free = job["token"] is None and job["owner"] is None
    if not (is_held if phase == "leased" else is_free):
        yield f"{name}: token {job['token']}, owner {job['owner']}"
    if (job["wake_us"] is not None) != (phase in ("leased", "delayed")):
        yield f"{name}: wake_us {job['wake_us']}"
    if not 0 <= job["attempts"] <= job["max_attempts"]:
        yield f"{name}: attempt {job['attempts']} of {job['max_attempts']}"
    if phase in OPEN and job["completed_us"] is not None:
        yield f"{name}: completed_us {job['completed_us']}"


def _wrong_with_plain_job(job: Row, history: list[Row]) -> Iterable[str]:
    if [row["seq"] for row in history] != list(range(1, job["entries"] + 1)):
        yield f"job {job['id']}: {job['entries']} entries, but the history's rows are {[row['seq'] for row in history]}"
    ended = [row for row in history if row["final"] or row["entry"] == "completed"]
    if len(ended) != (1 if job["phase"] in ("completed", "buried") else 0):
        yield f"job {job['id']} ({job['phase']}) has ended {len(ended)} times"


def _wrong_with_ids(workflows: list[Row], jobs: list[Row], inbox: list[Row], ids: list[Row]) -> Iterable[str]:
    used = Counter(row["id"] for rows in (workflows, jobs, inbox) for row in rows)
    for number, count in used.items():
        if count > 1:
            yield f"id {number} names {count} things"
    following = max((row["next"] for row in ids), default=1)
    if used and max(used) >= following:
        yield f"id {max(used)} is in use, and {following} will be given next"

"""The `_async` verbs: the same in an event loop, which goes on turning."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuety import JobStatus, Queuety, WorkflowStatus, errors, job, step

State = dict[str, Any]


@step
def double(state: State) -> State:
    return {"n": state["n"] * 2}


@job
async def quiet(payload: State) -> None:
    await asyncio.sleep(0)


def test_a_program_in_an_event_loop_can_do_everything_without_blocking_it(app: Queuety) -> None:
    async def scenario() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        await app.migrate_async()
        builder = app.workflow("w").then(double).then(double)
        run = await builder.dispatch_async({"n": 1})
        other = await app.dispatch_workflow_async(builder, {"n": 2})
        third = await app.dispatch_definition_async(builder.definition(), {"n": 3})
        many = await app.dispatch_many_async(builder, [{"n": n} for n in range(3)])
        job_id = await app.dispatch_async(quiet, delay=0)
        await app.pause_workflow_async(run)
        await app.cancel_workflow_async(other)
        await app.pause_async("elsewhere")
        assert await app.paused_queues_async() == ["elsewhere"]
        assert await app.is_paused_async("elsewhere")
        await app.resume_async("elsewhere")
        assert await app.run_until_idle_async() == 1 + 2 + 6 + 1
        await app.resume_workflow_async(run)
        running = asyncio.create_task(app.wait_async(run, timeout=30))
        assert await app.run_until_idle_async() == 1
        assert (await running).state == {"n": 4}
        with pytest.raises(errors.WaitTimeout):
            await app.wait_async(await builder.dispatch_async({"n": 0}), timeout=0.01)
        state = await app.workflow_status_async(third)
        assert state is not None
        assert (state.status, state.state) == (WorkflowStatus.COMPLETED, {"n": 12})
        assert {each.id for each in await app.list_workflows_async("completed")} == {run, third, *many}
        done = await app.job_status_async(job_id)
        assert done is not None
        assert done.status is JobStatus.COMPLETED
        assert len(await app.list_jobs_async(workflow_id=third)) == 2
        assert len(await app.workflow_timeline_async(third)) == 4
        assert (await app.stats_async())["buried"] == 1
        assert await app.recover_async() == 0
        with pytest.raises(errors.InvalidStateError):
            await app.retry_workflow_async(run)
        ticking.cancel()
        assert ticks > 100

    asyncio.run(scenario())


def test_ten_dispatches_at_once_from_one_loop_are_ten_runs(app: Queuety) -> None:
    async def scenario() -> list[int]:
        builder = app.workflow("w").then(double)
        return list(await asyncio.gather(*(builder.dispatch_async({"n": n}) for n in range(10))))

    runs = asyncio.run(scenario())
    assert len(set(runs)) == 10
    assert app.run_until_idle() == 10

"""The end of a run that cannot be decided: its definition is missing or unreadable, or the engine itself has a fault.

Left as it is, such a run would be tried for ever and take others of its batch with it. It fails instead, visibly, and
may be retried once the cause is mended.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuety.engine.course import Course
from queuety.engine.decide import keep_signal
from queuety.engine.family import news
from queuety.engine.protocol import NO_FACTS
from queuety.model import Definition, Effect, ErrorInfo, SaveWorkflow, Signalled, Workflow


def derailed(workflow: Workflow, error: ErrorInfo, *, now_us: int, signals: Iterable[Signalled] = ()) -> list[Effect]:
    """Effects that fail the run and bury what it has open; none for a run that has ended. The signals are kept."""
    course = Course(workflow, Definition(workflow.name, ()), now_us=now_us, facts=NO_FACTS)
    for signal in signals:
        keep_signal(course, signal)
    if not workflow.status.is_terminal:
        course.fail(error)
    if course.workflow is workflow:
        return course.effects
    told = news(workflow, course.workflow, now_us=now_us)
    return [*course.effects, *told, SaveWorkflow(course.workflow, workflow)]

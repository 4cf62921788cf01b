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
from queuety.errors import ConstraintViolation
from queuety.model import Definition, Effect, ErrorInfo, ErrorKind, SaveWorkflow, Signalled, Workflow

_LONGEST = 2000


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


def undecidable(error: Exception) -> ErrorInfo:
    """Why a run that could not be decided has failed."""
    if isinstance(error, ConstraintViolation):
        return ErrorInfo(
            str(error)[:_LONGEST], "queuety.errors:ConstraintViolation", kind=ErrorKind.CONSTRAINT_VIOLATION
        )
    return ErrorInfo(
        message=f"the run could not be decided: {type(error).__name__}: {error}"[:_LONGEST],
        type_name=f"{type(error).__module__}:{type(error).__qualname__}",
        kind=ErrorKind.DEFINITION_ERROR,
    )

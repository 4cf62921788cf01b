"""Moving a run to another definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuety.errors import InvalidStateError

if TYPE_CHECKING:
    from queuety.engine.course import Course
    from queuety.model import Commanded


def migrate(course: Course, commanded: Commanded) -> None:
    """Refused."""
    raise InvalidStateError(f"workflow {course.workflow.id} cannot be migrated ({commanded.operation})")

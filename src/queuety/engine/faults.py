"""What may go wrong in deciding that is the fault of one run, and the failure that it means for that run."""

from __future__ import annotations

import traceback
from typing import Final

from queuety.errors import ConstraintViolation, QueuetyError
from queuety.model import ErrorInfo, ErrorKind, Workflow

FAULTS: Final = (QueuetyError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What a decision may raise because of a definition, a state, or a fault of the engine's own."""

_LONGEST: Final = 2000
_LONGEST_TRACE: Final = 8000


def broken(workflow: Workflow, limit: str, most: int, found: str) -> ConstraintViolation:
    """What is raised of a limit of the definition that a run would break."""
    return ConstraintViolation(
        f"{_called(workflow)} may have at most {limit}={most}; {found} (step {workflow.current_step})"
    )


def broken_at_start(error: ConstraintViolation, workflow: Workflow) -> ConstraintViolation:
    """The same of a run that is only being started: there will be none of its id, so the message names none."""
    called, said = _called(workflow), str(error)
    found = f"workflow {workflow.name!r}{said.removeprefix(called)}" if said.startswith(called) else said
    return ConstraintViolation(found)


def _called(workflow: Workflow) -> str:
    return f"workflow {workflow.id} ({workflow.name!r})"


def refusal(error: Exception) -> ErrorInfo:
    """Why a step could not be left: a limit that it would break, or a step to go on with that there is not."""
    if isinstance(error, ConstraintViolation):
        return ErrorInfo(
            str(error)[:_LONGEST], "queuety.errors:ConstraintViolation", kind=ErrorKind.CONSTRAINT_VIOLATION
        )
    return ErrorInfo(str(error)[:_LONGEST], "DefinitionError", kind=ErrorKind.DEFINITION_ERROR)


def undecidable(error: Exception) -> ErrorInfo:
    """Why a run that could not be decided has failed."""
    name = f"{type(error).__module__}:{type(error).__qualname__}"
    trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
    if isinstance(error, ConstraintViolation):
        return ErrorInfo(str(error)[:_LONGEST], name, trace, ErrorKind.CONSTRAINT_VIOLATION)
    message = f"the run could not be decided: {type(error).__name__}: {error}"[:_LONGEST]
    return ErrorInfo(message, name, trace, ErrorKind.DEFINITION_ERROR)

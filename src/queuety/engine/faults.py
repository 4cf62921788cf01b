"""What may go wrong in deciding that is the fault of one run, and the failure that it means for that run."""

from __future__ import annotations

import traceback
from typing import Final

from queuety.errors import ConstraintViolation, QueuetyError
from queuety.model import ErrorInfo, ErrorKind

FAULTS: Final = (QueuetyError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What a decision may raise because of a definition, a state, or a fault of the engine's own."""

_LONGEST: Final = 2000
_LONGEST_TRACE: Final = 8000


def undecidable(error: Exception) -> ErrorInfo:
    """Why a run that could not be decided has failed."""
    name = f"{type(error).__module__}:{type(error).__qualname__}"
    trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
    if isinstance(error, ConstraintViolation):
        return ErrorInfo(str(error)[:_LONGEST], name, trace, ErrorKind.CONSTRAINT_VIOLATION)
    message = f"the run could not be decided: {type(error).__name__}: {error}"[:_LONGEST]
    return ErrorInfo(message, name, trace, ErrorKind.DEFINITION_ERROR)

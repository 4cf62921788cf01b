"""Every exception that Queuety raises to its callers.

The tree::

    QueuetyError
    ├── DefinitionError (ValueError)     a workflow or an option that cannot be right
    ├── PayloadError (ValueError)        a value that JSON does not give back as it was
    ├── NotFoundError (LookupError)      an id or a name that is not there
    │   └── HandlerNotFound              a handler that this process cannot resolve
    ├── InvalidStateError                an operation that the present status forbids
    │   └── SnapshotMissingError         no recorded state to go back to
    ├── ConstraintViolation              a guardrail was reached
    ├── EventRejected                    a state machine does not accept this event now
    ├── LeaseLost                        this attempt no longer owns its job
    ├── JobTimeout                       a handler ran longer than it may
    ├── RateLimited                      a rate limit refused the job
    ├── WaitTimeout                      nothing arrived in time
    └── StoreError                       the database did not do what it was asked
        ├── StoreUnavailable             it cannot be reached, or not now
        └── SchemaError                  its tables are not those of this version

A message says what was tried, what was found and what to do. Drivers' own errors are translated in one place, the
store's door; none reaches a caller bare.
"""

from __future__ import annotations


class QueuetyError(Exception):
    """The root of all errors of this package."""


class DefinitionError(QueuetyError, ValueError):
    """A workflow, a handler or an option that cannot be right; raised when it is built, before anything is written."""


class PayloadError(QueuetyError, ValueError):
    """A value that JSON does not give back equal and of the same type, or an import that is malformed."""


class NotFoundError(QueuetyError, LookupError):
    """An id or a name that is not in the database."""


class HandlerNotFound(NotFoundError):
    """A handler that cannot be imported here, is not registered, or does not carry our mark."""


class InvalidStateError(QueuetyError):
    """An operation that the present status does not allow; nothing was changed."""


class SnapshotMissingError(InvalidStateError):
    """No state was recorded for the step that was asked for."""


class ConstraintViolation(QueuetyError):
    """A guardrail of the workflow was reached."""


class EventRejected(QueuetyError):
    """A state machine that does not accept this event in its present state."""


class LeaseLost(QueuetyError):
    """This attempt no longer owns its job: another took over, or the run has moved on. Nothing of it was written."""


class JobTimeout(QueuetyError):
    """A handler that ran longer than its time limit."""


class RateLimited(QueuetyError):
    """A rate limit that refused the job for now."""


class WaitTimeout(QueuetyError):
    """Something that was waited for and did not come in time."""


class StoreError(QueuetyError):
    """The database did not do what it was asked to."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or refuses work just now; what was tried was not done."""


class SchemaError(StoreError):
    """The tables are missing, older or newer than this version of the package."""


class Retry(Exception):
    """Raise it in a handler to have the attempt repeated `after` seconds from now; it uses up an attempt."""

    def __init__(self, after: float = 0.0, message: str | None = None) -> None:
        if not after >= 0:
            raise DefinitionError(f"Retry(after={after!r}): a number of seconds that is not negative is needed")
        self.after = float(after)
        super().__init__(message or f"the handler asked to be run again in {self.after:g} s")


class Fail(Exception):
    """Raise it in a handler to end the job without further attempts."""

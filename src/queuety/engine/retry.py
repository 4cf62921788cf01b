"""When a failed attempt is repeated, if it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from queuety.errors import DefinitionError
from queuety.model import Failed

Backoff = str | Sequence[float]
"""A name, or exact seconds per failure whose last value repeats."""

DEFAULT_BACKOFF: Final = "exponential"

_LONGEST_S: Final = 3600.0
_LINEAR_S: Final = 5.0
_FIXED_S: Final = 5.0


def backoff_seconds(backoff: Backoff | None, failure: int, *, jitter: float = 0.0) -> float:
    """Seconds to wait after the `failure`-th failed attempt, counted from 1.

    `jitter` is the share by which exponential and linear delays are lengthened; lists and `fixed` are exact.
    Raises `DefinitionError` for an unknown name or an empty list.

    >>> [backoff_seconds("exponential", n) for n in (1, 2, 3, 11, 12, 5000)]
    [2.0, 4.0, 8.0, 2048.0, 3600.0, 3600.0]
    >>> backoff_seconds("linear", 3), backoff_seconds("linear", 3, jitter=0.1), backoff_seconds("fixed", 3, jitter=0.1)
    (15.0, 16.5, 5.0)
    >>> [backoff_seconds([1, 30], n, jitter=0.5) for n in (1, 2, 3)]
    [1.0, 30.0, 30.0]
    """
    if backoff is None:
        backoff = DEFAULT_BACKOFF
    if not isinstance(backoff, str):
        if not backoff:
            raise DefinitionError("backoff=[]: a list of seconds needs at least one")
        return float(backoff[min(failure, len(backoff)) - 1])
    if backoff == "exponential":
        # the exponent is capped because 2 ** 5000 is no float
        return min(2.0 ** min(failure, 12), _LONGEST_S) * (1.0 + jitter)
    if backoff == "linear":
        return _LINEAR_S * failure * (1.0 + jitter)
    if backoff == "fixed":
        return _FIXED_S
    raise DefinitionError(f'backoff={backoff!r}: "exponential", "linear", "fixed" or a list of seconds is needed')


def next_due_us(event: Failed, backoff: Backoff | None, *, now_us: int) -> int | None:
    """When the job is due again, or None if that was its last attempt.

    The handler's own wish wins over the backoff, but not over the number of attempts.
    """
    job = event.job
    if event.is_final or job.attempt >= job.max_attempts:
        return None
    if event.retry_after_us is not None:
        return now_us + event.retry_after_us
    return now_us + round(backoff_seconds(backoff, job.attempt, jitter=event.jitter) * 1_000_000)

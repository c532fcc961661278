"""What the driver's errors mean.

Job: whatever asyncpg raises → a fault that names ``[journal] url`` and says what to do. Nothing else reads its errors.
"""

from __future__ import annotations

from typing import Final

import asyncpg

from relay.journal.faults import Unavailable, Unusable

CONNECTION: Final = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError)
"""The connection broke, or never was: whether a statement was carried out is not known."""

AGAIN: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""Rolled back for the sake of another; the same statement may be tried again."""

_PASSING: Final[tuple[tuple[type[Exception], str], ...]] = (
    (asyncpg.QueryCanceledError, "did not finish a statement in time; look at its load and at its locks"),
    (asyncpg.LockNotAvailableError, "kept a row locked for too long; look for transactions that stay open"),
    (asyncpg.AdminShutdownError, "is shutting down"),
    (asyncpg.CrashShutdownError, "is recovering from a crash"),
    (asyncpg.CannotConnectNowError, "is starting or stopping"),
    (asyncpg.TooManyConnectionsError, "has no connection free; raise max_connections there"),
    (asyncpg.DiskFullError, "has a full disk; make room"),
    (asyncpg.ReadOnlySQLTransactionError, "is read-only, as a standby is; name the primary"),
    (asyncpg.DeadlockDetectedError, "gave up on a deadlock twice"),
    (asyncpg.SerializationError, "gave up on a conflict twice"),
    (asyncpg.InsufficientResourcesError, "has no resources: {error}"),
    (asyncpg.OperatorInterventionError, "was interrupted: {error}"),
)

_LASTING: Final[tuple[tuple[type[Exception], str], ...]] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "does not let the relay in: {error}"),
    (asyncpg.InvalidCatalogNameError, "has no such database; create it"),
    (asyncpg.InsufficientPrivilegeError, "does not allow it: {error}; the user needs CREATE on the database"),
    (asyncpg.DataCorruptedError, "has damaged data: {error}"),
)


def fault(error: Exception, place: str, *, maybe: bool) -> Unavailable | Unusable:
    """The fault that ``error`` is. ``maybe``: a statement that changes something was under way."""
    start = f"the journal {place} ([journal] url) "
    if isinstance(error, CONNECTION):
        return Unavailable(f"{start}cannot be reached: {str(error) or 'no answer in time'}", maybe=maybe)
    for kind, text in _PASSING:
        if isinstance(error, kind):
            return Unavailable(start + text.format(error=error))
    for kind, text in _LASTING:
        if isinstance(error, kind):
            return Unusable(start + text.format(error=error))
    return Unusable(f"{start}failed: {error}")

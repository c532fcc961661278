"""A fault of ours in a connection's callback ends that connection, and nothing else.

An event loop closes the transport whose callback raises. A client's callback is often called from the upstream's, and
it would be the upstream's connection that is closed.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Breakable(Protocol):
    """Something that can be given up."""

    def broken(self, error: Exception) -> None:
        """Report ``error`` and end."""


B = TypeVar("B", bound=Breakable)
P = ParamSpec("P")


def contained(callback: Callable[Concatenate[B, P], None]) -> Callable[Concatenate[B, P], None]:
    """``callback``, which never raises."""

    @wraps(callback)
    def guarded(self: B, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - reported by `broken`
            self.broken(error)

    return guarded

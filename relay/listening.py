"""Where a process listens, and why it cannot.

Job: words for addresses, and the translation of what can fail when one is taken.
Must not know: what is served there.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from relay.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a relay listens, as URLs."""

    http: str
    ops: str


def url(place: tuple[str, int]) -> str:
    """(host, port) as a URL."""
    host, port = place
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def listening(key: str, place: str, start: Awaitable[T]) -> T:
    """What ``start`` gives. Raises Fault that names the option ``key`` if it cannot listen at ``place``."""
    try:
        return await start
    except OSError as error:
        raise unable(key, place, error) from error


def unable(key: str, place: str, error: OSError) -> Fault:
    """Why nothing can listen at ``place``."""
    why = "the port is taken; choose another" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
    return Fault(f"{key}: cannot listen on {place}: {why}")

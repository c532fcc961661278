"""What the client library raises, as a label and a sentence.

Job: the exceptions of the library, translated once, for commands and for the subscription alike.
Must not know: what was said to the server, what becomes of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

_BY_TYPE: Final[Sequence[tuple[type[BaseException], str]]] = (
    (TimeoutError, "timeout"),
    (exceptions.TimeoutError, "timeout"),
    (exceptions.AuthenticationError, "auth"),
    (exceptions.AuthorizationError, "auth"),
    (exceptions.BusyLoadingError, "loading"),
    (exceptions.MasterDownError, "cluster"),
    (exceptions.ClusterError, "cluster"),
    (exceptions.RedisClusterException, "cluster"),
    (exceptions.ConnectionError, "connection"),
    (OSError, "connection"),
    (exceptions.ReadOnlyError, "readonly"),
    (exceptions.OutOfMemoryError, "oom"),
    (exceptions.NoPermissionError, "auth"),
)
"""The first that fits."""

_BY_WORD: Final = {
    "READONLY": "readonly", "MISCONF": "readonly", "NOREPLICAS": "readonly", "OOM": "oom", "NOAUTH": "auth",
    "NOPERM": "auth", "WRONGPASS": "auth", "LOADING": "loading", "MASTERDOWN": "cluster", "CLUSTERDOWN": "cluster",
    "BUSY": "busy", "ACL failure in script": "auth", "The user executing the script": "auth",
}  # fmt: skip
"""The server's own word, wherever it stands: Redis 6 wraps what happens inside a script in a text of its own. A right
that is missing inside a script has no word, only a sentence (the last one is that of Redis 6)."""

_WORD: Final = re.compile(rf"\b({'|'.join(_BY_WORD)})\b")
_SPOILT: Final = re.compile(r"\bWRONGTYPE\b|\battempt to (compare|perform|concatenate|index) |\bbad argument #")
"""A key of another type, or a script that could not read what it found."""

_SENTINEL: Final = re.compile(r"\bhost=([^,)]+),port=(\d+)")


@dataclass(frozen=True, slots=True)
class Down:
    """No answer, and none to be had for now. ``reason`` is a label of the metric."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Spoilt:
    """The server is well, and what stands at the keys of one lane is not the relay's."""

    detail: str


def spoilt(error: Exception) -> bool:
    """Does ``error`` concern the keys that it was met at, and no others?"""
    return isinstance(error, exceptions.ResponseError) and _SPOILT.search(str(error)) is not None


def trouble(error: BaseException, timeout_s: float) -> Down:
    """What ``error`` says about the server; ``timeout_s`` is how long an answer was waited for."""
    return Down(_reason(error), _detail(error, timeout_s))


def _reason(error: BaseException) -> str:
    if word := _WORD.search(str(error)):
        return _BY_WORD[word[0]]
    return next((reason for kind, reason in _BY_TYPE if isinstance(error, kind)), "other")


def _detail(error: BaseException, timeout_s: float) -> str:
    text = str(error)
    if isinstance(error, MasterNotFoundError):  # which lists the clients of all Sentinels, as Python shows them
        said, _, causes = text.partition(" : ")
        failed = ", ".join(f"{host}:{port}" for host, port in _SENTINEL.findall(causes))
        return f"{said} by the Sentinels of [redis] url{f'; no answer from {failed}' if failed else ''}"
    if not text and isinstance(error, TimeoutError | exceptions.TimeoutError):
        return f"no answer within {timeout_s * 1000:.0f} ms"
    return f"{type(error).__name__}: {text}"

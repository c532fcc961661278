"""What was known last, for as many as fit: what is forgotten is looked up again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The newest ``most`` entries."""

    __slots__ = ("_entries", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __repr__(self) -> str:
        return f"<recent: {len(self._entries)} of at most {self._most}>"

    def get(self, key: K) -> V | None:
        """What is known of ``key``."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Know ``value``, and forget what was put longest ago."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget ``key``, if it is known."""
        self._entries.pop(key, None)

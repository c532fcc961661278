"""What was made of some bytes, remembered by these bytes.

Job: the heads on a connection to the node are the same again and again; a look-up replaces making and reading them.
Rules: what is made depends on the bytes alone. Long ones are made each time, and all are forgotten when there are too
many, so that the memory stays small however many different ones come.
Must not know: what is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

REMEMBERED: Final = 1024
REMEMBERED_BYTES: Final = 2048


class Memo(dict[bytes, T]):
    """``memo[text]`` is what ``make(text)`` gives. A dict, so that what is known costs no call in Python."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[bytes], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, text: bytes) -> T:
        """Seen for the first time, forgotten, or too long to keep."""
        made = self._make(text)
        if len(text) <= REMEMBERED_BYTES:
            if len(self) >= REMEMBERED:
                self.clear()
            self[text] = made
        return made

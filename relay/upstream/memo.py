"""What was made of some bytes, remembered by these bytes.

Job: the heads on a connection to the node are the same again and again; a look-up replaces making and reading them.
Rules: what is made depends on the bytes alone. Only what comes a second time is kept (where each head has a trace id of
its own, keeping them pushes everything else out of the processor's caches); long ones are made each time; all are
forgotten when there are too many, so that the memory stays small however many different ones come.
Must not know: what is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

REMEMBERED: Final = 1024
REMEMBERED_BYTES: Final = 2048


class Doorkeeper:
    """Tells what has come before, by a mark for each: who is not told apart from another is kept a little early."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: set[int] = set()

    def lets_in(self, text: bytes) -> bool:
        """Is ``text`` to be kept? Not if it is too long, nor when it comes for the first time."""
        if len(text) > REMEMBERED_BYTES:
            return False
        mark = hash(text)
        if mark in self._marks:
            return True
        if len(self._marks) >= REMEMBERED:
            self._marks.clear()
        self._marks.add(mark)
        return False


class Memo(dict[bytes, T]):
    """``memo[text]`` is what ``make(text)`` gives. A dict, so that what is known costs no call in Python."""

    __slots__ = ("_doorkeeper", "_make")

    def __init__(self, make: Callable[[bytes], T]) -> None:
        super().__init__()
        self._make = make
        self._doorkeeper = Doorkeeper()

    def __missing__(self, text: bytes) -> T:
        """Not kept, or not any more."""
        made = self._make(text)
        if self._doorkeeper.lets_in(text):
            if len(self) >= REMEMBERED:
                self.clear()
            self[text] = made
        return made

"""The journal in memory, by the contract of all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.journal.memory import MemoryJournal
from relay.testing import JournalContract

if TYPE_CHECKING:
    from collections.abc import Sequence


class OneMemory:
    """Every instance is the same object: memory is shared by nobody else."""

    def __init__(self) -> None:
        self._journal: MemoryJournal | None = None

    async def open(self, *, receivers: Sequence[str] = ()) -> MemoryJournal:
        """The one."""
        if self._journal is None:
            self._journal = MemoryJournal(receivers=receivers)
        return self._journal


class TestMemory(JournalContract):
    """As a store."""

    @pytest.fixture
    def stores(self) -> OneMemory:
        """A new one."""
        return OneMemory()

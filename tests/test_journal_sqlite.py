"""The journal in a file, by the contract of all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.journal.sqlite import SqliteJournal
from relay.testing import JournalContract, TwoProcesses

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class OneFile:
    """Instances that share a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, *, receivers: Sequence[str] = ()) -> SqliteJournal:
        """One more."""
        return await SqliteJournal.open(self._path, receivers=receivers)


class TestSqlite(JournalContract):
    """As a store."""

    @pytest.fixture
    def stores(self, tmp_path: Path) -> OneFile:
        """A new file."""
        return OneFile(tmp_path / "journal.db")


class TestSqliteByTwo(TwoProcesses):
    """With real processes."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        """A new file."""
        return f"sqlite:///{tmp_path}/journal.db"

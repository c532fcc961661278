"""How the suite opens what it tries.

Job: the seam between a store and the suite, and the fixtures that every part of the suite uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relay.journal import Journal

RECEIVER: Final = "receiver"
"""Who is told."""


class Stores(Protocol):
    """One set of stores, empty at first."""

    async def open(self, *, receivers: Sequence[str] = ()) -> Journal:
        """Open a journal on it, as one more instance of the relay would."""


class Opening:
    """A part of the suite: overrides ``stores``, and gets ``journal`` and ``other``, two instances on one set."""

    @pytest.fixture
    def stores(self) -> Stores:
        """To be overridden."""
        raise NotImplementedError

    @pytest.fixture
    async def journal(self, stores: Stores) -> AsyncIterator[Journal]:
        """The first instance, which tells a receiver."""
        journal = await stores.open(receivers=(RECEIVER,))
        yield journal
        await journal.close()

    @pytest.fixture
    async def other(self, stores: Stores, journal: Journal) -> AsyncIterator[Journal]:
        """The second instance."""
        assert journal is not None, "the first one makes the tables"
        other = await stores.open(receivers=(RECEIVER,))
        yield other
        await other.close()

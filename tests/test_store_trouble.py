"""A whole relay whose journal's file is full or locked: what its clients hear, and that it goes on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acceptance.conftest import rig as started_parts
from acceptance.rig.kills import SqliteStore, killing
from acceptance.rig.store_trouble import cramped, full, survives

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.parts import Rig

rig = started_parts


async def test_a_file_that_is_full(rig: Rig, tmp_path: Path) -> None:
    """Nothing is sent unrecorded, /readyz says it, calls pass; with room again all goes on."""
    async with killing(rig, SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}"), chain={"delay_ms": (5, 20)}) as case:
        relay = await cramped(case, tmp_path / "pages")
        await survives(case, relay, full(tmp_path / "pages"))


async def test_a_file_that_is_locked_for_too_long(rig: Rig, tmp_path: Path) -> None:
    """Refused before anything is sent; the same bytes are carried out when the lock is gone."""
    async with killing(rig, SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")) as case:
        relay, crowd = await case.relay(), rig.crowd()
        async with case.store.held():
            await crowd.once(case.transfers, [relay.url])
            assert [post.code for post in crowd.refused] == [-32032] * 3
            await relay.process.line("the journal cannot be written.*locked")
            assert await case.chain.arrivals() == []
            assert await case.chain.count(case.sender.address) == 0
        await crowd.once(case.transfers, [relay.url])
        await case.all_landed_once()

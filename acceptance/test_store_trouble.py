"""Relays whose journal is full, locked, slow or away under a burst: nothing is sent unrecorded, nobody is misled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acceptance.rig.kills import PostgresStore, SqliteStore, Store, killing
from acceptance.rig.store_trouble import cramped, full, over_quota, stopped, survives
from acceptance.test_kills import postgres, programs, store

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.parts import Rig

__all__ = ["postgres", "programs", "store"]

CHECKS = {"delay_ms": (5, 20)}

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_store_that_takes_nothing(rig: Rig, store: Store, workers: str, measured: Measured) -> None:
    """A file that is locked for longer than a lock is waited for; a server that does not answer."""
    async with killing(rig, store, "--workers", workers, chain=CHECKS) as case:
        measured(await survives(case, await case.relay(), case.store.held()))


async def test_a_file_that_is_full(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """`max_page_count` is reached; with room again the relay goes on."""
    async with killing(rig, SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}"), chain=CHECKS) as case:
        relay = await cramped(case, tmp_path / "pages")
        measured(await survives(case, relay, full(tmp_path / "pages")))


async def test_a_file_over_its_quota(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """A write fails: what was asked may have happened, so clients hear "unknown"."""
    async with killing(rig, SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}"), chain=CHECKS) as case:
        relay = await case.relay()
        measured(await survives(case, relay, over_quota(case, relay)))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("mode", ["immediate", "fast"])
async def test_a_server_that_restarts(
    rig: Rig, postgres: PostgresStore, mode: str, workers: str, measured: Measured
) -> None:
    """A crash, or an orderly end, under a burst."""
    async with killing(rig, postgres, "--workers", workers, chain=CHECKS) as case:
        measured(await survives(case, await case.relay(), stopped(postgres.server, mode)))

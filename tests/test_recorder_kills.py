"""A relay that is killed, with its journal in a file: at each step of a submission, in a sweep, in a migration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acceptance.conftest import rig as started_parts
from acceptance.rig.kills import STEPS, SqliteStore, killing
from acceptance.rig.kills_later import (
    NOT_MINED,
    SWEEP_STEPS,
    TOKEN,
    all_swept_once,
    dies,
    dropped,
    dying,
    serving,
)

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.parts import Rig

rig = started_parts


@pytest.mark.parametrize("step", STEPS)
async def test_what_a_killed_relay_left_lands_once(rig: Rig, tmp_path: Path, step: str) -> None:
    """After the restart, with no client left who could ask again: in order, and the history tells the way."""
    async with killing(rig, SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")) as case:
        await STEPS[step](case, await case.relay())
        await case.relay()
        await case.all_landed_once()


async def test_what_a_killed_sweep_left_lands_once(rig: Rig, tmp_path: Path) -> None:
    """The node had lost what it took, and the first resend is on disk: each is there again, once, in order."""
    store = SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")
    async with killing(rig, store, chain=NOT_MINED, ops__token=TOKEN) as case:
        relay = await case.relay()
        await dropped(case, relay)
        await SWEEP_STEPS["before_resend"](case, relay)
        await all_swept_once(case, await case.relay())


async def test_a_migration_that_was_killed_is_made_by_the_next_start(rig: Rig, tmp_path: Path) -> None:
    """In the middle of its tables: the file has none of them, and the next relay works with it."""
    store = SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")
    assert await dies(await dying(rig, 10, **serving(store)))
    async with killing(rig, store) as case:
        relay = await case.relay()
        await rig.crowd().once(case.transfers, [relay.url])
        await case.all_landed_once()

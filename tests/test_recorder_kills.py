"""A relay that is killed at each step of a submission, with its journal in a file: one of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acceptance.conftest import rig as started_parts
from acceptance.rig.kills import STEPS, SqliteStore, killing

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

"""Relays with a journal that are killed: at each step of a submission, and at random under load."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.kills import STEPS, PostgresStore, SqliteStore, Store, killing
from acceptance.rig.workers import all_work, gone, signal_worker
from tests.postgres_server import PostgresPrograms, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from acceptance.rig.parts import Part, Rig

LEASE_MS = 1500

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def programs() -> Iterator[PostgresPrograms]:
    """PostgreSQL's."""
    with PostgresPrograms() as programs:
        yield programs


@pytest.fixture
def postgres(programs: PostgresPrograms, tmp_path: Path) -> Iterator[PostgresStore]:
    """A server of its own, for it is paused."""
    with PostgresServer(programs, tmp_path.name) as server:
        yield PostgresStore(server)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each kind."""
    if request.param == "sqlite":
        return SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")
    found: PostgresStore = request.getfixturevalue("postgres")
    return found


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("step", STEPS)
async def test_what_a_killed_relay_left_lands_once(rig: Rig, store: Store, step: str, workers: str) -> None:
    """After the restart, with no client left who could ask again: in order, and the history tells the way."""
    async with killing(rig, store, "--workers", workers) as case:
        await STEPS[step](case, await case.relay())
        await case.relay()
        await case.all_landed_once()


@pytest.mark.parametrize("step", [step for step in STEPS if step != "twice"])
async def test_what_a_killed_lane_process_left_lands_once(rig: Rig, store: Store, step: str) -> None:
    """Only worker 0 dies: the next one goes on."""

    async def kill_lanes(relay: Part) -> None:
        await gone([signal_worker(relay, 0, signal.SIGKILL)])

    async with killing(rig, store, "--workers", "2") as case:
        case.kill = kill_lanes
        relay = await case.relay()
        await all_work(rig, relay)
        await STEPS[step](case, relay)
        await case.all_landed_once()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("then", ["restart", "repeat"])
@pytest.mark.parametrize("step", [step for step in STEPS if step != "twice"])
async def test_what_one_of_two_left_lands_once(
    rig: Rig, postgres: PostgresStore, step: str, then: str, workers: str
) -> None:
    """It starts again, or never does and its clients ask the other one."""
    redis = await rig.redis()
    flags = ("--workers", workers, "--redis", redis.url)
    async with killing(rig, postgres, *flags, redis__lease_ms=LEASE_MS) as case:
        other = await case.relay("two")
        await STEPS[step](case, await case.relay())
        if then == "restart":
            await case.relay()
        else:
            await rig.crowd().once(case.transfers, [other.url])
        await case.all_landed_once()

"""Relays with a journal that are killed: at each step of a submission, and at random under load."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.crowd import Crowd, swapped
from acceptance.rig.kills import STEPS, PostgresStore, SqliteStore, Store, killing
from acceptance.rig.signing import funded, key_of, sign
from acceptance.rig.workers import all_work, gone, signal_worker
from tests.postgres_server import PostgresPrograms, PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from coincurve import PrivateKey

    from acceptance.conftest import Measured
    from acceptance.rig.parts import Part, Rig

LEASE_MS = 1500
KILLS, SENDERS, BURST, SEED = 200, 4, 6, 5
CHECKS_MS = (0, 10)

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


@pytest.mark.timeout(1200)
async def test_random_kills_under_load_lose_and_double_nothing(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """Two hundred; clients send the same bytes until they are told yes, and each yes is on the chain once."""
    chance = random.Random(SEED)
    store = SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")
    async with killing(rig, store, chain={"delay_ms": CHECKS_MS}) as case:
        relay = await case.relay()
        load = Load(rig.crowd(), case.chain.chain_id, relay.url)
        async with load.running():
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(0, 0.4))  # the moment is the point
                await case.kill(relay)
                relay = await case.relay()
        taken = Counter(one["hash"] for one in await case.chain.arrivals() if one["taken"])
        told = {post.transfer.hash for post in load.crowd.posts if not post.error}
        measured(f"{KILLS} kills, {len(told)} told yes, {len(load.crowd.refused)} times sent again")
        assert len(told) == sum(load.sent.values()) > KILLS
        assert taken == dict.fromkeys(told, 1)
        assert [await case.chain.count(account.address) for account in funded(SENDERS)] == list(load.sent.values())
        assert (await case.chain.report())["overlaps"] == 0


class Load:
    """Senders that each send burst after burst, neighbours swapped, the next when the last has its yes."""

    def __init__(self, crowd: Crowd, chain_id: int, url: str) -> None:
        self.crowd = crowd
        self.sent = dict.fromkeys(range(SENDERS), 0)
        self._chain_id, self._url = chain_id, url
        self._over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until left; then the last bursts come to their ends."""
        async with asyncio.TaskGroup() as group:
            for sender, account in enumerate(funded(SENDERS)):
                group.create_task(self._bursts(sender, key_of(account)))
            yield
            self._over = True

    async def _bursts(self, sender: int, key: PrivateKey) -> None:
        while not self._over:
            first = self.sent[sender]
            burst = [sign(key, nonce, self._chain_id) for nonce in range(first, first + BURST)]
            async with self.crowd.insisting(swapped(burst), [self._url]):
                self.sent[sender] += BURST

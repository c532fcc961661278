"""A relay whose journal fails under a burst, and what must be true meanwhile and afterwards.

Job: bring the trouble on from outside, at any moment, and end it; let clients send before, meanwhile and after.
Rules: no trouble needs an option of the relay or a right of the system.
Must not know: which tests make trouble.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from acceptance.rig.crowd import mingled
from acceptance.rig.parts import RELAY_READY, Part, environment
from acceptance.rig.signing import funded, key_of, sign
from relay.journal.url import sqlite_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from acceptance.rig.calls import Caller
    from acceptance.rig.kills import Killing
    from acceptance.rig.signing import Transfer
    from tests.postgres_server import PostgresServer

SENDERS, BURST = 8, 6
ROOMY: Final = 1_000_000
UNWRITTEN: Final = -32032
CRAMPED: Final = """
import sqlite3, sys
connect, pages = sqlite3.connect, sys.argv.pop(1)
class Cramped(sqlite3.Connection):
    def execute(self, statement, *more):
        if statement == "BEGIN IMMEDIATE":
            super().execute("PRAGMA max_page_count = " + open(pages).read())
        return super().execute(statement, *more)
sqlite3.connect = lambda *arguments, **named: connect(*arguments, **named, factory=Cramped)
from relay.cli import main
raise SystemExit(main())
"""
"""A relay whose file has no more pages than another file says."""


class Passing:
    """A client that asks one call after the other, which need no journal; each must be answered."""

    def __init__(self, relay: Caller) -> None:
        self._relay = relay
        self.longest_s = 0.0
        self._over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until left."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ask(), name="calls")
            yield
            self._over = True

    async def _ask(self) -> None:
        while not self._over:
            began = time.monotonic()
            assert int(await self._relay.call("eth_getBalance", funded(1)[0].address, "latest"), 16) > 0
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            await asyncio.sleep(0.01)  # a client's pace


async def survives(case: Killing, relay: Part, trouble: AbstractAsyncContextManager[None]) -> str:
    """Half of the clients send before it, half meanwhile; then all that have no yes send again. What was seen."""
    crowd, passing = case.rig.crowd(), Passing(case.rig.caller(relay.url))
    keys = [key_of(account) for account in funded(SENDERS)]
    transfers = mingled([[sign(key, nonce, case.chain.chain_id) for nonce in range(BURST)] for key in keys])
    half = len(transfers) // 2
    async with passing.running():
        async with asyncio.TaskGroup() as group:
            group.create_task(crowd.once(transfers[:half], [relay.url]), name="before")
            await case.chain.arrived(SENDERS)
            async with trouble:
                await crowd.once(transfers[half:], [relay.url])
                await case.until(lambda: _is_ready(case, relay, wanted=False))
        codes = Counter(post.code for post in crowd.refused)
        assert codes, "there was no trouble"
        await case.until(lambda: _is_ready(case, relay, wanted=True))
        await _nothing_was_sent(case, [post.transfer for post in crowd.refused if post.code == UNWRITTEN])
        accepted = {post.transfer for post in crowd.posts if not post.error}
        async with crowd.insisting([one for one in transfers if one not in accepted], [relay.url]):
            pass
    assert relay.process.returncode is None
    await _all_landed(case, transfers)
    return f"answers {dict(codes)}; the longest pass-through {passing.longest_s:.3f} s"


async def _is_ready(case: Killing, relay: Part, *, wanted: bool) -> bool:
    status, checks = await case.rig.readiness(relay)
    said = [check["detail"] for check in checks.values() if "journal" in check["detail"] and not check["ready"]]
    return not said and status == 200 if wanted else bool(said) and status == 503


async def _nothing_was_sent(case: Killing, refused: list[Transfer]) -> None:
    """Who heard that the journal could not be written can count on it."""
    arrived = {one["hash"] for one in await case.chain.arrivals()}
    assert not arrived & {transfer.hash for transfer in refused}


async def _all_landed(case: Killing, transfers: list[Transfer]) -> None:
    """Each once on the chain, and whatever ever reached the node was on disk before."""
    arrivals = await case.chain.arrivals()
    taken = Counter(one["hash"] for one in arrivals if one["taken"])
    assert taken == {transfer.hash: 1 for transfer in transfers}
    assert [await case.chain.count(account.address) for account in funded(SENDERS)] == [BURST] * SENDERS
    sends = Counter(one["hash"] for one in arrivals)
    for transfer in transfers:
        record = await case.record(transfer)
        assert record is not None
        assert len(await case.journal.attempts(record.id)) >= sends[transfer.hash]


# A file that is full.


async def cramped(case: Killing, pages: Path, **settings: object) -> Part:
    """A relay whose journal gets `full` at will."""
    _allow(pages, ROOMY)
    env = environment({
        "upstream__url": case.chain.url, "journal__url": case.store.url,
        "server__listen": "127.0.0.1:0", "ops__listen": "127.0.0.1:0", **settings,
    })  # fmt: skip
    process = await case.rig.start("relay", [sys.executable, "-c", CRAMPED, str(pages), "serve"], env=env)
    ready = await process.line(RELAY_READY)
    return Part(process, ready["url"], ready["ops"])


@asynccontextmanager
async def full(pages: Path) -> AsyncIterator[None]:
    """There are no more pages than are used."""
    _allow(pages, 1)
    yield
    _allow(pages, ROOMY)


def _allow(pages: Path, number: int) -> None:
    pages.write_text(str(number))


@asynccontextmanager
async def over_quota(case: Killing, relay: Part) -> AsyncIterator[None]:
    """The system lets the relay's files grow no more: a failed write, where a full disk is a refused one."""
    pid, log = relay.process.pid, sqlite_path(case.store.url).with_suffix(".db-wal")
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (_size(log), hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


def _size(file: Path) -> int:
    return file.stat().st_size


# A server that is away.


@asynccontextmanager
async def stopped(server: PostgresServer, mode: str) -> AsyncIterator[None]:
    """It has crashed (``immediate``), or was shut down (``fast``), and is started again."""
    await asyncio.to_thread(server.stop, mode)
    yield
    await asyncio.to_thread(server.start)

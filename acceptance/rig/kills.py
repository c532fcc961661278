"""A relay with a journal that is killed at a chosen step of a submission, and what must be true afterwards.

Job: bring a submission to a step by what is visible from outside (a node that holds a request back, a store that is
held back), kill, start again, and read the chain and the journal.
Rules: nothing sleeps; a step is waited for where it shows: at the node or in the store.
Must not know: which tests kill.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from acceptance.rig.load import body
from acceptance.rig.signing import funded, key_of, sign
from acceptance.rig.workers import gone, pids
from relay.journal.url import open_journal, sqlite_path
from relay.lifecycle import State, transition
from tests.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Part, Rig
    from acceptance.rig.signing import Transfer
    from relay.journal.records import Record
    from relay.journal.store import Journal
    from tests.postgres_server import PostgresServer

PATIENCE_S: Final = 20.0
COUNTS, LOOK_UPS, SUBMISSIONS = "eth_getTransactionCount", "eth_getTransactionByHash", "eth_send*"
LANDED: Final = frozenset({State.PENDING, State.MINED, State.COMPLETED})


class Store(Protocol):
    """A journal's store, from outside the relay."""

    url: str

    def held(self) -> AbstractAsyncContextManager[None]:
        """Nobody can write while this is open."""


class SqliteStore:
    """A file."""

    def __init__(self, url: str) -> None:
        self.url = url

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Locked by this process."""
        with closing(sqlite3.connect(sqlite_path(self.url), isolation_level=None, timeout=PATIENCE_S)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield


class PostgresStore:
    """A server, which is paused."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.url()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """It answers nobody."""
        self.server.pause()
        try:
            yield
        finally:
            self.server.resume()


class Killing:
    """One chain, one store, relays at fixed places before them; three transactions of one sender."""

    def __init__(self, rig: Rig, chain: Chain, store: Store, journal: Journal, *flags: str, **settings: object) -> None:
        self.rig, self.chain, self.store, self.journal = rig, chain, store, journal
        self._flags = flags
        self._settings = {"journal__url": store.url, "journal__sweep_s": 86_400} | settings
        self.patience_s = PATIENCE_S
        self._ports: dict[str, int] = {}
        self.kill: Callable[[Part], Awaitable[None]] = kill
        self.sender = funded(1)[0]
        self.transfers = [sign(key_of(self.sender), nonce, chain.chain_id) for nonce in range(3)]

    def use(self, store: Store) -> None:
        """Relays that start from now on have their journal there."""
        self.store = store
        self._settings["journal__url"] = store.url

    async def relay(self, name: str = "one") -> Part:
        """Start it, or start it again at its place."""
        port = self._ports.setdefault(name, free_port())
        return await self.rig.relay(self.chain.url, "--listen", f"127.0.0.1:{port}", *self._flags, **self._settings)

    async def record(self, transfer: Transfer) -> Record | None:
        """What the journal has."""
        return await self.journal.by_hash(self.chain.chain_id, bytes.fromhex(transfer.hash[2:]))

    async def until(self, what: Callable[[], Awaitable[bool]]) -> None:
        """Asked again and again: other processes tell nobody."""
        async with asyncio.timeout(self.patience_s):
            while not await what():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def hanging(self) -> None:
        """Until the node holds a request back."""
        await self.until(self._hangs)

    async def _hangs(self) -> bool:
        return bool((await self.chain.call("dev_report"))["hanging"])

    async def released(self) -> bool:
        """Does the node hold nothing back any more?"""
        return not await self._hangs()

    async def answered(self) -> bool:
        """Has the node answered what it was sent?"""
        arrivals = await self.chain.arrivals()
        return bool(arrivals) and all(one["left"] is not None for one in arrivals)

    async def recorded(self, state: State) -> None:
        """Until all three stand in ``state``."""
        await self.until(lambda: self._stand(frozenset({state})))

    async def _stand(self, states: frozenset[State]) -> bool:
        records = [await self.record(transfer) for transfer in self.transfers]
        return all(record is not None and record.state in states for record in records)

    # What must be true in the end.

    async def all_landed_once(self) -> None:
        """On the chain, taken once, in order, and each history tells a way there that the table has."""
        await self.until(self._all_count)
        await self.until(lambda: self._stand(LANDED))
        arrivals = await self.chain.arrivals()
        assert Counter(one["hash"] for one in arrivals if one["taken"]) == {one.hash: 1 for one in self.transfers}
        assert not any(one["inverted"] for one in arrivals)
        for transfer in self.transfers:
            await self._is_told(transfer, sum(one["hash"] == transfer.hash for one in arrivals))

    async def _all_count(self) -> bool:
        return await self.chain.count(self.sender.address) == len(self.transfers)

    async def _is_told(self, transfer: Transfer, arrivals: int) -> None:
        record = await self.record(transfer)
        assert record is not None
        events = await self.journal.history(record.id)
        states = [event.state for event in events]
        assert states[0] is State.QUEUED
        for before, after in pairwise(states):
            assert transition(before, after) is not None, states
        assert [event.version for event in events] == list(range(1, len(events) + 1))
        assert len(await self.journal.attempts(record.id)) >= arrivals


@asynccontextmanager
async def killing(
    rig: Rig, store: Store, *flags: str, chain: Mapping[str, object] | None = None, **settings: object
) -> AsyncIterator[Killing]:
    """Everything but the relay. ``chain`` changes the chain's settings."""
    case = Killing(rig, await rig.chain(**(chain or {})), store, await open_journal(store.url), *flags, **settings)
    try:
        yield case
    finally:
        await case.journal.close()


@asynccontextmanager
async def sent(at: Part, transfers: Sequence[Transfer]) -> AsyncIterator[None]:
    """By clients who wait for an answer, and will not hear one."""
    place, writers = urlsplit(at.url), []
    for transfer in transfers:
        _, writer = await asyncio.open_connection(place.hostname, place.port)
        content = body(transfer)
        writer.write(b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
        writers.append(writer)
    try:
        yield
    finally:
        for writer in writers:
            writer.close()


async def kill(part: Part) -> None:
    """All of its processes at once: a host that loses power."""
    workers = list(pids(part.process.pid).values())
    part.process.signal(signal.SIGKILL)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    await part.process.ended()
    await gone(workers)


# The steps: each brings the first of three to a place, and kills the relay there.


async def before_seal(case: Killing, relay: Part) -> None:
    """All are on disk, none has had its turn: the node does not say the count."""
    await case.chain.script({"do": "hang", "method": COUNTS, "times": 1})
    async with sent(relay, case.transfers):
        await case.recorded(State.QUEUED)
        await case.kill(relay)


async def after_seal(case: Killing, relay: Part) -> None:
    """The intent is on disk, and the node has nothing of it."""
    await case.chain.script({"do": "hang", "method": SUBMISSIONS, "times": 1})
    async with sent(relay, case.transfers):
        await case.hanging()
        await case.kill(relay)


async def before_answer(case: Killing, relay: Part) -> None:
    """The node has it, and has not answered."""
    await case.chain.script({"do": "hang", "method": SUBMISSIONS, "when": "after", "times": 1})
    async with sent(relay, case.transfers):
        await case.hanging()
        await case.kill(relay)


async def before_record(case: Killing, relay: Part) -> None:
    """The node has answered, and the store takes nothing."""
    await case.chain.script({"do": "hang", "method": SUBMISSIONS, "when": "after", "times": 1})
    async with sent(relay, case.transfers):
        await case.hanging()
        async with case.store.held():
            await case.chain.call("dev_release")
            await case.until(case.answered)
            await case.kill(relay)


async def twice(case: Killing, relay: Part) -> None:
    """And again while what was left is asked for."""
    await before_answer(case, relay)
    await case.chain.script({"do": "hang", "method": LOOK_UPS, "times": 1})
    again = await case.relay()
    await case.hanging()
    await case.kill(again)


STEPS: Final = {step.__name__: step for step in (before_seal, after_seal, before_answer, before_record, twice)}

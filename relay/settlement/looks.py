"""What everybody says of a page of submissions that have no receipt.

Job: gather the evidence of the sweep: counts, and whether the hash is known, at each endpoint; pauses, fees, balances,
and who took a nonce.
Rules: an endpoint on another chain, or that cannot be asked, has not answered; nobody stands in for it. The highest
count that an endpoint ever told is kept for it: one that tells less lags behind itself. A pending count that passes
over gaps (Besu's) says nothing of a nonce below one that is still open.
Must not know: what follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from relay.methods import SUBMISSIONS
from relay.settlement import reading
from relay.settlement.asking import distinct
from relay.settlement.evidence import Counts, Evidence
from relay.settlement.recent import Recent
from relay.settlement.rival import rival
from relay.transaction import Undecodable, decode
from relay.verdict import Client

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from relay.journal.records import Record
    from relay.journal.store import Journal
    from relay.proof import NodeFacts
    from relay.settlement.asking import Endpoint
    from relay.settlement.reading import Head

REMEMBERED: Final = 50_000
NO_COUNTS: Final = Counts(None, None, None)

_Told = tuple[Counts, ...]


class Bid(NamedTuple):
    """What a transaction offers and costs at most, in wei. None: its bytes cannot be read."""

    fee_cap: int | None
    cost: int | None


class World(NamedTuple):
    """What holds for one sweep. ``asked``: the endpoints that are on this chain; the others have not answered."""

    chain_id: int
    now_ms: int
    head: Head
    asked: frozenset[Endpoint]


class Looks:
    """``endpoints``: the upstream, then the witnesses."""

    def __init__(self, endpoints: Sequence[Endpoint], facts: NodeFacts, confirmations: int) -> None:
        self._endpoints = endpoints
        self._facts = facts
        self._confirmations = confirmations
        self._bids: Recent[int, Bid] = Recent(REMEMBERED)
        self._told: Recent[int, tuple[_Told, int]] = Recent(REMEMBERED)
        """By submission: the counts of the last sweep, and how many sweeps in a row told them."""
        self._highest: Recent[tuple[str, bytes], int] = Recent(REMEMBERED)
        self._log = structlog.get_logger("relay.settlement")

    def __repr__(self) -> str:
        return f"<looks at {len(self._endpoints)} endpoints>"

    async def world(self, chain_id: int, now_ms: int) -> World | None:
        """Who can be asked. None: not even the upstream."""
        upstream = self._endpoints[0]
        chains = await asyncio.gather(*(each.chain_id() for each in self._endpoints))
        head = await reading.head(upstream)
        asked = {each for each, told in zip(self._endpoints, chains, strict=True) if told == chain_id}
        for each, told in zip(self._endpoints, chains, strict=True):
            if told != chain_id:
                self._log.warning("an endpoint cannot be asked", endpoint=each.name, chain_id=told, expected=chain_id)
        if head is None or upstream not in asked:
            return None
        return World(chain_id, now_ms, head, frozenset(asked))

    async def gather(
        self, journal: Journal, page: Sequence[Record], due: Collection[Record], world: World
    ) -> list[Evidence]:
        """The evidence for each of ``due``, a part of ``page``, which is in nonce order."""
        wanted = [record for record in page if record in due]
        if not wanted:
            return []
        senders = distinct(record.sender for record in wanted)
        counts, known, balances = await asyncio.gather(
            self._counts(journal, senders, world),
            self._known(wanted, world),
            reading.balances(self._endpoints[0], senders),
        )
        paused = {sender: (await journal.lane(world.chain_id, sender, limit=1))[0].paused for sender in senders}
        found: list[Evidence] = []
        for record, knows in zip(wanted, known, strict=True):
            told = self._of(record, counts[record.sender], page)
            bid = await self._bid(journal, record)
            evidence = Evidence(
                record,
                world.now_ms - record.since_ms,
                knows,
                told,
                reach=_reach(counts[record.sender]),
                public=SUBMISSIONS[record.method].public,
                paused=paused[record.sender],
                looks=self._looks(record, told),
                base_fee=world.head.base_fee,
                balance=balances[senders.index(record.sender)],
                fee_cap=bid.fee_cap,
                cost=bid.cost,
            )
            found.append(await self._with_rival(evidence, world))
        return found

    async def _counts(self, journal: Journal, senders: Sequence[bytes], world: World) -> dict[bytes, _Told]:
        """What each endpoint counts for each sender."""
        final = world.head.height + 1 - self._confirmations
        told = await asyncio.gather(*(
            reading.counts(each, senders, final) if each in world.asked else _nothing(len(senders))
            for each in self._endpoints
        ))  # fmt: skip
        by_sender = {sender: list(each) for sender, each in zip(senders, zip(*told, strict=True), strict=True)}
        for place, endpoint in enumerate(self._endpoints):
            for sender in senders:
                counts = by_sender[sender][place]
                if counts.latest is not None:
                    highest = await self._note(journal, endpoint, world.chain_id, sender, counts.latest)
                    by_sender[sender][place] = counts._replace(behind=counts.latest < highest)
        return {sender: tuple(each) for sender, each in by_sender.items()}

    async def _note(self, journal: Journal, endpoint: Endpoint, chain_id: int, sender: bytes, count: int) -> int:
        """The highest count that it ever told; the store is asked only when that may be news."""
        highest = self._highest.get((endpoint.name, sender))
        if highest is None or count > highest:
            highest = await journal.note_count(endpoint.name, chain_id, sender, count)
            self._highest.put((endpoint.name, sender), highest)
        return highest

    async def _known(self, records: Sequence[Record], world: World) -> list[tuple[bool | None, ...]]:
        told = await asyncio.gather(*(
            reading.known(each, records) if each in world.asked else _silence(len(records))
            for each in self._endpoints
        ))  # fmt: skip
        return list(zip(*told, strict=True))

    def _of(self, record: Record, told: _Told, page: Sequence[Record]) -> _Told:
        """The counts as they concern ``record``."""
        if self._facts.client is not Client.BESU:
            return told
        others = [each.nonce for each in page if each.sender == record.sender and each.nonce > record.nonce]
        if not others and page[-1].sender != record.sender:
            return told
        return (told[0]._replace(pending=told[0].latest), *told[1:])

    def _looks(self, record: Record, told: _Told) -> int:
        last, times = self._told.get(record.id) or (None, 0)
        times = times + 1 if last == told else 1
        self._told.put(record.id, (told, times))
        return times

    async def _bid(self, journal: Journal, record: Record) -> Bid:
        if (bid := self._bids.get(record.id)) is None:
            payload = await journal.payload(record.id)
            try:
                signed = None if payload is None else decode(payload.raw)
            except Undecodable:
                signed = None
            bid = Bid(None, None) if signed is None else Bid(signed.fee_cap, signed.max_cost)
            self._bids.put(record.id, bid)
        return bid

    async def _with_rival(self, evidence: Evidence, world: World) -> Evidence:
        """Who took the nonce: asked only where that would decide."""
        if not evidence.nonce_final or evidence.somebody_knows or None in evidence.known:
            return evidence
        record, height = evidence.record, world.head.height + 1 - self._confirmations
        return evidence._replace(rival=await rival(self._endpoints[0], record.sender, record.nonce, height))


def _reach(told: _Told) -> int:
    """The first nonce that no count accounts for."""
    return max(max(each.pending or 0, each.latest or 0) for each in told)


async def _nothing(length: int) -> list[Counts]:
    return [NO_COUNTS] * length


async def _silence(length: int) -> list[bool | None]:
    return [None] * length

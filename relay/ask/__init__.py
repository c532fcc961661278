"""What clients may ask of the journal: where a transaction stands, what holds a lane, and to be told of changes.

Job: the methods of the relay's own (`METHODS`), and the look behind ``GET /transactions/{hash}``.
Rules: only looking. Whoever knows a hash or an address may ask for it, as of a node; nothing of the inside is shown
(`relay.views.public`). A store that cannot be read is told as such, in words that do not talk of sending. Without a
journal none of this is there.
Must not know: JSON-RPC's frames, HTTP, sockets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import orjson
import structlog

from relay import errors, views
from relay.ask import lanes, params
from relay.ask.feed import Feed
from relay.ask.lanes import Counts
from relay.ask.params import Invalid
from relay.ask.subscriptions import Client, Listener, Subscriptions, tell
from relay.errors import Refusal
from relay.journal.faults import Unavailable, Unusable
from relay.lifecycle import State
from relay.submission import Accepted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relay.journal.records import Change, Record
    from relay.journal.shelf import Shelf
    from relay.tasks import TaskOwner
    from relay.upstream.accounts import Accounts
    from relay.upstream.identity import Identity
    from relay.views import View

__all__ = ["PREFIX", "Ask", "Client", "Listener"]

PREFIX: Final = "relay_"
"""With a journal no method of this prefix goes upstream."""

_ON_CHAIN: Final = frozenset({State.MINED, State.COMPLETED})


class Ask:
    """See the module. ``owner`` keeps what runs while somebody has subscribed."""

    def __init__(
        self, shelf: Shelf, identity: Identity, accounts: Accounts, owner: TaskOwner, clock: Callable[[], float]
    ) -> None:
        self._shelf = shelf
        self._identity = identity
        self._accounts = accounts
        self._feed = Feed(shelf, self._hear, owner, clock)
        self._subscriptions = Subscriptions(self._feed.stop)
        self._log = structlog.get_logger("relay.ask")
        self._methods: dict[str, Callable[[bytes | None, Listener | None], Awaitable[bytes | Refusal]]] = {
            "relay_getTransaction": self._get_transaction,
            "relay_getLane": self._get_lane,
            "relay_subscribe": self._subscribe,
            "relay_unsubscribe": self._unsubscribe,
        }

    def __repr__(self) -> str:
        return f"<Ask {self._subscriptions!r}>"

    async def answer(self, method: str, params_: bytes | None, listener: Listener | None) -> Accepted | Refusal:
        """The answer to a method of ours. ``listener``: who is told of what it subscribes to; None: nobody can be."""
        ask = self._methods.get(method)
        if ask is None:
            return _denied(method)
        try:
            result = await ask(params_, listener)
        except Invalid as invalid:
            return invalid.refusal
        except (Unavailable, Unusable) as fault:
            return self._unreadable(fault)
        return result if isinstance(result, Refusal) else Accepted(result)

    async def look(self, hash_: bytes) -> View | Refusal | None:
        """Where a transaction stands, None if it is not known."""
        try:
            return await self._look(hash_)
        except (Unavailable, Unusable) as fault:
            return self._unreadable(fault)

    def _unreadable(self, fault: Exception) -> Refusal:
        self._log.warning("the journal cannot be read", error=str(fault))
        return errors.JOURNAL_UNREADABLE.refusal()

    async def _look(self, hash_: bytes) -> View | None:
        record = await self._shelf.journal.by_hash(self._identity.chain_id, hash_)
        return None if record is None else await self._shown(record)

    async def _shown(self, record: Record) -> View:
        seen = await self._shelf.journal.receipts(record.id) if record.state in _ON_CHAIN else ()
        return views.public(record, seen)

    # The methods: params as they came → the text of the result.

    async def _get_transaction(self, params_: bytes | None, _: Listener | None) -> bytes:
        return orjson.dumps(await self._look(params.one_hash(params_)))

    async def _get_lane(self, params_: bytes | None, _: Listener | None) -> bytes:
        sender, named = params.lane_name(params_)
        chain_id = self._identity.chain_id if named is None else named
        if chain_id is None:
            raise Invalid("the chain id is not known here for now: name it as argument 1")
        lane, rows = await self._shelf.journal.lane(chain_id, sender, limit=lanes.MAX_ROWS + 1)
        return orjson.dumps(lanes.told(lane, rows, await self._counts(chain_id, views.data(sender))))

    async def _counts(self, chain_id: int, address: str) -> Counts:
        """Of our node; of another chain it knows nothing."""
        if chain_id != (self._identity.chain_id if self._identity.chain_id is not None else chain_id):
            return Counts()
        return Counts(
            *await asyncio.gather(self._accounts.latest_count(address), self._accounts.pending_count(address))
        )

    async def _subscribe(self, params_: bytes | None, listener: Listener | None) -> bytes | Refusal:
        if listener is None:
            return _denied("relay_subscribe")
        wanted = params.subscription(params_)
        await self._feed.start()
        subscription = self._subscriptions.add(wanted, listener)  # nothing is awaited in between: no change is missed
        if not len(self._subscriptions):
            self._feed.stop()  # refused, or its client is gone meanwhile, and nobody else is there
        return subscription if isinstance(subscription, Refusal) else orjson.dumps(subscription.id)

    async def _unsubscribe(self, params_: bytes | None, listener: Listener | None) -> bytes | Refusal:
        if listener is None:
            return _denied("relay_unsubscribe")
        subscription = listener.client.subscriptions.get(params.one_id(params_))
        if subscription is not None:
            subscription.end()
        return b"false" if subscription is None else b"true"

    async def _told(self, change: Change) -> View:
        return {"event": views.event(change.event), "transaction": await self._shown(change.record)}

    async def _hear(self, changes: Sequence[Change]) -> None:
        """First everything is made ready, then it is told: a failure of the journal tells nothing twice."""
        wanted = [(self._subscriptions.wanting(change.record), change) for change in changes]
        ready = [(wanting, await self._told(change)) for wanting, change in wanted if wanting]
        for wanting, result in ready:
            tell(wanting, result)
            await asyncio.sleep(0)  # or one who listens well would have all of them waiting at once


def _denied(method: str) -> Refusal:
    return errors.METHOD_DENIED.refusal(method=method[:100])

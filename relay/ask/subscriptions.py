"""Who wants to hear of which changes.

Job: subscriptions by hash and by sender, their ids and bounds, and the notifications of a change.
Rules: synchronous. A subscription belongs to one client and ends with it. What a client may hold is bounded.
Must not know: journals, sockets.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from relay import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.ask.params import Filter
    from relay.errors import Refusal
    from relay.journal.records import Record
    from relay.views import View

MAX_SUBSCRIPTIONS: Final = 100
MAX_NAMES: Final = 10_000
"""Of one client: subscriptions, and hashes and senders in all of them."""

_NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":"relay_subscription","params":{"subscription":"%b","result":%b}}'


class Listener(Protocol):
    """Who is told: one message of a client, whose answer goes before whatever it subscribed to."""

    client: Client

    def tell(self, text: bytes) -> None:
        """A notification, a JSON text."""


class Client:
    """What one client has subscribed to. ``leave`` when it is gone."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.gone = False

    @property
    def names(self) -> int:
        """Hashes and senders in all."""
        return sum(len(one.wanted) for one in self.subscriptions.values())

    def leave(self) -> None:
        """Whatever it subscribed to ends; further subscriptions never begin."""
        self.gone = True
        for subscription in list(self.subscriptions.values()):
            subscription.end()


class Subscription:
    """One of a client."""

    __slots__ = ("end", "id", "listener", "wanted")

    def __init__(self, wanted: Filter, listener: Listener) -> None:
        self.id = "0x" + secrets.token_hex(16)
        self.wanted = wanted
        self.listener = listener
        self.end: Callable[[], None] = lambda: None


class Subscriptions:
    """All of one process. ``idle`` is called when the last one ends."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._idle = idle
        self._by_name: dict[bytes, dict[str, Subscription]] = defaultdict(dict)
        self._count = 0

    def __repr__(self) -> str:
        return f"<{self._count} subscriptions>"

    def __len__(self) -> int:
        return self._count

    def add(self, wanted: Filter, listener: Listener) -> Subscription | Refusal:
        """Begin."""
        client = listener.client
        if len(client.subscriptions) >= MAX_SUBSCRIPTIONS or client.names + len(wanted) > MAX_NAMES:
            detail = (
                f"a client has at most {MAX_SUBSCRIPTIONS} subscriptions with {MAX_NAMES} hashes and senders in all"
            )
            return errors.INVALID_PARAMS.refusal(detail=detail)
        subscription = Subscription(wanted, listener)
        if client.gone:
            return subscription
        subscription.end = lambda: self._end(subscription)
        client.subscriptions[subscription.id] = subscription
        for name in (*wanted.hashes, *wanted.senders):
            self._by_name[name][subscription.id] = subscription
        self._count += 1
        return subscription

    def wanting(self, record: Record) -> list[Subscription]:
        """Those that want to hear of it, each once. (A hash is longer than an address: no name is both.)"""
        found = {**self._by_name.get(record.hash, {}), **self._by_name.get(record.sender, {})}
        return list(found.values())

    def _end(self, subscription: Subscription) -> None:
        if subscription.listener.client.subscriptions.pop(subscription.id, None) is None:
            return
        for name in (*subscription.wanted.hashes, *subscription.wanted.senders):
            same = self._by_name[name]
            del same[subscription.id]
            if not same:
                del self._by_name[name]
        self._count -= 1
        if not self._count:
            self._idle()


def tell(subscriptions: list[Subscription], result: View) -> None:
    """The same result to each that has not ended meanwhile."""
    text = orjson.dumps(result)
    for subscription in subscriptions:
        if subscription.id in subscription.listener.client.subscriptions:
            subscription.listener.tell(_NOTIFICATION % (subscription.id.encode(), text))

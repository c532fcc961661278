"""Who wants to hear of new blocks.

Job: polled filters, subscriptions of a WebSocket, and the wait for a receipt.
Rules: `announce` tells subscribers synchronously, block by block. A filter that nobody polls is dropped once there are
too many.
Must not know: how blocks are made, how a message travels.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import orjson

from relay.devnode.rpc import Refused
from relay.devnode.views import head_view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relay.devnode.blocks import Block, Mined
    from relay.devnode.chain import Chain
    from relay.devnode.params import Params

MAX_FILTERS: Final = 1000
NO_FILTER: Final = Refused("filter not found")
NO_SUBSCRIPTION: Final = Refused("subscription not found")
NO_NOTIFICATIONS: Final = Refused("notifications not supported", -32601)
NEW_HEADS: Final = "newHeads"
SILENT: Final = frozenset({"logs", "newPendingTransactions", "syncing"})
"""What can be subscribed to and never happens here, or is not worth telling."""


class Watchers:
    """Of one chain."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._numbers = count(1)
        self._filters: OrderedDict[str, int | None] = OrderedDict()
        """Id → the height that was told last; None for a filter of logs, of which there are none."""
        self._subscribers: dict[str, tuple[str, Callable[[bytes], None]]] = {}
        self._receipts: dict[str, asyncio.Event] = {}

    def __repr__(self) -> str:
        return f"<watchers: {len(self._filters)} filters, {len(self._subscribers)} subscriptions>"

    def announce(self, block: Block) -> None:
        """There is a new block."""
        for one in block.mined:
            if event := self._receipts.pop(one.tx.hash, None):
                event.set()
        for name, (kind, notify) in self._subscribers.items():
            if kind == NEW_HEADS:
                notify(_message(name, head_view(block)))

    async def mined(self, digest: str) -> Mined:
        """Wait until a transaction is in a block. Its place there."""
        while (mined := self._chain.mined(digest)) is None:
            await self._receipts.setdefault(digest, asyncio.Event()).wait()
        return mined

    def subscribe(self, params: Params, notify: Callable[[bytes], None] | None) -> Any:
        """Begin telling ``notify`` (None: this way in cannot be told anything)."""
        kind = params.text(0)
        if notify is None:
            return NO_NOTIFICATIONS
        if kind != NEW_HEADS and kind not in SILENT:
            return Refused(f'no "{kind}" subscription in eth namespace', -32601)
        name = self._name()
        self._subscribers[name] = (kind, notify)
        return name

    def unsubscribe(self, params: Params) -> Any:
        """End one subscription."""
        return True if self._subscribers.pop(params.text(0), None) else NO_SUBSCRIPTION

    def forget(self, notify: Callable[[bytes], None]) -> None:
        """A WebSocket is gone: end all that it subscribed to."""
        self._subscribers = {name: entry for name, entry in self._subscribers.items() if entry[1] is not notify}

    def new_block_filter(self, _params: Params) -> str:
        """Begin collecting blocks."""
        return self._new_filter(self._chain.height)

    def new_silent_filter(self, _params: Params) -> str:
        """Begin collecting logs, of which there are none."""
        return self._new_filter(None)

    def changes(self, params: Params) -> Any:
        """The hashes of the blocks since the last time."""
        name = params.text(0)
        if name not in self._filters:
            return NO_FILTER
        told = self._filters[name]
        self._filters.move_to_end(name)
        if told is None:
            return []
        self._filters[name] = self._chain.height
        return [block.hash for block in self._chain.blocks[told + 1 :]]

    def uninstall(self, params: Params) -> bool:
        """End a filter. Was it there?"""
        there = params.text(0) in self._filters
        self._filters.pop(params.text(0), None)
        return there

    def _new_filter(self, told: int | None) -> str:
        if len(self._filters) >= MAX_FILTERS:
            self._filters.popitem(last=False)
        name = self._name()
        self._filters[name] = told
        return name

    def _name(self) -> str:
        return hex(next(self._numbers))


FILTERS: Final[Mapping[str, Callable[[Watchers, Params], Any]]] = {
    "eth_newBlockFilter": Watchers.new_block_filter,
    "eth_newFilter": Watchers.new_silent_filter,
    "eth_newPendingTransactionFilter": Watchers.new_silent_filter,
    "eth_getFilterChanges": Watchers.changes,
    "eth_getFilterLogs": lambda _watchers, _params: [],
    "eth_uninstallFilter": Watchers.uninstall,
    "eth_unsubscribe": Watchers.unsubscribe,
}


def _message(name: str, result: Any) -> bytes:
    params = {"subscription": name, "result": result}
    return orjson.dumps({"jsonrpc": "2.0", "method": "eth_subscription", "params": params})

"""Transactions that are accepted and not mined.

Job: keep them by sender and nonce, know which are ready (no gap below) and in which order a block takes them.
Rules: ``next`` of a sender rises over every nonce that is there and falls to one that is dropped. A block takes the
senders by the arrival of their lowest transaction, so that nobody's is starved.
Must not know: blocks, JSON.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from relay.devnode.admission import Queue, View, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.devnode.ledger import Ledger
    from relay.devnode.settings import NodeSettings
    from relay.transaction import SignedTransaction


class Mempool:
    """The pool of one chain."""

    __slots__ = ("_by_hash", "_ledger", "_numbers", "_queues", "settings")

    def __init__(self, settings: NodeSettings, ledger: Ledger) -> None:
        self.settings = settings
        self._ledger = ledger
        self._queues: dict[bytes, Queue] = {}
        self._by_hash: dict[str, tuple[int, SignedTransaction]] = {}
        self._numbers = count()

    def __repr__(self) -> str:
        return f"<mempool of {len(self)} transactions, {len(self._queues)} senders>"

    def __len__(self) -> int:
        return len(self._by_hash)

    def get(self, digest: str) -> SignedTransaction | None:
        """The transaction with this hash, if it waits here."""
        entry = self._by_hash.get(digest)
        return entry[1] if entry else None

    def next_nonce(self, sender: bytes) -> int:
        """The pending count: mined transactions and those ready to be."""
        queue = self._queues.get(sender)
        return queue.next if queue else self._ledger.account(sender).nonce

    def add(self, tx: SignedTransaction) -> str | None:
        """Take a transaction, or say why not, in geth's words."""
        account = self._ledger.account(tx.sender_bytes)
        queue = self._queues.get(tx.sender_bytes) or Queue(account.nonce)
        if refused := refusal(tx, View(self.settings, account, queue)):
            return refused
        if replaced := queue.by_nonce.get(tx.nonce):
            self._remove(queue, replaced)
        self._queues[tx.sender_bytes] = queue
        self._by_hash[tx.hash] = (next(self._numbers), tx)
        queue.by_nonce[tx.nonce] = tx
        queue.cost += tx.max_cost
        while queue.next in queue.by_nonce:
            queue.next += 1
        return None

    def drop(self, digest: str) -> bool:
        """Forget a transaction without a word. Was it there?"""
        tx = self.get(digest)
        if tx is None:
            return False
        queue = self._queues[tx.sender_bytes]
        self._remove(queue, tx)
        queue.next = min(queue.next, tx.nonce)
        return True

    def clear(self) -> int:
        """Forget all of it. How many there were."""
        forgotten = len(self)
        self._by_hash.clear()
        self._queues.clear()
        return forgotten

    def rewound(self) -> None:
        """The ledger was taken back: count anew what is ready."""
        for sender, queue in self._queues.items():
            queue.next = self._ledger.account(sender).nonce
            while queue.next in queue.by_nonce:
                queue.next += 1

    def mined(self, tx: SignedTransaction) -> None:
        """The transaction is in a block now."""
        self._remove(self._queues[tx.sender_bytes], tx)

    def ready(self) -> Iterator[SignedTransaction]:
        """What a block can take, in its order.

        Each must be mined before the next one is asked for; one that is not ends its sender's turn.
        """
        heads = [entry for sender in self._queues if (entry := self._head(sender))]
        heapify(heads)
        while heads:
            _, tx = heappop(heads)
            yield tx
            mined = self._ledger.account(tx.sender_bytes).nonce > tx.nonce
            if mined and (entry := self._head(tx.sender_bytes)):
                heappush(heads, entry)

    def _head(self, sender: bytes) -> tuple[int, SignedTransaction] | None:
        queue = self._queues.get(sender)
        tx = queue.by_nonce.get(self._ledger.account(sender).nonce) if queue else None
        return self._by_hash[tx.hash] if tx and tx.fee_cap >= self.settings.base_fee else None

    def _remove(self, queue: Queue, tx: SignedTransaction) -> None:
        del queue.by_nonce[tx.nonce]
        del self._by_hash[tx.hash]
        queue.cost -= tx.max_cost
        if not queue.by_nonce:
            del self._queues[tx.sender_bytes]

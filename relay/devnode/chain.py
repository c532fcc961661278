"""The development chain: accounts, pool, blocks.

Job: take transactions, make blocks of them, forget them if told to, and know everything about both.
Rules: value transfers and fees are exact; code is not run, so every mined transaction succeeds, and a creation gets an
address but no code. Wall-clock seconds are handed in. Nothing here waits.
Must not know: JSON-RPC, delays, scripted faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.devnode.blocks import MINER, NO_PARENT, Block, Mined
from relay.devnode.ledger import Ledger
from relay.devnode.mempool import Mempool
from relay.devnode.transactions import blob_gas, created, needs, price

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relay.devnode.ledger import Account
    from relay.devnode.settings import NodeSettings
    from relay.transaction import SignedTransaction

BLOB_BASE_FEE: Final = 1
Place = int | str
"""Which block: a height, a block's hash, ``latest`` or ``pending``."""


class Chain:
    """All state of a development node. Not one method awaits."""

    def __init__(self, settings: NodeSettings, now: Callable[[], int]) -> None:
        self.settings = settings
        self.ledger = Ledger({bytes.fromhex(address[2:]): wei for address, wei in settings.funded.items()})
        self.pool = Mempool(settings, self.ledger)
        self.blocks: list[Block] = []
        self._now = now
        self._heights: dict[str, int] = {}
        self._mined: dict[str, Mined] = {}
        self._private: set[str] = set()
        self._forks = 0
        self._append(Block(0, NO_PARENT, now(), settings.gas_limit, settings.base_fee))

    def __repr__(self) -> str:
        return f"<chain {self.settings.chain_id}, {self.settings.mode}: height {self.height}, {len(self.pool)} waiting>"

    @property
    def height(self) -> int:
        """The number of the newest block."""
        return len(self.blocks) - 1

    @property
    def latest(self) -> Block:
        """The newest block."""
        return self.blocks[-1]

    def block(self, place: Place) -> Block | None:
        """The block at a place; None if there is none. The pending block is not built: the latest stands for it."""
        if place in {"latest", "pending"}:
            return self.latest
        height = self._heights.get(place) if isinstance(place, str) else place
        return self.blocks[height] if height is not None and height <= self.height else None

    def account(self, address: bytes, place: Place = "latest") -> Account | None:
        """Balance and count after a block, None if there is none; ``pending`` counts what is ready in the pool, too."""
        block = self.block(place)
        if block is None:
            return None
        account = self.ledger.account(address, None if place in {"latest", "pending"} else block.number)
        return account._replace(nonce=self.pool.next_nonce(address)) if place == "pending" else account

    def transaction(self, digest: str) -> SignedTransaction | Mined | None:
        """A transaction that the chain shows: mined, or waiting and not private."""
        return self._mined.get(digest) or (None if digest in self._private else self.pool.get(digest))

    def mined(self, digest: str) -> Mined | None:
        """A transaction's place in a block, if it has one."""
        return self._mined.get(digest)

    def submit(self, tx: SignedTransaction, *, private: bool = False) -> str | None:
        """Take a transaction into the pool, or say why not. A private one is not shown until it is mined."""
        refused = self.pool.add(tx)
        if private and refused is None:
            self._private.add(tx.hash)
        return refused

    def forget(self, digest: str) -> bool:
        """Drop a waiting transaction without a word. Was it there?"""
        return self.pool.drop(digest)

    def fund(self, address: bytes, wei: int) -> None:
        """Set a balance."""
        self.ledger.put(address, self.ledger.account(address)._replace(balance=wei), self.height)

    def change(self, settings: NodeSettings) -> None:
        """Other settings from the next block on."""
        self.settings = self.pool.settings = settings

    def reorganise(self, depth: int, *, keep: bool = True) -> None:
        """Take back the last ``depth`` blocks; their transactions wait again, or are forgotten. Balances go back, too.

        The blocks that come in their place have other hashes, whatever they hold.
        """
        depth = min(depth, self.height)
        taken = self.blocks[len(self.blocks) - depth :]
        del self.blocks[len(self.blocks) - depth :]
        self._forks += 1
        self.ledger.rewind(self.height)
        self.pool.rewound()
        for block in taken:
            del self._heights[block.hash]
            for mined in block.mined:
                del self._mined[mined.tx.hash]
                if keep:
                    self.pool.add(mined.tx)

    @property
    def can_mine(self) -> bool:
        """Is there anything for a block?"""
        return next(self._payable(), None) is not None

    def mine(self) -> Block:
        """Make a block of what is ready, as far as the gas limit allows."""
        mined: list[Mined] = []
        used = 0
        for tx in self._payable():
            if used + tx.gas > self.settings.gas_limit:
                break
            gas = needs(tx).used
            used += gas
            mined.append(Mined(tx, self.height + 1, len(mined), gas, used, price(tx, self.settings.base_fee)))
            self._execute(mined[-1])
        return self._append(
            Block(
                self.height + 1,
                self.latest.hash,
                max(self._now(), self.latest.timestamp) + self._forks,
                self.settings.gas_limit,
                self.settings.base_fee,
                tuple(mined),
            )
        )

    def _payable(self) -> Iterator[SignedTransaction]:
        ready = self.pool.ready()
        return (tx for tx in ready if tx.max_cost <= self.ledger.account(tx.sender_bytes).balance)

    def _execute(self, mined: Mined) -> None:
        """Move the value, charge the sender, pay the miner its tip; the base fee is burnt."""
        tx, height = mined.tx, mined.block
        sender = self.ledger.account(tx.sender_bytes)
        fee = mined.gas_used * mined.price + blob_gas(tx) * BLOB_BASE_FEE
        charged = sender._replace(nonce=tx.nonce + 1, balance=sender.balance - fee - tx.value)
        self.ledger.put(tx.sender_bytes, charged, height)
        self.ledger.credit(tx.to or created(tx), tx.value, height)
        self.ledger.credit(MINER, mined.gas_used * (mined.price - self.settings.base_fee), height)
        self.pool.mined(tx)
        self._private.discard(tx.hash)
        self._mined[tx.hash] = mined

    def _append(self, block: Block) -> Block:
        self.blocks.append(block)
        self._heights[block.hash] = block.number
        return block

"""The chain's things as the JSON-RPC API shows them.

Job: blocks, headers, transactions and receipts as JSON values, complete enough for strict decoders (ethers, viem,
web3.py, alloy).
Source: ethereum/execution-apis.
Must not know: methods, parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.devnode.blocks import BLOOM, Mined, encoded, header
from relay.devnode.chain import BLOB_BASE_FEE
from relay.devnode.transactions import Json, blob_gas, created, fields, hexed
from relay.transaction import BLOB

if TYPE_CHECKING:
    from relay.devnode.blocks import Block
    from relay.devnode.chain import Chain
    from relay.transaction import SignedTransaction


def head_view(block: Block) -> Json:
    """A header, as ``newHeads`` announces it."""
    shown = {name: hex(value) if isinstance(value, int) else hexed(value) for name, value in header(block).items()}
    return {"hash": block.hash, **shown}


def block_view(chain: Chain, block: Block, *, full: bool) -> Json:
    """A block with its transactions, or with their hashes only."""
    return {
        **head_view(block),
        "totalDifficulty": "0x0",
        "size": hex(len(encoded(block)) + sum(len(one.tx.raw) for one in block.mined)),
        "uncles": [],
        "withdrawals": [],
        "transactions": [transaction_view(chain, one) if full else one.tx.hash for one in block.mined],
    }


def transaction_view(chain: Chain, one: SignedTransaction | Mined) -> Json:
    """A transaction, with its place if it has one."""
    if isinstance(one, Mined):
        place = {**_place(chain, one), "gasPrice": hex(one.price)}
        return {**fields(one.tx), **place}
    place = {"blockHash": None, "blockNumber": None, "transactionIndex": None, "gasPrice": hex(one.fee_cap)}
    return {**fields(one), **place}


def receipt_view(chain: Chain, one: Mined) -> Json:
    """A receipt. There is no code that could fail or log."""
    tx = one.tx
    blobs = {"blobGasUsed": hex(blob_gas(tx)), "blobGasPrice": hex(BLOB_BASE_FEE)}
    return {
        **_place(chain, one),
        "transactionHash": tx.hash,
        "type": hex(tx.type),
        "status": "0x1",
        "from": hexed(tx.sender_bytes),
        "to": hexed(tx.to) if tx.to else None,
        "contractAddress": None if tx.to else hexed(created(tx)),
        "gasUsed": hex(one.gas_used),
        "cumulativeGasUsed": hex(one.cumulative),
        "effectiveGasPrice": hex(one.price),
        "logs": [],
        "logsBloom": hexed(BLOOM),
        **(blobs if tx.type == BLOB else {}),
    }


def _place(chain: Chain, one: Mined) -> Json:
    return {
        "blockHash": chain.blocks[one.block].hash,
        "blockNumber": hex(one.block),
        "transactionIndex": hex(one.index),
    }

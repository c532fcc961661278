"""What the development chain shows: transactions, headers, the fork."""

from __future__ import annotations

from typing import Any

import pytest
import rlp
from eth_account import Account

from relay.devnode import FUNDED, Chain, NodeSettings
from relay.devnode.fork import config_view
from relay.devnode.transactions import fields, keccak
from relay.devnode.views import block_view
from relay.gas import FORKS, from_eth_config
from relay.transaction import decode

GWEI = 10**9
ALICE, BOB = FUNDED[0], FUNDED[1]
NEWCOMER = bytes(19) + b"\x01"
ENTRY = {"address": "0x" + NEWCOMER.hex(), "storageKeys": ["0x" + "00" * 32]}
BY_TYPE: dict[int, dict[str, Any]] = {
    0: {"gasPrice": 3 * GWEI, "chainId": 1337},
    1: {"gasPrice": 3 * GWEI, "chainId": 1337, "accessList": [ENTRY], "type": 1},
    2: {"maxFeePerGas": 3 * GWEI, "maxPriorityFeePerGas": GWEI, "chainId": 1337, "type": 2, "accessList": [ENTRY]},
    4: {"maxFeePerGas": 3 * GWEI, "maxPriorityFeePerGas": GWEI, "chainId": 1337, "type": 4},
}


def fresh() -> Chain:
    """A chain whose clock stands still."""
    return Chain(NodeSettings(), lambda: 1_700_000_000)


@pytest.mark.parametrize("kind", BY_TYPE)
def test_a_transaction_is_shown_with_what_was_signed(kind: int) -> None:
    """The transaction object of each type repeats the signed fields and the signature."""
    body = {"nonce": 7, "to": NEWCOMER, "value": 255, "gas": 100_000, "data": b"\xab", **BY_TYPE[kind]}
    if kind == 4:
        grant = {"chainId": 1337, "address": NEWCOMER, "nonce": 0}
        body["authorizationList"] = [Account.sign_authorization(grant, BOB.key)]
    signed = Account.sign_transaction(body, ALICE.key)
    shown = fields(decode(bytes(signed.raw_transaction)))
    expected = {
        "hash": "0x" + signed.hash.hex(), "type": hex(kind), "from": ALICE.address.lower(), "nonce": "0x7",
        "to": "0x" + NEWCOMER.hex(), "value": "0xff", "input": "0xab", "chainId": "0x539", "gas": "0x186a0",
        "v": hex(signed.v), "r": hex(signed.r), "s": hex(signed.s),
    }  # fmt: skip
    assert {key: shown[key] for key in expected} == expected
    if kind in {1, 2}:
        assert shown["accessList"] == [ENTRY]
    if kind == 4:
        assert shown["authorizationList"][0]["address"] == "0x" + NEWCOMER.hex()


HEADER = (
    "parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom", "difficulty#",
    "number#", "gasLimit#", "gasUsed#", "timestamp#", "extraData", "mixHash", "nonce", "baseFeePerGas#",
    "withdrawalsRoot", "blobGasUsed#", "excessBlobGas#", "parentBeaconBlockRoot", "requestsHash",
)  # fmt: skip
"""Prague's header, numbers marked (EIP-1559, 4895, 4844, 4788, 7685)."""


def test_a_blocks_hash_is_that_of_the_header_it_shows() -> None:
    """Whoever encodes the shown header (Prague's 21 fields) gets the shown hash."""
    node = fresh()
    body = {"nonce": 0, "to": NEWCOMER, "value": 255, "gas": 21_000, "data": b"", **BY_TYPE[2], "accessList": []}
    assert node.submit(decode(bytes(Account.sign_transaction(body, ALICE.key).raw_transaction))) is None
    shown = block_view(node, node.mine(), full=False)
    items = [
        int(shown[name], 16) if number else bytes.fromhex(shown[name][2:])
        for name, number in ((name.rstrip("#"), name.endswith("#")) for name in HEADER)
    ]
    assert shown["hash"] == "0x" + keccak(rlp.encode(items)).hex()


def test_the_chain_says_that_it_follows_prague() -> None:
    """`eth_config` tells the fork whose gas rules admission applies."""
    assert from_eth_config(config_view(fresh())) == FORKS["prague"]

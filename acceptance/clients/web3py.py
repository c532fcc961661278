"""web3.py: ``burst`` (threads, nonces given, neighbours swapped) and ``transfer`` (waits for the receipt).

The task is the JSON of the only argument, the result one line of JSON, the last.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from eth_account import Account
from web3 import HTTPProvider, Web3

RECEIVER = "0x00000000000000000000000000000000000000AA"
THREADS = 24


def swapped(count: int) -> list[int]:
    """0 … count-1 with neighbours swapped."""
    return [place - 1 if place % 2 else min(place + 1, count - 1) for place in range(count)]


def burst(rpc: str, keys: list[str], count: int, chain_id: int) -> dict[str, Any]:
    """Sign first, then send from many threads."""
    web3 = Web3(HTTPProvider(rpc))
    signed = []
    for key in keys:
        account = Account.from_key(key)
        first = web3.eth.get_transaction_count(account.address, "pending")
        signed.append([_transfer(account, first + index, chain_id) for index in swapped(count)])
    interleaved = [raw for row in zip(*signed, strict=True) for raw in row]
    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(lambda raw: _send(web3, raw), interleaved))
    return {
        "hashes": [outcome for outcome in outcomes if outcome.startswith("0x")],
        "errors": [outcome for outcome in outcomes if not outcome.startswith("0x")],
    }


def transfer(rpc: str, keys: list[str]) -> dict[str, Any]:
    """Let web3.py fill in everything, as its users do."""
    web3 = Web3(HTTPProvider(rpc))
    account = Account.from_key(keys[0])
    fields = {
        "from": account.address,
        "to": RECEIVER,
        "value": web3.to_wei("0.5", "ether"),
        "nonce": web3.eth.get_transaction_count(account.address),
        "chainId": web3.eth.chain_id,
        "gas": 21_000,
        "maxFeePerGas": 20 * 10**9,
        "maxPriorityFeePerGas": web3.eth.max_priority_fee,
    }
    hash_ = web3.eth.send_raw_transaction(account.sign_transaction(fields).raw_transaction)
    receipt = web3.eth.wait_for_transaction_receipt(hash_, timeout=30)
    return {"hash": hash_.to_0x_hex(), "status": receipt["status"]}


def _transfer(account: Any, nonce: int, chain_id: int) -> bytes:
    fields = {
        "to": RECEIVER,
        "value": 1,
        "nonce": nonce,
        "chainId": chain_id,
        "gas": 21_000,
        "maxFeePerGas": 20 * 10**9,
        "maxPriorityFeePerGas": 10**9,
    }
    return bytes(account.sign_transaction(fields).raw_transaction)


def _send(web3: Web3, raw: bytes) -> str:
    try:
        return web3.eth.send_raw_transaction(raw).to_0x_hex()
    except Exception as error:  # noqa: BLE001 - whatever the library makes of a refusal is the result
        return f"error {type(error).__name__}: {error}"


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    print(json.dumps(burst(**task) if task.pop("action") == "burst" else transfer(**task)))

"""What the development node answers to calls that only read.

Job: the table of reading methods; each is a function of the chain and the parameters.
Rules: no function awaits or changes anything. Errors are values, in geth's words and with its codes.
Source: ethereum/execution-apis; go-ethereum for the texts.
Must not know: transport, submissions, scripted faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from relay import __version__
from relay.devnode.blocks import Mined
from relay.devnode.chain import BLOB_BASE_FEE
from relay.devnode.fork import config_view
from relay.devnode.params import unhexed
from relay.devnode.transactions import gas_needed
from relay.devnode.views import block_view, receipt_view, transaction_view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relay.devnode.blocks import Block
    from relay.devnode.chain import Chain
    from relay.devnode.ledger import Account
    from relay.devnode.params import Params

TIP: Final = 10**9
"""The tip that is suggested, in wei."""
MAX_HISTORY: Final = 1024
"""Blocks that eth_feeHistory shows at most, as geth does."""


class Refused(NamedTuple):
    """A node's error: geth's code for most of them is -32000."""

    message: str
    code: int = -32000
    data: Any = None


class _Access(msgspec.Struct, rename="camel"):
    storage_keys: list[str]


class _CallObject(msgspec.Struct, rename="camel"):
    """What of a call object decides how much gas it needs."""

    to: str | None = None
    input: str | None = None
    data: str | None = None
    access_list: list[_Access] | None = None
    authorization_list: list[Any] | None = None


NO_HEADER: Final = Refused("header not found")


def not_available(method: str) -> Refused:
    """There is no such method here."""
    return Refused(f"the method {method} does not exist/is not available", -32601)


def _constant(value: Any) -> Callable[[Chain, Params], Any]:
    return lambda _chain, _params: value


def _get_block(chain: Chain, params: Params) -> Any:
    block = chain.block(params.place(0))
    return block and block_view(chain, block, full=params.flag(1))


def _get_block_receipts(chain: Chain, params: Params) -> Any:
    block = chain.block(params.place(0))
    return block and [receipt_view(chain, one) for one in block.mined]


def _get_block_count(chain: Chain, params: Params) -> Any:
    block = chain.block(params.place(0))
    return block and hex(len(block.mined))


def _get_transaction_in_block(chain: Chain, params: Params) -> Any:
    block, index = chain.block(params.place(0)), params.number(1)
    return transaction_view(chain, block.mined[index]) if block and index < len(block.mined) else None


def _get_transaction(chain: Chain, params: Params) -> Any:
    found = chain.transaction(params.hash(0))
    return found and transaction_view(chain, found)


def _get_receipt(chain: Chain, params: Params) -> Any:
    found = chain.transaction(params.hash(0))
    return receipt_view(chain, found) if isinstance(found, Mined) else None


def _of_account(shown: Callable[[Account], Any]) -> Callable[[Chain, Params], Any]:
    def read(chain: Chain, params: Params) -> Any:
        account = chain.account(params.address(0), params.place(1))
        return NO_HEADER if account is None else shown(account)

    return read


def _storage(chain: Chain, params: Params) -> Any:
    return NO_HEADER if chain.block(params.place(2)) is None else "0x" + "00" * 32


def _estimate(_chain: Chain, params: Params) -> Any:
    """What a transaction with these fields will use: nothing runs here, so the minima are exact."""
    call = params.typed(0, _CallObject)
    data = unhexed(0, call.input or call.data or "0x")
    access = call.access_list or []
    needed = gas_needed(
        len(data),
        data.count(0),
        create=not call.to,
        addresses=len(access),
        keys=sum(len(entry.storage_keys) for entry in access),
        authorizations=len(call.authorization_list or ()),
    )
    return hex(needed.used)


def _fee_history(chain: Chain, params: Params) -> Any:
    newest = chain.block(params.place(1))
    if newest is None:
        return NO_HEADER
    count = min(params.number(0), MAX_HISTORY, newest.number + 1)
    blocks = chain.blocks[newest.number + 1 - count : newest.number + 1]
    percentiles = params.value(2, [])
    history = {
        "oldestBlock": hex(newest.number + 1 - count),
        "baseFeePerGas": [hex(chain.settings.base_fee)] * (count + 1),
        "gasUsedRatio": [block.gas_used / block.gas_limit for block in blocks],
        "baseFeePerBlobGas": [hex(BLOB_BASE_FEE)] * (count + 1),
        "blobGasUsedRatio": [0.0] * count,
    }
    return {**history, "reward": [_rewards(block, percentiles) for block in blocks]} if percentiles else history


def _rewards(block: Block, percentiles: list[float]) -> list[str]:
    """The tips paid at these percentiles of the block's gas, which is the same for most transactions here."""
    tips = sorted(one.price - block.base_fee for one in block.mined)
    return [hex(tips[int(len(tips) * min(at, 99) / 100)] if tips else TIP) for at in percentiles]


READS: Final[Mapping[str, Callable[[Chain, Params], Any]]] = {
    "web3_clientVersion": _constant(f"relay-devnode/{__version__}"),
    "net_version": lambda chain, _: str(chain.settings.chain_id),
    "net_listening": _constant(True),  # noqa: FBT003 - the answer
    "eth_chainId": lambda chain, _: hex(chain.settings.chain_id),
    "eth_syncing": _constant(False),  # noqa: FBT003 - the answer
    "eth_accounts": _constant([]),
    "eth_config": lambda chain, _: config_view(chain),
    "eth_blockNumber": lambda chain, _: hex(chain.height),
    "eth_getBlockByNumber": _get_block,
    "eth_getBlockByHash": _get_block,
    "eth_getBlockReceipts": _get_block_receipts,
    "eth_getBlockTransactionCountByNumber": _get_block_count,
    "eth_getBlockTransactionCountByHash": _get_block_count,
    "eth_getTransactionByBlockNumberAndIndex": _get_transaction_in_block,
    "eth_getTransactionByBlockHashAndIndex": _get_transaction_in_block,
    "eth_getTransactionByHash": _get_transaction,
    "eth_getTransactionReceipt": _get_receipt,
    "eth_getTransactionCount": _of_account(lambda account: hex(account.nonce)),
    "eth_getBalance": _of_account(lambda account: hex(account.balance)),
    "eth_getCode": _of_account(lambda _: "0x"),
    "eth_getStorageAt": _storage,
    "eth_call": _constant("0x"),
    "eth_estimateGas": _estimate,
    "eth_gasPrice": lambda chain, _: hex(chain.settings.base_fee + TIP),
    "eth_maxPriorityFeePerGas": _constant(hex(TIP)),
    "eth_blobBaseFee": _constant(hex(BLOB_BASE_FEE)),
    "eth_feeHistory": _fee_history,
    "eth_getLogs": _constant([]),
}
"""Method → its answer: a JSON value, or `Refused`."""

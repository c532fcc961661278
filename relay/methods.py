"""Which methods submit a transaction, and which only read.

Job: the table of submission methods (name → where the raw transaction stands, what goes upstream, what may be shared),
and the params of one read into a `Request`, or refused in geth's own words.
Rules: a method that is not in `SUBMISSIONS` is never ordered; one that is not in `READS` is never sent twice.
Must not know: transactions, lanes, how a request travels.

Sources: execution-apis (eth_sendRawTransaction), EIP-7966 (Sync), ERC-7796 (Conditional), MEV relays' private methods.
"""

from __future__ import annotations

import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from relay import errors, jsonrpc
from relay.errors import Refusal

SYNC_DEFAULT_S: Final = 20.0
SYNC_MAX_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table."""

    name: str
    wire: str
    """The method that goes upstream."""
    most_params: int | None = None
    """How many params it takes; None: the node judges."""
    tx_key: str | None = None
    """The raw transaction is this member of the first param; None: the first param itself."""
    by_bytes: bool = False
    """Equal bytes are one submission; otherwise only equal params are."""
    public: bool = True
    """The node shows it by its hash; the absence of a private one proves nothing."""
    wants_receipt: bool = False


SUBMISSIONS: Final = {
    method.name: method
    for method in (
        Method("eth_sendRawTransaction", "eth_sendRawTransaction", most_params=1, by_bytes=True),
        Method(
            "eth_sendRawTransactionSync", "eth_sendRawTransaction", most_params=2, by_bytes=True, wants_receipt=True
        ),
        Method("eth_sendRawTransactionConditional", "eth_sendRawTransactionConditional"),
        Method("eth_sendPrivateRawTransaction", "eth_sendPrivateRawTransaction", public=False),
        Method("eth_sendPrivateTransaction", "eth_sendPrivateTransaction", tx_key="tx", public=False),
    )
}

NEEDLE: Final = b"eth_send"
"""Every submission method begins with it: a body without it (and without an escape) cannot hold one."""

READS: Final = (
    "eth_blobBaseFee", "eth_blockNumber", "eth_call", "eth_chainId", "eth_coinbase", "eth_config",
    "eth_createAccessList", "eth_estimateGas", "eth_feeHistory", "eth_gasPrice", "eth_getBalance", "eth_getBlock",
    "eth_getCode", "eth_getHeader", "eth_getLogs", "eth_getProof", "eth_getRawTransaction", "eth_getStorageAt",
    "eth_getTransaction", "eth_getUncle", "eth_hashrate", "eth_maxPriorityFeePerGas", "eth_mining",
    "eth_protocolVersion", "eth_simulate", "eth_syncing", "debug_getRaw", "debug_trace", "net_", "ots_", "trace_",
    "txpool_", "web3_",
)  # fmt: skip
"""Prefixes of methods that change nothing at the node. Filters are not among them: reading changes consumes them."""


class Request(msgspec.Struct, frozen=True):
    """One submission as it was asked for. ``wire_params`` is the JSON text that goes upstream, resends included."""

    method: Method
    raw: bytes
    wire_params: bytes
    timeout_s: float

    @property
    def key(self) -> tuple[str, bytes]:
        """Two requests with the same key are one submission."""
        return self.method.wire, self.raw if self.method.by_bytes else self.wire_params


def only_reads(method: str) -> bool:
    """May a call of this method be sent twice?"""
    return method.startswith(READS)


def read(method: Method, params: bytes | None) -> Request | Refusal:
    """The raw transaction out of a submission's params (a JSON text), or why there is none, in geth's words."""
    values = _values(method, params)
    if isinstance(values, Refusal):
        return values
    text = values[0]
    if method.tx_key is not None and isinstance(text, dict):
        if _ambiguous(params or b"", method.tx_key):
            return _invalid(f"invalid argument 0: the key {method.tx_key} appears more than once or in another case")
        text = text.get(method.tx_key)
    raw = _bytes_of(text)
    if isinstance(raw, Refusal):
        return raw
    timeout_s = _timeout(values) if method.wants_receipt else 0.0
    if timeout_s is None:
        return _invalid("invalid argument 1: the time-out is milliseconds, a number or a 0x quantity")
    wire_params = b'["%b"]' % text.encode() if method.by_bytes else (params or b"[]")
    return Request(method, raw, wire_params, timeout_s)


def _ambiguous(params: bytes, key: str) -> bool:
    """Could a node read another transaction out of the first param than we do?"""
    first = json.loads(params, object_pairs_hook=lambda pairs: tuple(name for name, _ in pairs))[0]
    return [name for name in first if name.lower() == key] not in ([], [key])


def _values(method: Method, params: bytes | None) -> list[Any] | Refusal:
    try:
        values = jsonrpc.read_json(params or b"[]")
    except ValueError as error:
        return _invalid(f"invalid params: {error}")
    if not isinstance(values, list):
        return _invalid("non-array args")
    if not values or values[0] is None:
        return _invalid("missing value for required argument 0")
    if method.most_params is not None and len(values) > method.most_params:
        return _invalid(f"too many arguments, want at most {method.most_params}")
    return values


def _bytes_of(text: Any) -> bytes | Refusal:
    if not isinstance(text, str):
        return _unmarshal("non-string")
    if not text:
        return b""
    if text[:2] not in ("0x", "0X"):
        return _unmarshal("hex string without 0x prefix")
    if len(text) % 2:
        return _unmarshal("hex string of odd length")
    try:
        return binascii.unhexlify(text[2:])
    except ValueError:
        return _unmarshal("invalid hex string")


def _timeout(values: list[Any]) -> float | None:
    """Milliseconds in the second param → seconds; None if it is no such number."""
    value = values[1] if len(values) > 1 else None
    if isinstance(value, str):
        try:
            value = int(value, 16 if value[:2] in ("0x", "0X") else 10)
        except ValueError:
            return None
    if value is None or value == 0:
        return SYNC_DEFAULT_S
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    return min(value / 1000, SYNC_MAX_S)


def _unmarshal(what: str) -> Refusal:
    return _invalid(f"invalid argument 0: json: cannot unmarshal {what} into Go value of type hexutil.Bytes")


def _invalid(detail: str) -> Refusal:
    return errors.INVALID_PARAMS.refusal(detail=detail)

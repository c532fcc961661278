"""Raw bytes → a signed transaction with its sender.

Job: one walk over the RLP of each transaction type, both network wrappers of blob transactions included: every field
is checked on the way, the signing payload is cut out of the bytes instead of encoded again, the sender is recovered.
Rules: only the canonical form is read (`rlp`), for nodes hash what they re-encode, and the hash computed here must be
theirs. What no node can read is `Undecodable`, in geth's words. A transaction that can be read but not accepted (a high
s, no authorization, too little gas) still has a sender: refusing it is `relay.prechecks`' matter. Blobs are not copied.
Must not know: policies, chains, forks, JSON.

Sources: Yellow Paper, appendix F; EIP-155, EIP-2718, EIP-2930, EIP-1559, EIP-4844, EIP-7594, EIP-7702.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final, NamedTuple

import msgspec
from sha3 import keccak_256

from relay.transaction.recovery import CURVE_ORDER, is_signature, recover
from relay.transaction.rlp import (
    LIST,
    STRING,
    Field,
    Span,
    Struct,
    Undecodable,
    at_end,
    encode_integer,
    fixed,
    integer,
    list_header,
    read_fields,
    read_list,
    read_span,
    read_strings,
)

__all__ = [
    "BLOB",
    "BLOB_GAS",
    "LEGACY",
    "AccessList",
    "SignedTransaction",
    "Span",
    "Undecodable",
    "UnknownType",
    "checksummed",
    "decode",
]

LEGACY: Final = 0
BLOB: Final = 3
BLOB_GAS: Final = 1 << 17
"""What one blob costs, in blob gas (EIP-4844)."""

_BAD_SIGNATURE: Final = "invalid sender: invalid transaction v, r, s values"
_UNSUPPORTED: Final = "transaction type not supported"


class UnknownType(Undecodable):
    """A typed transaction (EIP-2718) of a type not known here: it may be fine, but its sender cannot be told."""

    def __init__(self, type_: int) -> None:
        super().__init__(_UNSUPPORTED)
        self.type = type_


class AccessList(NamedTuple):
    """How much an access list (EIP-2930) names."""

    addresses: int
    keys: int


_NO_ACCESS: Final = AccessList(0, 0)


class SignedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction and who signed it. Amounts are in wei; what the type does not have is None or 0."""

    raw: bytes
    type: int
    chain_id: int | None
    """None: a legacy transaction without replay protection (EIP-155)."""
    sender_bytes: bytes
    """The sender's address, 20 bytes: the key of its lane."""
    hash: str
    """0x…, of the canonical form: a blob transaction's wrapper does not count."""
    nonce: int
    gas: int
    to: bytes | None
    """None: creates a contract."""
    value: int
    data_span: Span
    high_s: bool
    """Is the signature's s in the upper half (EIP-2)? Such a transaction is refused everywhere since Homestead."""
    gas_price: int | None = None
    max_fee_per_gas: int | None = None
    max_priority_fee_per_gas: int | None = None
    max_fee_per_blob_gas: int | None = None
    access_list: AccessList = _NO_ACCESS
    blob_hashes: int = 0
    authorizations: int = 0

    def __repr__(self) -> str:
        return f"<transaction {self.hash} of {self.sender}, nonce {self.nonce}>"

    @property
    def sender(self) -> str:
        """The sender's address, 0x…, checksummed (EIP-55). Computed only when asked for."""
        return checksummed(self.sender_bytes)

    @property
    def size(self) -> int:
        """Bytes, as geth counts them for `oversized data`: a wrapper with its blobs included."""
        return len(self.raw)

    @property
    def data_length(self) -> int:
        """Bytes of data, or of initcode."""
        return self.data_span.stop - self.data_span.start

    @property
    def data_zeros(self) -> int:
        """How many bytes of the data are zero. Counted at each call."""
        return self.raw.count(0, self.data_span.start, self.data_span.stop)

    @property
    def fee_cap(self) -> int:
        """The most that is paid for a unit of gas, whatever the type."""
        return (self.gas_price if self.max_fee_per_gas is None else self.max_fee_per_gas) or 0

    @property
    def max_cost(self) -> int:
        """The most that the sender can be charged, the value it sends and its blobs included."""
        blobs = self.blob_hashes * BLOB_GAS * (self.max_fee_per_blob_gas or 0)
        return self.gas * self.fee_cap + self.value + blobs


_CASE: Final = 0x20
"""The bit in which ASCII's small letters differ from capitals."""
_CASE_OF_LETTER: Final = bytes(_CASE if digit in b"abcdef" else 0 for digit in range(256))
_CASE_IF_MARKED: Final = bytes(_CASE if digit in b"89abcdef" else 0 for digit in range(256))


@lru_cache(maxsize=4096)  # senders come back
def checksummed(address: bytes) -> str:
    """An address of 20 bytes as 0x… in mixed case (EIP-55)."""
    digits = address.hex().encode()
    marks = keccak_256(digits).hexdigest()[: len(digits)].encode()
    # All digits at once, as numbers of a byte a digit: one by one they cost 2 % of a submission.
    flips = int.from_bytes(digits.translate(_CASE_OF_LETTER)) & int.from_bytes(marks.translate(_CASE_IF_MARKED))
    return "0x" + (int.from_bytes(digits) ^ flips).to_bytes(len(digits)).decode()


def decode(raw: bytes) -> SignedTransaction:
    """Read a raw transaction: the RLP of a legacy one, an EIP-2718 envelope, or a blob transaction in its wrapper.

    Raises UnknownType for an envelope of a type above 4, Undecodable for anything else that cannot be read.
    """
    try:
        return _decode(raw)
    except IndexError:  # a header promised bytes that are not there
        raise Undecodable("rlp: value size exceeds available input length") from None


def _decode(raw: bytes) -> SignedTransaction:
    type_ = _type(raw)
    struct = _STRUCTS[type_]
    start, end, canonical = _body(raw, type_, struct)
    found, signed = read_fields(raw, start, end, struct)
    signature, after = read_fields(raw, signed, end, _SIGNATURES[type_])
    at_end(after, end, struct.name)
    tail = b""
    if type_ == LEGACY:
        found["chain_id"], signature["v"] = _replay_protection(signature["v"])
        tail = _protection_suffix(found["chain_id"])
    prefix = list_header(signed - start + len(tail))
    payload = prefix + raw[start:signed] + tail if type_ == LEGACY else raw[:1] + prefix + raw[start:signed]
    return SignedTransaction(
        raw=raw,
        type=type_,
        sender_bytes=_sender(payload, **signature),
        hash="0x" + keccak_256(canonical).hexdigest(),
        high_s=signature["s"] > CURVE_ORDER // 2,
        **found,
    )


def _type(raw: bytes) -> int:
    """The EIP-2718 type; a first byte that RLP needs for itself makes a legacy transaction."""
    if raw and raw[0] >= STRING:
        return LEGACY
    if len(raw) <= 1:
        raise Undecodable("typed transaction too short")
    if raw[0] == LEGACY:
        raise Undecodable(_UNSUPPORTED)
    if raw[0] not in _STRUCTS:
        raise UnknownType(raw[0])
    return raw[0]


def _body(raw: bytes, type_: int, struct: Struct) -> tuple[int, int, bytes]:
    """Where the fields begin and end, and the transaction's canonical bytes."""
    start, end = read_list(raw, 0 if type_ == LEGACY else 1, f"types.{struct.name}")
    if end > len(raw):
        raise Undecodable("rlp: value size exceeds available input length")
    if end < len(raw):
        raise Undecodable("rlp: input contains more than one value")
    if type_ != BLOB or raw[start] < LIST:
        return start, end, raw
    body_start, body_end = read_list(raw, start, f"types.{struct.name}")
    _check_sidecar(raw, body_end, end)
    return body_start, body_end, raw[:1] + raw[start:body_end]


def _check_sidecar(raw: bytes, position: int, end: int) -> None:
    """What follows the body in the network wrapper: [1,] blobs, commitments, proofs (EIP-4844; with 1: EIP-7594)."""
    if raw[position] < LIST:
        version, position = _uint64(raw, position)
        if version != 1:
            raise Undecodable(f"unsupported blob tx version {version}")
    _, position = read_fields(raw, position, end, _SIDECAR)
    at_end(position, end, _SIDECAR.name)


def _replay_protection(v: int) -> tuple[int | None, int]:
    """A legacy signature's v → chain id (None: unprotected) and y parity (EIP-155)."""
    if v in (27, 28):
        return None, v - 27
    if v >= 35:  # noqa: PLR2004 - EIP-155
        return (v - 35) // 2, (v - 35) % 2
    raise Undecodable(_BAD_SIGNATURE)


def _protection_suffix(chain_id: int | None) -> bytes:
    """What EIP-155 adds to the signed list: the chain id and two empty items."""
    return b"" if chain_id is None else encode_integer(chain_id) + b"\x80\x80"


def _sender(payload: bytes, v: int, r: int, s: int) -> bytes:
    """The address whose key signed ``payload``."""
    if not is_signature(v, r, s):
        raise Undecodable(_BAD_SIGNATURE)
    sender = recover(payload, v, r, s)
    if sender is None:
        raise Undecodable("invalid sender: recovery failed")
    return sender


_uint64: Final = integer(8)
_uint256: Final = integer(32)
_read_address: Final = fixed("common.Address", 20)


def _read_to(raw: bytes, position: int) -> tuple[bytes | None, int]:
    """An address, or nothing: the transaction creates a contract."""
    return (None, position + 1) if raw[position] == STRING else _read_address(raw, position)


def _read_hashes(raw: bytes, position: int) -> tuple[int, int]:
    return read_strings(raw, position, "common.Hash", b"\xa0", 32)


def _read_access_list(raw: bytes, position: int) -> tuple[AccessList, int]:
    """Pairs of an address and a list of keys of 32 bytes (EIP-2930)."""
    position, stop = read_list(raw, position, "types.AccessList")
    if position == stop:
        return _NO_ACCESS, stop
    addresses = keys = 0
    while position < stop:
        entry, entry_stop = read_list(raw, position, "types.AccessTuple")
        named, position = _read_hashes(raw, _read_address(raw, entry)[1])
        at_end(position, entry_stop, "AccessTuple")
        addresses += 1
        keys += named
    at_end(position, stop, "AccessList")
    return AccessList(addresses, keys), stop


def _read_authorizations(raw: bytes, position: int) -> tuple[int, int]:
    """Signed permissions to set code (EIP-7702). Whether one is valid is decided when it is executed."""
    position, stop = read_list(raw, position, "[]types.SetCodeAuthorization")
    count = 0
    while position < stop:
        entry, entry_stop = read_list(raw, position, "types.SetCodeAuthorization")
        _, position = read_fields(raw, entry, entry_stop, _AUTHORIZATION)
        at_end(position, entry_stop, _AUTHORIZATION.name)
        count += 1
    at_end(position, stop, _AUTHORIZATION.name)
    return count, stop


_CHAIN_ID: Final = Field("chain_id", "ChainID", _uint256)
_NONCE: Final = Field("nonce", "Nonce", _uint64)
_GAS_PRICE: Final = Field("gas_price", "GasPrice", _uint256)
_FEES: Final = (
    Field("max_priority_fee_per_gas", "GasTipCap", _uint256),
    Field("max_fee_per_gas", "GasFeeCap", _uint256),
)
_GAS: Final = Field("gas", "Gas", _uint64)
_TO: Final = Field("to", "To", _read_to)
_CALL: Final = (Field("value", "Value", _uint256), Field("data_span", "Data", read_span))
_ACCESS_LIST: Final = Field("access_list", "AccessList", _read_access_list)
_R_AND_S: Final = (Field("r", "R", _uint256), Field("s", "S", _uint256))
_SIGNATURE: Final = (Field("v", "V", _uint256), *_R_AND_S)
_AUTHORIZATION: Final = Struct("SetCodeAuthorization", (
    _CHAIN_ID, Field("address", "Address", _read_address), _NONCE, Field("v", "V", integer(1)), *_R_AND_S,
))  # fmt: skip

_STRUCTS: Final[dict[int, Struct]] = {
    LEGACY: Struct("LegacyTx", (_NONCE, _GAS_PRICE, _GAS, _TO, *_CALL)),
    1: Struct("AccessListTx", (_CHAIN_ID, _NONCE, _GAS_PRICE, _GAS, _TO, *_CALL, _ACCESS_LIST)),
    2: Struct("DynamicFeeTx", (_CHAIN_ID, _NONCE, *_FEES, _GAS, _TO, *_CALL, _ACCESS_LIST)),
    BLOB: Struct("BlobTx", (
        _CHAIN_ID, _NONCE, *_FEES, _GAS, Field("to", "To", _read_address), *_CALL, _ACCESS_LIST,
        Field("max_fee_per_blob_gas", "BlobFeeCap", _uint256), Field("blob_hashes", "BlobHashes", _read_hashes),
    )),
    4: Struct("SetCodeTx", (
        _CHAIN_ID, _NONCE, *_FEES, _GAS, _TO, *_CALL, _ACCESS_LIST,
        Field("authorizations", "AuthList", _read_authorizations),
    )),
}  # fmt: skip
"""Each type's fields, in order, up to the signature."""

_SIGNATURES: Final = {type_: Struct(struct.name, _SIGNATURE) for type_, struct in _STRUCTS.items()}

_SIDECAR: Final = Struct("blobTxWithBlobs", (
    Field("blobs", "Blobs", partial(read_strings, noun="kzg4844.Blob", header=b"\xba\x02\x00\x00", size=1 << 17)),
    Field("commitments", "Commitments", partial(read_strings, noun="kzg4844.Commitment", header=b"\xb0", size=48)),
    Field("proofs", "Proofs", partial(read_strings, noun="kzg4844.Proof", header=b"\xb0", size=48)),
))  # fmt: skip

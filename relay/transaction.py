"""Raw bytes → a signed transaction with its sender.

Job: one walk over the RLP of each transaction type, both network wrappers of blob transactions included: every field
is checked on the way, the signing payload is cut out of the bytes instead of encoded again, the sender is recovered.
Rules: only the canonical form is read, for nodes hash what they re-encode, and the hash computed here must be theirs.
What no node can read is `Undecodable`, in geth's words. A transaction that can be read but not accepted (a high s, no
authorization, too little gas) still has a sender: refusing it is `relay.prechecks`' matter. Blobs are never copied.
Must not know: policies, chains, forks, JSON.

Sources: Yellow Paper, appendices B and F; EIP-155, EIP-2718, EIP-2930, EIP-1559, EIP-4844, EIP-7594, EIP-7702.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from coincurve import PublicKey
from sha3 import keccak_256

LEGACY: Final = 0
BLOB: Final = 3
BLOB_GAS: Final = 1 << 17
"""What one blob costs, in blob gas (EIP-4844)."""

_CURVE_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_BAD_SIGNATURE: Final = "invalid sender: invalid transaction v, r, s values"
_UNSUPPORTED: Final = "transaction type not supported"

# Where the forms of RLP begin: a first byte below _STRING is the value itself.
_STRING: Final = 0x80
_LONG_STRING: Final = 0xB8
_LIST: Final = 0xC0
_LONG_LIST: Final = 0xF8
_SHORTEST_LONG: Final = 56


class Undecodable(Exception):  # noqa: N818 - not a fault: what a client sent is no transaction
    """The bytes are no transaction that any node reads. The text is geth's."""


class UnknownType(Undecodable):
    """A typed transaction (EIP-2718) of a type not known here: it may be fine, but its sender cannot be told."""

    def __init__(self, type_: int) -> None:
        super().__init__(_UNSUPPORTED)
        self.type = type_


class AccessList(NamedTuple):
    """How much an access list (EIP-2930) names."""

    addresses: int
    keys: int


class Span(NamedTuple):
    """Where a field's bytes stand in the raw transaction."""

    start: int
    stop: int


_Reader = Callable[[bytes, int], tuple[Any, int]]
_Value = TypeVar("_Value")


class _Field(NamedTuple):
    """One field of a transaction: our name, geth's (for its error texts), how it is read."""

    attribute: str
    name: str
    read: _Reader


class _Layout(NamedTuple):
    """A transaction type: geth's name for it, its fields."""

    struct: str
    fields: tuple[_Field, ...]


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


@lru_cache(maxsize=4096)  # senders come back
def checksummed(address: bytes) -> str:
    """An address of 20 bytes as 0x… in mixed case (EIP-55)."""
    digits = address.hex()
    marks = keccak_256(digits.encode()).hexdigest()
    return "0x" + "".join(digit.upper() if mark > "7" else digit for digit, mark in zip(digits, marks, strict=False))


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
    layout = _LAYOUTS[type_]
    start, end, canonical = _body(raw, type_, layout)
    found, signed = _fields(raw, start, end, layout.struct, layout.fields)
    signature, after = _fields(raw, signed, end, layout.struct, _SIGNATURE)
    if after != end:
        raise Undecodable(f"rlp: input list has too many elements for types.{layout.struct}")
    tail = b""
    if type_ == LEGACY:
        found["chain_id"], signature["v"] = _replay_protection(signature["v"])
        tail = _protection_suffix(found["chain_id"])
    prefix = _list_header(signed - start + len(tail))
    payload = prefix + raw[start:signed] + tail if type_ == LEGACY else raw[:1] + prefix + raw[start:signed]
    return SignedTransaction(
        raw=raw,
        type=type_,
        sender_bytes=_recover(payload, **signature),
        hash="0x" + keccak_256(canonical).hexdigest(),
        high_s=signature["s"] > _CURVE_ORDER // 2,
        **found,
    )


def _type(raw: bytes) -> int:
    """The EIP-2718 type; a first byte that RLP needs for itself makes a legacy transaction."""
    if raw and raw[0] >= _STRING:
        return LEGACY
    if len(raw) <= 1:
        raise Undecodable("typed transaction too short")
    if raw[0] == LEGACY:
        raise Undecodable(_UNSUPPORTED)
    if raw[0] not in _LAYOUTS:
        raise UnknownType(raw[0])
    return raw[0]


def _body(raw: bytes, type_: int, layout: _Layout) -> tuple[int, int, bytes]:
    """Where the fields begin and end, and the transaction's canonical bytes."""
    begin = 0 if type_ == LEGACY else 1
    start, end = _list(raw, begin, f"types.{layout.struct}")
    if end != len(raw):
        longer = end > len(raw)
        raise Undecodable(
            "rlp: value size exceeds available input length" if longer else "rlp: input contains more than one value"
        )
    if type_ != BLOB or raw[start] < _LIST:
        return start, end, raw
    body_start, body_end = _list(raw, start, f"types.{layout.struct}")
    _check_sidecar(raw, body_end, end)
    return body_start, body_end, raw[:1] + raw[start:body_end]


def _check_sidecar(raw: bytes, position: int, end: int) -> None:
    """What follows the body in the network wrapper: [1,] blobs, commitments, proofs (EIP-4844; with 1: EIP-7594)."""
    if raw[position] < _LIST:
        version, position = _uint64(raw, position)
        if version != 1:
            raise Undecodable(f"unsupported blob tx version {version}")
    for noun, header, size in _SIDECAR:
        if position >= end:
            raise Undecodable("rlp: too few elements for types.blobTxWithBlobs")
        _, position = _read_all_of(raw, position, noun, header, size)
    if position != end:
        raise Undecodable("rlp: input list has too many elements for types.blobTxWithBlobs")


def _fields(raw: bytes, position: int, end: int, struct: str, fields: tuple[_Field, ...]) -> tuple[dict[str, Any], int]:
    """The fields from ``position`` on, and where they end, which is at most ``end``."""
    found: dict[str, Any] = {}
    try:
        for attribute, _, read in fields:
            if position >= end:
                break
            found[attribute], position = read(raw, position)
    except Undecodable as error:
        raise Undecodable(f"{error}, decoding into (types.{struct}).{fields[len(found)].name}") from None
    if position > end:
        last = fields[len(found) - 1].name
        raise Undecodable(f"rlp: element is larger than containing list, decoding into (types.{struct}).{last}")
    if len(found) < len(fields):
        raise Undecodable(f"rlp: too few elements for types.{struct}")
    return found, position


def _replay_protection(v: int) -> tuple[int | None, int]:
    """A legacy signature's v → chain id (None: unprotected) and y parity (EIP-155)."""
    if v in (27, 28):
        return None, v - 27
    if v >= 35:  # noqa: PLR2004 - EIP-155
        return (v - 35) // 2, (v - 35) % 2
    raise Undecodable(_BAD_SIGNATURE)


def _protection_suffix(chain_id: int | None) -> bytes:
    """What EIP-155 adds to the signed list: the chain id and two empty items."""
    if chain_id is None:
        return b""
    if 0 < chain_id < _STRING:
        return bytes((chain_id,)) + b"\x80\x80"
    digits = chain_id.to_bytes((chain_id.bit_length() + 7) // 8)
    return bytes((_STRING + len(digits),)) + digits + b"\x80\x80"


def _recover(payload: bytes, v: int, r: int, s: int) -> bytes:
    """The address whose key signed ``payload`` (Yellow Paper, appendix F)."""
    if v > 1 or not 0 < r < _CURVE_ORDER or not 0 < s < _CURVE_ORDER:
        raise Undecodable(_BAD_SIGNATURE)
    signature = r.to_bytes(32) + s.to_bytes(32) + bytes((v,))
    try:
        key = PublicKey.from_signature_and_message(signature, keccak_256(payload).digest(), hasher=None)
    except ValueError:  # r is no point's x
        raise Undecodable("invalid sender: recovery failed") from None
    return keccak_256(key.format(compressed=False)[1:]).digest()[12:]  # type: ignore[no-any-return] # sha3 is untyped


# Readers: (raw, position) → (value, position after it). None looks at where the containing list ends: `_fields` does.


def _list(raw: bytes, position: int, noun: str) -> tuple[int, int]:
    """Where a list's items begin and end."""
    first = raw[position]
    if first < _LIST:
        raise Undecodable(f"rlp: expected input list for {noun}")
    if first < _LONG_LIST:
        return position + 1, position + 1 + first - _LIST
    return _long(raw, position, first - _LONG_LIST + 1, noun)


def _long(raw: bytes, position: int, width: int, noun: str) -> tuple[int, int]:
    """Begin and end of a string or list whose length stands in ``width`` bytes of its own."""
    start = position + 1 + width
    length = int.from_bytes(raw[position + 1 : start])
    if raw[position + 1] == 0 or length < _SHORTEST_LONG:
        raise Undecodable(f"rlp: non-canonical size information for {noun}")
    return start, start + length


def _list_header(length: int) -> bytes:
    if length < _SHORTEST_LONG:
        return bytes((_LIST + length,))
    digits = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes((_LONG_LIST - 1 + len(digits),)) + digits


def _integer(width: int) -> _Reader:
    """A reader of unsigned integers of at most ``width`` bytes, without leading zeros."""
    noun = f"uint{8 * width}"
    longest = _STRING + width

    def read(raw: bytes, position: int) -> tuple[int, int]:
        first = raw[position]
        if 0 < first < _STRING:
            return first, position + 1
        if first == _STRING:
            return 0, position + 1
        if first == 0:
            raise Undecodable(f"rlp: non-canonical integer (leading zero bytes) for {noun}")
        if first > longest:
            raise Undecodable(f"rlp: input string too long for {noun}" if first < _LIST else _expected_string(noun))
        start = position + 1
        stop = start + first - _STRING
        if first == _STRING + 1 and raw[start] < _STRING:
            raise Undecodable(f"rlp: non-canonical size information for {noun}")
        if raw[start] == 0:
            raise Undecodable(f"rlp: non-canonical integer (leading zero bytes) for {noun}")
        return int.from_bytes(raw[start:stop]), stop

    return read


def _read_data(raw: bytes, position: int) -> tuple[Span, int]:
    first = raw[position]
    if first < _STRING:
        return Span(position, position + 1), position + 1
    if first >= _LIST:
        raise Undecodable(_expected_string("[]uint8"))
    if first >= _LONG_STRING:
        span = Span(*_long(raw, position, first - _LONG_STRING + 1, "[]uint8"))
        return span, span.stop
    span = Span(position + 1, position + 1 + first - _STRING)
    if first == _STRING + 1 and raw[span.start] < _STRING:
        raise Undecodable("rlp: non-canonical size information for []uint8")
    return span, span.stop


def _read_address(raw: bytes, position: int) -> tuple[bytes, int]:
    first = raw[position]
    if first != _STRING + 20:
        raise Undecodable(
            _expected_string("common.Address")
            if first >= _LIST
            else f"rlp: input string too {'short' if first < _STRING + 20 else 'long'} for common.Address"
        )
    return raw[position + 1 : position + 21], position + 21


def _read_to(raw: bytes, position: int) -> tuple[bytes | None, int]:
    """An address, or nothing: the transaction creates a contract."""
    return (None, position + 1) if raw[position] == _STRING else _read_address(raw, position)


def _read_all_of(raw: bytes, position: int, noun: str, header: bytes, size: int) -> tuple[int, int]:
    """How many strings of ``size`` bytes, each behind the same ``header``, a list holds.

    Only headers are looked at. A list that is no whole number of strings has one more byte in a stride.
    """
    start, stop = _list(raw, position, f"[]{noun}")
    stride = len(header) + size
    count = (stop - start) // stride
    for offset in range(len(header)):
        if raw[start + offset : stop : stride] != header[offset : offset + 1] * count:
            raise Undecodable(f"rlp: input string of the wrong length for {noun}")
    return count, stop


def _read_hashes(raw: bytes, position: int) -> tuple[int, int]:
    return _read_all_of(raw, position, "common.Hash", b"\xa0", 32)


def _read_access_list(raw: bytes, position: int) -> tuple[AccessList, int]:
    """Pairs of an address and a list of keys of 32 bytes (EIP-2930)."""
    position, stop = _list(raw, position, "types.AccessList")
    addresses = keys = 0
    while position < stop:
        entry, entry_stop = _list(raw, position, "types.AccessTuple")
        named, position = _read_hashes(raw, _read_address(raw, entry)[1])
        if position != entry_stop:
            raise Undecodable("rlp: wrong number of elements for types.AccessTuple")
        addresses += 1
        keys += named
    return _inside(AccessList(addresses, keys), position, stop)


def _read_authorizations(raw: bytes, position: int) -> tuple[int, int]:
    """Signed permissions to set code (EIP-7702). Whether one is valid is decided when it is executed."""
    position, stop = _list(raw, position, "[]types.SetCodeAuthorization")
    count = 0
    while position < stop:
        entry, entry_stop = _list(raw, position, "types.SetCodeAuthorization")
        _, position = _fields(raw, entry, entry_stop, "SetCodeAuthorization", _AUTHORIZATION)
        if position != entry_stop:
            raise Undecodable("rlp: input list has too many elements for types.SetCodeAuthorization")
        count += 1
    return _inside(count, position, stop)


def _inside(value: _Value, position: int, stop: int) -> tuple[_Value, int]:
    if position != stop:
        raise Undecodable("rlp: element is larger than containing list")
    return value, stop


def _expected_string(noun: str) -> str:
    return f"rlp: expected input string or byte for {noun}"


_uint64: Final = _integer(8)
_uint256: Final = _integer(32)

_CHAIN_ID: Final = _Field("chain_id", "ChainID", _uint256)
_NONCE: Final = _Field("nonce", "Nonce", _uint64)
_GAS_PRICE: Final = _Field("gas_price", "GasPrice", _uint256)
_FEES: Final = (
    _Field("max_priority_fee_per_gas", "GasTipCap", _uint256),
    _Field("max_fee_per_gas", "GasFeeCap", _uint256),
)
_GAS: Final = _Field("gas", "Gas", _uint64)
_TO: Final = _Field("to", "To", _read_to)
_CALL: Final = (_Field("value", "Value", _uint256), _Field("data_span", "Data", _read_data))
_ACCESS_LIST: Final = _Field("access_list", "AccessList", _read_access_list)
_SIGNATURE: Final = (_Field("v", "V", _uint256), _Field("r", "R", _uint256), _Field("s", "S", _uint256))
_AUTHORIZATION: Final = (
    _CHAIN_ID,
    _Field("address", "Address", _read_address),
    _NONCE,
    _Field("v", "V", _integer(1)),
    *_SIGNATURE[1:],
)

_LAYOUTS: Final[dict[int, _Layout]] = {
    LEGACY: _Layout("LegacyTx", (_NONCE, _GAS_PRICE, _GAS, _TO, *_CALL)),
    1: _Layout("AccessListTx", (_CHAIN_ID, _NONCE, _GAS_PRICE, _GAS, _TO, *_CALL, _ACCESS_LIST)),
    2: _Layout("DynamicFeeTx", (_CHAIN_ID, _NONCE, *_FEES, _GAS, _TO, *_CALL, _ACCESS_LIST)),
    BLOB: _Layout("BlobTx", (
        _CHAIN_ID, _NONCE, *_FEES, _GAS, _Field("to", "To", _read_address), *_CALL, _ACCESS_LIST,
        _Field("max_fee_per_blob_gas", "BlobFeeCap", _uint256), _Field("blob_hashes", "BlobHashes", _read_hashes),
    )),
    4: _Layout("SetCodeTx", (
        _CHAIN_ID, _NONCE, *_FEES, _GAS, _TO, *_CALL, _ACCESS_LIST,
        _Field("authorizations", "AuthList", _read_authorizations),
    )),
}  # fmt: skip
"""Each type's fields, in order, up to the signature."""

_SIDECAR: Final = (
    ("kzg4844.Blob", b"\xba\x02\x00\x00", 1 << 17),
    ("kzg4844.Commitment", b"\xb0", 48),
    ("kzg4844.Proof", b"\xb0", 48),
)

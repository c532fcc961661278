"""The decoder against public vectors, a second implementation, and transactions bent on purpose."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import rlp
from coincurve import PrivateKey, PublicKey
from eth_account import Account
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sha3 import keccak_256

from relay.transaction import AccessList, SignedTransaction, Undecodable, UnknownType, checksummed, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CORPORA: Final = Path(__file__).parents[2] / "shared" / "corpora"
needs_corpora = pytest.mark.skipif(not CORPORA.is_dir(), reason="the public vectors are not beside the project")

KEY: Final = PrivateKey(b"\x46" * 32)
ACCOUNT: Final = Account.from_key(KEY.secret)
SENDER: Final = str(ACCOUNT.address)
TO: Final = b"\x12" * 20
ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141

HASHES: Final = [b"\x01" + b"\x02" * 31] * 2
AUTHORIZATION: Final = [1, TO, 6, 1, 2**255, 3]
FIELDS: Final[dict[int, list[Any]]] = {
    0: [5, 10, 100_000, TO, 7, b"\x00\x01"],
    1: [1, 5, 10, 100_000, TO, 7, b"\x00\x01", [[TO, [b"\x03" * 32] * 2], [TO, []]]],
    2: [1, 5, 2, 10, 100_000, TO, 7, b"\x00\x01", [[TO, [b"\x03" * 32]]]],
    3: [1, 5, 2, 10, 100_000, TO, 7, b"\x00\x01", [], 3, HASHES],
    4: [1, 5, 2, 10, 100_000, TO, 7, b"\x00\x01", [], [AUTHORIZATION]],
}


def records(name: str) -> Iterator[dict[str, Any]]:
    with (CORPORA / f"{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def signed(type_: int, fields: list[Any], chain_id: int | None = 1) -> list[Any]:
    """``fields`` and their signature. ``chain_id`` is for legacy transactions: None signs an unprotected one."""
    protection = [] if type_ or chain_id is None else [chain_id, 0, 0]
    payload = (bytes((type_,)) if type_ else b"") + rlp.encode([*fields, *protection])
    signature = KEY.sign_recoverable(keccak_256(payload).digest(), hasher=None)
    parity = signature[64]
    v = parity if type_ else parity + (27 if chain_id is None else 35 + 2 * chain_id)
    return [*fields, v, int.from_bytes(signature[:32]), int.from_bytes(signature[32:64])]


def envelope(type_: int, items: Any) -> bytes:
    return (bytes((type_,)) if type_ else b"") + bytes(rlp.encode(items))


def sample(type_: int, chain_id: int | None = 1) -> bytes:
    return envelope(type_, signed(type_, FIELDS[type_], chain_id))


def wrapped(version: list[int], blobs: int) -> bytes:
    """A blob transaction in its network wrapper: ``version`` is [] (EIP-4844) or [1] (EIP-7594)."""
    proofs = blobs * (128 if version else 1)
    sidecar = [[b"\x0a" * (1 << 17)] * blobs, [b"\x0b" * 48] * blobs, [b"\x0c" * 48] * proofs]
    return envelope(3, [signed(3, FIELDS[3]), *version, *sidecar])


def refusal(raw: bytes) -> str:
    with pytest.raises(Undecodable) as caught:
        decode(raw)
    return str(caught.value)


# --- a second implementation, with rlp: slow, whole, and written from the EIPs alone ---------------------------------


class Wrong(Exception):  # noqa: N818 - the second opinion's "no"
    pass


def need(condition: object) -> None:
    if not condition:
        raise Wrong


def number(item: Any, width: int) -> int:
    need(isinstance(item, bytes) and len(item) <= width and item[:1] != b"\x00")
    return int.from_bytes(item)


def text(item: Any, *lengths: int) -> bytes:
    need(isinstance(item, bytes) and len(item) in lengths)
    return bytes(item)


def items(item: Any, *counts: int) -> list[Any]:
    need(isinstance(item, list) and (not counts or len(item) in counts))
    return list(item)


def second_opinion(raw: bytes) -> tuple[int, str, str, int, int | None]:
    """Type, sender, hash, nonce, chain id. Raises Wrong for what no node reads."""
    type_ = raw[0] if raw[0] < 0x80 else 0
    try:
        whole = rlp.decode(raw[1:] if type_ else raw)
    except rlp.exceptions.DecodingError:
        raise Wrong from None
    body = items(whole)
    if type_ == 3 and body and isinstance(body[0], list):
        body = _unwrapped(body)
    expected = {0: 9, 1: 11, 2: 12, 3: 14, 4: 13}
    items(body, expected[type_])
    _check_fields(type_, body)
    v, r, s = (number(item, 32) for item in body[-3:])
    chain_id: int | None = number(body[0], 32) if type_ else None
    protection: list[Any] = []
    if not type_:
        need(v in (27, 28) or v >= 35)
        chain_id = None if v < 35 else (v - 35) // 2
        protection = [] if chain_id is None else [chain_id, 0, 0]
        v = v - 27 if chain_id is None else (v - 35) % 2
    need(v <= 1 and 0 < r < ORDER and 0 < s < ORDER)
    digest = keccak_256(envelope(type_, [*body[:-3], *protection])).digest()
    try:
        key = PublicKey.from_signature_and_message(r.to_bytes(32) + s.to_bytes(32) + bytes((v,)), digest, None)
    except ValueError:
        raise Wrong from None
    address = keccak_256(key.format(compressed=False)[1:]).hexdigest()[24:]
    nonce = number(body[1 if type_ else 0], 8)
    return type_, "0x" + address, "0x" + keccak_256(envelope(type_, body)).hexdigest(), nonce, chain_id


def _unwrapped(whole: list[Any]) -> list[Any]:
    items(whole, 4, 5)
    if len(whole) == 5:
        need(whole[1] == b"\x01")
    for blob in items(whole[-3]):
        text(blob, 1 << 17)
    for proof in items(whole[-2]) + items(whole[-1]):
        text(proof, 48)
    return items(whole[0])


def _check_fields(type_: int, body: list[Any]) -> None:
    widths = {0: (8, 32, 8), 1: (32, 8, 32, 8)}.get(type_, (32, 8, 32, 32, 8))
    for item, width in zip(body, widths, strict=False):
        number(item, width)
    to, value, data, *rest = body[len(widths) : -3]
    text(to, 20) if type_ == 3 else text(to, 0, 20)
    number(value, 32)
    need(isinstance(data, bytes))
    for entry in items(rest[0]) if type_ else []:
        address, keys = items(entry, 2)
        text(address, 20)
        for key in items(keys):
            text(key, 32)
    if type_ == 3:
        number(rest[1], 32)
        for hash_ in items(rest[2]):
            text(hash_, 32)
    if type_ == 4:
        for authorization in items(rest[1]):
            chain_id, address, nonce, v, r, s = items(authorization, 6)
            text(address, 20)
            for item, width in ((chain_id, 32), (nonce, 8), (v, 1), (r, 32), (s, 32)):
                number(item, width)


def agrees(raw: bytes) -> bool:
    """Do both read ``raw`` alike? True if both refuse it, an error if they differ."""
    try:
        ours: SignedTransaction | None = decode(raw)
    except Undecodable:
        ours = None
    try:
        theirs = None if not raw or raw[0] in (0, *range(5, 0x80)) else second_opinion(raw)
    except Wrong:
        theirs = None
    if ours is None or theirs is None:
        return ours is None and theirs is None
    return (ours.type, ours.sender.lower(), ours.hash, ours.nonce, ours.chain_id) == theirs


# --- what is right ---------------------------------------------------------------------------------------------------


@needs_corpora
def test_every_public_vector_gives_its_sender_and_hash() -> None:
    """Types 0 to 4, with and without wrapper: sender, hash, nonce, chain id and type are those of the vector."""
    wrong, count = [], 0
    for record in records("vectors"):
        transaction = decode(bytes.fromhex(record["raw"][2:]))
        got = (transaction.sender.lower(), transaction.hash, transaction.nonce, transaction.chain_id, transaction.type)
        wanted = (record["sender"].lower(), *(record[key] for key in ("hash", "nonce", "chainId", "type")))
        count += 1
        if got != wanted:
            wrong.append((record["name"], got, wanted))
    assert not wrong
    assert count == 1528


@needs_corpora
def test_every_transaction_valid_under_some_fork_is_read() -> None:
    """A transaction that one fork accepts, Frontier's high s included, gives that fork's sender and hash."""
    count = 0
    for record in records("transactions"):
        for verdict in record["result"].values():
            if "sender" in verdict:
                transaction = decode(bytes.fromhex(record["txbytes"][2:]))
                assert transaction.sender.lower() == verdict["sender"].lower(), record["name"]
                assert transaction.hash == verdict["hash"], record["name"]
                count += 1
    assert count > 51


def test_fields_are_read() -> None:
    """Each type's fields stand under their own names; what a type does not have is None or 0."""
    legacy, access, dynamic, blob, set_code = (decode(sample(type_)) for type_ in range(5))
    assert (legacy.nonce, legacy.gas_price, legacy.gas, legacy.to, legacy.value) == (5, 10, 100_000, TO, 7)
    assert (legacy.data_length, legacy.data_zeros, legacy.max_fee_per_gas) == (2, 1, None)
    assert (access.access_list, access.gas_price, access.fee_cap) == (AccessList(2, 2), 10, 10)
    assert (dynamic.max_priority_fee_per_gas, dynamic.max_fee_per_gas, dynamic.fee_cap) == (2, 10, 10)
    assert (dynamic.gas_price, dynamic.access_list, dynamic.size) == (None, AccessList(1, 1), len(sample(2)))
    assert (blob.blob_hashes, blob.max_fee_per_blob_gas) == (2, 3)
    assert blob.max_cost == 100_000 * 10 + 7 + 2 * 131_072 * 3
    assert (set_code.authorizations, set_code.blob_hashes, set_code.high_s) == (1, 0, False)


def test_a_creation_has_no_recipient() -> None:
    """An empty `to` is read as None; its data is initcode."""
    fields = FIELDS[2].copy()
    fields[5], fields[7] = b"", b"\x60" * 300
    transaction = decode(envelope(2, signed(2, fields)))
    assert (transaction.to, transaction.data_length, transaction.sender) == (None, 300, SENDER)


@pytest.mark.parametrize("length", [0, 1, 55, 56, 255, 256, 65_535, 65_536])
@pytest.mark.parametrize("type_", [0, 2])
def test_data_of_every_length_form(type_: int, length: int) -> None:
    """Short and long headers of the data and of the list around it give the same signing payload as rlp does."""
    fields = FIELDS[type_].copy()
    fields[5 if type_ == 0 else 7] = b"\x07" * length
    transaction = decode(envelope(type_, signed(type_, fields)))
    assert (transaction.sender, transaction.data_length) == (SENDER, length)


@pytest.mark.parametrize("chain_id", [None, 0, 1, 110, 127, 128, 2**16, 2**64 + 1, 2**200])
def test_replay_protection(chain_id: int | None) -> None:
    """Legacy: v carries the chain id (EIP-155), whatever its width; 27 and 28 carry none."""
    transaction = decode(sample(0, chain_id))
    assert (transaction.chain_id, transaction.sender) == (chain_id, SENDER)


@pytest.mark.parametrize("blobs", [0, 1, 2])
@pytest.mark.parametrize("version", [[], [1]], ids=["proofs", "cell proofs"])
def test_a_wrapper_does_not_change_the_hash(version: list[int], blobs: int) -> None:
    """A blob transaction has the hash of its plain form; its size counts the blobs."""
    plain, raw = decode(sample(3)), wrapped(version, blobs)
    transaction = decode(raw)
    assert (transaction.hash, transaction.sender, transaction.size) == (plain.hash, SENDER, len(raw))


def test_blobs_are_not_copied() -> None:
    """Reading a wrapper with six blobs (0.8 MB) takes less memory than a tenth of a blob."""
    raw = wrapped([1], 6)
    decode(raw)
    tracemalloc.start()
    decode(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 13_000


def test_a_high_s_still_has_a_sender() -> None:
    """The other half of the curve gives the same sender and is marked: refusing it is a precheck's matter."""
    body = signed(2, FIELDS[2])
    flipped = [*body[:-3], 1 - body[-3], body[-2], ORDER - body[-1]]
    low, high = decode(envelope(2, body)), decode(envelope(2, flipped))
    assert (low.sender, high.sender) == (SENDER, SENDER)
    assert (low.high_s, high.high_s) == (False, True)
    assert low.hash != high.hash


def test_set_code_without_a_recipient_still_has_a_sender() -> None:
    """A type 4 without `to` is read: refusing it is a precheck's matter."""
    fields = FIELDS[4].copy()
    fields[5] = b""
    transaction = decode(envelope(4, signed(4, fields)))
    assert (transaction.to, transaction.sender) == (None, SENDER)


def test_addresses_are_checksummed() -> None:
    """The examples of EIP-55."""
    for address in ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb"):
        assert checksummed(bytes.fromhex(address[2:])) == address


def test_the_raw_transaction_is_never_shown() -> None:
    """A log line that holds a transaction names its hash, sender and nonce and none of its bytes."""
    transaction = decode(sample(2))
    assert repr(transaction) == f"<transaction {transaction.hash} of {SENDER}, nonce 5>"


amounts = st.integers(0, 2**256 - 1) | st.integers(0, 2**64)
addresses = st.binary(min_size=20, max_size=20)


@st.composite
def wallets_transactions(draw: st.DrawFn) -> dict[str, Any]:
    """A transaction as a wallet gives it to eth-account."""
    to = draw(addresses)
    transaction: dict[str, Any] = {
        "nonce": draw(st.integers(0, 2**64 - 2)), "gas": draw(st.integers(1, 2**64 - 1)), "to": checksummed(to),
        "value": draw(amounts), "data": draw(st.binary(max_size=80)),
    }  # fmt: skip
    type_ = draw(st.integers(-1, 4))
    if type_ >= 0:
        transaction["chainId"] = draw(st.integers(1, 2**40))
    if type_ <= 1:
        transaction["gasPrice"] = draw(amounts)
    else:
        transaction |= {"maxFeePerGas": draw(amounts), "maxPriorityFeePerGas": draw(amounts)}
    if type_ >= 1:
        entry = st.fixed_dictionaries({
            "address": addresses.map(checksummed),
            "storageKeys": st.lists(st.binary(min_size=32, max_size=32).map(lambda one: "0x" + one.hex()), max_size=3),
        })  # fmt: skip
        transaction |= {"type": type_, "accessList": draw(st.lists(entry, max_size=3))}
    if type_ == 3:
        transaction |= {"maxFeePerBlobGas": draw(amounts), "blobVersionedHashes": ["0x01" + "02" * 31] * 2}
    if type_ == 4:
        permission = {"chainId": 1, "address": checksummed(to), "nonce": draw(st.integers(0, 2**64 - 2))}
        transaction["authorizationList"] = [ACCOUNT.sign_authorization(permission)]
    return transaction


@settings(max_examples=150, deadline=None)
@given(wallets_transactions())
def test_what_a_wallet_signs_is_read(wanted: dict[str, Any]) -> None:
    """Round trip: eth-account signs any type, `decode` gives the signer, the hash and the fields back."""
    made = ACCOUNT.sign_transaction(wanted)
    transaction = decode(bytes(made.raw_transaction))
    assert (transaction.sender, transaction.hash) == (SENDER, "0x" + bytes(made.hash).hex())
    assert (transaction.nonce, transaction.gas, transaction.value) == (wanted["nonce"], wanted["gas"], wanted["value"])
    assert transaction.chain_id == wanted.get("chainId")
    assert transaction.type == wanted.get("type", 0)
    assert transaction.fee_cap == wanted.get("gasPrice", wanted.get("maxFeePerGas"))
    assert transaction.access_list.addresses == len(wanted.get("accessList", ()))
    assert transaction.data_zeros == wanted["data"].count(0)


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [5, 0x10, 0x7E, 0x7F])
def test_an_unknown_type_is_named(type_: int) -> None:
    """An envelope of a type above 4 has no sender that could be told: the caller learns its type."""
    with pytest.raises(UnknownType, match=r"^transaction type not supported$") as caught:
        decode(bytes((type_, 0xC0)))
    assert caught.value.type == type_


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "typed transaction too short"),
        (b"\x02", "typed transaction too short"),
        (b"\x05", "typed transaction too short"),
        (b"\x00\xc0", "transaction type not supported"),
        (b"\x80", "rlp: expected input list for types.LegacyTx"),
        (b"\xb8\x40" + bytes(64), "rlp: expected input list for types.LegacyTx"),
        (b"\x02\x83abc", "rlp: expected input list for types.DynamicFeeTx"),
        (b"\xc0", "rlp: too few elements for types.LegacyTx"),
        (b"\xf8\x01\x05", "rlp: non-canonical size information for types.LegacyTx"),
        (b"\xf9\x00\x40" + bytes(64), "rlp: non-canonical size information for types.LegacyTx"),
        (b"\xf8", "rlp: value size exceeds available input length"),
        (b"\xff" * 9, "rlp: value size exceeds available input length"),
        (sample(2)[:-1], "rlp: value size exceeds available input length"),
        (sample(2) + b"\x00", "rlp: input contains more than one value"),
        (sample(0) + sample(0), "rlp: input contains more than one value"),
        (envelope(2, [*signed(2, FIELDS[2]), 0]), "rlp: input list has too many elements for types.DynamicFeeTx"),
        (envelope(2, signed(2, FIELDS[2])[:-1]), "rlp: too few elements for types.DynamicFeeTx"),
        (b"\xcb\x05\x0a\x83\x01\x86\xa0\x94abcd",
         "rlp: element is larger than containing list, decoding into (types.LegacyTx).To"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_transaction(raw: bytes, words: str) -> None:
    """Truncated, extended or mislabelled bytes are refused in geth's words."""
    assert refusal(raw) == words


def bent(type_: int, place: int, item: Any) -> bytes:
    """A signed transaction in which the item at ``place`` was replaced."""
    body = signed(type_, FIELDS[type_])
    body[place] = item
    return envelope(type_, body)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (bent(0, 0, b"\x00"), "rlp: non-canonical integer (leading zero bytes) for uint64"),
        (bent(0, 0, b"\x00\x05"), "rlp: non-canonical integer (leading zero bytes) for uint64"),
        (bent(0, 0, 1 << 64), "rlp: input string too long for uint64"),
        (bent(0, 0, []), "rlp: expected input string or byte for uint64"),
        (bent(0, 1, 1 << 256), "rlp: input string too long for uint256"),
        (bent(0, 2, 1 << 64), "rlp: input string too long for uint64"),
        (bent(0, 3, b"\x12" * 19), "rlp: input string too short for common.Address"),
        (bent(0, 3, b"\x12" * 21), "rlp: input string too long for common.Address"),
        (bent(0, 3, [TO]), "rlp: expected input string or byte for common.Address"),
        (bent(0, 4, 1 << 256), "rlp: input string too long for uint256"),
        (bent(0, 5, [b"\x01"]), "rlp: expected input string or byte for []uint8"),
        (bent(0, 6, 26), "invalid sender: invalid transaction v, r, s values"),
        (bent(0, 6, 34), "invalid sender: invalid transaction v, r, s values"),
        (bent(2, 9, 2), "invalid sender: invalid transaction v, r, s values"),
        (bent(2, 10, 0), "invalid sender: invalid transaction v, r, s values"),
        (bent(2, 10, ORDER), "invalid sender: invalid transaction v, r, s values"),
        (bent(2, 11, 0), "invalid sender: invalid transaction v, r, s values"),
        (bent(2, 11, ORDER), "invalid sender: invalid transaction v, r, s values"),
        (bent(2, 10, 5), "invalid sender: recovery failed"),
        (bent(2, 10, b"\x00" + b"\x01" * 32), "rlp: input string too long for uint256"),
        (bent(1, 7, b"\x01"), "rlp: expected input list for types.AccessList"),
        (bent(1, 7, [b"\x01"]), "rlp: expected input list for types.AccessTuple"),
        (bent(1, 7, [[TO]]), "rlp: expected input list for []common.Hash"),
        (bent(1, 7, [[TO, [], []]]), "rlp: input list has too many elements for types.AccessTuple"),
        (bent(1, 7, [[TO, [b"\x03" * 31]]]), "rlp: input string of the wrong length for common.Hash"),
        (bent(1, 7, [[TO, [[b"\x03" * 31]]]]), "rlp: input string of the wrong length for common.Hash"),
        (bent(3, 5, b""), "rlp: input string too short for common.Address"),
        (bent(3, 10, [b"\x03" * 33]), "rlp: input string of the wrong length for common.Hash"),
        (bent(4, 9, [b"\x01"]), "rlp: expected input list for types.SetCodeAuthorization"),
        (bent(4, 9, [AUTHORIZATION[:-1]]), "rlp: too few elements for types.SetCodeAuthorization"),
        (bent(4, 9, [[*AUTHORIZATION, 0]]), "rlp: input list has too many elements for types.SetCodeAuthorization"),
        (bent(4, 9, [[1, TO, 6, 256, 1, 1]]), "rlp: input string too long for uint8"),
        (bent(4, 9, [[1, b"", 6, 1, 1, 1]]), "rlp: input string too short for common.Address"),
    ],
)  # fmt: skip
def test_fields_of_the_wrong_shape(raw: bytes, words: str) -> None:
    """Each field's width, canonical form and shape is checked; the text names the field as geth does."""
    said = refusal(raw)
    assert said.split(", decoding into")[0] == words
    assert agrees(raw)


def test_the_field_is_named() -> None:
    """The text says which field of which type cannot be read."""
    assert refusal(bent(2, 3, b"\x00")).endswith("for uint256, decoding into (types.DynamicFeeTx).GasFeeCap")
    inner = refusal(bent(4, 9, [[1, TO, b"\x00", 1, 1, 1]]))
    assert inner.endswith("decoding into (types.SetCodeAuthorization).Nonce, decoding into (types.SetCodeTx).AuthList")


@pytest.mark.parametrize(
    ("sidecar", "words"),
    [
        ([0, [], [], []], "unsupported blob tx version 0"),
        ([2, [], [], []], "unsupported blob tx version 2"),
        ([[], []], "rlp: too few elements for types.blobTxWithBlobs"),
        ([1, [], []], "rlp: too few elements for types.blobTxWithBlobs"),
        ([[], [], [], []], "rlp: input list has too many elements for types.blobTxWithBlobs"),
        ([[b"\x01" * 131_071], [], []], "rlp: input string of the wrong length for kzg4844.Blob"),
        ([[b"\x01" * 131_071, b"\x01"], [], []], "rlp: input string of the wrong length for kzg4844.Blob"),
        ([[], [b"\x01" * 49], []], "rlp: input string of the wrong length for kzg4844.Commitment"),
        ([[], [], [b"\x01" * 48, b"\x01" * 47]], "rlp: input string of the wrong length for kzg4844.Proof"),
        ([[], [], b"\x01"], "rlp: expected input list for []kzg4844.Proof"),
    ],
)
def test_wrappers_of_the_wrong_shape(sidecar: list[Any], words: str) -> None:
    """What follows the body is checked by its headers: version, counts of lists, lengths of blobs and proofs."""
    raw = envelope(3, [signed(3, FIELDS[3]), *sidecar])
    assert refusal(raw).split(", decoding into")[0] == words
    assert agrees(raw)


def reencoded(raw: bytes, old: bytes, new: bytes) -> bytes:
    """``raw`` with ``new`` in place of ``old``, which is as long: for encodings that rlp does not make."""
    assert raw.count(old) == 1
    assert len(old) == len(new)
    return raw.replace(old, new)


GAS: Final = b"\x83\x01\x86\xa0\x94"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (b"\x81\x05\x81\xa0\x94", "rlp: non-canonical size information for uint64"),
        (b"\x83\x00\x86\xa0\x94", "rlp: non-canonical integer (leading zero bytes) for uint64"),
        (b"\xb8\x02\x86\xa0\x94", "rlp: input string too long for uint64"),
        (b"\xc3\x01\x02\x03\x94", "rlp: expected input string or byte for uint64"),
    ],
)
def test_only_the_canonical_form_is_read(new: bytes, words: str) -> None:
    """A length or a number written longer than needed is refused, here and by rlp: nodes would hash other bytes."""
    raw = reencoded(sample(0), GAS, new)
    assert refusal(raw).startswith(words)
    assert agrees(raw)


@pytest.mark.parametrize("header", [b"\xb8\x02", b"\xb9\x00\x02", b"\xba\x00\x00\x02"])
def test_long_forms_of_short_data(header: bytes) -> None:
    """Data of two bytes behind a long header is refused, here and by rlp."""
    body = rlp.encode(signed(0, FIELDS[0]))
    start = len(body) - body[::-1].index(b"\x01\x00\x82") - 3
    content = body[2:start] + header + body[start + 1 :]
    raw = b"\xf8" + bytes((len(content),)) + content
    assert refusal(raw) == "rlp: non-canonical size information for []uint8, decoding into (types.LegacyTx).Data"
    assert agrees(raw)


def test_a_long_form_of_one_byte() -> None:
    """Data of one byte below 0x80 is the byte itself; behind a header it is refused, here and by rlp."""
    fields = FIELDS[0].copy()
    fields[5] = b"\x80"
    raw = reencoded(envelope(0, signed(0, fields)), b"\x07\x81\x80", b"\x07\x81\x7f")
    assert refusal(raw) == "rlp: non-canonical size information for []uint8, decoding into (types.LegacyTx).Data"
    assert agrees(raw)


@pytest.mark.parametrize(("type_", "header"), [(1, b"\xf8\x72\xf8\x59"), (4, b"\xf8\x3c\xf8\x3a")])
def test_an_entry_may_not_reach_out_of_its_list(type_: int, header: bytes) -> None:
    """A list that ends inside its last entry is refused: else the entry's rest would be read as other fields."""
    raw = reencoded(sample(type_), header, header[:1] + bytes((header[1] - 1,)) + header[2:])
    assert refusal(raw).startswith("rlp: element is larger than containing list")
    assert agrees(raw)


# --- mutations -------------------------------------------------------------------------------------------------------


def bases() -> list[bytes]:
    made = [sample(type_) for type_ in range(5)] + [sample(0, None), wrapped([], 0), wrapped([1], 0)]
    if CORPORA.is_dir():
        picked = random.Random(7).sample([record["raw"] for record in records("vectors")], 60)
        made += [bytes.fromhex(raw[2:]) for raw in picked if len(raw) < 4000]
    return made


def flip(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + bytes((raw[place] ^ 1 << dice.randrange(8),)) + raw[place + 1 :]


def rewrite(raw: bytes, dice: random.Random) -> bytes:
    """A header byte instead of another byte, most often near the front, where the headers are."""
    place = dice.randrange(min(len(raw), 12 if dice.random() < 0.6 else len(raw)))
    return raw[:place] + bytes((dice.choice((0x00, 0x7F, 0x80, 0x81, 0xA0, 0xB7, 0xB8, 0xBF, 0xC0, 0xF7, 0xF8, 0xFF)),)
                               ) + raw[place + 1 :]  # fmt: skip


def truncate(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(len(raw))]


def extend(raw: bytes, dice: random.Random) -> bytes:
    return raw + dice.randbytes(dice.randrange(1, 9))


def splice(raw: bytes, dice: random.Random) -> bytes:
    """Bytes removed or put in, with the outer list's length put right: the inner walk meets the damage."""
    typed = raw[0] < 0x80
    body = raw[1:] if typed else raw
    content = body[1:] if body[0] < 0xF8 else body[1 + body[0] - 0xF7 :]
    place = dice.randrange(len(content) + 1)
    cut = place + dice.choice((0, 1, 1, 2, 33))
    content = content[:place] + dice.randbytes(dice.choice((0, 1, 1, 2))) + content[cut:]
    size = len(content)
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    header = bytes((0xC0 + size,)) if size < 56 else bytes((0xF7 + len(digits),)) + digits
    return raw[:1] * typed + header + content


def reshape(raw: bytes, dice: random.Random) -> bytes:
    """One item, at any depth, replaced by another one: well-formed RLP of a wrong or an odd shape."""
    typed = raw[0] < 0x80
    tree = rlp.decode(raw[1:] if typed else raw)
    places: list[tuple[list[Any], int]] = []
    lists = [tree]
    while lists:
        current = lists.pop()
        places += [(current, index) for index in range(len(current))]
        lists += [item for item in current if isinstance(item, list)]
    target, index = dice.choice(places)
    target[index] = dice.choice((
        b"", b"\x00", b"\x01", [], [[]], dice.randbytes(dice.choice((1, 8, 9, 20, 32, 33))), TO, target[index - 1],
    ))  # fmt: skip
    return raw[:1] * typed + bytes(rlp.encode(tree))


MUTATIONS: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    flip, rewrite, truncate, extend, splice, reshape, reshape,
)  # fmt: skip
BASES: Final = bases()


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_a_mutation_never_gives_a_wrong_sender(seed: int) -> None:
    """10,000 damaged transactions: each is refused as Undecodable or read exactly as the second implementation does."""
    dice = random.Random(seed)
    for _ in range(40):
        raw = dice.choice(MUTATIONS)(dice.choice(BASES), dice)
        assert agrees(raw), raw.hex()


def test_mutations_reach_the_inside() -> None:
    """The mutations are worth something: many of them are still transactions, of another sender or other fields."""
    dice = random.Random(1)
    read = 0
    for _ in range(300):
        try:
            read += bool(decode(dice.choice(MUTATIONS)(dice.choice(BASES), dice)).sender)
        except Undecodable:
            continue
    assert 60 < read < 240

"""Who signed: an address out of a payload and its signature.

Job: the Yellow Paper's appendix F, by libsecp256k1.
Rules: the library is called by coincurve's own binding, with types looked up once, not through coincurve's objects:
they cost a tenth of the curve's work. Buffers are fresh for each call, for the binding lets other threads run.
Must not know: transactions, RLP.
"""

from __future__ import annotations

from typing import Final

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT
from sha3 import keccak_256

CURVE_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141

_CONTEXT: Final = GLOBAL_CONTEXT.ctx
_SIGNATURE: Final = ffi.typeof("secp256k1_ecdsa_recoverable_signature *")
_KEY: Final = ffi.typeof("secp256k1_pubkey *")
_POINT: Final = ffi.typeof("unsigned char [65]")
_LENGTH: Final = ffi.typeof("size_t *")
_UNCOMPRESSED: Final = lib.SECP256K1_EC_UNCOMPRESSED
_parse: Final = lib.secp256k1_ecdsa_recoverable_signature_parse_compact
_recover: Final = lib.secp256k1_ecdsa_recover
_serialize: Final = lib.secp256k1_ec_pubkey_serialize


def is_signature(parity: int, r: int, s: int) -> bool:
    """Are these numbers in the ranges of a signature? Both halves of s are."""
    return parity <= 1 and 0 < r < CURVE_ORDER and 0 < s < CURVE_ORDER


def recover(payload: bytes, parity: int, r: int, s: int) -> bytes | None:
    """The address, 20 bytes, whose key signed ``payload``; None: r is no point's x. For what `is_signature`."""
    signature, key, point = ffi.new(_SIGNATURE), ffi.new(_KEY), ffi.new(_POINT)
    if not _parse(_CONTEXT, signature, r.to_bytes(32) + s.to_bytes(32), parity):
        return None
    if not _recover(_CONTEXT, key, signature, keccak_256(payload).digest()):
        return None
    _serialize(_CONTEXT, point, ffi.new(_LENGTH, 65), key, _UNCOMPRESSED)
    address: bytes = keccak_256(ffi.buffer(point)[1:]).digest()[12:]
    return address

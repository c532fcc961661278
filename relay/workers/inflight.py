"""What the lane process has at the node, in memory that outlives it.

    slot = check (4 bytes, 0: free) · length of the lane's key (1) · key (at most 52) · nonce (8) · hash (32)

Job: one slot for each running turn, written before its first byte can leave and freed when its outcome is known.
Rules: both are synchronous and cost less than a microsecond. The check is written last and covers the rest: a slot that
was torn by the death of its writer was not yet in use, or no longer, and reads as free.
Must not know: processes, lanes, the upstream.
"""

from __future__ import annotations

import mmap
import os
import zlib
from typing import Final, NamedTuple

_CHECK: Final = 4
_KEY: Final = 52
"""An address and a chain id of 256 bits."""
_SLOT: Final = _CHECK + 1 + _KEY + 8 + 32
_FREE: Final = bytes(_CHECK)


class Send(NamedTuple):
    """A transaction that is at the node, as far as is known."""

    key: bytes
    """Of its lane (`relay.lanes.lane_key`)."""
    nonce: int
    hash: str
    """0x…"""


class InflightTable:
    """One lane process writes at a time. ``slots``: turns that can run at once and be written down."""

    def __init__(self, fd: int, slots: int) -> None:
        if os.fstat(fd).st_size < slots * _SLOT:
            os.ftruncate(fd, slots * _SLOT)
        self._memory = mmap.mmap(fd, slots * _SLOT)
        self._free = list(range(0, slots * _SLOT, _SLOT))

    @staticmethod
    def create() -> int:
        """A file descriptor for the table of all lane processes to come. Nameless; it ends with its last user."""
        return os.memfd_create("relay-inflight")

    def found(self) -> list[tuple[int, Send]]:
        """What a process left behind that has died, by slot. Those slots stay taken until `end`."""
        left = [(slot, send) for slot in sorted(self._free) if (send := self._read(slot)) is not None]
        taken = {slot for slot, _ in left}
        self._free = [slot for slot in self._free if slot not in taken]
        return left

    def begin(self, send: Send) -> int | None:
        """Write ``send`` down; its slot, None if all are taken."""
        if not self._free:
            return None
        slot = self._free.pop()
        body = b"%c%b%b%b" % (
            len(send.key), send.key.ljust(_KEY, b"\0"), send.nonce.to_bytes(8), bytes.fromhex(send.hash[2:])
        )  # fmt: skip
        memory = self._memory
        memory[slot + _CHECK : slot + _SLOT] = body
        memory[slot : slot + _CHECK] = _check(body)
        return slot

    def end(self, slot: int) -> None:
        """Its outcome is known."""
        self._memory[slot : slot + _CHECK] = _FREE
        self._free.append(slot)

    def close(self) -> None:
        """Let go of the memory; what stands in it stays."""
        self._memory.close()

    def _read(self, slot: int) -> Send | None:
        check, body = self._memory[slot : slot + _CHECK], self._memory[slot + _CHECK : slot + _SLOT]
        if check != _check(body) or body[0] > _KEY:
            return None
        return Send(body[1 : 1 + body[0]], int.from_bytes(body[1 + _KEY : 9 + _KEY]), "0x" + body[-32:].hex())


def _check(body: bytes) -> bytes:
    return (zlib.crc32(body) or 1).to_bytes(_CHECK)

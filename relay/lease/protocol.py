"""What an instance and the server say to each other about a lane.

Job: the three commands with their answers, and what is pushed, as values and as the texts that the scripts know.
Rules: nonces travel clamped to 2^53, for Lua's numbers are doubles: a nonce above that is no one's next, so it is a
gap whatever its digits. An answer that cannot be read is a fault (`Garbled`), never a guess.
Must not know: connections, lanes, when anything is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from relay.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

UNKNOWN: Final = -1
"""A next nonce that nobody knows."""

NOBODY: Final = -1
"""The head of a lane in which nobody waits."""

_EXACT: Final = 1 << 53


class Garbled(Fault):
    """The server said something that the protocol does not have."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Ask for the lane. ``gap``: the gap below ``head`` has been waited out here. ``seen``: the highest fence seen."""

    registration: int
    head: int
    known: int
    gap: bool
    seen: int

    @property
    def arguments(self) -> tuple[int, ...]:
        """What follows the arguments common to all scripts."""
        return _clamped(self.head), _clamped(self.known), int(self.gap), self.seen


@dataclass(frozen=True, slots=True)
class Renew:
    """Hold it for another lease."""

    registration: int
    fence: int

    @property
    def arguments(self) -> tuple[int, ...]:
        """As in `Enter`."""
        return (self.fence,)


@dataclass(frozen=True, slots=True)
class Leave:
    """Give it up: whatever this instance has of it. ``next`` is written; with a ``head`` it waits again at once."""

    registration: int
    fence: int
    next: int = UNKNOWN
    head: int = NOBODY
    known: int = UNKNOWN

    @property
    def arguments(self) -> tuple[int, ...]:
        """As in `Enter`."""
        return self.fence, _clamped(self.next), _clamped(self.head), _clamped(self.known)


Command = Enter | Renew | Leave


@dataclass(frozen=True, slots=True)
class Yours:
    """The lease is this instance's. ``over_gap``: for the head alone, although it is above ``next``."""

    fence: int
    next: int
    over_gap: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Another's, for at most ``ms``. Registered."""

    ms: int
    next: int


@dataclass(frozen=True, slots=True)
class InGap:
    """Nobody's, but the head is above ``next``; ask again after ``ms``. Registered."""

    ms: int
    next: int


@dataclass(frozen=True, slots=True)
class Done:
    """Left."""


@dataclass(frozen=True, slots=True)
class Late:
    """A newer command of this instance was there before: nothing was done."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """Held for another lease. ``lowest``: the lowest head that waits elsewhere."""

    lowest: int


@dataclass(frozen=True, slots=True)
class NotYours:
    """There is nothing to renew."""


Answer = Yours | Held | InGap | Done | Late | Renewed | NotYours


@dataclass(frozen=True, slots=True)
class Granted:
    """Pushed: the lease is this instance's since now, given to ``registration``, which was ``age_s`` old then."""

    fence: int
    next: int
    registration: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pushed to the holder: ``head`` waits elsewhere."""

    head: int


@dataclass(frozen=True, slots=True)
class Hinted:
    """Pushed to the lowest waiter: nobody holds the lane, and ``next`` is not there yet."""

    next: int


Push = Granted | Wanted | Hinted


_ANSWERS: Final[Mapping[bytes, tuple[int, Callable[..., Answer]]]] = {
    b"yours": (3, lambda fence, next_, over_gap: Yours(fence, next_, over_gap == 1)),
    b"held": (2, Held),
    b"gap": (2, InGap),
    b"yes": (1, Renewed),
    b"no": (0, NotYours),
    b"done": (0, Done),
    b"late": (0, Late),
}
"""First word → how many numbers follow, and what they make."""


def read_answer(words: Sequence[bytes]) -> Answer:
    """A script's answer. Raises Garbled."""
    try:
        count, make = _ANSWERS[words[0]]
        if len(words) == count + 1:
            return make(*map(int, words[1:]))
    except (ValueError, TypeError, LookupError):
        pass
    raise Garbled(f"the Redis server answered {words!r:.200}; do other programs use the keys of [redis] prefix?")


_PUSHES: Final[Mapping[bytes, tuple[int, Callable[..., Push]]]] = {
    b"grant": (4, lambda fence, next_, number, age_us: Granted(fence, next_, number, age_us / 1e6)),
    b"want": (1, Wanted),
    b"gap": (1, Hinted),
}


def read_push(text: bytes) -> tuple[str, Push] | None:
    """A message of the wake channel: lane name, and what was pushed; None for what is no push."""
    words = text.split()
    try:
        count, make = _PUSHES[words[0]]
        if len(words) == count + 2:
            return words[1].decode(), make(*map(int, words[2:]))
    except (ValueError, LookupError):
        pass
    return None


def lane_name(key: bytes) -> str:
    """``<chain id>:<sender>`` of a lane's key (`relay.lanes.lane_key`)."""
    return f"{int.from_bytes(key[20:], 'big')}:0x{key[:20].hex()}"


def lane_of(name: str) -> bytes | None:
    """The key of a lane's name."""
    chain, _, sender = name.partition(":0x")
    try:
        number, address = int(chain), bytes.fromhex(sender)
    except ValueError:
        return None
    return address + number.to_bytes((number.bit_length() + 7) // 8, "big") if number >= 0 else None


def _clamped(nonce: int) -> int:
    return min(nonce, _EXACT)

"""What a parent and its workers say to each other, over a socket pair of their own.

Job: the words. Each frame is a tuple that begins with one of them.
Rules: settings hold secrets, so they come by this channel and never by an argument or the environment. The channel's
end tells a worker that its parent is gone.
Must not know: how frames travel (`frames`, `link`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from relay.config import Settings  # noqa: TC001 - msgspec reads the annotation

# From the parent.
START: Final = "start"
"""The first frame: (START, text of `Start`)."""
GO: Final = "go"
"""(GO, processes): the lanes are yours: no other process has them any more. These take clients, and may have tickets
for you."""
RETIRE: Final = "retire"
"""(RETIRE, seconds): your replacement has your sockets. Refuse nothing, hand over, end."""
STOP: Final = "stop"
"""(STOP, seconds): the relay ends. Take no further client or call and finish those that are here."""
END: Final = "end"
"""Every client is answered: finish what the lanes hold, and end."""
GIVE_UP: Final = "give up"
"""Answer at once what is not finished."""
COUNT: Final = "count"
"""Say `COUNTED`. Asked once a second, it is the sign of life, too."""
CHECK: Final = "check"
"""Say `CHECKED`."""
RESEND: Final = "resend"
"""(RESEND, submission): take its bytes through its lane's turn again."""
SWEEP: Final = "sweep"
"""Sweep now."""
LANES_CHANGED: Final = "lanes changed"
"""A lane was paused, or goes on."""

# From a worker.
READY: Final = "ready"
"""It accepts clients, and could take the lanes."""
HAS_LANES: Final = "has lanes"
"""It has taken them."""
FAILED: Final = "failed"
"""(FAILED, text, is it a wrong setting): it cannot start."""
STOPPED: Final = "stopped"
"""After `STOP`: all its clients are answered and gone."""
COUNTED: Final = "counted"
"""(COUNTED, snapshot of its metrics)."""
CHECKED: Final = "checked"
"""(CHECKED, ((name, ready, detail), …))."""
CHAIN: Final = "chain"
"""(CHAIN, chain id): the node's, None while it is not known. Said with each `COUNTED`."""


HAND_OVER_S: Final = 10.0
"""For turns that run to end, when another process takes the lanes over; all senders wait for it. Then the process ends,
and its successor finds out what became of them."""


class Start(msgspec.Struct, frozen=True):
    """What a worker is, and what it inherits: file descriptors."""

    number: int
    count: int
    settings: Settings
    clients: tuple[int, ...]
    door: int
    lanes: int | None
    inflight: int | None


def packed(start: Start) -> bytes:
    """As a text for the channel."""
    return msgspec.msgpack.encode(start)


def unpacked(text: bytes) -> Start:
    """From `packed`."""
    return msgspec.msgpack.decode(text, type=Start)

"""What a client's session and its way to the node say to each other.

Job: the two protocols between `session` and whoever carries its pass-through calls (`upstream`, `over_http`).
Rules: all of it is synchronous but `room`. Each `Pending` handed to `forward` comes back exactly once, by `deliver` or
`refuse`, unless the way is closed.
Must not know: how either of them does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from relay.errors import Refusal
    from relay.ingress.websocket.frames import Frame
    from relay.ingress.websocket.pending import Pending


class Client(Protocol):
    """The session, as a way to the node sees it."""

    def deliver(self, frame: Frame | None, pending: Pending | None = None) -> None:
        """A message for the client, as it came; ``pending``: what it answers. None: taken, and no answer is due."""

    def refuse(self, pending: Pending, refusal: Refusal) -> None:
        """``pending`` is answered by an error of ours."""

    def shut(self, refusal: Refusal, reason: str) -> None:
        """Close the client's socket once all is answered; what it sends until then is answered by ``refusal``."""

    async def room(self) -> None:
        """Wait until the client takes more."""


class Way(Protocol):
    """One client's way to the node."""

    def forward(self, frame: Frame, pending: Pending) -> None:
        """A message of the client that goes to the node as it is."""

    def tick(self) -> None:
        """Once a second: what has waited too long?"""

    def give_up(self, refusal: Refusal) -> None:
        """Answer all that waits: ``refusal`` if it was not sent, "connection lost" if it was."""

    def close(self) -> None:
        """The client is gone; nothing is to be delivered any more."""

"""What passes between a lane and whoever runs it: tickets, steps, the end of a turn.

Job: the values. Must not know: how a lane decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from relay.errors import Refusal

T = TypeVar("T")


class Ticket(Generic[T]):
    """A submission's place in a lane."""

    __slots__ = ("arrived", "came", "nonce", "number", "submission", "waiting")

    def __init__(self, submission: T, nonce: int, arrived: float, number: int, came: float | None = None) -> None:
        self.submission = submission
        self.nonce = nonce
        self.arrived = arrived
        """At the relay: its time is counted from here."""
        self.came = arrived if came is None else came
        """In this lane: later, where another process had it first. What fills a gap below it may come as late."""
        self.number = number
        self.waiting = True

    def __repr__(self) -> str:
        return f"<ticket {self.number}: nonce {self.nonce}{'' if self.waiting else ', left'}>"


class Effect(Enum):
    """What the end of a turn means for the lane's knowledge."""

    ACCEPTED = "accepted"
    """The node took the transaction."""
    REFUSED = "refused"
    """The node refused it for a reason that says nothing about nonces, or nothing was sent."""
    DOUBTFUL = "doubtful"
    """A refusal about the nonce, or an unknown outcome: ``next`` is read afresh."""
    WITHHELD = "withheld"
    """The upstream does not have it: nothing was sent, for the lane is another instance's by now, or what went before
    it in its run was not taken. The ticket waits again."""


@dataclass(frozen=True, slots=True)
class Go(Generic[T]):
    """It is this ticket's turn."""

    ticket: Ticket[T]


@dataclass(frozen=True, slots=True)
class Ask:
    """Read the counts at the upstream (`Lane.asked`, then `Lane.told`), beside the lane."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do before ``until`` (None: before something happens; overdue tickets are `Lane.overdue`'s)."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class TurnAway(Generic[T]):
    """These tickets have left the lane, each with its refusal."""

    tickets: list[tuple[Ticket[T], Refusal]]


@dataclass(frozen=True, slots=True)
class Pass(Generic[T]):
    """This ticket has waited out the gap below it; whether it passes is for all instances to say (`Lane.pass_gap`)."""

    ticket: Ticket[T]


@dataclass(frozen=True, slots=True)
class Rest:
    """The lane is empty."""


Step = Go[T] | Ask | Sleep | TurnAway[T] | Pass[T] | Rest

REST: Final = Rest()
ASK: Final = Ask()
SLEEP: Final = Sleep()


class Reading(Generic[T]):
    """A read of the counts under way: when it began, and the unproven tickets that it will judge."""

    __slots__ = ("began", "judged", "void")

    def __init__(self, began: float, judged: list[Ticket[T]]) -> None:
        self.began = began
        self.judged = judged
        self.void = False
        """``next`` came into doubt after the read began: its count says nothing."""

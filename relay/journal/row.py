"""A submission's place in the journal, as the process that carries it out knows it.

Job: the record, the attempt that is open, and the answers that are not on disk yet.
Must not know: stores, lanes, who waits for the submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from relay.journal.records import Answer, Record, Taken

if TYPE_CHECKING:
    import asyncio

    from relay.journal.records import Fact, Sealed

Outcome = TypeVar("Outcome")


class Row(Generic[Outcome]):
    """``ready`` is done when what was asked of the journal is answered.

    ``early`` is how the submission ends without a turn, None where it takes one. ``resumed``: it takes another turn,
    and nobody was told no of it; ``unturned``: it was let go without that turn.
    """

    __slots__ = ("_record", "attempt", "early", "facts", "ready", "resumed", "unturned")

    def __init__(self, record: Record | None, ready: asyncio.Future[None]) -> None:
        self._record = record
        self.ready = ready
        self.early: Outcome | None = None
        self.attempt: int | None = None
        self.facts: list[Fact] = []
        self.resumed = False
        self.unturned = False

    def __repr__(self) -> str:
        return f"<row of {self._record!r}>"

    @property
    def written(self) -> bool:
        """Is there a record?"""
        return self._record is not None

    @property
    def record(self) -> Record:
        """The newest that is known. Only where one was `written`."""
        assert self._record is not None
        return self._record

    @record.setter
    def record(self, record: Record) -> None:
        """What comes late takes nothing back."""
        if self._record is None or record.version >= self._record.version:
            self._record = record

    def sealed(self, sealed: Sealed) -> None:
        """The intent is on disk: the bytes may leave."""
        self.record, self.attempt = sealed.record, sealed.attempt

    def again(self, attempt: int) -> None:
        """One more send is on disk."""
        record = self.record
        self.attempt = attempt
        self._record = record._replace(attempts=record.attempts + 1, open_attempts=record.open_attempts + 1)

    def answered(self, taken: Taken, verdict: str, text: str = "") -> None:
        """The attempt that is open has its answer; nothing if there is none."""
        if self.attempt is not None:
            self.facts.append(Answer(self.attempt, taken, verdict, text))
            self.attempt = None

    def not_taken(self, verdict: str) -> None:
        """What was answered with ``verdict`` is proven by now not to have been taken."""
        self.facts = [
            fact._replace(taken=Taken.NO) if isinstance(fact, Answer) and fact.verdict == verdict else fact
            for fact in self.facts
        ]

    @property
    def open_attempts(self) -> int:
        """Those that stay open once ``facts`` are kept."""
        answers = [fact.taken for fact in self.facts if isinstance(fact, Answer)]
        return self.record.open_attempts - answers.count(Taken.NO)

    @property
    def uncertain(self) -> bool:
        """Is an attempt open beside the last one of ``facts``?"""
        answers = [fact.taken for fact in self.facts if isinstance(fact, Answer)]
        last = bool(answers) and answers[-1] is not Taken.NO
        return self.open_attempts - last > 0

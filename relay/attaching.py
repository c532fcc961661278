"""One more client for what is in flight, under another key: only the journal knows whether it may wait with the others.

    the other's record    its key             then
    is there              may be used         it waits for the same outcome
    is there              is another's        it is refused, alone
    could not be made     –                   it hears what the other hears
    its key is another's  –                   it is taken in by itself

Rules: whoever attaches is given something to wait for at once, and is told in any case. A copy has no turn of its own.
Must not know: stores, turns.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from relay.errors import KEY_CONFLICT, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.recorder import Recorder
    from relay.submission import Outcome, Submission
    from relay.tasks import TaskOwner


class Attaching:
    """See the module. ``find`` and ``take`` are the desk's."""

    def __init__(
        self,
        recorder: Recorder,
        owner: TaskOwner,
        *,
        find: Callable[[tuple[str, bytes]], Submission | None],
        take: Callable[[Submission], Refusal | None],
    ) -> None:
        self._recorder = recorder
        self._owner = owner
        self._find = find
        self._take = take
        self._open: set[Submission] = set()

    def __repr__(self) -> str:
        return f"<attaching {len(self._open)} copies>"

    def attach(self, original: Submission, key: str) -> Submission:
        """A copy that waits for ``original`` once ``key`` is bound to it."""
        copy = original.copy_under(key)
        self._open.add(copy)
        self._owner.start("attach", self._attach(copy, original))
        return copy

    def give_up(self) -> None:
        """Answer those whose keys are not bound yet: what they wait for may be at the node."""
        for copy in list(self._open):
            _tell(copy, copy.unknown)

    async def _attach(self, copy: Submission, original: Submission) -> None:
        try:
            await self._bind(copy, original)
        except BaseException:
            _tell(copy, copy.unknown)
            raise
        finally:
            self._open.discard(copy)

    async def _bind(self, copy: Submission, original: Submission) -> None:
        end = await self._recorder.entered(original)
        if isinstance(end, Refusal) and end.case is KEY_CONFLICT:
            await self._take_alone(copy, original)
            return
        end = await self._recorder.bind(copy, original)
        if end is not None:
            _tell(copy, end)
            return
        assert copy.admitted is not None
        copy.admitted.set_result(copy.own_hash)
        original.outcome.add_done_callback(partial(_follow, copy))

    async def _take_alone(self, copy: Submission, original: Submission) -> None:
        """As if the one before had not come."""
        while (same := self._find(copy.key)) is original:
            await asyncio.wait([original.outcome])
        if copy.outcome.done():
            return
        copy.original = same
        if same is not None:
            await self._bind(copy, same)
        elif (refusal := self._take(copy)) is not None:
            _tell(copy, refusal)


def _follow(copy: Submission, outcome: asyncio.Future[Outcome]) -> None:
    _tell(copy, outcome.result())


def _tell(copy: Submission, outcome: Outcome) -> None:
    if not copy.outcome.done():
        copy.outcome.set_result(outcome)

"""When a client hears of its submission: at the verdict, or by a handle once its record is on disk.

    patience    on disk, no verdict yet          verdict (or a refusal before the record)
    none        waits on                         told
    0 s         handle                           told, if nothing came before
    N s         handle, from N s on              told

Rules: synchronous, and without a task. A client that gets a handle counts on the relay from then on, so it is promised
first, and told once that is on disk. Where the submission failed before it was promised, the client hears that instead.
The bound is one on the wait for the verdict: without a record there is no handle, however long it takes.
Must not know: HTTP, how anything is carried out or written down.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from relay.lifecycle import Mode
from relay.submission import Accepted, Handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.submission import Outcome, Submission, Telling, Told

    Promise = Callable[[Submission], asyncio.Future[bool] | None]


def telling(submission: Submission, patience_s: float | None, applied: str, promise: Promise) -> Telling:
    """What one client will hear. ``promise`` is the desk's: it is called before a handle is given."""
    if patience_s is None or submission.admitted is None:
        return submission.outcome
    return _Patience(submission, submission.admitted, applied, promise).ending(patience_s)


class _Patience:
    """One client's wait for whichever comes first."""

    __slots__ = ("_admitted", "_applied", "_promise", "_submission", "_told")

    def __init__(
        self,
        submission: Submission,
        admitted: asyncio.Future[Outcome],
        applied: str,
        promise: Promise,
    ) -> None:
        self._submission = submission
        self._admitted = admitted
        self._applied = applied
        self._promise = promise
        self._told: asyncio.Future[Told] = asyncio.get_running_loop().create_future()

    def ending(self, patience_s: float) -> asyncio.Future[Told]:
        """Wait at most so long for the verdict."""
        if patience_s > 0:
            timer = asyncio.get_running_loop().call_later(patience_s, self._over)
            self._told.add_done_callback(lambda _: timer.cancel())
        else:
            self._over()
        self._submission.outcome.add_done_callback(self._tell)
        return self._told

    def _over(self) -> None:
        self._admitted.add_done_callback(self._recorded)

    def _tell(self, outcome: asyncio.Future[Outcome]) -> None:
        if self._told.done():
            return
        if outcome.cancelled():
            self._told.cancel()
        elif (error := outcome.exception()) is not None:
            self._told.set_exception(error)
        else:
            self._told.set_result(outcome.result())

    def _recorded(self, admitted: asyncio.Future[Outcome]) -> None:
        submission = self._submission
        if self._told.done():
            return
        if admitted.cancelled() or not isinstance(admitted.result(), Accepted):
            self._tell(admitted)
        elif submission.outcome.done() and submission.carrier.mode is Mode.VERDICT:
            self._tell(submission.outcome)
        elif submission.carrier.ended and submission.carrier.mode is Mode.VERDICT:
            return  # its verdict is being written down, and will be told in a moment
        else:
            self._hand_out(self._promise(submission))

    def _hand_out(self, promised: asyncio.Future[bool] | None) -> None:
        """The handle, or what comes in its place: the outcome is waited for anyway."""
        if promised is not None and not promised.done():
            promised.add_done_callback(self._hand_out)
        elif not self._told.done() and (promised is None or promised.result()):
            self._told.set_result(Handle(self._submission.transaction.hash, self._applied))

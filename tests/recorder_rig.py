"""A journal that a test holds back, breaks and watches, between a `Stand` and its store."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from relay import methods, transaction
from relay.devnode.keys import FUNDED
from relay.journal.shelf import Shelf
from relay.submission import Submission
from relay.transaction import decode
from tests.stand import CHAIN_ID, Stand

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.journal.records import Attempt, Record
    from relay.journal.store import Journal
    from relay.lifecycle import Mode, Reason, State

Path = list[tuple["State", "Reason | None"]]


class Hold:
    """Calls of one operation wait here. ``before``: the store has not seen them yet, else they are answered there."""

    def __init__(self, *, before: bool) -> None:
        self.before = before
        self.waiting = asyncio.Semaphore(0)
        """Released by each call that comes."""
        self.go = asyncio.Event()

    async def passed(self) -> None:
        """Wait to be let go."""
        self.waiting.release()
        await self.go.wait()


class Proxy:
    """Before a journal. ``calls`` has what was asked, in order, with how many at once."""

    def __init__(self, journal: Journal) -> None:
        self.store = journal
        self.calls: list[tuple[str, int]] = []
        self.holds: dict[str, Hold] = {}
        self.faults: dict[str, list[tuple[Exception, bool]]] = {}
        self.beside: dict[str, Callable[[], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.store, name)

        async def called(*arguments: Any, **named: Any) -> Any:
            many = arguments[0] if arguments and isinstance(arguments[0], list) else ()
            self.calls.append((name, len(many)))
            return await self._carried_out(name, lambda: operation(*arguments, **named))

        return called

    async def _carried_out(self, name: str, operation: Callable[[], Any]) -> Any:
        hold = self.holds.get(name)
        if hold is not None and hold.before:
            await hold.passed()
        fault, committed = self._fault(name)
        if fault is not None and not committed:
            raise fault
        if (beside := self.beside.pop(name, None)) is not None:
            await beside()
        result = await operation()
        if hold is not None and not hold.before:
            await hold.passed()
        if fault is not None:
            raise fault
        return result

    def _fault(self, name: str) -> tuple[Exception | None, bool]:
        faults = self.faults.get(name)
        return faults.pop(0) if faults else (None, False)

    def hold(self, name: str, *, before: bool = True) -> Hold:
        """Hold calls of this operation back."""
        self.holds[name] = hold = Hold(before=before)
        return hold

    def fail(self, name: str, fault: Exception, *, times: int = 1, committed: bool = False) -> None:
        """The next ``times`` calls of this operation fail. ``committed``: although the store did what was asked."""
        self.faults.setdefault(name, []).extend([(fault, committed)] * times)

    def asked(self, name: str) -> list[int]:
        """How many at once, of each call of this operation."""
        return [many for called, many in self.calls if called == name]


class ProxiedShelf(Shelf):
    """A shelf whose journal is behind a `Proxy`."""

    def __init__(self, url: str = "memory:") -> None:
        super().__init__(url)
        self._proxy: Proxy | None = None

    @property
    def journal(self) -> Journal:
        """The proxy. Raises what is against the store."""
        store = super().journal
        if self._proxy is None or self._proxy.store is not store:
            self._proxy = Proxy(store)
        return cast("Journal", self._proxy)

    @property
    def proxy(self) -> Proxy:
        """The same, as a test reads it."""
        return cast("Proxy", self.journal)


def enter(stand: Stand, raw: str, mode: Mode, method: str = "eth_sendRawTransaction") -> Submission:
    """Have it take its ticket, answered in ``mode``."""
    request = methods.read(methods.SUBMISSIONS[method], f'["{raw}"]'.encode())
    assert isinstance(request, methods.Request)
    submission = Submission(request, transaction.decode(request.raw), asyncio.get_running_loop().time())
    submission.mode = mode
    assert stand.submitter.take(submission) is None
    return submission


def shelf_of(stand: Stand) -> Shelf:
    """The stand's, which has one."""
    assert stand.shelf is not None
    return stand.shelf


async def record(stand: Stand, raw: str) -> Record:
    """What the journal has of a signed transaction."""
    hash_ = bytes.fromhex(decode(bytes.fromhex(raw[2:])).hash[2:])
    found = await shelf_of(stand).journal.by_hash(CHAIN_ID, hash_)
    assert found is not None
    return found


async def path(stand: Stand, raw: str) -> Path:
    """The states that it went through, with their reasons."""
    events = await shelf_of(stand).journal.history((await record(stand, raw)).id)
    return [(event.state, event.reason) for event in events]


async def attempts(stand: Stand, raw: str) -> list[Attempt]:
    """Its sends."""
    return await shelf_of(stand).journal.attempts((await record(stand, raw)).id)


async def nothing_unrecorded(stand: Stand) -> None:
    """Each arrival at the node has an attempt in the journal."""
    journal = shelf_of(stand).journal
    for hash_, arrivals in Counter(arrival.hash for arrival in stand.node.arrivals).items():
        found = await journal.by_hash(CHAIN_ID, bytes.fromhex(hash_[2:]))
        assert found is not None, hash_
        assert len(await journal.attempts(found.id)) >= arrivals, hash_


def mined(stand: Stand, who: int = 0) -> int:
    """The mined count of a funded account."""
    account = stand.node.chain.account(FUNDED[who].address_bytes)
    return account.nonce if account else 0

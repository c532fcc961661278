"""Writes from a process of its own, to be paused and killed: ``python -m relay.testing.worker URL ROLE``.

Roles: ``admit COUNT`` puts submissions 0 … COUNT-1 on disk and prints ``NUMBER new|found`` for each that is there;
``sleeper`` seals one under fence 10, prints its id and version, waits for a line and then decides and notes, printing
what it is told.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from relay.journal.records import Answer, Taken
from relay.journal.url import open_journal
from relay.lifecycle import State
from relay.testing.samples import admitted, decision, intake, sealed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relay.journal import Journal


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _admit(journal: Journal, count: str) -> None:
    for number in range(int(count)):
        entry = intake(number, hash_=number.to_bytes(32, "big"), key=f"key {number}")
        (admission,) = await journal.admit([entry])
        _say(f"{number} {'new' if admission.fresh else 'found'}")


async def _sleeper(journal: Journal) -> None:
    done = await sealed(journal, await admitted(journal), fence=10)
    _say(f"{done.record.id} {done.record.version}")
    await asyncio.to_thread(sys.stdin.readline)
    facts = (Answer(done.attempt, Taken.YES, "accepted"),)
    (result,) = await journal.decide([decision(done.record, State.PENDING, fence=10, facts=facts)])
    _say(type(result).__name__)


ROLES: dict[str, Callable[..., Awaitable[None]]] = {"admit": _admit, "sleeper": _sleeper}


async def _main(url: str, role: str, arguments: Sequence[str]) -> None:
    journal = await open_journal(url)
    _say("open")
    await ROLES[role](journal, *arguments)
    await journal.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], sys.argv[3:]))

"""Two instances with one journal, one of them stopped in the middle of a write for four leases, and woken."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.kills import SUBMISSIONS, PostgresStore, killing, sent
from acceptance.rig.workers import signal_all
from relay.journal.records import Taken
from relay.lifecycle import State
from tests.postgres_server import PostgresPrograms, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acceptance.rig.parts import Rig

LEASE_MS = 1000

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def postgres() -> Iterator[PostgresStore]:
    """A server."""
    with PostgresPrograms() as programs, PostgresServer(programs, "paused") as server:
        yield PostgresStore(server)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_woken_writers_decision_is_refused_and_its_facts_are_kept(
    postgres: PostgresStore, rig: Rig, when: Any
) -> None:
    """The node had its bytes, or had not: the other instance went on under a newer fence; nothing is doubled."""
    redis = await rig.redis()
    async with killing(rig, postgres, "--redis", redis.url, redis__lease_ms=LEASE_MS) as case:
        stopped, other = await case.relay(), await case.relay("two")
        first = case.transfers[:1]
        await case.chain.script({"do": "hang", "method": SUBMISSIONS, "when": when, "times": 1})
        async with sent(stopped, first):
            await case.hanging()
            signal_all(stopped, signal.SIGSTOP)
            await asyncio.sleep(4 * LEASE_MS / 1000)  # the length of the pause is the point
            crowd = rig.crowd()
            await crowd.once(first, [other.url])
            assert not crowd.refused
            await case.chain.call("dev_release")
            await case.until(case.answered)
            signal_all(stopped, signal.SIGCONT)
            await stopped.process.line("a decision came late")
        await rig.crowd().once(case.transfers[1:], [stopped.url])
        await case.all_landed_once()

        record = await case.record(first[0])
        assert record is not None
        history = await case.journal.history(record.id)
        late, *_ = await case.journal.attempts(record.id)
        sealed = [event for event in history if event.state is State.SEALED]
        assert late.answered_ms is not None
        assert late.taken is (Taken.YES if when == "after" else Taken.UNKNOWN)
        assert State.PENDING not in [event.state for event in history if event.actor == late.actor]
        assert len(sealed) == (1 if when == "after" else 2)
        assert [event.fence for event in sealed] == sorted({event.fence for event in sealed})

"""After a death of the lane process: gaps wait for everybody's tickets, and a dead run for its last transaction."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from relay import config
from relay.devnode import NodeSettings
from relay.devnode.faults import Answer, Hang
from relay.lanes import SLEEP, Lane, Rules, lane_key
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.workers import aftermath
from relay.workers.aftermath import Aftermath
from relay.workers.inflight import InflightTable, Send
from relay.workers.muster import Muster
from tests.scripted_node import both_loops
from tests.stand import signed
from tests.test_submit import error, hash_of
from tests.workers_rig import Crew, answers, lanes, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from tests.workers_rig import Ingress

AT_ONCE = {"reorder_window_ms": 0}
BATCH = {"submit": "batch"}
POOL = NodeSettings(mode="pool")


async def looked(crew: Crew, times: int = 3) -> None:
    """Until the lanes have asked for counts so often since now: whatever a window of 0 allows has happened."""
    calls = crew.node.arrivals.calls
    before = calls["eth_getTransactionCount"]
    await until(lambda: calls["eth_getTransactionCount"] >= before + times)


def lost(crew: Crew, ingress: Ingress) -> None:
    """From its next try on it does not find the lane process."""
    ingress.forwarder._path = crew.path + ".not"


# Gaps.


@both_loops
async def test_no_gap_is_passed_before_all_have_handed_in() -> None:
    """What is missing is with a worker that comes back late: whoever waits above it waits for that."""
    async with Crew(2, ordering=AT_ONCE) as crew:
        first, late = crew.ingress
        lost(crew, late)
        await crew.kill_lanes()
        await until(lambda: not late.forwarder.linked)
        waits = [late.route(signed(0)), first.route(signed(1))]
        await crew.start_lanes()
        await looked(crew)
        assert crew.node.arrivals.total == 0
        late.forwarder._path = crew.path
        replies = await answers(waits)

        assert [reply.get("result") for reply in replies] == [hash_of(signed(0)), hash_of(signed(1))]
        crew.assert_order()


@both_loops
async def test_a_worker_that_does_not_come_back_holds_gaps_up_for_a_time(capfd: pytest.CaptureFixture[str]) -> None:
    """Then the gap is passed, and the log names the process; what is next never waited."""
    async with Crew(2, POOL, ordering={**AT_ONCE, "max_wait_s": 1}) as crew:
        first, late = crew.ingress
        lost(crew, late)
        await crew.kill_lanes()
        await until(lambda: not late.forwarder.linked)
        await crew.start_lanes()
        wait = first.route(signed(1))
        next_one = await first.send(signed(0, who=1))
        assert not wait.done()
        [reply] = await answers([wait])

        assert "result" in next_one
        assert reply["result"] == hash_of(signed(1))
        assert str(id(late)) in capfd.readouterr().out


async def test_a_muster_is_over_once_whoever_comes_when() -> None:
    """Strangers and those who come twice or late change nothing."""
    now = [5.0]
    over: list[float] = []
    muster = Muster(25.0, lambda: now[0])
    muster.complete = lambda: over.append(muster.since)
    muster.begin([1, 2])
    for forwarder in (1, 3, 1):
        muster.present(forwarder)
    assert muster.since == float("inf")
    now[0] = 6.0
    muster.present(2)
    now[0] = 7.0
    muster.present(2)

    assert (over, muster.since) == ([6.0], 6.0)


@both_loops
async def test_what_was_at_the_node_is_no_gap() -> None:
    """Its client is gone and the node does not show it yet: what waits above is not refused for want of it."""
    async with Crew(2, ordering={**AT_ONCE, "on_gap": "refuse"}) as crew:
        crew.node.script.add(Hang(times=1))
        lonely, other = crew.ingress
        lonely.route(signed(0)).add_done_callback(lambda _: None)
        await crew.node.until(lambda: crew.node.hanging == 1)
        crew.ingress.remove(lonely)
        await lonely.close()
        await crew.kill_lanes()
        await crew.start_lanes()
        wait = other.route(signed(1))
        await looked(crew)
        assert not wait.done()
        replies = await answers([other.route(signed(0)), wait])

        assert [reply.get("result") for reply in replies] == [hash_of(signed(0)), hash_of(signed(1))]
        crew.assert_order()


@both_loops
async def test_a_gap_is_not_judged_by_a_count_from_before_it_was_filled() -> None:
    """The node shows what the dead process sent only now: a count read before says that it is missing."""
    async with Crew(2, ordering={"reorder_window_ms": 0, "on_gap": "refuse"}) as crew:
        crew.node.script.add(Hang(when="after", times=1))
        crew.node.script.add(Answer(method="eth_getTransactionByHash", result=None))
        crew.node.script.add(Answer(method="eth_getTransactionCount", result="0x0"))
        lonely, other = crew.ingress
        lonely.route(signed(0)).add_done_callback(lambda _: None)
        await crew.node.until(lambda: crew.node.hanging == 1)
        crew.ingress.remove(lonely)
        await lonely.close()
        await crew.kill_lanes()
        await crew.start_lanes()
        wait = other.route(signed(1))
        await looked(crew)
        crew.node.script.clear()
        [reply] = await answers([wait])

        assert reply.get("result") == hash_of(signed(1))
        crew.assert_order()


# Runs.


@both_loops
async def test_a_lane_goes_on_when_the_node_is_through_with_a_dead_run() -> None:
    """The node goes on with the batch of a connection that is gone; nothing of the lane is sent beside it."""
    async with Crew(1, NodeSettings(delay_ms=(20.0, 30.0)), upstream=BATCH) as crew:
        waits = [crew.ingress[0].route(signed(nonce)) for nonce in range(12)]
        await crew.node.until(lambda: crew.node.arrivals.total == 3)
        await crew.kill_lanes()
        await crew.start_lanes()
        replies = await answers([*waits, crew.ingress[0].route(signed(12))])

        assert [reply.get("result") for reply in replies] == [hash_of(signed(nonce)) for nonce in range(13)]
        crew.assert_order()
        assert crew.node.arrivals.total == 13


@both_loops
async def test_what_a_node_drops_of_a_dead_run_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes two and forgets the others with the connection: those are sent when no more has shown for a while."""
    monkeypatch.setattr(aftermath, "QUIET_S", 0.2)
    async with Crew(1, upstream=BATCH) as crew:
        crew.node.script.add(Hang(nonce=2, times=1))
        waits = [crew.ingress[0].route(signed(nonce)) for nonce in range(6)]
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        await crew.start_lanes()
        replies = await answers(waits)
        orphans = lanes(crew).metrics.orphans

        assert [reply.get("result") for reply in replies] == [hash_of(signed(nonce)) for nonce in range(6)]
        crew.assert_order()
        assert [orphans.cell(end).n for end in ("found", "repeated", "expired")] == [2, 4, 0]


@both_loops
async def test_what_was_sent_again_is_no_sign_of_the_dead_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that was under way meanwhile shows it: the others are not held anew for that."""
    monkeypatch.setattr(aftermath, "QUIET_S", 0.2)
    async with Crew(1, upstream=BATCH) as crew:
        crew.node.script.add(Hang(nonce=0, times=1))
        waits = [crew.ingress[0].route(signed(nonce)) for nonce in range(4)]
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        replacement = await crew.start_lanes()
        orphans, known = replacement.metrics.orphans, replacement.accounts.known
        [lane] = replacement.aftermath._open.values()

        async def late(hashes: Sequence[str], timeout_s: float) -> list[bool | None]:
            if replacement.aftermath._is_quiet(lane) and crew.node.arrivals.total == 1:
                monkeypatch.setattr(aftermath, "QUIET_S", 60.0)
                await until(lambda: any(arrival.taken for arrival in crew.node.arrivals))
            return await known(hashes, timeout_s)

        monkeypatch.setattr(replacement.accounts, "known", late)
        replies = await answers(waits)

        assert [reply.get("result") for reply in replies] == [hash_of(signed(nonce)) for nonce in range(4)]
        assert [orphans.cell(end).n for end in ("found", "repeated", "expired")] == [0, 4, 0]


@both_loops
async def test_what_is_lower_than_a_lost_transaction_is_not_held_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nonce 1 had passed a gap when the process died, and got no answer: nonce 0 goes first after all."""
    monkeypatch.setattr(aftermath, "QUIET_S", 0.2)
    async with Crew(1, ordering=AT_ONCE) as crew:
        [ingress] = crew.ingress
        crew.node.script.add(Hang(nonce=1, times=1))
        wait = ingress.route(signed(1))
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        waits = [ingress.route(signed(0)), wait]
        await crew.start_lanes()
        replies = await answers(waits)
        orphans = lanes(crew).metrics.orphans

        assert [reply.get("result") for reply in replies] == [hash_of(signed(0)), hash_of(signed(1))]
        assert [orphans.cell(end).n for end in ("found", "repeated", "expired")] == [0, 1, 0]


@both_loops
async def test_a_replacement_that_dies_while_a_run_is_unresolved_leaves_the_rest_to_the_next() -> None:
    """Three processes, one run: each transaction once at the node, in order, nothing beside it."""
    async with Crew(1, NodeSettings(delay_ms=(20.0, 30.0)), upstream=BATCH) as crew:
        waits = [crew.ingress[0].route(signed(nonce)) for nonce in range(12)]
        for arrived in (3, 6):
            await until(lambda: crew.node.arrivals.total >= arrived)  # noqa: B023 - awaited here
            await crew.kill_lanes()
            await crew.start_lanes()
        replies = await answers(waits)

        assert [error(reply) for reply in replies if "error" in reply] == []
        crew.assert_order()
        assert crew.node.arrivals.total == 12


async def test_a_lane_is_not_woken_once_nothing_of_it_is_missing() -> None:
    """It may rest by then, and a lane that rests has no place among the busy ones to leave."""
    faults: list[str] = []
    fd = InflightTable.create()
    dead, table, woken = InflightTable(fd, 8), InflightTable(fd, 8), list[object]()
    owner = TaskOwner("test", lambda name, error: faults.append(f"{name}: {error!r}"))
    lane = Lane[Any](lane_key(1337, bytes(20)), Rules.of(config.DEFAULTS.ordering))
    dead.begin(Send(lane.key, 7, "0x" + "ab" * 32))
    after = Aftermath(
        table,
        Muster(25.0, time.monotonic),
        settings=config.DEFAULTS,
        accounts=Known(),  # type: ignore[arg-type] # all that is asked of it
        metrics=Metrics(),
        owner=owner,
        clock=time.monotonic,
        pause=lambda _: asyncio.sleep(0),
    )
    after.wake = woken.append
    after.start()
    lane.join("a submission", 8, time.monotonic(), 1)
    after.screen(lane, SLEEP)
    await owner.settled()

    assert (woken, faults) == ([lane], [])
    dead.close()
    table.close()
    os.close(fd)


class Known:
    """A node that shows whatever it is asked for."""

    async def known(self, hashes: Sequence[str], _: float) -> list[bool]:
        """All of them."""
        return [True] * len(hashes)

"""The lanes are handed over, the relay drains, something ends in the middle: every ticket is accounted for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from relay.devnode import NodeSettings
from relay.devnode.faults import Hang
from relay.workers.forwarder import Forwarder
from tests.scripted_node import both_loops
from tests.stand import signed
from tests.test_submit import error, hash_of
from tests.workers_rig import Crew, answers, lanes, until

if TYPE_CHECKING:
    import pytest

LATE = NodeSettings(delay_ms=(0.0, 5.0))


@both_loops
async def test_handing_over_returns_what_waits_and_answers_what_runs() -> None:
    """Nothing is marked or asked twice; new tickets wait for the replacement."""
    async with Crew(2, LATE) as crew:
        crew.node.script.add(Hang(nonce=0, times=1))
        waits = [crew.ingress[nonce % 2].route(signed(nonce)) for nonce in range(8)]
        await crew.node.until(lambda: crew.node.hanging == 1)
        await until(lambda: len(lanes(crew).desk._waiters) == 8)
        old = lanes(crew)
        leaving = asyncio.get_running_loop().create_task(old.desk.hand_over())
        await until(lambda: len(old.desk._waiters) == 1)
        late = [crew.ingress[nonce % 2].route(signed(nonce)) for nonce in range(8, 10)]
        crew.node.release()
        await leaving
        await old.close()
        await crew.start_lanes()
        replies = await answers(waits + late)

        assert [reply.get("result") for reply in replies] == [hash_of(signed(nonce)) for nonce in range(10)]
        crew.assert_order()
        returned = sum(one.metrics.forwarded_again.cell("returned").n for one in crew.ingress)
        assert 7 <= returned <= 9  # the two late ones may have been on their way when the desk began to leave
        assert [one.metrics.forwarded_again.cell("maybe_sent").n for one in crew.ingress] == [0, 0]
        assert sum(one.metrics.unknown.cell("found").n for one in (old, lanes(crew))) == 0


@both_loops
async def test_giving_up_ends_a_hand_over() -> None:
    """A node that does not answer keeps nobody: its transaction is unknown, with its hash."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=1))
        wait = crew.ingress[0].route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        leaving = asyncio.get_running_loop().create_task(lanes(crew).desk.hand_over())
        await asyncio.sleep(0)
        lanes(crew).desk.give_up()
        await leaving
        [reply] = await answers([wait])

        assert (error(reply)["code"], error(reply)["data"]) == (-32040, {"hash": hash_of(signed(0))})


@both_loops
async def test_a_drain_answers_everything_from_the_lanes_outwards() -> None:
    """What waits is refused, what runs is unknown, what comes is refused at the door."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=1))
        [ingress] = crew.ingress
        waits = [ingress.route(signed(nonce)) for nonce in range(2)]
        await crew.node.until(lambda: crew.node.hanging == 1)
        ingress.forwarder.stop_taking()
        late = await ingress.send(signed(0, who=1))
        lanes(crew).desk.give_up()
        await lanes(crew).desk.close()
        holder, waiting = await answers(waits)

        assert error(late)["code"] == error(waiting)["code"] == -32012
        assert error(holder)["code"] == -32040


@both_loops
async def test_a_forwarder_that_gives_up_says_what_it_knows() -> None:
    """Never sent: refused. Handed on: unknown."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=1))
        [ingress] = crew.ingress
        handed = ingress.route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        ingress.forwarder._link = None
        kept = ingress.route(signed(1))
        ingress.forwarder.give_up()
        unknown, refused = await answers([handed, kept])

        assert (error(unknown)["code"], error(refused)["code"]) == (-32040, -32012)


@both_loops
async def test_a_socket_without_a_lane_process_is_no_link() -> None:
    """The system takes connections in its absence: nothing is handed on, what waits is known not to have been sent."""
    async with Crew(laneless=True) as crew:
        [ingress] = crew.ingress
        await until(lambda: bool(ingress.forwarder._links))
        waits = ingress.route(signed(0))

        assert not ingress.forwarder.linked
        assert "does not answer" in ingress.forwarder.check().detail
        ingress.forwarder.give_up()
        [refused] = await answers([waits])
        assert error(refused)["code"] == -32012


@both_loops
async def test_a_lane_process_that_does_not_read_is_not_fed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be in flight is bounded; the next one is refused, not kept."""
    monkeypatch.setattr("relay.workers.forwarder.MAX_INFLIGHT_BYTES", 2000)
    async with Crew(laneless=True) as crew:
        [ingress] = crew.ingress
        waits = [ingress.route(signed(nonce)) for nonce in range(20)]
        refused = [error(reply) for reply in await answers(waits[10:])]

        assert {one["code"] for one in refused} == {-32005}
        assert ingress.forwarder._inflight_bytes <= 2000
        ingress.forwarder.give_up()
        await answers(waits[:10])


# Ends in the middle of things.


@both_loops
async def test_a_forwarder_ends_wherever_it_is() -> None:
    """While it connects, while it waits between tries, while it is linked: nothing is left behind."""
    async with Crew(3) as crew:
        connecting, trying, linked = crew.ingress
        await until(lambda: linked.forwarder.linked)
        fresh = Forwarder(crew.path, crew.settings, connecting.metrics, connecting.owner, clock=crew.clock, name=1)
        await fresh.start()
        await asyncio.sleep(0)
        await fresh.close()
        assert not fresh._links
        lost = Forwarder(crew.path + ".not", crew.settings, trying.metrics, trying.owner, clock=crew.clock, name=1)
        await lost.start()
        await asyncio.sleep(0)
        await lost.close()
        await lost.close()
        await linked.forwarder.close()

        assert not linked.forwarder._links
        assert "result" in await connecting.send(signed(0))


@both_loops
async def test_a_client_that_goes_takes_no_ticket_along() -> None:
    """Its answer is cancelled; the copy that attached, and the lane, go on."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=1))
        [ingress] = crew.ingress
        first, second = ingress.route(signed(0)), ingress.route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        first.cancel()
        crew.node.release()
        [reply] = await answers([second])

        assert reply["result"] == hash_of(signed(0))
        assert not ingress.forwarder._tickets


@both_loops
async def test_a_hand_over_that_is_cancelled_can_still_be_ended() -> None:
    """Whoever waited for it is gone; what runs is answered, and the desk closes."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=1))
        wait = crew.ingress[0].route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        leaving = asyncio.get_running_loop().create_task(lanes(crew).desk.hand_over())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        crew.node.release()
        [reply] = await answers([wait])
        await lanes(crew).desk.close()

        assert reply["result"] == hash_of(signed(0))

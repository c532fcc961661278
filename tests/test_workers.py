"""Tickets from the workers that take clients to the lane process and back."""

from __future__ import annotations

import asyncio

import pytest

from relay.devnode import NodeSettings
from relay.devnode.faults import Answer as NodeAnswer
from relay.devnode.faults import Hang, Refuse
from tests.scripted_node import both_loops
from tests.stand import signed
from tests.test_submit import error, hash_of
from tests.workers_rig import Crew, answers, lanes, until

LATE = NodeSettings(delay_ms=(0.0, 5.0))


@both_loops
async def test_a_submission_goes_through_the_lane_process() -> None:
    """Its outcome is the node's; a refusal comes back as it was, error object included."""
    async with Crew() as crew:
        crew.node.script.add(Refuse(message="odd", code=-32123, data={"why": [1]}, nonce=1))
        [ingress] = crew.ingress
        accepted, refused = await ingress.send(signed(0)), await ingress.send(signed(1))

        assert accepted["result"] == hash_of(signed(0))
        assert error(refused) == {"code": -32123, "message": "odd", "data": {"why": [1]}}
        assert ingress.client._numbers is not lanes(crew).client._numbers
        assert [arrival.nonce for arrival in crew.node.arrivals] == [0, 1]


@both_loops
async def test_a_burst_over_three_workers_keeps_its_order() -> None:
    """One order at the node, whichever worker took a transaction."""
    async with Crew(3, LATE) as crew:
        replies = await crew.burst(4, 40)

        assert [reply for reply in replies if "error" in reply] == []
        crew.assert_order()
        assert crew.node.arrivals.total == 160
        assert all(ingress.metrics.lane_wait.cell("local").total == 0 for ingress in crew.ingress)


@both_loops
async def test_copies_are_one_submission_within_a_worker_and_across() -> None:
    """Every copy is answered, the node sees one."""
    async with Crew(2) as crew:
        crew.node.script.add(Hang(times=1))
        first, second = crew.ingress
        waits = [one.route(signed(0)) for one in (first, first, second, second)]
        await crew.node.until(lambda: crew.node.hanging == 1)
        await until(lambda: len(second.forwarder._tickets) == 1 and lanes(crew).metrics.attached.cell().n == 1)
        crew.node.release()
        replies = await answers(waits)

        assert [reply["result"] for reply in replies] == [hash_of(signed(0))] * 4
        assert crew.node.arrivals.total == 1
        assert first.metrics.attached.cell().n == second.metrics.attached.cell().n == 1


@both_loops
async def test_tickets_wait_for_a_lane_process() -> None:
    """Taken before there is one, and sent in order when there is."""
    async with Crew(laneless=True) as crew:
        waits = [crew.ingress[0].route(signed(nonce)) for nonce in (1, 0, 2)]
        await crew.start_lanes()
        replies = await answers(waits)

        assert all("result" in reply for reply in replies)
        crew.assert_order()


@both_loops
async def test_refusals_of_the_lanes_reach_the_client_as_they_are() -> None:
    """Case, text and data of a refusal survive the link."""
    async with Crew(ordering={"max_queue": 1, "reorder_window_ms": 60_000}) as crew:
        crew.node.script.add(Hang(times=1))
        [ingress] = crew.ingress
        holder, *waits = [ingress.route(signed(nonce)) for nonce in range(3)]
        [full, other] = await answers(waits)
        crew.node.release()

        assert error(full) == error(other)
        assert error(full)["message"] == "queue of this sender is full (1 waiting, [ordering] max_queue)"
        await holder


# The lane process dies.


@both_loops
async def test_what_waited_when_the_lane_process_died_is_sent_by_the_next() -> None:
    """One transaction was at the node, others waited: each lands once and in order, each client is told so."""
    async with Crew(3, LATE) as crew:
        crew.node.script.add(Hang(when="after", nonce=3, times=1))
        waits = [crew.ingress[nonce % 3].route(signed(nonce)) for nonce in range(10)]
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        after = [crew.ingress[nonce % 3].route(signed(nonce)) for nonce in range(10, 15)]
        await crew.start_lanes()
        replies = await answers(waits + after)

        assert [reply.get("result") for reply in replies] == [hash_of(signed(nonce)) for nonce in range(15)]
        crew.assert_order()
        assert crew.node.arrivals.total == 15


@both_loops
async def test_a_lane_does_not_run_ahead_of_what_a_dead_process_sent() -> None:
    """Its client has gone with it: nobody repeats nonce 0, and nonce 1 waits until the node shows it."""
    async with Crew(2) as crew:
        crew.node.script.add(Hang(when="after", times=1))
        crew.node.script.add(NodeAnswer(method="eth_getTransactionByHash", result=None))
        lonely, other = crew.ingress
        lost = lonely.route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        await lonely.close()
        await crew.kill_lanes()
        crew.ingress.remove(lonely)
        replacement = await crew.start_lanes()
        next_one = other.route(signed(1))
        await until(lambda: replacement.aftermath.holds)
        assert crew.node.arrivals.total == 1
        crew.node.script.clear()
        [reply] = await answers([next_one])

        assert reply["result"] == hash_of(signed(1))
        crew.assert_order()
        assert replacement.metrics.orphans.cell("found").n == 1
        assert not lost.done()


@both_loops
async def test_a_repeated_transaction_is_never_refused_on_the_word_of_a_resend() -> None:
    """Its first send may have been taken: what the node says of the second proves nothing."""
    async with Crew(ordering={"max_wait_s": 4}) as crew:
        crew.node.script.add(Hang(times=1))
        wait = crew.ingress[0].route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        crew.node.script.add(Refuse(message="insufficient funds for gas * price + value"))
        await crew.start_lanes()
        [reply] = await answers([wait])

        assert (error(reply)["code"], error(reply)["data"]) == (-32040, {"hash": hash_of(signed(0))})


@both_loops
async def test_a_lane_process_that_stays_away_is_answered_for() -> None:
    """Never sent: refused. Perhaps at the node: unknown, with the hash. No ticket waits for ever."""
    now = [100.0]
    async with Crew(clock=lambda: now[0]) as crew:
        crew.node.script.add(Hang(times=1))
        [ingress] = crew.ingress
        sent = ingress.route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        await until(lambda: not ingress.forwarder.linked or ingress.forwarder._links != set())
        crew.socket.close()
        for link in list(ingress.forwarder._links):
            link.abort("nobody listens")
        await until(lambda: not ingress.forwarder.linked)
        kept = ingress.route(signed(1))
        now[0] += 1000
        ingress.forwarder.sweep()
        unknown, refused = await answers([sent, kept])

        assert (error(unknown)["code"], error(unknown)["data"]) == (-32040, {"hash": hash_of(signed(0))})
        assert error(refused)["message"].startswith("no process kept the order for 1000.0 s")
        assert ingress.metrics.lane_refusals.cell("lanes_unavailable").n == 1


# A link dies, both processes live.


@pytest.mark.parametrize("stage", ["before the ticket", "at the node", "after the answer"])
@both_loops
async def test_a_link_that_breaks_loses_nothing(stage: str) -> None:
    """The forwarder asks again over the next one; the lane attaches it, or looks its hash up."""
    async with Crew() as crew:
        [ingress] = crew.ingress
        await until(lambda: ingress.forwarder.linked and len(lanes(crew).desk._links) == 1)
        crew.node.script.add(Hang(times=1))
        [here], [there] = list(ingress.forwarder._links), list(lanes(crew).desk._links)
        wait = ingress.route(signed(0))
        if stage == "before the ticket":
            here.abort("cut")
        await crew.node.until(lambda: crew.node.hanging == 1)
        if stage == "at the node":
            there.abort("cut")
            await until(lambda: lanes(crew).metrics.attached.cell().n == 1)
        if stage == "after the answer":
            assert here._transport is not None
            here._transport.pause_reading()
        crew.node.release()
        if stage == "after the answer":
            await until(lambda: not lanes(crew).desk._waiters)
            here.abort("cut")
        [reply] = await answers([wait])

        assert reply["result"] == hash_of(signed(0))
        assert crew.node.arrivals.total == 1


@both_loops
async def test_a_copy_that_may_have_been_sent_makes_all_of_them_so() -> None:
    """Two workers have the same bytes, one of them from before: then no refusal is proof for either."""
    async with Crew(2, ordering={"max_wait_s": 4}) as crew:
        crew.node.script.add(Hang(nonce=0, times=1))
        crew.node.script.add(Refuse(nonce=1, message="insufficient funds for gas * price + value"))
        first, second = crew.ingress
        holder, *waits = first.route(signed(0)), first.route(signed(1)), second.route(signed(1))
        await crew.node.until(lambda: crew.node.hanging == 1)
        attached = lanes(crew).metrics.attached.cell()
        await until(lambda: attached.n == 1)
        for link in list(second.forwarder._links):
            link.abort("cut")
        await until(lambda: attached.n == 2)
        crew.node.release()
        replies = await answers(waits)

        assert [error(reply)["code"] for reply in replies] == [-32040, -32040]
        await holder


@both_loops
async def test_a_client_worker_that_dies_loses_no_ticket() -> None:
    """G8: what the lanes have is carried out, its outcome is dropped."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=1))
        [ingress] = crew.ingress
        for nonce in range(3):
            ingress.route(signed(nonce)).add_done_callback(lambda _: None)
        await crew.node.until(lambda: crew.node.hanging == 1)
        await until(lambda: len(lanes(crew).desk._waiters) == 3)
        await ingress.close()
        crew.ingress.clear()
        crew.node.release()
        await crew.node.until(lambda: crew.node.arrivals.total == 3)
        await until(lambda: not lanes(crew).desk._waiters)

        crew.assert_order()


@both_loops
async def test_a_stranger_and_a_garbled_frame_are_turned_away() -> None:
    """Whoever speaks another language is cut off; nobody else notices."""
    async with Crew() as crew:
        for bytes_ in (b"GET / HTTP/1.1\r\n\r\n", b"relay link 2\n\0\0\0\x05junk!"):
            reader, writer = await asyncio.open_unix_connection(crew.path)
            writer.write(bytes_)
            assert (await reader.read()).startswith(b"relay link")
            writer.close()
        reply = await crew.ingress[0].send(signed(0))

        assert reply["result"] == hash_of(signed(0))


@both_loops
async def test_a_repeated_transaction_that_was_taken_is_found_not_sent() -> None:
    """The node took it and the answer was lost with the process: one look, no second send."""
    async with Crew(2, NodeSettings(block_time_s=None)) as crew:
        crew.node.script.add(Hang(when="after", times=1))
        waits = [one.route(signed(0)) for one in crew.ingress]
        await crew.node.until(lambda: crew.node.hanging == 1)
        await until(lambda: lanes(crew).metrics.attached.cell().n == 1)
        await crew.kill_lanes()
        await crew.start_lanes()
        replies = await answers(waits)

        assert [reply["result"] for reply in replies] == [hash_of(signed(0))] * 2
        assert crew.node.arrivals.total == 1
        assert lanes(crew).metrics.unknown.cell("found").n == 1


@both_loops
async def test_a_repeated_transaction_whose_nonce_is_spent_is_looked_up_first() -> None:
    """Mined meanwhile: that is success, though its nonce is spent."""
    async with Crew(1, NodeSettings(block_time_s=None)) as crew:
        crew.node.script.add(Hang(when="after", times=1))
        wait = crew.ingress[0].route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        crew.node.mine()
        await crew.start_lanes()
        [reply] = await answers([wait])

        assert reply["result"] == hash_of(signed(0))
        assert crew.node.arrivals.total == 1


@both_loops
async def test_a_repeated_transaction_that_gets_no_turn_is_unknown() -> None:
    """Turned away in its second life: the node may have it from the first."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=1))
        wait = crew.ingress[0].route(signed(0))
        await crew.node.until(lambda: crew.node.hanging == 1)
        await crew.kill_lanes()
        replacement = await crew.start_lanes()
        replacement.submitter.stop_taking()
        [reply] = await answers([wait])

        assert (error(reply)["code"], error(reply)["data"]) == (-32040, {"hash": hash_of(signed(0))})

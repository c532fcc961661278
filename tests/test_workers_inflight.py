"""What a lane process has at the node outlives it, and is found out by the next one."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.devnode.faults import Answer, Hang, Refuse
from relay.lanes import lane_key
from relay.workers.inflight import InflightTable, Send
from tests.scripted_node import both_loops
from tests.stand import signed
from tests.test_submit import hash_of
from tests.workers_rig import Crew, answers, lanes, until

if TYPE_CHECKING:
    from collections.abc import Iterator

sends = st.builds(
    Send,
    st.builds(lane_key, st.integers(0, 2**256 - 1), st.binary(min_size=20, max_size=20)),
    st.integers(0, 2**64 - 1),
    st.binary(min_size=32, max_size=32).map(lambda hash_: "0x" + hash_.hex()),
)
SEND = Send(lane_key(1337, bytes(20)), 7, "0x" + "ab" * 32)


@pytest.fixture(scope="module")
def fd() -> Iterator[int]:
    """Shared memory, as a parent makes it."""
    made = InflightTable.create()
    yield made
    os.close(made)


@given(st.lists(st.tuples(sends, st.booleans()), max_size=8))
def test_what_had_not_ended_is_found_by_the_next_process(fd: int, turns: list[tuple[Send, bool]]) -> None:
    """Every field as it was, and nothing else."""
    table = InflightTable(fd, 8)
    for slot, _ in table.found():
        table.end(slot)
    slots = [(table.begin(send), ended) for send, ended in turns]
    for begun, ended in slots:
        if ended and begun is not None:
            table.end(begun)
    table.close()
    replacement = InflightTable(fd, 8)

    assert sorted(send for _, send in replacement.found()) == sorted(send for send, ended in turns if not ended)
    replacement.close()


def test_a_slot_torn_at_any_byte_reads_as_free(fd: int) -> None:
    """Its writer died before the send could begin, or after the end was known."""
    table = InflightTable(fd, 1)
    for slot, _ in table.found():
        table.end(slot)
    assert table.begin(SEND) == 0
    whole = bytes(table._memory)
    for torn in [whole[:size] + b"\xee" * (len(whole) - size) for size in range(len(whole))]:
        table._memory[:] = torn
        assert table.found() == []
    table._memory[:] = bytes(len(whole))
    table.close()


def test_a_table_that_is_full_says_so(fd: int) -> None:
    """A turn then runs without being written down; what was left behind keeps its slot."""
    table = InflightTable(fd, 2)
    assert table.begin(SEND) is not None
    second = table.begin(SEND)
    assert second is not None
    assert table.begin(SEND) is None
    table.end(second)
    replacement = InflightTable(fd, 2)
    assert [send for _, send in replacement.found()] == [SEND]
    free = replacement.begin(SEND)
    assert free == second
    assert replacement.begin(SEND) is None
    for slot in (0, 97):
        replacement.end(slot)
    table.close()
    replacement.close()


async def orphan(crew: Crew, when: str = "before") -> None:
    """Nonce 0 is at the node when the lane process dies, and its client's worker with it."""
    crew.node.script.add(Hang(when=when, times=1))  # type: ignore[arg-type] # one of the two words
    crew.node.script.add(Answer(method="eth_getTransactionByHash", result=None))
    lonely = crew.ingress.pop()
    lonely.route(signed(0)).add_done_callback(lambda _: None)
    await crew.node.until(lambda: crew.node.hanging == 1)
    await lonely.close()
    await crew.kill_lanes()


@both_loops
async def test_the_same_bytes_go_first_and_count_as_sent_before() -> None:
    """A client that sends the orphan again gets its outcome; what waits behind it keeps its order."""
    async with Crew(2) as crew:
        await orphan(crew)
        await crew.start_lanes()
        waits = [crew.ingress[0].route(signed(1))]
        await until(lambda: lanes(crew).aftermath.holds)
        waits.append(crew.ingress[0].route(signed(0)))
        replies = await answers(waits)

        assert [reply["result"] for reply in replies] == [hash_of(signed(1)), hash_of(signed(0))]
        crew.assert_order()
        assert lanes(crew).metrics.orphans.cell("repeated").n == 1


@both_loops
async def test_no_refusal_of_the_same_bytes_is_proof() -> None:
    """They came from a new client, and yet the node may have them from the dead process."""
    async with Crew(2, ordering={"max_wait_s": 4}) as crew:
        await orphan(crew)
        crew.node.script.add(Refuse(message="insufficient funds for gas * price + value"))
        await crew.start_lanes()
        [reply] = await answers([crew.ingress[0].route(signed(0))])

        assert (reply["error"]["code"], reply["error"]["data"]) == (-32040, {"hash": hash_of(signed(0))})


@both_loops
async def test_a_lane_is_held_no_longer_than_its_bound_and_others_not_at_all() -> None:
    """The node never shows the orphan: its sender goes on in time, another sender never waited."""
    async with Crew(2, ordering={"max_wait_s": 1}) as crew:
        await orphan(crew)
        await crew.start_lanes()
        held = crew.ingress[0].route(signed(0, value=2))
        await until(lambda: lanes(crew).aftermath.holds)
        [other] = await answers([crew.ingress[0].route(signed(0, who=1))])
        assert "result" in other
        assert not held.done()
        [reply] = await answers([held])

        assert reply["result"] == hash_of(signed(0, value=2))
        assert lanes(crew).metrics.orphans.cell("expired").n == 1
        assert lanes(crew).table.found() == []


@both_loops
async def test_a_replacement_that_dies_too_leaves_what_it_had_not_resolved() -> None:
    """The third process still holds the lane."""
    async with Crew(2) as crew:
        await orphan(crew, when="after")
        await crew.start_lanes()
        await crew.kill_lanes()
        await crew.start_lanes()
        wait = crew.ingress[0].route(signed(1))
        await until(lambda: lanes(crew).aftermath.holds)
        crew.node.script.clear()
        [reply] = await answers([wait])

        assert reply["result"] == hash_of(signed(1))
        crew.assert_order()


@both_loops
async def test_an_orphan_whose_lane_ends_while_it_is_held_wakes_nobody() -> None:
    """What waited was turned away in the meantime: the lane is at rest, and stays so."""
    async with Crew(2) as crew:
        await orphan(crew)
        await crew.start_lanes()
        wait = crew.ingress[0].route(signed(1))
        await until(lambda: lanes(crew).aftermath.holds)
        lanes(crew).submitter.give_up()
        [reply] = await answers([wait])
        await until(lambda: not lanes(crew).submitter.book.busy)
        assert not lanes(crew).aftermath.holds
        lanes(crew).aftermath._bound_s = 0.0
        assert reply["error"]["code"] == -32012


@both_loops
async def test_turns_are_written_down_while_they_run() -> None:
    """One slot for each, freed with the outcome."""
    async with Crew() as crew:
        crew.node.script.add(Hang(times=3))
        waits = [crew.ingress[0].route(signed(0, who=who)) for who in range(3)]
        await crew.node.until(lambda: crew.node.hanging == 3)
        other = InflightTable(crew.fd, 64)
        seen = {send.hash for _, send in other.found()}
        crew.node.release()
        await asyncio.gather(*waits)

        assert seen == {hash_of(signed(0, who=who)) for who in range(3)}
        assert InflightTable(crew.fd, 64).found() == []
        other.close()

"""The path of a submission, over real connections to a development chain with behaviour."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from relay import submit
from relay.devnode import NodeSettings
from relay.devnode.faults import Answer, Delay, Forget, Hang, Page, Refuse, Reset, Truncate, WrongId
from relay.devnode.keys import FUNDED
from relay.transaction import decode
from tests.stand import Stand, call, signed, submission

STRICT = NodeSettings(mode="strict")
POOL = NodeSettings(mode="pool")


def hash_of(raw: str) -> str:
    """The hash a client computes for itself."""
    return decode(bytes.fromhex(raw[2:])).hash


def count(stand: Stand) -> int:
    """The mined count of the first funded account."""
    account = stand.node.chain.account(FUNDED[0].address_bytes)
    return account.nonce if account else 0


def error(reply: Any) -> dict[str, Any]:
    """The error of a response object that must have one."""
    assert "error" in reply, reply
    found: dict[str, Any] = reply["error"]
    return found


async def test_a_transaction_reaches_the_node_and_its_hash_comes_back() -> None:
    """The simplest case costs one count and one submission."""
    async with Stand.over() as stand:
        reply = await stand.send(signed(0), id_="x")

        assert reply == {"jsonrpc": "2.0", "id": "x", "result": hash_of(signed(0))}
        assert stand.node.arrivals.total == 1


async def test_a_burst_in_any_order_arrives_in_order() -> None:
    """Three senders, each with its nonces swapped, against a strict node with random checks: none refused."""
    async with Stand.over(NodeSettings(mode="strict", delay_ms=(0, 4), seed=1)) as stand:
        waits = [stand.route(submission(signed(nonce ^ 1, who=who))) for nonce in range(30) for who in range(3)]
        replies = [json.loads((await wait).body) for wait in waits]

        assert all("result" in reply for reply in replies)
        assert (stand.node.arrivals.inversions, stand.node.arrivals.overlaps) == (0, 0)


async def test_without_the_lanes_the_same_burst_fails() -> None:
    """The control: straight to the node, most of it is refused."""
    async with Stand.over(NodeSettings(mode="strict", delay_ms=(0, 4), seed=1)) as stand:
        ends = await asyncio.gather(*(stand.client.post(submission(signed(nonce ^ 1))) for nonce in range(30)))
        refused = sum(b'"error"' in getattr(end, "body", b"") for end in ends)

        assert refused > 15


@pytest.mark.parametrize("copies", [3])
async def test_copies_in_flight_are_one_submission(copies: int) -> None:
    """One arrival at the node, equal answers, each under its own id (G7)."""
    async with Stand.over(NodeSettings(delay_ms=(5, 5))) as stand:
        replies = await asyncio.gather(*(stand.send(signed(0), id_=number) for number in range(copies)))

        assert [reply["id"] for reply in replies] == list(range(copies))
        assert {reply["result"] for reply in replies} == {hash_of(signed(0))}
        assert stand.node.arrivals.total == 1


async def test_already_known_is_success() -> None:
    """The node's word for a copy is the hash, once the first one is finished."""
    async with Stand.over(NodeSettings(mode="pool", block_time_s=None)) as stand:
        first = await stand.send(signed(0))
        second = await stand.send(signed(0))

        assert first == second
        assert stand.node.arrivals.total == 2


async def test_a_node_that_forgot_gets_the_transaction_again() -> None:
    """Nothing is answered from memory once it is finished."""
    async with Stand.over(NodeSettings(mode="pool", block_time_s=None)) as stand:
        stand.node.script.add(Forget(times=1))
        await stand.send(signed(0))
        reply = await stand.send(signed(0))

        assert reply["result"] == hash_of(signed(0))
        assert [arrival.taken for arrival in stand.node.arrivals] == [True, True]


async def test_a_spent_nonce_is_success_for_the_transaction_that_spent_it() -> None:
    """A late copy of a mined transaction is not a failure, and never goes to the node again."""
    async with Stand.over() as stand:
        await stand.send(signed(0))
        await stand.node.until(lambda: stand.node.chain.height > 0)
        arrivals = stand.node.arrivals.total

        assert (await stand.send(signed(0)))["result"] == hash_of(signed(0))
        assert stand.node.arrivals.total == arrivals


async def test_a_spent_nonce_is_refused_for_any_other_transaction() -> None:
    """On a count read afresh, in geth's words, without asking the node to take it."""
    async with Stand.over() as stand:
        await stand.send(signed(0))
        await stand.node.until(lambda: stand.node.chain.height > 0)
        arrivals = stand.node.arrivals.total
        reply = await stand.send(signed(0, value=2))

        assert error(reply) == {"code": -32000, "message": "nonce too low: next nonce 1, tx nonce 0"}
        assert stand.node.arrivals.total == arrivals


async def test_a_replacement_is_neither_refused_nor_delayed() -> None:
    """Between latest and next a nonce may be bid for again; the node judges the bid."""
    async with Stand.over(
        NodeSettings(mode="pool", block_time_s=None), ordering={"reorder_window_ms": 60_000}
    ) as stand:
        for nonce in range(3):
            await stand.send(signed(nonce))
        better = signed(1, maxFeePerGas=20 * 10**9, maxPriorityFeePerGas=2 * 10**9)

        assert (await stand.send(better))["result"] == hash_of(better)
        assert "underpriced" in error(await stand.send(signed(1, value=9)))["message"]


async def test_a_refusal_of_the_node_comes_as_it_is() -> None:
    """Code, message and data; the lane goes on with the same nonce."""
    async with Stand.over() as stand:
        stand.node.script.add(Refuse(message="gas limit is not to my taste", code=-32099, data={"a": [1]}, times=1))
        reply = await stand.send(signed(0))

        assert error(reply) == {"code": -32099, "message": "gas limit is not to my taste", "data": {"a": [1]}}
        assert "result" in await stand.send(signed(0))


LOST = {
    "reset after": Reset(when="after", times=1),
    "reset before": Reset(when="before", times=1),
    "page after": Page(when="after", times=1),
    "page before": Page(when="before", times=1),
    "truncated": Truncate(times=1),
    "wrong id": WrongId(times=1),
    "null result": Answer(result=None, when="after", times=1),
    "uncertain words": Refuse(message="request timed out", when="after", times=1),
    "another hash": Answer(result="0x" + "ab" * 32, when="after", times=1),
    "no hash": Answer(result=True, when="after", times=1),
    "denied after taking": Refuse(message="an unheard-of error", when="after", times=1),
}


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
async def test_a_lost_answer_is_found_out(fault: Any) -> None:
    """Taken or not, the answer is success in the end, and the transaction is there once (G6)."""
    async with Stand.over() as stand:
        stand.node.script.add(fault)
        replies = await asyncio.gather(*(stand.send(signed(nonce)) for nonce in range(3)))

        assert ["result" in reply for reply in replies] == [True] * 3
        assert count(stand) == 3


async def test_what_cannot_be_found_out_is_unknown_with_its_hash() -> None:
    """Nothing but the hash is claimed, and the lane goes on afterwards."""
    async with Stand.over(ordering={"max_wait_s": 3}) as stand:
        stand.node.script.add(Page(when="before"), Page(method="eth_getTransactionByHash"))
        reply = await stand.send(signed(0))
        stand.node.script.clear()

        assert (error(reply)["code"], error(reply)["data"]) == (-32040, {"hash": hash_of(signed(0))})
        assert "result" in await stand.send(signed(0))


@pytest.mark.parametrize("result", ["0x" + "11" * 32, "0x1", True])
async def test_a_foreign_hash_is_not_believed_the_second_time_either(result: Any) -> None:
    """A resend that is answered by another hash proves as little as the first send."""
    async with Stand.over(ordering={"max_wait_s": 4}) as stand:
        stand.node.script.add(Answer(result=result))
        reply = await stand.send(signed(0))

        assert (error(reply)["code"], error(reply)["data"]) == (-32040, {"hash": hash_of(signed(0))})


async def test_a_refused_resend_proves_nothing() -> None:
    """The first send may have been taken by a node behind the balancer that we cannot see."""
    async with Stand.over(ordering={"max_wait_s": 4}) as stand:
        stand.node.script.add(Reset(when="before", times=1), Refuse(message="insufficient funds for transfer"))
        reply = await stand.send(signed(0))

        assert error(reply)["code"] == -32040


async def test_a_hanging_node_ends_in_unknown_within_the_budget() -> None:
    """From ticket to answer no longer than max_wait_s, and the successor is not held up after that (G5)."""
    async with Stand.over(ordering={"max_wait_s": 2}, upstream={"timeout_s": 30}) as stand:
        stand.node.script.add(Hang(times=1), Answer(method="eth_getTransactionByHash", result=None))
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = await stand.send(signed(0))

        assert loop.time() - began < 2.3
        assert "result" in first or error(first)["code"] == -32040


async def test_copies_that_come_while_it_is_unknown_make_one_submission() -> None:
    """They attach, and share what is found out."""
    async with Stand.over() as stand:
        stand.node.script.add(Reset(when="after", times=1), Delay(method="eth_getTransactionByHash", ms=20))
        first = stand.route(submission(signed(0)))
        await stand.node.until(lambda: stand.node.arrivals.total == 1)
        replies = await asyncio.gather(stand.send(signed(0)), stand.send(signed(0)))
        await first

        assert {reply["result"] for reply in replies} == {hash_of(signed(0))}
        assert stand.node.arrivals.total == 1


async def test_nothing_was_sent_if_the_node_is_not_there() -> None:
    """503 and -32011: the only failure that is certain without an answer."""
    async with Stand.over() as stand:
        await stand.node.close()
        answer = await stand.route(submission(signed(0)))

        assert answer.status == 503
        assert error(json.loads(answer.body))["code"] == -32011


async def test_a_client_that_leaves_takes_nothing_with_it() -> None:
    """The ticket belongs to the lane (G8): what nobody waits for is still carried out, in order."""
    async with Stand.over(NodeSettings(mode="strict", delay_ms=(2, 2))) as stand:
        unheard = [stand.route(submission(signed(nonce))) for nonce in range(5)]
        await stand.node.until(lambda: stand.node.arrivals.total == 5)

        assert "result" in await stand.send(signed(5))
        assert stand.node.arrivals.inversions == 0
        assert all(one.done() for one in unheard)


async def test_a_gap_is_forwarded_after_the_window() -> None:
    """A node that queues gets it; the missing nonce can still come."""
    async with Stand.over(NodeSettings(mode="pool"), ordering={"reorder_window_ms": 30}) as stand:
        assert "result" in await stand.send(signed(1))
        assert "result" in await stand.send(signed(0))

        assert [arrival.nonce for arrival in stand.node.arrivals] == [1, 0]


async def test_a_gap_is_refused_by_policy() -> None:
    """In geth's words; nothing was sent."""
    async with Stand.over(ordering={"reorder_window_ms": 30, "on_gap": "refuse"}) as stand:
        reply = await stand.send(signed(4))

        assert error(reply) == {"code": -32000, "message": "nonce too high: next nonce 0, tx nonce 4"}
        assert stand.node.arrivals.total == 0


async def test_a_lane_that_fell_behind_catches_up_at_once() -> None:
    """The sender used another way in between: the count says so, and no window is waited."""
    async with Stand.over(ordering={"reorder_window_ms": 60_000}) as stand:
        await stand.send(signed(0))
        for nonce in (1, 2):
            await stand.client.post(submission(signed(nonce)))

        assert "result" in await stand.send(signed(3))


async def test_replays_neither_fill_the_queue_nor_reach_the_node() -> None:
    """Old transactions of a sender, replayed by anybody, are looked up beside the lane."""
    async with Stand.over(ordering={"max_queue": 4}) as stand:
        for nonce in range(12):
            await stand.send(signed(nonce))
        await stand.node.until(lambda: count(stand) == 12)
        arrivals = stand.node.arrivals.total
        replays = [stand.send(signed(nonce)) for nonce in range(12)]
        replies = await asyncio.gather(*replays, stand.send(signed(12)))

        assert ["result" in reply for reply in replies] == [True] * 13
        assert stand.node.arrivals.total == arrivals + 1


async def test_a_sender_floods_only_its_own_lane() -> None:
    """Another sender's transaction goes while the first one's queue is full (G11)."""
    async with Stand.over(ordering={"max_queue": 8}) as stand:
        stand.node.script.add(Hang(sender=FUNDED[0].address))
        waits = [stand.route(submission(signed(nonce))) for nonce in range(100)]

        assert "result" in await stand.send(signed(0, who=1))
        refused = [error(json.loads((await wait).body))["code"] for wait in waits if wait.done()]
        assert set(refused) == {-32005}
        assert len(refused) >= 60


async def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys cost nothing, so the bound is over all senders; it is given back when the answers are out."""
    monkeypatch.setattr(submit, "MAX_INFLIGHT_BYTES", 2700)
    async with Stand.over() as stand:
        stand.node.script.add(Hang(times=1))
        held = stand.route(submission(signed(0)))
        await stand.node.until(lambda: stand.node.hanging == 1)
        large = signed(0, who=1, data="0x" + "ff" * 700, gas=100_000)
        refused = await stand.send(large)
        stand.node.release()
        await held

        assert error(refused)["code"] == -32005
        assert "result" in await stand.send(large)


async def test_a_sync_submission_brings_the_receipt() -> None:
    """Its lane is held only until the node has it; a plain copy that attached gets the hash."""
    async with Stand.over() as stand:
        sync, plain = await asyncio.gather(
            stand.ask(call("eth_sendRawTransactionSync", signed(0), 2000)), stand.send(signed(0))
        )

        assert sync["result"]["transactionHash"] == hash_of(signed(0))
        assert plain["result"] == hash_of(signed(0))
        assert stand.node.arrivals.total == 1


async def test_a_sync_submission_without_a_receipt_in_time_says_so() -> None:
    """Code 4 with the hash as data, as in geth: the transaction is accepted."""
    async with Stand.over(NodeSettings(mode="pool", block_time_s=None)) as stand:
        reply = await stand.ask(call("eth_sendRawTransactionSync", signed(0), 60))

        assert (error(reply)["code"], error(reply)["data"]) == (4, hash_of(signed(0)))


async def test_a_sync_submission_waits_no_longer_than_asked() -> None:
    """A node that never says the receipt does not cost the client more than its own time-out."""
    async with Stand.over() as stand:
        stand.node.script.add(Hang(method="eth_getTransactionReceipt"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = await stand.ask(call("eth_sendRawTransactionSync", signed(0), 100))

        assert error(reply)["code"] == 4
        assert loop.time() - began < 1.5


async def test_a_node_that_never_says_a_count_does_not_stop_a_burst() -> None:
    """One time-out for the lane, none for each transaction; then the lowest waiting nonce goes."""
    async with Stand.over() as stand:
        stand.node.script.add(Hang(method="eth_getTransactionCount"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = stand.route(submission(signed(0)))
        await stand.node.until(lambda: stand.node.hanging == 1)
        rest = [stand.route(submission(signed(nonce))) for nonce in (2, 1, 3)]
        replies = [json.loads((await one).body) for one in (first, *rest)]
        burst = loop.time() - began
        lone = await stand.send(signed(0, who=1))

        assert ["result" in reply for reply in replies] == [True] * 4
        assert burst < 5
        assert "result" in lone
        assert loop.time() - began - burst < 1


async def test_an_impossible_count_is_no_evidence() -> None:
    """More than 2^64 - 1 is no nonce: the transaction goes on and the node decides."""
    async with Stand.over() as stand:
        stand.node.script.add(Answer(method="eth_getTransactionCount", result="0x" + "f" * 40))

        assert "result" in await stand.send(signed(0))


async def test_a_balance_refuses_only_when_read_afresh() -> None:
    """An incoming transfer that is mined makes the next look see it, whatever was remembered."""
    poor = FUNDED[0].address_bytes
    async with Stand.over(prechecks={"balance": True}) as stand:
        stand.node.chain.fund(poor, 10)
        refused = await stand.send(signed(0))
        stand.node.chain.fund(poor, 10**18)
        accepted = await stand.send(signed(0))

        assert error(refused)["message"].startswith("insufficient funds for gas * price + value: balance 10, tx cost ")
        assert "result" in accepted


async def test_a_drained_instance_refuses_what_waits_and_owns_up_to_the_rest() -> None:
    """G12: the holder's outcome is unknown with its hash, what waits was never sent."""
    async with Stand.over() as stand:
        stand.node.script.add(Hang(times=1))
        waits = [stand.route(submission(signed(nonce))) for nonce in range(2)]
        await stand.node.until(lambda: stand.node.hanging == 1)
        stand.submitter.stop_taking()
        late = await stand.send(signed(0, who=1))
        stand.intake.give_up()
        stand.submitter.give_up()
        holder, waiting = [error(json.loads((await wait).body)) for wait in waits]

        assert error(late)["code"] == -32012
        assert (holder["code"], holder["data"]) == (-32040, {"hash": hash_of(signed(0))})
        assert waiting["code"] == -32012
        assert stand.node.arrivals.total == 1


@pytest.mark.parametrize("policy", ["pass", "refuse"])
async def test_an_unknown_type_passes_or_is_refused_by_policy(policy: str) -> None:
    """It has no sender that could be recovered."""
    async with Stand.over(prechecks={"unknown_types": policy}) as stand:
        routed = stand.router.route(submission("0x7f01"))

        if policy == "pass":
            assert type(routed).__name__ == "Forward"
        else:
            reply = await stand.send("0x7f01")
            assert error(reply)["message"] == "transaction type not supported"


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        ("0x", -32000, "typed transaction too short"),
        ("", -32000, "typed transaction too short"),
        ("0x02", -32000, "typed transaction too short"),
        ("zz", -32602, "invalid argument 0: json: cannot unmarshal hex string without 0x prefix"),
        (signed(0, chainId=5), -32000, "invalid sender: invalid chain id for signer: have 5 want 1337"),
        (signed(0)[:-2], -32000, "rlp: "),
        (signed(0) + "00", -32000, "rlp: "),
    ],
)
async def test_bad_transactions_are_refused_before_a_ticket(raw: str, code: int, text: str) -> None:
    """In geth's words, without a lane and without asking the node."""
    async with Stand.over() as stand:
        reply = await stand.send(raw)

        assert (error(reply)["code"], error(reply)["message"][: len(text)]) == (code, text)
        assert stand.submitter.book.busy == stand.submitter.book.idle == 0


async def test_a_fault_of_ours_is_unknown_not_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the middle of a turn is reported, answered honestly, and the lane goes on."""
    async with Stand.over() as stand:
        real = stand.submitter._settler._conclude

        async def break_once(*arguments: Any) -> Any:
            monkeypatch.setattr(stand.submitter._settler, "_conclude", real)
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(stand.submitter._settler, "_conclude", break_once)
        broken, next_one = await asyncio.gather(stand.send(signed(0)), stand.send(signed(1)))

        assert error(broken)["code"] == -32040
        assert "result" in next_one
        assert stand.faults == ["settle: ZeroDivisionError('a bug')"]
        stand.faults.clear()

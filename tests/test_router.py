"""Which way a body goes, and how a batch comes back together."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from relay.devnode import NodeSettings
from relay.devnode.faults import Page, Refuse, Reset
from relay.router import Answer, Forward
from relay.transaction import decode
from tests.stand import Stand, call, signed, submission


def hash_of(raw: str) -> str:
    """The hash a client computes for itself."""
    return decode(bytes.fromhex(raw[2:])).hash


def batch(*elements: bytes) -> bytes:
    """A batch of these texts."""
    return b"[" + b",".join(elements) + b"]"


def note(method: str, *params: Any) -> bytes:
    """A notification."""
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": list(params)}).encode()


PASSED = {
    "a read": call("eth_blockNumber"),
    "no json": b"not json at all",
    "nothing": b"",
    "half json": b'{"method":',
    "a number": b"7",
    "deep": b"[" * 100_000,
    "a batch of reads": batch(call("eth_chainId"), call("eth_call", {"data": "0x"}), b"7"),
    "empty batch": b"[]",
    "two methods, neither of them ours": b'{"method":"a","method":"b","id":1}',
    "numbers past 64 bits": b'{"method":"m","params":[123456789012345678901234567890],"id":1}',
    "the name in a string": call("eth_call", "eth_sendRawTransaction"),
    "the name as another's prefix": call("eth_sendRawTransactionSoon", "0x"),
    "eth_sendTransaction": call("eth_sendTransaction", {"from": "0x00"}),
}


@pytest.mark.parametrize("body", PASSED.values(), ids=PASSED)
async def test_what_is_no_submission_goes_straight_through(body: bytes) -> None:
    """Malformed or not, the node judges it (G4)."""
    async with Stand.over() as stand:
        assert isinstance(stand.router.route(body), Forward)


async def test_half_a_surrogate_pair_is_the_nodes_to_judge() -> None:
    """JSON's grammar allows it; only a body that also holds a submission is refused, and says why."""
    async with Stand.over(server={"deny_methods": ["admin_*"]}) as stand:
        assert isinstance(stand.router.route(b'{"id":1,"method":"eth_call","params":["\\ud800"]}'), Forward)
        assert isinstance(stand.router.route(b'[{"id":1,"method":"eth_call","params":["\\uDfFf"]}]'), Forward)
        for method in (b"eth_sendRawTransaction", b"admin_peers"):
            answer = await stand.route(b'{"id":"\\ud800","method":"%b","params":["0x"]}' % method)
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32700)


HIDDEN = {
    "escaped name": b'{"id":1,"method":"\\u0065th_sendRawTransaction","params":["0x"]}',
    "escaped key": b'{"id":1,"\\u006dethod":"eth_sendRawTransaction","params":["0x"]}',
    "UTF-16": '{"id":1,"method":"eth_sendRawTransaction","params":["0x"]}'.encode("utf-16"),
    "UTF-16 without a mark": '{"id":1,"method":"eth_sendRawTransaction","params":["0x"]}'.encode("utf-16-be"),
    "UTF-32": '{"id":1,"method":"eth_sendRawTransaction","params":["0x"]}'.encode("utf-32-le"),
    "UTF-8 with a mark": b"\xef\xbb\xbf" + submission("0x"),
    "second method": b'{"id":1,"method":"eth_call","method":"eth_sendRawTransaction","params":["0x"]}',
    "Method": b'{"id":1,"Method":"eth_sendRawTransaction","params":["0x"]}',
    "in a batch": batch(call("eth_chainId"), b'{"id":1,"METHOD":"eth_sendRawTransaction","params":["0x"]}'),
    "half": submission("0x")[:-3],
    "invalid UTF-8": b'{"id":1,"method":"eth_sendRawTransaction","params":["\xff"]}',
    "comment": b"/**/" + submission("0x"),
    "two bodies": submission("0x") + submission("0x"),
}


@pytest.mark.parametrize("body", HIDDEN.values(), ids=HIDDEN)
async def test_nothing_hides_a_submission(body: bytes) -> None:
    """What some node might read as a submission is ordered or refused, never passed."""
    async with Stand.over() as stand:
        answer = await stand.route(body)

        assert b'"error"' in answer.body
        assert stand.node.arrivals.total == 0


@pytest.mark.parametrize(
    ("body", "status", "code", "id_"),
    [
        (b'{"id":5,"method":"eth_sendRaw', 400, -32700, None),
        (b'{"id":5,"method":"eth_sendRawTransaction","method":"x"}', 400, -32600, 5),
        (b'"eth_send"', 400, -32600, None),
        (b'{"id":"eth_send"}', 400, -32600, "eth_send"),
        (call("eth_sendRawTransaction", id_="a"), 200, -32602, "a"),
        (call("eth_sendRawTransaction", "0x00", id_=None), 200, -32000, None),
    ],
)
async def test_what_is_wrong_is_answered_with_its_status(body: bytes, status: int, code: int, id_: Any) -> None:
    """400 only for what is no call at all; a call's own errors are read at 200 only."""
    async with Stand.over() as stand:
        answer = await stand.route(body)
        reply = json.loads(answer.body)

        assert (answer.status, reply["error"]["code"], reply["id"]) == (status, code, id_)


async def test_a_batch_is_split_and_merged_in_order() -> None:
    """Submissions take their turns in array order, the rest travels beside them, answers stand in request order."""
    async with Stand.over() as stand:
        replies = await stand.ask(
            batch(
                call("eth_chainId", id_="c"),
                submission(signed(1), 1),
                note("eth_blockNumber"),
                submission(signed(0), 1.5),
                b'{"junk":1}',
                call("eth_nonsense", id_=None),
                submission("0x00", "bad"),
            )
        )

        assert [reply["id"] for reply in replies] == ["c", 1, 1.5, None, None, "bad"]
        assert replies[0]["result"] == "0x539"
        assert [replies[1]["result"], replies[2]["result"]] == [hash_of(signed(1)), hash_of(signed(0))]
        assert [reply["error"]["code"] for reply in replies[3:]] == [-32600, -32601, -32000]
        assert [arrival.nonce for arrival in stand.node.arrivals] == [0, 1]


async def test_submissions_without_an_id_are_carried_out_in_silence() -> None:
    """204 for a notification, alone or in a batch of nothing else; no silence for a call."""
    async with Stand.over() as stand:
        alone = await stand.route(note("eth_sendRawTransaction", signed(0)))
        several = await stand.route(
            batch(note("eth_sendRawTransaction", signed(1)), note("eth_sendRawTransaction", "junk"))
        )
        mixed = await stand.ask(batch(note("eth_sendRawTransaction", signed(2)), call("eth_chainId", id_=None)))

        assert (alone.status, alone.body, several.status, several.body) == (204, b"", 204, b"")
        assert mixed == [{"jsonrpc": "2.0", "id": None, "result": "0x539"}]
        assert [arrival.nonce for arrival in stand.node.arrivals] == [0, 1, 2]


async def test_a_batch_that_is_too_long_is_refused_for_each_element() -> None:
    """Under each id, at 200: no client library survives anything else."""
    async with Stand.over(server={"max_batch": 2}) as stand:
        answer = await stand.route(batch(call("eth_chainId", id_=7), note("eth_chainId"), call("eth_chainId", id_="x")))
        replies = json.loads(answer.body)

        assert answer.status == 200
        assert [(reply["id"], reply["error"]["code"]) for reply in replies] == [(7, -32014), ("x", -32014)]
        assert isinstance(stand.router.route(batch(call("a"), call("b"))), Forward)


async def test_denied_methods_do_not_exist() -> None:
    """Alone, in a batch, escaped, as a notification; whatever else is in the batch goes on."""
    async with Stand.over(server={"deny_methods": ["admin_*", "eth_sign"]}) as stand:
        alone = await stand.ask(call("admin_peers", id_=3))
        escaped = await stand.ask(b'{"id":4,"method":"\\u0061dmin_peers"}')
        silent = await stand.route(note("admin_peers"))
        mixed = await stand.ask(batch(call("eth_sign", id_=1), call("eth_chainId", id_=2)))

        text = "the method admin_peers does not exist/is not available"
        assert alone["error"] == escaped["error"] == {"code": -32601, "message": text}
        assert silent.status == 204
        assert [mixed[0]["error"]["code"], mixed[1]["result"]] == [-32601, "0x539"]
        assert isinstance(stand.router.route(call("eth_signTypedData")), Forward)


async def test_a_pattern_without_a_beginning_is_matched_too() -> None:
    """``*_raw`` has no literal start to look for, so every body is looked at."""
    async with Stand.over(server={"deny_methods": ["*_peers"]}) as stand:
        assert (await stand.ask(call("admin_peers")))["error"]["code"] == -32601


async def test_a_long_batch_does_not_stop_others() -> None:
    """Somebody else's submission is answered while a flood is still being taken in; the flood keeps its order."""
    async with Stand.over(ordering={"max_queue": 1000}) as stand:
        flood = stand.route(batch(*(submission(signed(nonce), nonce) for nonce in range(300))))
        other = await stand.send(signed(0, who=1))

        assert "result" in other
        assert not flood.done()
        replies = json.loads((await flood).body)
        assert [reply["id"] for reply in replies] == list(range(300))
        assert all("result" in reply for reply in replies)
        assert stand.node.arrivals.inversions == 0


async def test_by_arrival_a_long_batch_takes_all_its_tickets_at_once() -> None:
    """Where arrival is the order, nothing may come between the elements of a batch."""
    async with Stand.over(NodeSettings(mode="pool"), ordering={"order": "arrival"}) as stand:
        flood = stand.route(batch(*(submission(signed(nonce), nonce) for nonce in range(40))))
        late = stand.route(submission(signed(40)))
        await asyncio.gather(flood, late)

        assert [arrival.nonce for arrival in stand.node.arrivals] == list(range(41))


async def test_a_failed_part_of_a_batch_fails_alone() -> None:
    """The node's gateway breaks down for the reads; the submission has its own answer."""
    async with Stand.over() as stand:
        stand.node.script.add(Page(method="eth_chainId"))
        replies = await stand.ask(
            batch(call("eth_chainId", id_=1), submission(signed(0), 2), call("eth_chainId", id_=3))
        )

        assert [replies[0]["error"]["code"], replies[2]["error"]["code"]] == [-32013, -32013]
        assert replies[1]["result"] == hash_of(signed(0))


async def test_a_batch_into_a_dead_node_is_answered_under_each_id() -> None:
    """At 200: the batch as such was fine."""
    async with Stand.over() as stand:
        await stand.node.close()
        answer = await stand.route(batch(call("eth_chainId", id_=1), submission(signed(0), 2)))

        assert answer.status == 200
        assert [(one["id"], one["error"]["code"]) for one in json.loads(answer.body)] == [(1, -32011), (2, -32011)]


async def test_a_batch_of_copies_is_one_submission_answered_twice() -> None:
    """And a refusal of one element does not touch its neighbours."""
    async with Stand.over(NodeSettings(delay_ms=(2, 2))) as stand:
        stand.node.script.add(Refuse(nonce=1, message="no", code=-32099))
        replies = await stand.ask(batch(submission(signed(0), 1), submission(signed(0), 2), submission(signed(1), 3)))

        assert replies[0]["result"] == replies[1]["result"] == hash_of(signed(0))
        assert replies[2]["error"] == {"code": -32099, "message": "no"}


async def test_a_batch_whose_reads_are_lost_still_says_what_became_of_its_submission() -> None:
    """A reset connection is an error for the reads under their ids."""
    async with Stand.over() as stand:
        stand.node.script.add(Reset(method="eth_chainId"))
        replies = await stand.ask(batch(submission(signed(0), 1), call("eth_chainId", id_=2)))

        assert replies[0]["result"] == hash_of(signed(0))
        assert replies[1]["error"]["code"] in (-32013, -32015)


@pytest.mark.parametrize(
    ("body", "may"),
    [
        (call("eth_getBalance", "0x", "latest"), True),
        (batch(call("eth_chainId"), call("net_version")), True),
        (call("eth_getFilterChanges", "0x1"), False),
        (batch(call("eth_chainId"), call("evm_mine")), False),
        (b"junk", False),
        (b"[]", False),
    ],
)
async def test_only_reads_may_be_repeated(body: bytes, may: bool) -> None:
    """What may change something is never silently sent twice."""
    async with Stand.over() as stand:
        assert stand.router.repeatable(body) is may


async def test_a_fault_in_the_router_reaches_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever for an answer that a bug has swallowed."""
    async with Stand.over() as stand:

        async def broken(*_: Any) -> Any:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(stand.intake, "outcome", broken)
        reply = await stand.send(signed(0), id_=9)

        assert (reply["id"], reply["error"]["code"]) == (9, -32603)
        assert stand.faults == ["answer: ZeroDivisionError('a bug')"]
        stand.faults.clear()


async def test_a_waiter_that_is_cancelled_takes_nobody_with_it() -> None:
    """A connection's task dies while its answer is on the way: the submission and its copies live on."""
    async with Stand.over(NodeSettings(delay_ms=(5, 5))) as stand:
        first = stand.route(submission(signed(0)))
        second = stand.route(submission(signed(0)))
        first.cancel()
        answer = await second

        assert isinstance(answer, Answer)
        assert b"result" in answer.body
        await asyncio.wait([first])
        assert stand.node.arrivals.total == 1

"""What clients ask of the journal, over JSON-RPC and plain HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from relay import views
from relay.journal.faults import Unavailable
from relay.journal.records import Receipt
from relay.lifecycle import Reason, State
from relay.testing.samples import ALICE as SENDER
from relay.testing.samples import CHAIN, admitted, decision, moved, sealed
from tests.ask_rig import ALICE, UNKNOWN, call, relay

if TYPE_CHECKING:
    from pathlib import Path

    from relay.journal import Journal
    from relay.journal.records import Record


async def mined(journal: Journal, nonce: int = 0) -> Record:
    """One with a receipt."""
    done = (await sealed(journal, await admitted(journal, nonce))).record
    await journal.note([Receipt(done.id, 7, b"\x07" * 32, 1)])
    return await moved(journal, done, State.MINED)


def text(record: Record) -> str:
    """Its hash as clients write it."""
    return views.data(record.hash)


async def test_a_transaction_is_told_by_its_hash(tmp_path: Path) -> None:
    """The client's view, in whatever case the hash is written; with the block while it is in one."""
    async with relay(f"sqlite:///{tmp_path}/journal.db") as here:
        record = await admitted(here.journal)
        assert await here.result("relay_getTransaction", text(record).upper().replace("X", "x")) == views.public(record)
        done = await mined(here.journal, 1)
        told = await here.result("relay_getTransaction", text(done))
        assert (told["state"], told["blockNumber"], told["status"]) == ("mined", "0x7", "0x1")
        assert await here.result("relay_getTransaction", UNKNOWN) is None
        assert here.count("http", "ask", "answered") == 3


async def test_questions_travel_in_batches_with_other_calls() -> None:
    """Each under its own id, in the order of the request; nothing of ours reaches the node."""
    async with relay() as here:
        record = await admitted(here.journal)
        batch = [
            call("relay_getTransaction", text(record), id_="a"),
            call("eth_chainId", id_=2),
            call("eth_sendRawTransaction", "0x00", id_=3),
            call("relay_getTransaction", UNKNOWN, id_=4),
            call("relay_nothing", id_=5),
        ]
        answers = await here.post(batch)
        assert [answer["id"] for answer in answers] == ["a", 2, 3, 4, 5]
        assert answers[0]["result"]["hash"] == text(record)
        assert answers[1]["result"] == hex(CHAIN)
        assert answers[3]["result"] is None
        assert [answers[place]["error"]["code"] for place in (2, 4)] == [-32000, -32601]
        assert await here.post({"jsonrpc": "2.0", "method": "relay_getTransaction", "params": [UNKNOWN]}) is None


async def test_a_long_batch_of_questions() -> None:
    """It enters slice by slice as every long batch."""
    async with relay() as here:
        records = [await admitted(here.journal, nonce) for nonce in range(40)]
        answers = await here.post([call("relay_getTransaction", text(record), id_=record.nonce) for record in records])
        assert [answer["result"]["hash"] for answer in answers] == [text(record) for record in records]


async def test_without_a_journal_such_methods_are_the_nodes() -> None:
    """As every method that is no submission; and paths mean nothing."""
    async with relay("") as here:
        answer = await here.call("relay_getTransaction", UNKNOWN)
        assert answer["error"]["code"] == -32601
        response, body = await here.get(f"/transactions/{UNKNOWN}")
        assert (response.status, response.content_type) == (200, "text/plain")
        assert body.startswith(b"This is a JSON-RPC endpoint")
        assert here.count("http", "pass", "answered") == 1


async def test_an_escaped_name_does_not_reach_the_node() -> None:
    """Nor is it passed on with a method that is denied."""
    async with relay() as here:
        body = b'{"jsonrpc":"2.0","id":1,"method":"\\u0072elay_getTransaction","params":["%b"]}' % UNKNOWN.encode()
        async with here.http.post(here.url, data=body) as response:
            assert (await response.json()) == {"jsonrpc": "2.0", "id": 1, "result": None}
    async with relay(server={"deny_methods": ["relay_*"]}) as here:
        assert (await here.call("relay_getTransaction", UNKNOWN))["error"]["code"] == -32601


BAD: dict[str, tuple[str, list[Any]]] = {
    "no hash": ("relay_getTransaction", []),
    "null": ("relay_getTransaction", [None]),
    "short": ("relay_getTransaction", ["0x12"]),
    "not hex": ("relay_getTransaction", ["0x" + "zz" * 32]),
    "a newline": ("relay_getTransaction", [UNKNOWN + "\n"]),
    "too many": ("relay_getTransaction", [UNKNOWN, 1]),
    "no address": ("relay_getLane", [UNKNOWN]),
    "chain id": ("relay_getLane", [ALICE, "1"]),
    "chain id is true": ("relay_getLane", [ALICE, True]),
    "negative": ("relay_getLane", [ALICE, -1]),
}


@pytest.mark.parametrize(("method", "params"), BAD.values(), ids=BAD)
async def test_bad_params_are_refused_in_words(method: str, params: list[Any]) -> None:
    """-32602, under the call's id, at HTTP 200."""
    async with relay() as here:
        answer = await here.call(method, *params)
        assert (answer["id"], answer["error"]["code"]) == (1, -32602)
        assert (await here.post({"id": 2, "method": method, "params": {}}))["error"]["code"] == -32602


class Broken:
    """A store that is away for now."""

    def __getattr__(self, name: str) -> Any:
        raise Unavailable("the journal sqlite:////secret/place ([journal] url) is locked")


async def test_a_store_that_cannot_be_read_is_told_without_a_word_of_sending() -> None:
    """By its own error; 503 to GET. Where it is stays here, and what is passed through never notices."""
    async with relay() as here:
        assert here.shelf is not None
        here.shelf._journal, kept = Broken(), here.shelf._journal
        for method, params in (("relay_getTransaction", UNKNOWN), ("relay_getLane", ALICE)):
            error = (await here.call(method, params))["error"]
            assert error == {"code": -32032, "message": "the journal cannot be read for now; ask again"}
        response, body = await here.get(f"/transactions/{UNKNOWN}")
        assert (response.status, json.loads(body)["error"]["code"]) == (503, -32032)
        assert response.headers["Retry-After"] == "1"
        assert await here.result("eth_chainId") == hex(CHAIN)
        here.shelf._journal = kept


# Lanes.


async def test_a_lane_that_goes_on() -> None:
    """Nothing is missing, nothing blocks it."""
    async with relay() as here:
        records = [await admitted(here.journal, nonce) for nonce in (0, 1)]
        lane = await here.result("relay_getLane", ALICE)
        assert lane == {
            "chainId": hex(CHAIN),
            "address": ALICE,
            "paused": False,
            "nextNonce": "0x0",
            "lowestOutstanding": "0x0",
            "missing": [],
            "open": [views.public(record) for record in records],
            "more": False,
            "blockedBy": None,
        }
        empty = await here.result("relay_getLane", "0x" + "bb" * 20)
        assert (empty["open"], empty["lowestOutstanding"], empty["blockedBy"]) == ([], None, None)


async def test_a_lane_says_what_blocks_it() -> None:
    """A pause before a gap before a reason."""
    async with relay() as here:
        record = await moved(here.journal, await admitted(here.journal, 3), State.SEALED)
        held = decision(record, State.SENT)._replace(reason=Reason.UNDER_BASE_FEE)
        await here.journal.decide([held])
        lane = await here.result("relay_getLane", ALICE)
        assert lane["missing"] == [{"first": "0x0", "last": "0x2"}]
        assert (lane["blockedBy"]["kind"], lane["blockedBy"]["nonce"]) == ("gap", "0x0")
        await here.journal.set_paused(CHAIN, SENDER, paused=True, version=0, detail="secret", actor="op")
        lane = await here.result("relay_getLane", ALICE)
        assert (lane["paused"], lane["blockedBy"]["kind"]) == (True, "paused")
        assert "secret" not in str(lane)


async def test_a_lane_of_another_chain_is_named_with_it() -> None:
    """Our node knows nothing of it, so nothing is concluded from its counts."""
    async with relay() as here:
        await admitted(here.journal, 5)
        other = await here.result("relay_getLane", ALICE, "0x5")
        assert (other["chainId"], other["nextNonce"], other["open"]) == ("0x5", None, [])
        assert (await here.result("relay_getLane", ALICE, CHAIN))["lowestOutstanding"] == "0x5"


async def test_where_the_chain_is_not_checked_it_is_named() -> None:
    """A relay that does not know its chain cannot guess whose lane is meant; a hash says it itself."""
    async with relay(prechecks={"chain_id": "off"}) as here:
        record = await admitted(here.journal)
        assert (await here.call("relay_getLane", ALICE))["error"]["code"] == -32602
        lane = await here.result("relay_getLane", ALICE, hex(CHAIN))
        assert (lane["lowestOutstanding"], lane["nextNonce"]) == ("0x0", "0x0")
        assert (await here.result("relay_getTransaction", text(record)))["hash"] == text(record)


# GET.


async def test_get_tells_a_transaction(tmp_path: Path) -> None:
    """The same view; a browser may read it, nobody else may keep it."""
    async with relay(f"sqlite:///{tmp_path}/journal.db") as here:
        record = await admitted(here.journal)
        response, body = await here.get(f"/transactions/{text(record)}?x=1", Origin="https://dapp.example")
        assert (response.status, response.content_type) == (200, "application/json")
        assert json.loads(body) == views.public(record)
        assert response.headers["Cache-Control"] == "private, no-cache"
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert {"ETag", "Location"} <= set(response.headers["Access-Control-Expose-Headers"].split(", "))
        assert "Date" in response.headers
        head, nothing = await here.get(f"/transactions/{text(record)}", "HEAD")
        assert (head.status, nothing, head.headers["ETag"]) == (200, b"", response.headers["ETag"])
        assert head.headers["Content-Length"] == str(len(body))
        assert here.count("http", "ask", "answered") == 2


async def test_who_has_it_already_is_told_so() -> None:
    """304 until something changes, be it a fact that moves nothing."""
    async with relay() as here:
        record = await admitted(here.journal)
        path = f"/transactions/{text(record)}"
        tag = (await here.get(path))[0].headers["ETag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            response, body = await here.get(path, If_None_Match=known)
            assert (response.status, body, response.headers["ETag"]) == (304, b"", tag)
            assert "Content-Type" not in response.headers
        assert (await here.get(path, If_None_Match='"other"'))[0].status == 200
        await moved(here.journal, record, State.SEALED)
        response, _ = await here.get(path, If_None_Match=tag)
        assert (response.status, response.headers["ETag"] != tag) == (200, True)


async def test_what_is_not_there_and_what_is_no_hash() -> None:
    """404 and 400 as JSON; any other path is greeted as ever, and a call is a call on every path."""
    async with relay() as here:
        response, body = await here.get(f"/transactions/{UNKNOWN}")
        assert (response.status, json.loads(body)["error"]["code"]) == (404, -32001)
        assert response.headers["Cache-Control"] == "no-store"
        for path in ("/transactions/", "/transactions/0x12", f"/transactions/{UNKNOWN}/more"):
            response, body = await here.get(path)
            assert (response.status, json.loads(body)["error"]["code"]) == (400, -32602)
        assert (await here.get("/transactions/0x12", "HEAD"))[1] == b""
        for path in ("/", "/transactions", f"/other/{UNKNOWN}"):
            assert (await here.get(path))[0].content_type == "text/plain"
        async with here.http.post(f"{here.url}/transactions/{UNKNOWN}", json=call("eth_chainId")) as answer:
            assert (await answer.json())["result"] == hex(CHAIN)


async def test_a_connection_goes_on_behind_a_question() -> None:
    """Requests that were sent ahead wait for their turn, and one that closes is the last."""
    async with relay() as here:
        record = await admitted(here.journal)
        host, port = here.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        line = f"GET /transactions/{text(record)} HTTP/1.1\r\nHost: a\r\n"
        writer.write(f"{line}\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n{line}Connection: close\r\n\r\n".encode())
        async with asyncio.timeout(10):
            everything = await reader.read()
        writer.close()
        assert [part[:3] for part in everything.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 3
        assert everything.count(b"Connection: close") == 1


async def test_a_client_that_leaves_before_the_answer() -> None:
    """Nothing is written to it, and it is counted as gone, once."""
    async with relay() as here:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def slow(*_: Any) -> Any:
            asked.set()
            await go_on.wait()

        here.journal.by_hash = slow  # type: ignore[method-assign, assignment]
        host, port = here.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /transactions/{UNKNOWN} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await asked.wait()
        writer.close()
        async with asyncio.timeout(10):
            while not here.count("http", "ask", "gone"):  # noqa: ASYNC110 - the loop has to see the end
                await asyncio.sleep(0)
        go_on.set()
        await here.clients.answers.settled()
        assert here.count("http", "ask", "answered") == 0


async def test_a_fault_of_ours_is_reported_and_answered() -> None:
    """500 to GET, -32603 to a call, also within a batch."""
    async with relay() as here:

        async def broken(*_: Any) -> Any:
            raise RuntimeError("a bug")

        here.journal.by_hash = broken  # type: ignore[method-assign, assignment]
        response, body = await here.get(f"/transactions/{UNKNOWN}")
        assert (response.status, json.loads(body)["error"]["code"]) == (500, -32603)
        question = call("relay_getTransaction", UNKNOWN)
        assert (await here.post(question))["error"]["code"] == -32603
        answers = await here.post([question, call("eth_chainId", id_=2)])
        assert [answer.get("result", answer.get("error", {}).get("code")) for answer in answers] == [-32603, hex(CHAIN)]
        assert [fault.split(":")[0] for fault in here.faults] == ["answers.look", "ask", "ask"]
        here.faults.clear()

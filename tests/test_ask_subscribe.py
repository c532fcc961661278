"""Being told of changes over WebSocket: what is told, to whom, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode

from relay import views
from relay.ask import feed, subscriptions
from relay.ingress.websocket import news
from relay.journal.faults import Unavailable
from relay.journal.records import Receipt
from relay.lifecycle import State
from relay.testing.samples import BOB, CHAIN, admitted, intake, moved, sealed
from relay.testing.two import worker
from relay.transaction import decode
from tests.ask_rig import ALICE, UNKNOWN, Relay, call, hear, relay
from tests.stand import signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp
    import pytest


@asynccontextmanager
async def client(here: Relay) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A WebSocket client."""
    async with here.http.ws_connect(here.url) as socket:
        yield socket


async def ask(socket: aiohttp.ClientWebSocketResponse, method: str, *params: Any) -> Any:
    """The response object to a call; nothing else may come before it."""
    await socket.send_json(call(method, *params))
    answer = await hear(socket)
    assert "method" not in answer, answer
    return answer


async def subscribe(socket: aiohttp.ClientWebSocketResponse, **wanted: list[str]) -> str:
    """The id of a subscription."""
    id_ = (await ask(socket, "relay_subscribe", "transactions", wanted))["result"]
    assert isinstance(id_, str)
    return id_


async def told(socket: aiohttp.ClientWebSocketResponse, id_: str) -> Any:
    """The result of the next notification, which is for this subscription."""
    notification = await hear(socket)
    assert notification["method"] == "relay_subscription", notification
    assert notification["params"]["subscription"] == id_
    return notification["params"]["result"]


async def test_changes_of_a_transaction_are_told() -> None:
    """Each with its event and where the transaction stands; those of others are not."""
    async with relay() as here, client(here) as socket:
        record, other = await admitted(here.journal), await admitted(here.journal, 1)
        id_ = await subscribe(socket, hashes=[views.data(record.hash)])
        await moved(here.journal, other, State.SEALED)
        done = (await sealed(here.journal, record)).record
        await here.journal.note([Receipt(done.id, 7, b"\x07" * 32, 1)])
        done = await moved(here.journal, done, State.MINED)
        first, second = await told(socket, id_), await told(socket, id_)
        assert [(one["event"]["origin"], one["event"]["state"]) for one in (first, second)] == [
            ("queued", "sealed"),
            ("sealed", "mined"),
        ]
        assert first["event"]["id"] < second["event"]["id"]
        assert second["transaction"] == views.public(done, await here.journal.receipts(done.id))
        assert second["transaction"]["blockNumber"] == "0x7"


async def test_all_of_a_sender_is_told_from_the_first_moment() -> None:
    """What was there before is not; a transaction that two names fit is told once."""
    async with relay() as here, client(here) as socket:
        await admitted(here.journal)
        entry = intake(1)
        id_ = await subscribe(socket, senders=[ALICE.replace("a", "A")], hashes=[views.data(entry.hash)])
        await admitted(here.journal, sender=BOB)
        await here.journal.admit([entry])
        record = await admitted(here.journal, 2)
        assert (await told(socket, id_))["transaction"]["hash"] == views.data(entry.hash)
        assert (await told(socket, id_))["transaction"]["hash"] == views.data(record.hash)


async def test_another_process_is_heard(tmp_path: Path) -> None:
    """What it writes into the same file is told here, all of it."""
    url = f"sqlite:///{tmp_path}/journal.db"
    async with relay(url) as here, client(here) as socket:
        id_ = await subscribe(socket, senders=[ALICE])
        async with worker(url, "admit", "30"):
            results = [await told(socket, id_) for _ in range(30)]
        assert [result["transaction"]["nonce"] for result in results] == [hex(nonce) for nonce in range(30)]
        assert len({result["event"]["id"] for result in results}) == 30


async def test_two_instances_on_one_file(tmp_path: Path) -> None:
    """A change that one makes is told to the clients of both."""
    url = f"sqlite:///{tmp_path}/journal.db"
    async with relay(url) as here, relay(url) as there, client(here) as one, client(there) as two:
        ids = [await subscribe(socket, senders=[ALICE]) for socket in (one, two)]
        record = await admitted(there.journal)
        for socket, id_ in zip((one, two), ids, strict=True):
            assert (await told(socket, id_))["transaction"]["hash"] == views.data(record.hash)


async def test_the_answer_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch subscribes and holds a transaction that waits for a lower nonce: what is told meanwhile waits, too."""
    told_already, tell = asyncio.Event(), news.Hearing.tell

    def spied(hearing: news.Hearing, text: bytes) -> None:
        tell(hearing, text)
        told_already.set()

    monkeypatch.setattr(news.Hearing, "tell", spied)
    async with relay(ordering={"reorder_window_ms": 20_000}) as here, client(here) as socket:
        raw = signed(1, chainId=CHAIN)
        wanted = {"hashes": [decode(bytes.fromhex(raw[2:])).hash]}
        batch = [call("relay_subscribe", "transactions", wanted, id_=1), call("eth_sendRawTransaction", raw, id_=2)]
        await socket.send_json(batch)
        await told_already.wait()
        await here.result("eth_sendRawTransaction", signed(0, chainId=CHAIN))
        answers = await hear(socket)
        assert [answer["id"] for answer in answers] == [1, 2]
        results = [await told(socket, answers[0]["result"]) for _ in range(3)]
        assert [result["event"]["state"] for result in results] == ["queued", "sealed", "pending"]


async def test_a_subscription_ends() -> None:
    """When its client says so, and only its own; then nothing is read any more."""
    async with relay() as here, client(here) as one, client(here) as two:
        id_, other = await subscribe(one, senders=[ALICE]), await subscribe(two, senders=[ALICE])
        assert (await ask(two, "relay_unsubscribe", id_))["result"] is False
        assert (await ask(one, "relay_unsubscribe", id_))["result"] is True
        assert (await ask(one, "relay_unsubscribe", id_))["result"] is False
        await admitted(here.journal)
        assert (await told(two, other))["event"]["state"] == "queued"
        assert (await ask(one, "eth_chainId"))["result"] == hex(CHAIN)
        assert len(here.clients._feeds) == 1
        assert (await ask(two, "relay_unsubscribe", other))["result"] is True
        await here.clients._feeds.settled()


async def test_a_client_that_leaves_takes_its_subscriptions_along() -> None:
    """And the last one ends the reading."""
    async with relay() as here:
        async with client(here) as socket:
            await subscribe(socket, senders=[ALICE])
            await subscribe(socket, hashes=[UNKNOWN])
            assert len(here.clients._feeds) == 1
        await here.clients._feeds.settled()
        async with client(here) as socket:
            id_ = await subscribe(socket, senders=[ALICE])
            await admitted(here.journal)
            await told(socket, id_)


async def test_over_http_nobody_can_be_told() -> None:
    """-32601, also in a batch; the node is not asked."""
    async with relay() as here:
        for method, params in (
            ("relay_subscribe", ["transactions", {"hashes": [UNKNOWN]}]),
            ("relay_unsubscribe", ["0x1"]),
        ):
            assert (await here.call(method, *params))["error"]["code"] == -32601
            assert (await here.post([call(method, *params)]))[0]["error"]["code"] == -32601


async def test_what_a_subscription_must_name() -> None:
    """At least one, not too many, and nothing else."""
    async with relay() as here, client(here) as socket:
        for params in (
            [], ["heads"], ["transactions"], ["transactions", {}], ["transactions", []],
            ["transactions", {"hashes": 1}],
            ["transactions", {"hashes": [UNKNOWN], "states": []}], ["transactions", {"hashes": [ALICE]}],
            ["transactions", {"senders": [UNKNOWN]}], ["transactions", {"senders": [ALICE]}, 1],
            ["transactions", {"senders": [ALICE] * 1001}],
        ):  # fmt: skip
            assert (await ask(socket, "relay_subscribe", *params))["error"]["code"] == -32602, params
        assert (await ask(socket, "relay_unsubscribe", 1))["error"]["code"] == -32602
        assert len(here.clients._feeds) == 0


async def test_a_client_has_so_many_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them it is told; another client has its own."""
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 2)
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 4)
    async with relay() as here, client(here) as one, client(here) as two:
        ids = [await subscribe(one, senders=[ALICE]) for _ in range(2)]
        assert (await ask(one, "relay_subscribe", "transactions", {"senders": [ALICE]}))["error"]["code"] == -32602
        await subscribe(two, senders=[ALICE])
        await ask(one, "relay_unsubscribe", ids[0])
        names = ["0x" + f"{number:02x}" * 32 for number in range(4)]
        assert (await ask(one, "relay_subscribe", "transactions", {"hashes": names}))["error"]["code"] == -32602
        await subscribe(one, hashes=names[:3])


async def test_a_journal_that_goes_away_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that happened meanwhile is missed; who subscribes meanwhile is told that it cannot be read."""
    monkeypatch.setattr(feed, "AGAIN_S", 0.01)
    async with relay() as here, client(here) as socket:
        id_ = await subscribe(socket, senders=[ALICE])
        journal, kept = here.journal, here.journal.changes_since
        asked = asyncio.Event()

        async def away(*_: Any, **__: Any) -> Any:
            asked.set()
            raise Unavailable("locked")

        journal.changes_since = away  # type: ignore[method-assign]
        record = await admitted(journal)
        await asked.wait()
        asked.clear()
        await asked.wait()
        journal.changes_since = kept  # type: ignore[method-assign]
        assert (await told(socket, id_))["transaction"]["hash"] == views.data(record.hash)
    async with relay() as here, client(here) as socket:
        here.journal.latest_changes = away  # type: ignore[method-assign]
        answer = await ask(socket, "relay_subscribe", "transactions", {"senders": [ALICE]})
        assert answer["error"] == {"code": -32032, "message": "the journal cannot be read for now; ask again"}


async def test_one_that_does_not_listen_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what may wait for it; others hear on."""
    monkeypatch.setattr(news, "MAX_WAITING_BYTES", 20_000)
    async with relay() as here, client(here) as quick:
        id_ = await subscribe(quick, senders=[ALICE])
        async with client(here) as slow:
            await subscribe(slow, senders=[ALICE])
            (session,) = [one for one in here.clients._sockets._sessions.values() if one is not first(here)]
            session._takes_more = lambda: session._gone  # type: ignore[method-assign]
            await here.journal.admit([intake(nonce) for nonce in range(200)])
            for _ in range(200):
                await told(quick, id_)
            async with asyncio.timeout(10):
                assert (await slow.receive()).data in (None, 1006)


def first(here: Relay) -> Any:
    """The session that came first."""
    return next(iter(here.clients._sockets._sessions.values()))


async def test_a_drain_ends_what_is_told() -> None:
    """Whoever only listens does not hold it up, and is told that another instance is there."""
    async with relay() as here, client(here) as socket:
        await subscribe(socket, senders=[ALICE])
        drained = asyncio.gather(here.clients.drain(time.monotonic() + 60), socket.receive())
        async with asyncio.timeout(10):
            _, message = await drained
        assert message.data == WSCloseCode.SERVICE_RESTART
        await here.clients._feeds.settled()


async def test_a_submission_is_told_from_its_ticket_to_the_node() -> None:
    """By a relay that carries it out: one sends over HTTP, another one hears."""
    async with relay() as here, client(here) as socket:
        raw = signed(0, chainId=CHAIN)
        transaction = decode(bytes.fromhex(raw[2:]))
        id_ = await subscribe(socket, senders=[transaction.sender], hashes=[transaction.hash])
        assert await here.result("eth_sendRawTransaction", raw) == transaction.hash
        results = [await told(socket, id_) for _ in range(3)]
        assert [result["event"]["state"] for result in results] == ["queued", "sealed", "pending"]
        assert [result["event"]["version"] for result in results] == [1, 2, 3]
        shown = await here.result("relay_getTransaction", transaction.hash)
        assert (shown["state"], shown["nonce"], shown["mayStillLand"]) == ("pending", "0x0", True)

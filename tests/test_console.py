"""The operator's API: who may, what is shown, what each action does, and what it says when it does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from relay.config import Ops
from relay.console.reading import MAX_REASON
from relay.console.replacement import raised, replacement
from relay.console.routes import PREFIX, ROUTES
from relay.devnode.keys import FUNDED
from relay.journal import Unavailable
from relay.journal.records import Answer, Record, Taken
from relay.lifecycle import State
from relay.ops import OpsServer, of_process
from relay.telemetry.metrics import Metrics
from relay.testing.samples import ALICE, BOB, CHAIN, admitted, decision, intake, moved, sealed
from tests.console_rig import REASON, TOKEN, Desk, at_the_desk
from tests.stand import signed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ADDRESS = "0x" + ALICE.hex()


async def sent(desk: Desk, nonce: int = 0, *, raw: bytes | None = None) -> Record:
    """One whose bytes left, and nothing proves what became of them."""
    record = (await desk.journal.admit([intake(nonce, raw=raw)]))[0].record
    return await moved(desk.journal, record, State.SEALED, State.SENT)


async def untaken(desk: Desk, target: State = State.QUEUED) -> Record:
    """One that a node was proven not to have taken."""
    done = await sealed(desk.journal, await admitted(desk.journal))
    facts = (Answer(done.attempt, Taken.NO, "funds", "insufficient funds"),)
    moved_ = (await desk.journal.decide([decision(done.record, target, facts=facts)]))[0]
    assert isinstance(moved_, Record)
    return moved_


# Who may


@pytest.mark.parametrize("token", ["", "wrong-but-long-enough", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "ü" * 8])
async def test_without_the_token_nothing_is_told(token: str) -> None:
    """Not even which routes there are."""
    async with at_the_desk() as desk:
        for method, path in (("GET", "/api/census"), ("GET", "/api/none"), ("POST", "/api/census"), ("GET", "/api")):
            said = await desk.ask(method, path, token=token)
            assert (said.status, said.problem) == (401, "unauthorized")
            assert said.headers["WWW-Authenticate"].startswith("Bearer")


async def test_the_scheme_is_read_as_http_reads_it() -> None:
    """Its case does not matter (RFC 9110); another scheme is no token."""
    async with at_the_desk() as desk:
        for scheme, status in (("bearer", 200), ("BEARER", 200), ("Basic", 401), ("", 401)):
            headers = {"Authorization": f"{scheme} {TOKEN}".strip()}
            async with desk.client.get(f"{desk.url}/api/census", headers=headers) as answer:
                assert answer.status == status


async def test_health_and_metrics_stay_open() -> None:
    """The token is for the API alone."""
    async with at_the_desk() as desk:
        for path in ("/livez", "/readyz", "/metrics"):
            async with desk.client.get(desk.url + path) as answer:
                assert answer.status == 200


async def test_where_it_is_not_configured_there_is_no_api() -> None:
    """404 with what is missing, whatever is asked."""
    server = OpsServer(Ops(listen="127.0.0.1:0"), of_process(Metrics()))
    host, port = await server.start()
    try:
        async with aiohttp.ClientSession() as client:
            for method, path in (("GET", "/api"), ("GET", "/api/census"), ("POST", "/api/sweep")):
                async with client.request(method, f"http://{host}:{port}{path}") as answer:
                    assert answer.status == 404
                    assert (await answer.json(content_type=None))["ways"] == ["set [ops] token and [journal] url"]
    finally:
        await server.close()


# Messages


async def test_a_strange_route_and_a_wrong_method_are_problems() -> None:
    """With what there is instead."""
    async with at_the_desk() as desk:
        assert (await desk.get("/none")).problem == "not_found"
        said = await desk.post("/census")
        assert (said.status, said.problem, said.headers["Allow"]) == (405, "wrong_method", "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "/transactions", "/transactions?state=odd", "/transactions?state=sent&limit=0",
        "/transactions?state=sent&limit=501", "/transactions?state=sent&before=7", "/transactions?stat=sent",
        "/transactions/0", "/transactions/0x12", "/transactions/abc", "/lanes/0x12", "/lanes?after=x",
        f"/lanes/{ADDRESS}?chain=-1", f"/lanes/{ADDRESS}?chain={1 << 63}", "/census?limit=1",
        "/transactions?state=sent&state=failed",
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_refused_by_name(path: str) -> None:
    """A slip of the pen does nothing."""
    async with at_the_desk() as desk:
        said = await desk.get(path)
        assert (said.status, said.problem) == (400, "bad_request")


@pytest.mark.parametrize(
    "body",
    [
        "text", [], {}, {"reason": ""}, {"reason": "  \n"}, {"reason": 7}, {"reason": "x" * (MAX_REASON + 1)},
        {"reason": "x", "attest": True}, {"reason": "x", "why": "y"},
    ],
)  # fmt: skip
async def test_every_action_needs_a_reason(body: Any) -> None:
    """In words, of a length that a history can hold; and nothing else."""
    async with at_the_desk() as desk:
        record = await admitted(desk.journal)
        for path in (f"/transactions/{record.id}/cancel", f"/lanes/{ADDRESS}/pause", "/sweep"):
            said = await desk.post(path, body)
            assert (said.status, said.problem) == (400, "bad_request")
        assert await desk.journal.by_id(record.id) == record
        assert desk.hand.asked == []


async def test_a_body_is_json_and_small() -> None:
    """Another type is refused unread, and so is a large one."""
    async with at_the_desk() as desk:
        form = await desk.ask("POST", "/api/sweep", data={"reason": "x"})
        assert (form.status, form.problem) == (415, "wrong_type")
        headers = {"Content-Type": "application/json"}
        assert (await desk.ask("POST", "/api/sweep", data=b"{", headers=headers)).problem == "bad_request"
        assert (await desk.ask("POST", "/api/sweep", data=b'{"reason": "\xff"}', headers=headers)).status == 400
        large = await desk.ask("POST", "/api/sweep", data=b" " * 70_000, headers=headers)
        assert (large.status, large.problem) == (413, "too_large")


async def test_a_journal_that_is_away_is_said() -> None:
    """503 with the store's words; a fault of the relay is a problem, too, without its words."""
    async with at_the_desk() as desk:
        journal, broken = desk.journal, _Broken(Unavailable("the disk is full"))
        desk.shelf._journal = broken
        said = await desk.get("/census")
        assert (said.status, said.problem, said.body["detail"]) == (503, "journal_unavailable", "the disk is full")
        desk.shelf._journal = _Broken(RuntimeError("secret"))
        said = await desk.get("/census")
        assert (said.status, said.problem) == (500, "internal")
        assert "secret" not in str(said.body)
        desk.shelf._journal = journal


class _Broken:
    """Each operation raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, _name: str) -> Any:
        raise self.error

    async def close(self) -> None:
        """Nothing."""


# Looking


async def test_a_list_comes_in_pages() -> None:
    """Latest change first, each row once, until there is no next page."""
    async with at_the_desk() as desk:
        records = [await admitted(desk.journal, nonce) for nonce in range(5)]
        await admitted(desk.journal, 9, sender=BOB)
        await moved(desk.journal, records[0], State.FAILED)
        seen, path = [], "/transactions?state=queued&limit=2"
        while True:
            said = await desk.get(path)
            seen += [row["id"] for row in said.body["transactions"]]
            if said.body["next"] is None:
                break
            path = f"/transactions?state=queued&limit=2&before={said.body['next']}"
        listed = await desk.journal.listing(State.QUEUED)
        assert seen == [record.id for record in listed]
        assert len(seen) == 5


async def test_one_submission_in_full() -> None:
    """By its id and by its hash: attempts, history, keys; the version is the tag."""
    async with at_the_desk() as desk:
        record = (await desk.journal.admit([intake(key="pay-7")]))[0].record
        record = await moved(desk.journal, record, State.SEALED, State.SENT)
        said = await desk.get(f"/transactions/{record.id}")
        assert said == await desk.get(f"/transactions/0x{record.hash.hex().upper()}", headers={}) or True
        assert said.headers["ETag"] == f'"{record.version}"'
        assert [event["state"] for event in said.body["history"]] == ["queued", "sealed", "sent"]
        assert [(one["node"], one["taken"]) for one in said.body["attempts"]] == [("node", None)]
        assert [one["key"] for one in said.body["idempotencyKeys"]] == ["pay-7"]
        by_hash = await desk.get(f"/transactions/0x{record.hash.hex().upper()}")
        assert by_hash.body == said.body
        head = await desk.ask("HEAD", f"/api/transactions/{record.id}")
        assert (head.status, head.headers["ETag"]) == (200, said.headers["ETag"])


@pytest.mark.parametrize("which", ["77", "0x" + "ab" * 32])
async def test_what_is_not_recorded_is_not_found(which: str) -> None:
    """To look at, and to act on."""
    async with at_the_desk() as desk:
        assert (await desk.get(f"/transactions/{which}")).problem == "not_found"
        assert (await desk.post(f"/transactions/{which}/retry")).problem == "not_found"


async def test_the_lanes_and_the_paused_ones() -> None:
    """Each with its lowest nonce and whether it is paused; in pages; the paused ones also where nothing is live."""
    async with at_the_desk() as desk:
        for sender in (ALICE, BOB):
            await admitted(desk.journal, 4, sender=sender)
        await desk.post(f"/lanes/0x{BOB.hex()}/pause")
        first = (await desk.get("/lanes?limit=1")).body
        assert [(lane["address"], lane["lowest"], lane["paused"]) for lane in first["lanes"]] == [
            (ADDRESS, "0x4", False)
        ]
        second = (await desk.get(f"/lanes?limit=1&after={first['next']}")).body
        assert [(lane["address"], lane["paused"]) for lane in second["lanes"]] == [(f"0x{BOB.hex()}", True)]
        assert (await desk.get(f"/lanes?after={second['next']}")).body["lanes"] == []
        await desk.post("/lanes/0x" + "cc" * 20 + "/pause")
        paused = (await desk.get("/lanes?paused=true")).body["paused"]
        assert [lane["address"] for lane in paused] == [f"0x{BOB.hex()}", "0x" + "cc" * 20]


async def test_a_lane_in_full() -> None:
    """What is open in it, in nonce order; each of its settings."""
    async with at_the_desk() as desk:
        for nonce in (3, 1):
            await admitted(desk.journal, nonce)
        await desk.post(f"/lanes/{ADDRESS}/pause", {"reason": "look"}, **{"X-Actor": "ann"})
        lane = await desk.get(f"/lanes/{ADDRESS.upper().replace('X', 'x', 1)}")
        assert [row["nonce"] for row in lane.body["open"]] == ["0x1", "0x3"]
        assert (lane.body["paused"], lane.body["more"], lane.headers["ETag"]) == (True, False, '"1"')
        assert [(one["detail"], one["actor"]) for one in lane.body["settings"]] == [("look", "ann")]
        elsewhere = await desk.get(f"/lanes/{ADDRESS}?chain=5")
        assert (elsewhere.body["chainId"], elsewhere.body["open"], elsewhere.body["version"]) == ("0x5", [], 0)


async def test_a_lane_is_on_a_chain() -> None:
    """While the node has not said which, the operator does."""
    async with at_the_desk(chain=None) as desk:
        for said in (await desk.get(f"/lanes/{ADDRESS}"), await desk.post(f"/lanes/{ADDRESS}/pause")):
            assert (said.status, said.problem) == (503, "chain_unknown")
        assert (await desk.get(f"/lanes/{ADDRESS}?chain={CHAIN}")).status == 200


async def test_the_census() -> None:
    """By state and reason."""
    async with at_the_desk() as desk:
        await admitted(desk.journal)
        said = await desk.get("/census")
        assert [(row["state"], row["rows"]) for row in said.body["open"]] == [("queued", 1)]
        assert said.body["outbox"] == {"waiting": 0, "oldest": None, "dead": 0}


# Acting


async def test_a_failed_submission_is_retried() -> None:
    """Queued again with a fresh budget; the lanes are asked to take it up; the history says who and why."""
    async with at_the_desk() as desk:
        record = await untaken(desk, State.FAILED)
        said = await desk.post(f"/transactions/{record.id}/retry", **{"X-Actor": "ann"})
        assert (said.status, said.body["state"], said.body["tries"]) == (200, "queued", 0)
        assert said.headers["ETag"] == f'"{record.version + 1}"'
        assert desk.hand.asked == [record.id]
        event = (await desk.journal.history(record.id))[-1]
        assert (event.state, event.actor, event.detail) == (State.QUEUED, "ann", REASON["reason"])


async def test_a_dead_letter_that_may_still_land_is_retried_only_on_ones_word() -> None:
    """Refused with the ways out; with the attestation it is queued."""
    async with at_the_desk() as desk:
        record = await moved(desk.journal, await sent(desk), State.DEAD_LETTER)
        said = await desk.post(f"/transactions/{record.id}/retry")
        assert (said.status, said.problem) == (409, "may_still_land")
        assert any("attest" in way for way in said.body["ways"])
        assert desk.hand.asked == []
        said = await desk.post(f"/transactions/{record.id}/retry", REASON | {"attest": True})
        assert (said.status, said.body["state"]) == (200, "queued")
        assert desk.hand.asked == [record.id]


@pytest.mark.parametrize("path", [(), (State.SEALED,), (State.SEALED, State.SENT), (State.PENDING,)])
async def test_a_live_submission_is_sent_once_more(path: tuple[State, ...]) -> None:
    """It stays where it is, with the reason in its history."""
    async with at_the_desk() as desk:
        record = await moved(desk.journal, await admitted(desk.journal), *path)
        said = await desk.post(f"/transactions/{record.id}/resend")
        assert (said.status, said.body["state"]) == (202, record.state)
        assert desk.hand.asked == [record.id]
        event = (await desk.journal.history(record.id))[-1]
        assert (event.origin, event.state, event.actor, event.detail) == (
            record.state, record.state, "operator", REASON["reason"],
        )  # fmt: skip


async def test_what_cannot_land_any_more_can_be_failed() -> None:
    """Never sent, or each attempt proven not to have been taken."""
    async with at_the_desk() as desk:
        for record in (await admitted(desk.journal, 5), await untaken(desk)):
            said = await desk.post(f"/transactions/{record.id}/fail")
            assert (said.status, said.body["state"], said.body["mayStillLand"]) == (200, "failed", False)
            assert said.body["subStatus"]["reason"] == "by_operator"
        assert desk.hand.asked == []


async def test_what_was_never_sent_is_cancelled_at_once() -> None:
    """And a writer that took it for queued is refused."""
    async with at_the_desk() as desk:
        record = await admitted(desk.journal)
        said = await desk.post(f"/transactions/{record.id}/cancel")
        assert (said.status, said.body["state"]) == (200, "cancelled")
        assert not isinstance((await desk.journal.decide([decision(record, State.FAILED)]))[0], Record)


async def test_what_was_sent_is_replaced_by_the_keys_holder() -> None:
    """Cancel explains: same nonce, at least these fees. Nothing is said that is not signed there."""
    async with at_the_desk() as desk:
        raw = bytes.fromhex(signed(7, maxFeePerGas=10**9, maxPriorityFeePerGas=3)[2:])
        record = await sent(desk, 7, raw=raw)
        said = await desk.post(f"/transactions/{record.id}/cancel")
        assert (said.status, said.problem) == (409, "was_sent")
        signs = said.body["replacement"]
        assert (signs["nonce"], signs["from"], signs["type"]) == ("0x7", ADDRESS, "0x2")
        assert int(signs["maxFeePerGas"], 16) == 1_100_000_000
        assert int(signs["maxPriorityFeePerGas"], 16) == 4
        assert raw.hex() not in str(said.body)
        assert await desk.journal.by_id(record.id) == record


NOT_NOW: Mapping[str, tuple[tuple[State, ...], str]] = {
    "retry, queued": ((), "still_live"),
    "retry, completed": ((State.MINED, State.COMPLETED), "has_ended"),
    "retry, superseded": ((State.SUPERSEDED,), "has_ended"),
    "resend, mined": ((State.MINED,), "not_live"),
    "resend, failed": ((State.FAILED,), "not_live"),
    "resend, dead letter": ((State.DEAD_LETTER,), "not_live"),
    "resend, cancelled": ((State.CANCELLED,), "has_ended"),
    "fail, sealed": ((State.SEALED,), "may_still_land"),
    "fail, pending": ((State.PENDING,), "may_still_land"),
    "fail, mined": ((State.MINED,), "may_still_land"),
    "fail, failed": ((State.FAILED,), "has_ended"),
    "fail, dead letter": ((State.DEAD_LETTER,), "has_ended"),
    "fail, dead letter out": ((State.SEALED, State.DEAD_LETTER), "may_still_land"),
    "cancel, sent": ((State.SEALED, State.SENT), "was_sent"),
    "cancel, mined": ((State.MINED,), "was_sent"),
    "cancel, dead letter out": ((State.SEALED, State.DEAD_LETTER), "was_sent"),
    "cancel, failed": ((State.FAILED,), "has_ended"),
    "cancel, cancelled": ((State.CANCELLED,), "has_ended"),
}


@pytest.mark.parametrize("case", NOT_NOW)
async def test_what_cannot_be_done_is_refused_and_changes_nothing(case: str) -> None:
    """409, the kind of problem, and what else can be done."""
    path, problem = NOT_NOW[case]
    async with at_the_desk() as desk:
        record = await moved(desk.journal, await admitted(desk.journal), *path)
        said = await desk.post(f"/transactions/{record.id}/{case.partition(',')[0]}")
        assert (said.status, said.problem) == (409, problem)
        assert await desk.journal.by_id(record.id) == record
        assert desk.hand.asked == []


async def test_what_was_sent_and_not_taken_is_failed_instead_of_cancelled() -> None:
    """It cannot land: the way is named."""
    async with at_the_desk() as desk:
        record = await untaken(desk)
        said = await desk.post(f"/transactions/{record.id}/cancel")
        assert said.problem == "was_sent"
        assert "replacement" not in said.body
        assert said.body["ways"][0].startswith("fail")


# Two operators


async def test_an_operator_decides_on_what_he_saw() -> None:
    """With ``If-Match``: refused when it changed since, and told the newest version."""
    async with at_the_desk() as desk:
        record = await admitted(desk.journal)
        await moved(desk.journal, record, State.QUEUED)
        for tag in ('"1"', 'W/"2"', "2", "", '"x", "3"'):
            said = await desk.post(f"/transactions/{record.id}/fail", **{"If-Match": tag})
            assert (said.status, said.problem, said.body["version"]) == (412, "changed", 2)
        assert (await desk.post(f"/transactions/{record.id}/fail", **{"If-Match": '"1", "2"'})).status == 200
        assert (await desk.post(f"/transactions/{record.id}/retry", **{"If-Match": "*"})).status == 200


async def test_two_operators_at_once_decide_once(tmp_path: Path) -> None:
    """The second one's action is judged by what the first one made of it."""
    async with at_the_desk(f"sqlite:///{tmp_path}/journal") as desk:
        record = await admitted(desk.journal)
        path = f"/transactions/{record.id}"
        both = await asyncio.gather(desk.post(f"{path}/cancel"), desk.post(f"{path}/fail"))
        assert sorted(said.status for said in both) == [200, 409]
        assert len(await desk.journal.history(record.id)) == 2


async def test_who_always_comes_too_late_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some looks: a row, and a lane, that change each time."""
    async with at_the_desk() as desk:
        record = await admitted(desk.journal)
        decide, set_paused = desk.journal.decide, desk.journal.set_paused

        async def late(decisions: Any) -> Any:
            newest = await desk.journal.by_id(record.id)
            assert newest is not None
            await decide([decision(newest, State.QUEUED)])
            return await decide(decisions)

        async def later(*lane: Any, **setting: Any) -> Any:
            await set_paused(*lane, **setting)
            return await set_paused(*lane, **setting)

        monkeypatch.setattr(desk.journal, "decide", late)
        monkeypatch.setattr(desk.journal, "set_paused", later)
        for path in (f"/transactions/{record.id}/fail", f"/lanes/{ADDRESS}/pause"):
            said = await desk.post(path)
            assert (said.status, said.problem) == (409, "contested")


# Lanes


async def test_a_lane_is_paused_and_goes_on() -> None:
    """The lanes' process hears of each at once; the versions keep two operators apart."""
    async with at_the_desk() as desk:
        paused = await desk.post(f"/lanes/{ADDRESS}/pause", **{"If-Match": '"0"'})
        assert (paused.status, paused.body["paused"], paused.headers["ETag"]) == (200, True, '"1"')
        late = await desk.post(f"/lanes/{ADDRESS}/pause", **{"If-Match": '"0"'})
        assert (late.status, late.problem, late.body["version"]) == (412, "changed", 1)
        resumed = await desk.post(f"/lanes/{ADDRESS}/resume")
        assert (resumed.body["paused"], resumed.body["version"]) == (False, 2)
        assert desk.hand.asked == ["lanes changed"] * 2


async def test_a_sweep_is_asked_for() -> None:
    """It comes when the lanes' process has time."""
    async with at_the_desk() as desk:
        said = await desk.post("/sweep")
        assert (said.status, said.body, desk.hand.asked) == (202, {"asked": "sweep"}, ["sweep"])
        (line,) = desk.log
        assert (line["action"], line["actor"], line["reason"]) == ("sweep", "operator", REASON["reason"])


@pytest.mark.parametrize("actor", ["a" * 101, "tab\there", "ünter"])
async def test_an_actor_has_a_name_that_a_history_can_hold(actor: str) -> None:
    """Visible ASCII, of at most 100 characters."""
    async with at_the_desk() as desk:
        assert (await desk.post("/sweep", **{"X-Actor": actor})).problem == "bad_request"


# Pure parts


@given(fee=st.integers(0, 1 << 256), percent=st.sampled_from([110, 200]))
def test_a_replacement_pays_enough_and_more(fee: int, percent: int) -> None:
    """As go-ethereum reckons: not below the threshold, and above what it replaces; one wei less would be too little."""
    least = raised(fee, percent)
    assert least > fee
    assert least >= fee * percent // 100
    assert least * 100 >= fee * percent
    assert least - 1 <= fee or (least - 1) * 100 < fee * percent


async def test_what_replaces_each_type() -> None:
    """Legacy by its price; what cannot be read by nothing that the relay could name."""
    async with at_the_desk() as desk:
        record = await admitted(desk.journal)
        fields = {"chainId": CHAIN, "nonce": 0, "to": b"\xaa" * 20, "value": 1, "gas": 21_000, "gasPrice": 100}
        found = replacement(record, bytes(Account.sign_transaction(fields, FUNDED[0].key).raw_transaction))
        assert found is not None
        assert (found["gasPrice"], found["type"]) == (hex(110), "0x0")
        assert replacement(record, b"\x02nonsense") is None


def test_every_route_is_under_the_prefix_and_has_its_own_name() -> None:
    """The table is what the listener and the document are made of."""
    assert PREFIX == "/api"
    assert len({route.name for route in ROUTES}) == len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)

"""Wishes with a real journal: keys that guard, answers before the verdict, and what stands in the record then."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from relay.devnode.faults import Hang, Refuse
from relay.journal.faults import Unavailable
from relay.journal.records import Intake
from relay.journal.shelf import Shelf
from relay.lifecycle import Mode, Reason, State
from relay.recorder.taking_up import TakingUp
from relay.router import Answer, Forward
from relay.transaction import decode
from relay.wish import NO_WISH, Wish
from tests.stand import CHAIN_ID, Stand, signed, submission
from tests.test_router import hash_of
from tests.workers_rig import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relay.journal.records import Record

ASYNC = Wish(respond_async=True)
FUNDS = "insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1"


class Keeper:
    """A stand with a journal, and clients with wishes in front of it."""

    def __init__(self, stand: Stand, shelf: Shelf) -> None:
        self.stand = stand
        self.shelf = shelf

    def ask(self, raw: str, wish: Wish = NO_WISH) -> asyncio.Future[Answer]:
        """Submit it."""
        routed = self.stand.router.route(submission(raw), wish)
        assert not isinstance(routed, Answer | Forward)
        return routed

    async def reply(self, raw: str, wish: Wish = NO_WISH) -> Any:
        """Submit it and wait: the response object."""
        return json.loads((await self.ask(raw, wish)).body)

    async def record(self, raw: str) -> Record:
        """What is written down."""
        record = await self.shelf.journal.by_hash(CHAIN_ID, bytes.fromhex(hash_of(raw)[2:]))
        assert record is not None
        return record

    async def stands(self, raw: str, state: State) -> Record:
        """The record, once it stands there."""
        while (record := await self.record(raw)).state is not state:  # noqa: ASYNC110 - a store has no event for it
            await asyncio.sleep(0.001)
        return record

    @property
    def sent(self) -> int:
        """Submissions that reached the node."""
        return self.stand.node.arrivals.total

    def hang(self, *rules: Refuse) -> None:
        """The node does not answer what is sent from now on until `resume`; then as ``rules`` say."""
        self.stand.node.script.add(Hang(), *rules)

    async def reached(self) -> None:
        """Wait until it has got something."""
        await self.stand.node.until(lambda: self.stand.node.hanging == 1)

    def resume(self) -> None:
        """It answers, also what has waited."""
        self.stand.node.script.clear()
        self.stand.node.release()


@asynccontextmanager
async def keeping(tmp_path: Path, **journal: Any) -> AsyncIterator[Keeper]:
    """A journal in a file of its own."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    shelf = Shelf(url)
    async with Stand.recording(shelf, journal={"url": url} | journal) as stand:
        yield Keeper(stand, shelf)


def told(answer: Answer) -> tuple[Any, dict[str, str]]:
    """The response object and the headers."""
    return json.loads(answer.body), dict(answer.headers)


async def test_a_key_guards_against_the_payment_that_is_signed_twice(tmp_path: Path) -> None:
    """A client times out, signs anew with the next nonce and sends under the same key: refused, told of the first."""
    async with keeping(tmp_path) as here:
        first = await here.reply(signed(0), Wish("pay-7"))
        second = await here.reply(signed(1), Wish("pay-7"))

        assert first["result"] == hash_of(signed(0))
        assert second["error"]["code"] == -32030
        assert second["error"]["data"] == {"hash": hash_of(signed(0)), "state": "pending", "mayStillLand": True}
        assert here.sent == 1
        assert (await here.reply(signed(1), Wish("pay-8")))["result"] == hash_of(signed(1))


async def test_the_guard_holds_while_the_first_is_in_flight(tmp_path: Path) -> None:
    """The race that a time-out makes: the second does not even wait for the first one's lane."""
    async with keeping(tmp_path) as here:
        here.hang()
        first = here.ask(signed(0), Wish("k"))
        second = here.ask(signed(1), Wish("k"))

        assert json.loads((await second).body)["error"]["code"] == -32030
        assert not first.done()
        here.resume()
        await first


async def test_keys_of_two_senders_are_two_keys(tmp_path: Path) -> None:
    """A key is one sender's on one chain."""
    async with keeping(tmp_path) as here:
        replies = await asyncio.gather(*(here.reply(signed(0, who=who), Wish("k")) for who in (0, 1)))

        assert [reply["result"] for reply in replies] == [hash_of(signed(0, who=who)) for who in (0, 1)]


@pytest.mark.parametrize("wish", [Wish("k"), Wish("other"), NO_WISH, Wish("k", respond_async=True)])
async def test_what_was_taken_is_read_back(tmp_path: Path, wish: Wish) -> None:
    """The same bytes again, under the same key, another or none: the hash, and the node is not asked again."""
    async with keeping(tmp_path) as here:
        await here.reply(signed(0), Wish("k"))

        assert (await here.reply(signed(0), wish))["result"] == hash_of(signed(0))
        assert here.sent == 1


async def test_a_key_that_was_used_too_long_ago_is_a_conflict(tmp_path: Path) -> None:
    """Also for the same bytes under it; the bytes alone are read back for ever."""
    async with keeping(tmp_path) as here:
        await here.reply(signed(0), Wish("k"))
        assert here.stand.recorder is not None
        window_ms, here.stand.recorder._entering._dedupe_ms = here.stand.recorder._entering._dedupe_ms, -1
        refused = await here.reply(signed(0), Wish("k"))
        here.stand.recorder._entering._dedupe_ms = window_ms
        assert refused["error"]["code"] == -32030
        assert "dedupe_h" in refused["error"]["message"]
        assert (await here.reply(signed(0)))["result"] == hash_of(signed(0))


async def test_a_refusal_releases_the_key(tmp_path: Path) -> None:
    """The client was told no: it may sign anew under the same key, or send the same bytes again."""
    async with keeping(tmp_path) as here:
        here.stand.node.script.add(Refuse(message=FUNDS, times=2))
        assert (await here.reply(signed(0), Wish("k")))["error"]["message"] == FUNDS
        assert (await here.reply(signed(0), Wish("k")))["error"]["message"] == FUNDS
        other = signed(0, value=2)

        assert (await here.reply(other, Wish("k")))["result"] == hash_of(other)
        assert (await here.record(signed(0))).attempts == 2


async def test_a_copy_in_flight_binds_its_own_key(tmp_path: Path) -> None:
    """It waits with the first, and its key guards from then on."""
    async with keeping(tmp_path) as here:
        here.hang()
        first = here.ask(signed(0), Wish("k"))
        copy = here.ask(signed(0), Wish("other"))
        eager = told(await here.ask(signed(0), Wish("third", respond_async=True)))
        assert eager[1]["Location"] == f"/transactions/{hash_of(signed(0))}"
        assert not copy.done()
        here.resume()

        assert (await copy).body == (await first).body
        assert here.sent == 1
        for key in ("k", "other", "third"):
            assert (await here.reply(signed(1), Wish(key)))["error"]["code"] == -32030


async def test_a_copy_whose_key_is_anothers_is_refused_alone(tmp_path: Path) -> None:
    """The transaction that it wanted goes on for the first client."""
    async with keeping(tmp_path) as here:
        await here.reply(signed(0), Wish("used"))
        here.hang()
        first = here.ask(signed(1), Wish("k"))
        copy = await here.reply(signed(1), Wish("used"))

        assert copy["error"]["code"] == -32030
        assert not first.done()
        here.resume()
        assert json.loads((await first).body)["result"] == hash_of(signed(1))


@pytest.mark.parametrize("wish", [NO_WISH, Wish("free"), Wish("free", respond_async=True)])
async def test_nobody_suffers_from_anothers_key(tmp_path: Path, wish: Wish) -> None:
    """Who joins a submission whose key turns out to be another's is taken in on its own."""
    async with keeping(tmp_path) as here:
        await here.reply(signed(0), Wish("used"))
        refused, *good = here.ask(signed(1), Wish("used")), here.ask(signed(1), wish), here.ask(signed(1), wish)

        assert json.loads((await refused).body)["error"]["code"] == -32030
        assert [json.loads((await one).body)["result"] for one in good] == [hash_of(signed(1))] * 2
        await here.stands(signed(1), State.PENDING)
        assert here.sent == 2


async def test_the_answer_does_not_wait_for_the_node(tmp_path: Path) -> None:
    """It is on disk when the client hears, and the record says that the client counts on it."""
    async with keeping(tmp_path) as here:
        here.hang()
        reply, headers = told(await here.ask(signed(0), ASYNC))
        record = await here.record(signed(0))

        assert reply["result"] == hash_of(signed(0))
        assert headers == {"Location": f"/transactions/{hash_of(signed(0))}", "Preference-Applied": "respond-async"}
        assert record.mode is Mode.ACCEPTED
        here.resume()
        await here.stands(signed(0), State.PENDING)


async def test_a_setting_answers_everybody_so(tmp_path: Path) -> None:
    """``answer = "accepted"``, over WebSocket too: there without a header."""
    async with keeping(tmp_path, answer="accepted") as here:
        _, headers = told(await here.ask(signed(0)))

        assert list(headers) == ["Location"]
        assert (await here.stands(signed(0), State.PENDING)).mode is Mode.ACCEPTED


async def test_what_was_promised_is_held_where_it_would_have_failed(tmp_path: Path) -> None:
    """And a client that waited for the verdict is not told "no" of what is sent again: it could pay twice."""
    async with keeping(tmp_path) as here:
        here.hang(Refuse(message=FUNDS))
        patient = here.ask(signed(0))
        assert "Location" in told(await here.ask(signed(0), ASYNC))[1]
        await here.reached()
        here.resume()
        reply, headers = told(await patient)
        record = await here.record(signed(0))

        assert (reply["error"]["code"], headers) == (-32040, {})
        assert (record.state, record.reason, record.mode) == (State.QUEUED, Reason.HELD_FUNDS, Mode.ACCEPTED)


async def test_a_bounded_wait_ends_with_a_handle(tmp_path: Path) -> None:
    """Nothing fails: what the node says later is written as of one that was promised."""
    async with keeping(tmp_path) as here:
        here.hang(Refuse(message=FUNDS))
        reply, headers = told(await here.ask(signed(0), Wish(wait_s=0)))
        await here.reached()
        here.resume()

        assert (reply["result"], headers["Preference-Applied"]) == (hash_of(signed(0)), "wait=0")
        await until(lambda: not here.stand.submitter._ends.all())
        record = await here.record(signed(0))
        assert (record.state, record.reason, record.mode) == (State.QUEUED, Reason.HELD_FUNDS, Mode.ACCEPTED)


@pytest.mark.parametrize("refused", [False, True])
async def test_a_verdict_within_the_bound_is_a_verdict(tmp_path: Path, refused: bool) -> None:
    """Until it is told, the record counts the client among those who were promised something: a crash may come then."""
    async with keeping(tmp_path) as here:
        here.hang(*[Refuse(message=FUNDS)] * refused)
        waiting = here.ask(signed(0), Wish("k", wait_s=3600))
        await here.reached()
        assert (await here.record(signed(0))).mode is Mode.ACCEPTED
        here.resume()
        reply, headers = told(await waiting)
        record = await here.record(signed(0))

        assert ("error" in reply, headers) == (refused, {})
        assert (record.state, record.mode) == (State.FAILED if refused else State.PENDING, Mode.VERDICT)
        assert record.releases_key is refused


async def test_without_its_store_nothing_is_promised(tmp_path: Path) -> None:
    """A client that would take a handle gets an error, and nothing is sent; a copy's key alone stops nothing."""
    async with keeping(tmp_path) as here:
        here.hang()
        first = here.ask(signed(0))
        await here.reached()
        journal = here.shelf.journal
        here.shelf._journal, here.shelf._why = None, Unavailable("the disk is full")
        eager = await here.reply(signed(1), ASYNC)
        copy = await here.reply(signed(0), Wish("k"))
        here.shelf._journal = journal

        assert eager["error"]["code"] == -32032
        assert copy["error"]["code"] == -32040
        here.resume()
        assert json.loads((await first).body)["result"] == hash_of(signed(0))
        assert here.sent == 1


async def test_a_copy_is_answered_when_the_instance_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key was not bound yet; what it waits for may be at the node."""
    async with keeping(tmp_path) as here:
        here.hang()
        first = here.ask(signed(0))
        await here.reached()
        held = asyncio.Event()

        async def stuck(*_: Any) -> None:
            await held.wait()

        assert here.stand.recorder is not None
        monkeypatch.setattr(here.stand.recorder._entering, "bind", stuck)
        copy = here.ask(signed(0), Wish("k"))
        await asyncio.sleep(0)
        here.stand.submitter.give_up()

        assert [json.loads((await one).body)["error"]["code"] for one in (copy, first)] == [-32040, -32040]
        held.set()


async def test_a_copy_is_answered_when_its_task_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each await of the way that a key takes."""
    async with keeping(tmp_path) as here:
        here.hang()
        here.ask(signed(0)).add_done_callback(lambda _: None)
        for place in ("entered", "bind"):
            reached = asyncio.Event()

            async def stuck(*_: Any, reached: asyncio.Event = reached) -> None:
                reached.set()
                await asyncio.Event().wait()

            with monkeypatch.context() as patch:
                patch.setattr(here.stand.recorder, place, stuck)
                copy = here.ask(signed(0), Wish(place))
                await reached.wait()
            for task in asyncio.all_tasks():
                if task.get_name() == "test.attach":
                    task.cancel()
            assert json.loads((await copy).body)["error"]["code"] == -32040
        here.resume()
        await until(lambda: not here.stand.submitter._ends.all())


async def test_a_promise_outlives_the_process_and_its_client(tmp_path: Path) -> None:
    """A handle was given and the process ended; the same bytes come again, by a client that waits: still promised."""
    async with keeping(tmp_path) as here:
        here.hang()
        await here.ask(signed(0), ASYNC)
        await here.reached()
    async with keeping(tmp_path) as here:
        assert (await here.record(signed(0))).mode is Mode.ACCEPTED
        here.stand.node.script.add(Refuse(message=FUNDS))
        reply = await here.reply(signed(0))

        assert reply["error"]["code"] == -32040
        assert (await here.record(signed(0))).mode is Mode.ACCEPTED


async def test_what_is_taken_up_is_promised_at_once(tmp_path: Path) -> None:
    """Its record is there: a client that comes meanwhile and would take a handle does not wait for the node."""
    async with keeping(tmp_path) as here:
        here.hang()
        here.ask(signed(0)).add_done_callback(lambda _: None)
        await here.reached()
    async with keeping(tmp_path) as here:
        here.hang()
        stand, recorder = here.stand, here.stand.recorder
        assert recorder is not None
        taking_up = TakingUp(
            here.shelf,
            recorder,
            take=stand.submitter.take,
            find=stand.submitter.find,
            max_wait_s=25,
            report=stand.report,
            clock=time.monotonic,
        )
        record = await here.record(signed(0))
        payload = await here.shelf.journal.payload(record.id)
        assert payload is not None
        taken = stand.owner.spawn("take up", taking_up.take_up(record, payload))
        await until(lambda: bool(stand.submitter._ends.all()))
        _, headers = told(await here.ask(signed(0), ASYNC))

        assert headers["Location"] == f"/transactions/{hash_of(signed(0))}"
        assert not taken.done()
        here.resume()
        await taken


async def test_what_no_store_can_hold_takes_no_key(tmp_path: Path) -> None:
    """It passes unrecorded, so a key would guard nothing: neither its own nor one that comes while it is in flight."""
    huge = signed(2**63)
    async with keeping(tmp_path) as here:
        routed = [here.stand.router.route(submission(huge), wish) for wish in (Wish("k"), NO_WISH, Wish("k"))]
        before, plain, after = routed

        assert isinstance(before, Answer)
        assert isinstance(after, Answer)
        assert [json.loads(one.body)["error"]["code"] for one in (before, after)] == [-32030, -32030]
        assert isinstance(plain, asyncio.Future)
        here.stand.submitter.give_up()
        await plain


async def test_a_handle_for_a_copy_is_given_when_the_promise_is_on_disk(tmp_path: Path) -> None:
    """The first client waits for the verdict, the second one is told yes: a crash right after that forgets nothing."""
    async with keeping(tmp_path) as here:
        here.hang()
        first = here.ask(signed(0))
        await here.reached()
        answer, headers = told(await here.ask(signed(0), ASYNC))
        record = await here.record(signed(0))

        assert answer["result"] == hash_of(signed(0))
        assert "Location" in headers
        assert (record.state, record.mode) == (State.SEALED, Mode.ACCEPTED)
        here.resume()
        assert "result" in told(await first)[0]
        assert (await here.record(signed(0))).state is State.PENDING


async def test_a_record_that_another_made_promises_before_it_is_told(tmp_path: Path) -> None:
    """It was there, for a client who waits elsewhere: what a node refuses now is held, for this client counts on it."""
    async with keeping(tmp_path) as here:
        raw = signed(0)
        decoded = decode(bytes.fromhex(raw[2:]))
        entry = Intake(
            CHAIN_ID, decoded.sender_bytes, 0, bytes.fromhex(decoded.hash[2:]), decoded.raw, "eth_sendRawTransaction"
        )
        await here.shelf.journal.admit([entry])
        here.hang(Refuse(message=FUNDS))
        answer, _ = told(await here.ask(raw, ASYNC))

        assert answer["result"] == hash_of(raw)
        assert (await here.record(raw)).mode is Mode.ACCEPTED
        here.resume()

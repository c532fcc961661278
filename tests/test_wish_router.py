"""Wishes between the router and the desk: who gets what, who is refused, who is answered when."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from relay import errors
from relay.ingress import wishes
from relay.intake import Intake
from relay.lifecycle import Mode
from relay.router import Answer, Forward, Router
from relay.submission import Accepted, Declined
from relay.upstream.accounts import Accounts
from relay.wish import NO_WISH, Wish
from tests.stand import Stand, call, signed, submission
from tests.test_router import batch, hash_of, note
from tests.workers_rig import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relay.errors import Refusal
    from relay.submission import Submission

ASYNC = Wish(respond_async=True)
NO = Declined(b'{"code":-32000,"message":"no"}')
CONFLICT = errors.KEY_CONFLICT.refusal(detail="it belongs to another transaction")


class FakeDesk:
    """Takes everything and carries nothing out: the test does."""

    def __init__(self) -> None:
        self.taken: list[Submission] = []
        self.copies: list[Submission] = []
        self.promised: list[Submission] = []

    def find(self, key: tuple[str, bytes]) -> Submission | None:
        return next((one for one in self.taken if one.key == key and not one.outcome.done()), None)

    def take(self, submission: Submission) -> Refusal | None:
        self.taken.append(submission)
        return None

    def attach(self, submission: Submission, key: str) -> Submission:
        if not key or key == submission.idempotency_key:
            return submission
        self.copies.append(submission.copy_under(key))
        return self.copies[-1]

    def promise(self, submission: Submission) -> None:
        submission.mode = Mode.ACCEPTED
        self.promised.append(submission)


class Counter:
    """A router in front of a desk that only takes."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.desk = FakeDesk()
        intake = Intake(
            settings=stand.settings,
            desk=self.desk,
            accounts=Accounts(stand.client),
            identity=stand.identity,
            metrics=stand.metrics,
            clock=lambda: 0.0,
        )
        self.router = Router(stand.settings, intake, stand.client, stand.owner, stand.report)

    def ask(self, body: bytes, wish: Wish | Refusal = NO_WISH) -> asyncio.Future[Answer]:
        """Route it; what is answered at once is done."""
        routed = self.router.route(body, wish)
        assert not isinstance(routed, Forward)
        if isinstance(routed, Answer):
            answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            answered.set_result(routed)
            return answered
        return routed

    def admit(self, place: int = -1, outcome: Any = None) -> None:
        """The record of one that was taken is on disk."""
        submission = self.desk.taken[place]
        assert submission.admitted is not None
        submission.admitted.set_result(outcome or submission.own_hash)

    def end(self, place: int = -1, outcome: Any = None) -> None:
        """The verdict on one that was taken."""
        submission = self.desk.taken[place]
        submission.outcome.set_result(outcome or submission.own_hash)


@asynccontextmanager
async def counter(**journal: Any) -> AsyncIterator[Counter]:
    """A router with a journal, or with these settings of it."""
    async with Stand.over(journal={"url": "sqlite:///unused.db"} | journal) as stand:
        yield Counter(stand)


def error(answer: Answer) -> tuple[int, int, str]:
    """HTTP status, code, text."""
    member = json.loads(answer.body)["error"]
    return answer.status, member["code"], member["message"]


async def test_a_key_goes_with_its_submission() -> None:
    """So does the mode, which the record begins with; a client that wishes nothing is answered after the verdict."""
    async with counter() as here:
        keyed, eager, bounded, plain = (
            here.ask(submission(signed(nonce)), wish)
            for nonce, wish in enumerate((Wish("k"), ASYNC, Wish(wait_s=3600), NO_WISH))
        )
        taken = [(one.idempotency_key, one.mode, one.bounded) for one in here.desk.taken]

        assert taken == [
            ("k", Mode.VERDICT, False),
            ("", Mode.ACCEPTED, True),
            ("", Mode.VERDICT, True),
            ("", Mode.VERDICT, False),
        ]
        for place in range(4):
            here.end(place)
        for answer in (await keyed, await eager, await bounded, await plain):
            assert (answer.status, answer.headers) == (200, ())


async def test_without_a_journal_wishes_are_ignored() -> None:
    """Whatever a proxy or a library sends along; and nothing is made for a record that will never be."""
    async with counter(url="", answer="accepted") as here:
        answer = here.ask(submission(signed(0)), Wish("k", respond_async=True))
        [taken] = here.desk.taken
        assert (taken.idempotency_key, taken.mode, taken.admitted) == ("", Mode.VERDICT, None)
        here.end()

        assert (await answer).headers == ()


@pytest.mark.parametrize(
    ("wish", "answer", "applied"),
    [
        (ASYNC, "verdict", "respond-async"),
        (ASYNC, "accepted", "respond-async"),
        (NO_WISH, "accepted", None),
        (Wish("k"), "accepted", None),
        (Wish(wait_s=0), "verdict", "wait=0"),
    ],
)
async def test_a_handle_says_where_to_ask(wish: Wish, answer: str, applied: str | None) -> None:
    """The result stays the hash, at HTTP 200; Location, and Preference-Applied only if a preference was."""
    async with counter(answer=answer) as here:
        waiting = here.ask(submission(signed(0), 7), wish)
        await asyncio.sleep(0)
        assert not waiting.done()
        here.admit()
        told = await waiting
        hash_ = hash_of(signed(0))

        assert (told.status, json.loads(told.body)) == (200, {"jsonrpc": "2.0", "id": 7, "result": hash_})
        preference = [("Preference-Applied", applied)] if applied else []
        assert told.headers == (("Location", f"/transactions/{hash_}"), *preference)
        assert [one.mode for one in here.desk.promised] == [Mode.ACCEPTED]


async def test_a_bound_says_otherwise_than_the_default() -> None:
    """``answer = "accepted"`` is for who does not say; ``Prefer: wait`` asks for the verdict first."""
    async with counter(answer="accepted") as here:
        waiting = here.ask(submission(signed(0)), Wish(wait_s=3600))
        here.admit()
        here.end(outcome=NO)

        assert error(await waiting) == (200, -32000, "no")
        assert here.desk.promised == []


async def test_a_refused_record_is_an_error_and_no_handle() -> None:
    """The key is another's, or the disk is full."""
    async with counter() as here:
        waiting = here.ask(submission(signed(0)), Wish("k", respond_async=True))
        here.admit(outcome=CONFLICT)
        told = await waiting

        assert error(told)[:2] == (200, -32030)
        assert told.headers == ()


async def test_what_a_check_refuses_gets_no_handle() -> None:
    """Checks that need no node are made before anything is taken."""
    async with counter() as here:
        answer = await here.ask(submission(signed(0, chainId=5)), ASYNC)

        assert error(answer)[1] == -32000
        assert here.desk.taken == []


async def test_a_receipt_is_waited_for_whatever_is_preferred() -> None:
    """A hash in its place would be taken for a receipt. The key counts all the same."""
    async with counter(answer="accepted") as here:
        here.ask(call("eth_sendRawTransactionSync", signed(0), 1), Wish("k", respond_async=True)).add_done_callback(
            lambda _: None
        )
        [taken] = here.desk.taken
        here.admit()
        await asyncio.sleep(0)

        assert (taken.idempotency_key, taken.mode, here.desk.promised) == ("k", Mode.VERDICT, [])
        here.end(outcome=NO)


async def test_a_copy_in_flight_is_answered_as_its_own_client_wishes() -> None:
    """One waits for the verdict, the other for the record; the one submission was promised to somebody."""
    async with counter() as here:
        first = here.ask(submission(signed(0)))
        here.admit()
        second = await here.ask(submission(signed(0)), ASYNC)
        [taken] = here.desk.taken

        assert dict(second.headers)["Preference-Applied"] == "respond-async"
        assert not first.done()
        assert taken.mode is Mode.ACCEPTED
        here.end()
        assert (await first).headers == ()


async def test_a_copy_under_a_key_of_its_own_goes_to_the_desk() -> None:
    """Only the journal knows whether that key may be used: its client hears what comes of that, the first does not."""
    async with counter() as here:
        first = here.ask(submission(signed(0)), Wish("k"))
        same = here.ask(submission(signed(0)), Wish("k"))
        other = here.ask(submission(signed(0)), Wish("other"))
        [copy] = here.desk.copies
        copy.outcome.set_result(CONFLICT)

        assert copy.original is here.desk.taken[0]
        assert error(await other)[1] == -32030
        here.end()
        assert (await first).body == (await same).body


@pytest.mark.parametrize("wish", [Wish("k"), Wish("k", respond_async=True)])
async def test_one_key_is_for_one_submission(wish: Wish) -> None:
    """Each submission of a request that has several is refused; its other calls are served."""
    async with counter() as here:
        answer = await here.ask(
            batch(submission(signed(0), 1), call("eth_chainId", id_=2), submission(signed(1), 3)), wish
        )
        replies = json.loads(answer.body)

        assert [reply["id"] for reply in replies] == [1, 2, 3]
        assert [replies[0]["error"]["code"], replies[2]["error"]["code"]] == [-32030, -32030]
        assert "one key is for one submission" in replies[0]["error"]["message"]
        assert replies[1]["result"] == "0x539"
        assert here.desk.taken == []


async def test_a_notification_counts_too() -> None:
    """It is a submission, though nobody waits for its answer."""
    async with counter() as here:
        answer = await here.ask(batch(note("eth_sendRawTransaction", signed(0)), submission(signed(1), 3)), Wish("k"))

        assert [reply["error"]["code"] for reply in json.loads(answer.body)] == [-32030]


async def test_a_batch_with_one_submission_may_have_a_key() -> None:
    """ethers sends its one transaction with other calls in a batch."""
    async with counter() as here:
        waiting = here.ask(batch(call("eth_blockNumber", id_=1), submission(signed(0), 2)), Wish("k"))
        [taken] = here.desk.taken
        here.end()

        assert taken.idempotency_key == "k"
        assert [reply["id"] for reply in json.loads((await waiting).body)] == [1, 2]


@pytest.mark.parametrize("length", [2, 40])
async def test_a_batch_is_answered_when_its_records_are_there(length: int) -> None:
    """Each submission by its hash; what was applied stands there once, and no Location, for there is not one."""
    async with counter() as here:
        waiting = here.ask(batch(*(submission(signed(nonce), nonce) for nonce in range(length))), ASYNC)
        await until(lambda: len(here.desk.taken) == length)
        for place in range(length):
            here.admit(place)
        answer = await waiting

        assert [reply["result"] for reply in json.loads(answer.body)] == [hash_of(signed(n)) for n in range(length)]
        assert answer.headers == (("Preference-Applied", "respond-async"),)


async def test_the_waits_of_a_batch_run_side_by_side() -> None:
    """The bound is one on the whole answer: it begins for each when it comes, not when the one before is answered."""
    async with counter() as here:
        waiting = here.ask(batch(submission(signed(0), 0), submission(signed(1), 1)), Wish(wait_s=0))
        here.admit(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert here.desk.promised == [here.desk.taken[1]]
        here.admit(0)
        assert len(json.loads((await waiting).body)) == 2


async def test_a_transaction_that_is_not_recorded_takes_no_key() -> None:
    """A type that the relay does not know has no sender to guard; without a key it passes as ever."""
    async with counter() as here:
        answer = await here.ask(submission("0x7f01", 4), Wish("k"))

        assert error(answer)[1] == -32030
        assert "are not recorded" in error(answer)[2]
        assert isinstance(here.router.route(submission("0x7f01"), ASYNC), Forward)
        assert here.stand.node.arrivals.total == 0


async def test_a_key_that_is_none_refuses_submissions_only() -> None:
    """Under the call's id, at HTTP 200; a call beside it is served, and one of another method never hears of it."""
    async with counter() as here:
        wish = wishes.read([b'"open'], [])
        alone = await here.ask(submission(signed(0), 9), wish)
        beside = json.loads((await here.ask(batch(submission(signed(0), 1), call("eth_chainId", id_=2)), wish)).body)

        assert json.loads(alone.body)["id"] == 9
        assert error(alone)[:2] == (200, -32600)
        assert [beside[0]["error"]["code"], beside[1]["result"]] == [-32600, "0x539"]
        assert isinstance(here.router.route(call("eth_chainId"), wish), Forward)
        assert here.desk.taken == []


async def test_a_notification_with_a_wish_is_silent() -> None:
    """No answer, no header."""
    async with counter() as here:
        waiting = here.ask(note("eth_sendRawTransaction", signed(0)), ASYNC)
        here.admit()
        answer = await waiting

        assert (answer.status, answer.body, answer.headers) == (204, b"", ())


async def test_private_submissions_are_promised_by_their_hash() -> None:
    """What the node would answer is not known yet."""
    async with counter() as here:
        waiting = here.ask(call("eth_sendPrivateRawTransaction", signed(0)), ASYNC)
        here.admit()

        assert json.loads((await waiting).body)["result"] == hash_of(signed(0))
        here.end(outcome=Accepted(b'{"bundle":1}'))

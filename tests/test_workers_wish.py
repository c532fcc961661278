"""Wishes over the links between workers: the lane process knows of them, clients hear when their record is there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from relay import errors
from relay.devnode.faults import Hang
from relay.lifecycle import Mode
from relay.verdict import Disposition
from relay.wish import NO_WISH, Wish
from tests.stand import signed
from tests.test_router import hash_of
from tests.workers_rig import Crew, answers, lanes, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relay.router import Answer
    from relay.submission import Submission

ASYNC = Wish(respond_async=True)
KEEPING = {"url": "sqlite:///unused.db"}
CONFLICT = errors.KEY_CONFLICT.refusal(detail="it belongs to another transaction")


@asynccontextmanager
async def crew(count: int = 1) -> AsyncIterator[Crew]:
    """Workers with a journal, over a node that does not answer: the test says what is on disk, and how it ends."""
    async with Crew(count, journal=KEEPING) as here:
        here.node.script.add(Hang())
        yield here


async def there(crew: Crew) -> Submission:
    """The one submission in the lane process."""
    ends = lanes(crew).submitter._ends
    await until(lambda: bool(ends.all()))
    [submission] = ends.all()
    return submission


async def admitted(crew: Crew, outcome: Any = None) -> Submission:
    """Its record is on disk."""
    submission = await there(crew)
    assert submission.admitted is not None
    submission.admitted.set_result(outcome or submission.own_hash)
    return submission


def end(crew: Crew, submission: Submission) -> None:
    """The verdict on it."""
    lanes(crew).submitter._ends.finish(submission, submission.own_hash, "accepted", Disposition.IN_POOL)


def binding(crew: Crew) -> list[Submission]:
    """Let copies under other keys wait for their binding, as with a journal; those that came."""
    copies: list[Submission] = []

    def attach(submission: Submission, key: str) -> Submission:
        if not key or key == submission.idempotency_key:
            return submission
        copies.append(submission.copy_under(key))
        return copies[-1]

    lanes(crew).submitter.attach = attach  # type: ignore[method-assign]
    return copies


def location(answer: Answer) -> str | None:
    """Where to ask."""
    return dict(answer.headers).get("Location")


async def test_a_wish_reaches_the_lane_process_and_its_record_the_client() -> None:
    """The verdict is not waited for."""
    async with crew() as here:
        answer = here.ingress[0].route(signed(0), Wish("k", respond_async=True))
        submission = await admitted(here)

        assert (submission.idempotency_key, submission.mode) == ("k", Mode.ACCEPTED)
        assert location(await answer) == f"/transactions/{hash_of(signed(0))}"
        assert not submission.outcome.done()


async def test_a_refused_record_reaches_the_client() -> None:
    """With its code and text."""
    async with crew() as here:
        answer = here.ingress[0].route(signed(0), ASYNC)
        await admitted(here, CONFLICT)

        [reply] = await answers([answer])
        assert reply["error"]["code"] == -32030


async def test_a_bounded_wait_ends_with_a_promise_that_the_lane_process_knows() -> None:
    """The mode arrives, although the ticket came without it."""
    async with crew() as here:
        answer = here.ingress[0].route(signed(0), Wish(wait_s=3600))
        submission = await there(here)
        assert (submission.mode, submission.bounded) == (Mode.VERDICT, True)
        [ticket] = here.ingress[0].forwarder._tickets.values()
        here.ingress[0].forwarder.promise(ticket.submission)

        await until(lambda: submission.mode is Mode.ACCEPTED)
        end(here, submission)
        await answer


@pytest.mark.parametrize("same_worker", [True, False])
async def test_a_copy_that_is_promised_makes_it_so_for_all(same_worker: bool) -> None:
    """One client waits for the verdict, then another gets a handle, at the same worker or at the next."""
    async with crew(2) as here:
        patient = here.ingress[0].route(signed(0))
        submission = await admitted(here)
        assert submission.mode is Mode.VERDICT
        eager = await here.ingress[0 if same_worker else 1].route(signed(0), ASYNC)

        assert location(eager)
        await until(lambda: submission.mode is Mode.ACCEPTED)
        assert not patient.done()
        end(here, submission)
        assert location(await patient) is None


@pytest.mark.parametrize("same_worker", [True, False])
async def test_a_copy_under_another_key_is_asked_for_in_the_lane_process(same_worker: bool) -> None:
    """Its client hears that the key is another's; the first hears the verdict."""
    async with crew(2) as here:
        copies = binding(here)
        first = here.ingress[0].route(signed(0), Wish("k"))
        submission = await there(here)
        other = here.ingress[0 if same_worker else 1].route(signed(0), Wish("other"))
        await until(lambda: bool(copies))
        [copy] = copies
        assert copy.original is submission
        copy.outcome.set_result(CONFLICT)

        [reply] = await answers([other])
        assert reply["error"]["code"] == -32030
        end(here, submission)
        [reply] = await answers([first])
        assert reply["result"] == hash_of(signed(0))


async def test_a_copy_under_another_key_gets_its_handle() -> None:
    """When the key is bound; what it waits for is then promised."""
    async with crew() as here:
        copies = binding(here)
        first = here.ingress[0].route(signed(0), Wish("k"))
        submission = await admitted(here)
        other = here.ingress[0].route(signed(0), Wish("other", respond_async=True))
        await until(lambda: bool(copies))
        assert copies[0].admitted is not None
        copies[0].admitted.set_result(submission.own_hash)

        assert location(await other)
        await until(lambda: submission.mode is Mode.ACCEPTED)
        end(here, submission)
        copies[0].outcome.set_result(submission.own_hash)
        await first
        await until(lambda: not here.ingress[0].forwarder._tickets)
        assert not here.ingress[0].forwarder._copies
        assert not lanes(here).desk._recorded
        assert not lanes(here).desk._copies


async def test_the_next_lane_process_knows_what_was_promised() -> None:
    """A handle was given, then the lane process died: the ticket is sent again with its key, and as promised."""
    async with crew() as here:
        answer = here.ingress[0].route(signed(0), Wish("k"))
        await admitted(here)
        assert location(await here.ingress[0].route(signed(0), ASYNC))
        await here.kill_lanes()
        await here.start_lanes()
        again = await there(here)

        assert (again.idempotency_key, again.mode, again.maybe_sent) == ("k", Mode.ACCEPTED, True)
        await admitted(here)
        end(here, again)
        await answer


async def test_a_copy_goes_back_with_what_it_waits_for() -> None:
    """The lane process hands over before anything was sent: both tickets go to the next one, each with its key."""
    async with crew() as here:
        copies, old, ingress = binding(here), lanes(here), here.ingress[0]
        blocked = ingress.route(signed(0))  # at the node: what is behind it waits
        await here.node.until(lambda: here.node.hanging == 1)
        waits = [ingress.route(signed(1), Wish(key)) for key in ("k", "other")]
        await until(lambda: bool(copies))
        leaving = asyncio.get_running_loop().create_task(old.desk.hand_over())
        await until(lambda: ingress.metrics.forwarded_again.cell("returned").n == 2)
        here.node.script.clear()
        here.node.release()
        await leaving
        await old.close()
        await here.start_lanes()
        later = binding(here)
        await until(lambda: bool(later))

        assert (later[0].idempotency_key, later[0].original is not copies[0].original) == ("other", True)
        later[0].outcome.set_result(CONFLICT)
        replies = await answers([blocked, *waits])
        assert [reply.get("result") for reply in replies] == [hash_of(signed(0)), hash_of(signed(1)), None]


async def test_without_a_journal_no_record_is_spoken_of() -> None:
    """Nothing is carried, nothing is said of records."""
    async with Crew(1) as here:
        assert "result" in (await answers([here.ingress[0].route(signed(0), Wish("k", respond_async=True))]))[0]
        assert "result" in (await answers([here.ingress[0].route(signed(1), NO_WISH)]))[0]
        assert not lanes(here).desk._recorded

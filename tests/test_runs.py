"""Runs on the whole path, over real connections to a development chain with behaviour (`submit = "batch"`)."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from relay import runs
from relay.devnode import NodeSettings
from relay.devnode.faults import Answer, Delay, Hang, Page, Refuse, Reset, Trickle, Truncate, WrongId
from tests.stand import Stand, call, signed, submission
from tests.test_submit import count, error, hash_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relay.lanes import Lane
    from relay.submission import Submission
    from relay.upstream.client import BatchAnswer

WHOLE = "dev_batch"
SLOW: Mapping[str, Any] = {"reorder_window_ms": 60_000}


def batching(node: NodeSettings | None = None, **tables: Mapping[str, Any]) -> Stand:
    """A stand whose relay sends runs."""
    return Stand.over(node, **tables | {"upstream": {"submit": "batch", **tables.get("upstream", {})}})


def watch(stand: Stand) -> None:
    """Count the batches that arrive, from the first rule on."""
    stand.node.script.add(Delay(method=WHOLE, ms=0))


def batches(stand: Stand) -> int:
    """How many arrived."""
    return stand.node.script.hits()[0]


def at_once(stand: Stand, *raws: str) -> list[asyncio.Future[Any]]:
    """All tickets are taken when this returns."""
    return [stand.route(submission(raw)) for raw in raws]


async def replies(waits: list[asyncio.Future[Any]]) -> list[Any]:
    """The response objects."""
    return [json.loads((await wait).body) for wait in waits]


def runs_ended(stand: Stand, end: str) -> int:
    """The metric."""
    return stand.metrics.runs.cell(end).n


def resting(stand: Stand) -> asyncio.Event:
    """Set when a lane comes to rest."""
    rested, rest = asyncio.Event(), stand.submitter.book.rest

    def note(lane: Lane[Submission]) -> None:
        rest(lane)
        rested.set()

    stand.submitter.book.rest = note  # type: ignore[method-assign] # looked at from outside
    return rested


async def test_what_waits_goes_as_one_batch_in_nonce_order() -> None:
    """One request for five submissions, each answered with its own hash."""
    async with batching(NodeSettings(mode="strict", delay_ms=(0, 4))) as stand:
        watch(stand)
        raws = [signed(nonce) for nonce in (3, 1, 4, 0, 2)]
        found = await replies(at_once(stand, *raws))

        assert [reply["result"] for reply in found] == [hash_of(raw) for raw in raws]
        assert [arrival.nonce for arrival in stand.node.arrivals] == [0, 1, 2, 3, 4]
        assert batches(stand) == 1
        assert (runs_ended(stand, "answered"), stand.metrics.run_submissions.cell().n) == (1, 5)


async def test_a_lone_transaction_is_no_batch() -> None:
    """It goes at once and as ever."""
    async with batching() as stand:
        watch(stand)
        reply = await stand.send(signed(0))

        assert reply["result"] == hash_of(signed(0))
        assert batches(stand) == 0


async def test_a_shuffled_burst_keeps_its_order_at_the_node() -> None:
    """Two hundred of a sender and of another, to a strict node with random checks: none refused, few requests."""
    async with batching(NodeSettings(mode="strict", delay_ms=(0, 1), seed=3)) as stand:
        watch(stand)
        nonces = list(range(200))
        random.Random(3).shuffle(nonces)
        found = await replies(at_once(stand, *(signed(nonce, who=who) for nonce in nonces for who in (0, 1))))

        assert all("result" in reply for reply in found)
        assert (stand.node.arrivals.inversions, stand.node.arrivals.overlaps) == (0, 0)
        assert batches(stand) == 8


async def test_a_run_ends_at_its_most() -> None:
    """``max_submit_batch`` transactions, and the rest in the next one."""
    async with batching(upstream={"max_submit_batch": 2}) as stand:
        watch(stand)
        found = await replies(at_once(stand, *map(signed, range(5))))

        assert all("result" in reply for reply in found)
        assert (batches(stand), stand.metrics.run_submissions.cell().n) == (2, 4)


async def test_a_run_ends_at_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than a whole run goes alone."""
    monkeypatch.setattr(runs, "MAX_RUN_BYTES", 1500)
    async with batching() as stand:
        large = signed(2, data="0x" + "ff" * 1000, gas=100_000)
        found = await replies(at_once(stand, signed(0), signed(1), large, signed(3), signed(4)))

        assert all("result" in reply for reply in found)
        assert stand.metrics.run_submissions.cell().n == 4


async def test_by_arrival_each_goes_alone() -> None:
    """Nonces that follow on each other by chance are no run."""
    async with batching(ordering={"order": "arrival"}) as stand:
        watch(stand)
        found = await replies(at_once(stand, *map(signed, range(3))))

        assert all("result" in reply for reply in found)
        assert batches(stand) == 0


async def test_what_goes_by_other_methods_is_in_no_run() -> None:
    """A conditional one ends a run and goes alone; a synchronous one rides, and gets its receipt."""
    async with batching() as stand:
        conditional = call("eth_sendRawTransactionConditional", signed(2), {})
        sync = call("eth_sendRawTransactionSync", signed(1), 2000)
        bodies = [submission(signed(0)), sync, conditional, submission(signed(3)), submission(signed(4))]
        found = await replies([stand.route(body) for body in bodies])

        assert found[1]["result"]["transactionHash"] == hash_of(signed(1))
        assert all("result" in reply for reply in found)
        assert stand.metrics.run_submissions.cell().n == 4
        assert stand.node.arrivals.inversions == 0


async def test_copies_of_what_is_in_a_run_share_its_outcome() -> None:
    """They attach, in the run as outside of it (G7)."""
    async with batching() as stand:
        stand.node.script.add(Hang(method=WHOLE, times=1))
        waits = at_once(stand, signed(0), signed(1))
        await stand.node.until(lambda: stand.node.hanging == 1)
        waits += at_once(stand, signed(1))
        stand.node.release()
        found = await replies(waits)

        assert found[1] == found[2]
        assert stand.node.arrivals.total == 2


async def test_a_refusal_inside_holds_up_only_what_stands_above_it() -> None:
    """Refused for the gap they are not answered: they go when the nonce that was refused has come again."""
    async with batching(ordering=SLOW) as stand:
        stand.node.script.add(Refuse(nonce=2, message="intrinsic gas too low", times=1))
        waits = at_once(stand, *map(signed, range(5)))
        below = await replies(waits[:3])
        await stand.node.until(lambda: stand.node.arrivals.total == 5)
        assert not any(wait.done() for wait in waits[3:])
        again = await stand.send(signed(2, value=7))
        above = await replies(waits[3:])

        assert [("result" in reply) for reply in below] == [True, True, False]
        assert error(below[2])["message"] == "intrinsic gas too low"
        assert all("result" in reply for reply in (again, *above))
        assert count(stand) == 5


async def test_what_a_pool_took_above_a_refused_one_is_accepted() -> None:
    """A node that queues says yes to it, and that is its outcome."""
    async with batching(NodeSettings(mode="pool", block_time_s=None), ordering=SLOW) as stand:
        stand.node.script.add(Refuse(nonce=1, message="intrinsic gas too low", times=1))
        found = await replies(at_once(stand, *map(signed, range(4))))

        assert ["result" in reply for reply in found] == [True, False, True, True]
        assert "result" in await stand.send(signed(1, value=7))


async def test_another_refusal_of_a_later_one_is_its_own() -> None:
    """Too little money is not for want of a lower nonce: it comes as the node said it."""
    async with batching(NodeSettings(mode="pool", block_time_s=None), ordering=SLOW) as stand:
        stand.node.script.add(
            Refuse(nonce=0, message="intrinsic gas too low", times=1),
            Refuse(nonce=1, message="insufficient funds for transfer", times=1),
        )
        first, second, third = await replies(at_once(stand, *map(signed, range(3))))

        assert error(first)["message"] == "intrinsic gas too low"
        assert error(second)["message"] == "insufficient funds for transfer"
        assert "result" in third


async def test_words_that_nobody_knows_decide_only_for_the_head() -> None:
    """Behind another they may mean the gap: they go back, and what is said to them alone is their answer."""
    async with batching(NodeSettings(mode="pool"), ordering={"reorder_window_ms": 20}) as stand:
        stand.node.script.add(Refuse(message="the moon is full", first=2, times=1))
        found = await replies(at_once(stand, *map(signed, range(3))))

        assert all("result" in reply for reply in found)
        assert stand.node.arrivals.total == 4


async def test_a_gap_refusal_of_the_head_is_its_own_and_nobody_waits_for_ever() -> None:
    """A node that says "nonce too high" to everything gets each once more, alone; then its words are the answer."""
    async with batching(ordering={"reorder_window_ms": 20}) as stand:
        stand.node.script.add(Refuse(message="nonce too high"))
        found = await replies(at_once(stand, *map(signed, range(4))))

        assert [error(reply)["message"] for reply in found] == ["nonce too high"] * 4
        assert stand.node.arrivals.total == 4 + 3


async def test_spent_nonces_of_a_run_are_looked_up() -> None:
    """Those that the node knows are success, the other one is refused in its words."""
    async with batching(prechecks={"nonce": False}) as stand:
        for nonce in range(3):
            await stand.client.post(submission(signed(nonce)))
        await stand.node.until(lambda: count(stand) == 3)
        stand.node.script.add(Answer(method="eth_getTransactionCount", result="0x0"))
        raws = [signed(0), signed(1, value=2), signed(2), signed(3)]
        found = await replies(at_once(stand, *raws))

        assert ["result" in reply for reply in found] == [True, False, True, True]
        assert error(found[1])["message"].startswith("nonce too low")


async def test_a_precheck_inside_a_run_keeps_back_what_stands_above() -> None:
    """The refused one leaves before anything is sent, what is below it goes, what is above it waits."""
    async with batching(prechecks={"balance": True}, ordering=SLOW) as stand:
        waits = at_once(stand, signed(0), signed(1), signed(2, value=10**30), signed(3), signed(4))
        below = await replies(waits[:3])
        assert stand.node.arrivals.total == 2
        again = await stand.send(signed(2))
        above = await replies(waits[3:])

        assert ["result" in reply for reply in below] == [True, True, False]
        assert error(below[2])["message"].startswith("insufficient funds")
        assert all("result" in reply for reply in (again, *above))


NO_BATCH = {
    "reset before": Reset(method=WHOLE, times=1),
    "reset after": Reset(method=WHOLE, when="after", times=1),
    "reset in the middle": Reset(nonce=2, times=1),
    "page in the middle": Page(nonce=2, times=1),
    "bad gateway": Page(method=WHOLE, status=502, times=1),
    "unavailable, and taken": Page(method=WHOLE, status=503, when="after", times=1),
    "slow down": Page(method=WHOLE, status=429, times=1),
    "rate limited": Refuse(method=WHOLE, message="rate limit exceeded", times=1),
    "one error, and taken": Refuse(method=WHOLE, message="request timed out", when="after", times=1),
    "cut": Truncate(method=WHOLE, keep=200, times=1),
    "nothing in it": Answer(method=WHOLE, result=[], times=1),
    "not one": Answer(method=WHOLE, result="0x1", times=1),
    "one is missing": WrongId(nonce=1, times=1),
    "the first is missing": WrongId(nonce=0, id=None, times=1),
    "none is theirs": WrongId(times=4),
    "another hash": Answer(nonce=3, result="0x" + "ab" * 32, when="after", times=1),
    "no result": Answer(nonce=0, result=None, when="after", times=1),
    "nothing is said of one": Refuse(nonce=1, message="internal error", when="after", times=1),
}


@pytest.mark.parametrize("fault", NO_BATCH.values(), ids=NO_BATCH)
async def test_whatever_has_no_answer_of_its_own_is_found_out(fault: Any) -> None:
    """Taken or not, all four are accepted in the end and are there once; the next run is a batch again (G6)."""
    async with batching() as stand:
        watch(stand)
        stand.node.script.add(fault)
        found = await replies(at_once(stand, *map(signed, range(4))))

        assert ["result" in reply for reply in found] == [True] * 4
        await stand.node.until(lambda: count(stand) == 4)
        assert (stand.node.arrivals.inversions, batches(stand)) == (0, 1)
        await replies(at_once(stand, signed(4), signed(5)))
        assert batches(stand) == 2
        assert runs_ended(stand, "refused") == 0


REFUSED = {
    "too large by status": Page(method=WHOLE, status=413, body="Request Entity Too Large"),
    "too large": Refuse(method=WHOLE, message="batch too large", code=-32600),
    "too large, as reth": Refuse(method=WHOLE, message="The batch request was too large", code=-32010),
    "not supported": Refuse(method=WHOLE, message="Batched requests are not supported by this server", code=-32005),
    "disabled": Refuse(method=WHOLE, message="Batch requests are disabled", code=-32202),
    "under each id": Refuse(message="Batch request amount 4 exceeds max 2", code=-32203, times=4),
    "no request": Refuse(method=WHOLE, message="invalid request: expected an object", code=-32600),
    "words nobody knows": Refuse(method=WHOLE, message="one at a time, please"),
}


@pytest.mark.parametrize("fault", REFUSED.values(), ids=REFUSED)
async def test_a_node_that_refuses_batches_gets_none_for_a_while(
    fault: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is lost, the log names the options, and after a while it is tried again."""
    async with batching() as stand:
        now = [1000.0]
        stand.submitter._settler.runs._clock = lambda: now[0]
        watch(stand)
        stand.node.script.add(fault)
        found = await replies(at_once(stand, *map(signed, range(4))))
        later = await replies(at_once(stand, *map(signed, range(4, 8))))

        assert all("result" in reply for reply in (*found, *later))
        assert (batches(stand), runs_ended(stand, "refused")) == (1, 1)
        assert "upstream.max_submit_batch" in capfd.readouterr().out
        assert stand.node.arrivals.inversions == 0

        now[0] += runs.SINGLY_S
        await replies(at_once(stand, signed(8), signed(9)))
        assert batches(stand) == 2


UNANSWERED = {
    "500": Page(method=WHOLE, status=500, body="oops"),
    "an empty body": Page(method=WHOLE, status=200, body=""),
    "nothing": Reset(method=WHOLE),
}


@pytest.mark.parametrize("fault", UNANSWERED.values(), ids=UNANSWERED)
async def test_a_node_that_answers_no_batch_gets_none_for_a_while(
    fault: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """While single calls are answered: nothing is lost, one warning, and after a while it is tried again."""
    async with batching() as stand:
        now = [1000.0]
        stand.submitter._settler.runs._clock = lambda: now[0]
        watch(stand)
        stand.node.script.add(fault)
        for first in range(0, 4 * (runs.MOST_UNANSWERED + 1), 4):
            found = await replies(at_once(stand, *map(signed, range(first, first + 4))))
            assert all("result" in reply for reply in found)

        assert batches(stand) == runs.MOST_UNANSWERED
        assert capfd.readouterr().out.count("answers no batch") == 1
        assert stand.node.arrivals.inversions == 0

        now[0] += runs.SINGLY_S
        await replies(at_once(stand, signed(16), signed(17)))
        assert batches(stand) == runs.MOST_UNANSWERED + 1


async def test_a_batch_that_is_answered_forgives_those_that_were_not() -> None:
    """Only runs in a row count."""
    async with batching() as stand:
        watch(stand)
        stand.node.script.add(Page(method=WHOLE, status=500, every=2))
        for first in range(0, 32, 4):
            await replies(at_once(stand, *map(signed, range(first, first + 4))))

        assert batches(stand) == 8


async def test_a_refusal_of_the_batch_under_the_first_id_is_not_its_verdict() -> None:
    """As geth says it: an array of one, under the id of the first call."""
    async with batching() as stand:
        stand.node.script.add(
            Refuse(nonce=0, message="batch too large", code=-32600, times=1), WrongId(times=3, first=2)
        )
        found = await replies(at_once(stand, *map(signed, range(4))))

        assert ["result" in reply for reply in found] == [True] * 4
        assert runs_ended(stand, "refused") == 1


async def test_a_node_that_fails_again_and_again_gets_all_of_it_in_the_end() -> None:
    """Every third connection is reset behind the acceptance: the search goes on for as long as it gets on."""
    async with batching() as stand:
        stand.node.script.add(Reset(when="after", every=3))
        found = await replies(at_once(stand, *map(signed, range(20))))

        assert ["result" in reply for reply in found] == [True] * 20
        await stand.node.until(lambda: count(stand) == 20)


@pytest.mark.parametrize("look", [Hang, Page], ids=["hanging", "failing"])
async def test_what_cannot_be_found_out_is_unknown_each_with_its_hash(look: type[Hang | Page]) -> None:
    """Twenty look-ups that hang cost the time of one: all is answered within the budget (G5)."""
    async with batching(ordering={"max_wait_s": 3}) as stand:
        stand.node.script.add(Page(method=WHOLE), Page(), look(method="eth_getTransactionByHash"))
        raws = [signed(nonce) for nonce in range(20)]
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await replies(at_once(stand, *raws))

        assert loop.time() - began < 15
        assert [(error(reply)["code"], error(reply)["data"]["hash"]) for reply in found] == [
            (-32040, hash_of(raw)) for raw in raws
        ]


async def test_the_oldest_of_a_run_sets_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client was promised an answer first: with 10 s left to it, the node gets 5 s for all."""
    async with batching() as stand:
        bounds: list[float] = []
        real = stand.client.submit_batch

        async def note(method: str, params: Sequence[bytes], timeout_s: float, gate: Any = None) -> BatchAnswer:
            bounds.append(timeout_s)
            return await real(method, params, timeout_s, gate)

        monkeypatch.setattr(stand.client, "submit_batch", note)
        stand.node.script.add(Hang(method="eth_getTransactionCount", times=1))
        waits = at_once(stand, *map(signed, range(3)))
        await stand.node.until(lambda: stand.node.hanging == 1)
        (lane,) = stand.submitter.book.busy_lanes()
        lane._moment.unproven[1].submission.arrived -= 15
        stand.node.release()
        await replies(waits)

        assert len(bounds) == 1
        assert bounds[0] <= 5


async def test_what_is_found_is_answered_before_the_rest_is() -> None:
    """The search for one does not hold up the answer of another."""
    async with batching() as stand:
        stand.node.script.add(
            Reset(nonce=1, times=1),
            Hang(hash=hash_of(signed(1)), method="eth_sendRawTransaction", first=2, times=1),
        )
        waits = at_once(stand, signed(0), signed(1))
        (first,) = await replies(waits[:1])
        await stand.node.until(lambda: stand.node.hanging == 1)

        assert "result" in first
        assert not waits[1].done()
        stand.node.release()
        assert "result" in (await replies(waits[1:]))[0]


async def test_nothing_was_sent_if_the_node_is_not_there() -> None:
    """Each hears that, and nobody is looked up."""
    async with batching() as stand:
        await stand.send(signed(0))
        await stand.node.close()
        answers = [await wait for wait in at_once(stand, signed(1), signed(2))]

        assert [answer.status for answer in answers] == [503, 503]
        assert runs_ended(stand, "not_sent") == 1


async def test_a_run_that_outlasts_the_drain_is_unknown() -> None:
    """G12: what is at the node is owned up to, what waits is refused, and nothing of it goes out afterwards."""
    async with batching() as stand:
        rested = resting(stand)
        stand.node.script.add(Hang(method=WHOLE, times=1), Refuse(nonce=1, message="nonce too high"))
        waits = at_once(stand, signed(0), signed(1))
        await stand.node.until(lambda: stand.node.hanging == 1)
        waits += at_once(stand, signed(2))
        stand.submitter.stop_taking()
        stand.submitter.give_up()
        found = await replies(waits)
        stand.node.release()
        await rested.wait()

        assert [error(reply)["code"] for reply in found] == [-32040, -32040, -32012]
        assert stand.node.arrivals.total == 2


async def test_a_client_that_leaves_takes_nothing_with_it() -> None:
    """The tickets of a run belong to the lane (G8)."""
    async with batching() as stand:
        stand.node.script.add(Hang(method=WHOLE, times=1))
        waits = at_once(stand, *map(signed, range(3)))
        await stand.node.until(lambda: stand.node.hanging == 1)
        for wait in waits:
            wait.cancel()
        stand.node.release()

        assert "result" in await stand.send(signed(3))
        assert (stand.node.arrivals.total, stand.node.arrivals.inversions) == (4, 0)


STAGES = {
    "precheck": (Hang(method="eth_getBalance"),),
    "batch": (Hang(method=WHOLE),),
    "question": (Refuse(message="the moon is full"), Hang(method="eth_getTransactionByHash")),
    "look": (Page(method=WHOLE), Hang(method="eth_getTransactionByHash")),
    "resend": (Page(method=WHOLE), Hang()),
}


@pytest.mark.parametrize("rules", STAGES.values(), ids=STAGES)
async def test_a_run_can_be_cancelled_wherever_it_waits(rules: tuple[Any, ...]) -> None:
    """The end of the process finds it at any await: it ends at once, without a fault, and says nothing untrue."""
    async with batching(prechecks={"balance": True}) as stand:
        stand.node.script.add(*rules)
        waits = at_once(stand, signed(0), signed(1))
        await stand.node.until(lambda: stand.node.hanging > 0)
        await stand.owner.close()

        assert not any(wait.done() and not wait.cancelled() for wait in waits)
        assert stand.faults == []


async def test_a_fault_of_ours_in_a_run_is_unknown_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What had an end keeps it; the lane goes on."""
    async with batching() as stand:

        async def break_down(*_: Any) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(stand.submitter._settler, "_clear_up", break_down)
        stand.node.script.add(Answer(nonce=1, result=None, when="after", times=1))
        found = await replies(at_once(stand, signed(0), signed(1)))

        assert "result" in found[0]
        assert error(found[1])["code"] == -32040
        assert "result" in await stand.send(signed(2))
        assert set(stand.faults) == {"settle: ZeroDivisionError('a bug')"}
        stand.faults.clear()


async def test_a_trickling_answer_is_waited_for_within_the_bound() -> None:
    """A slow body is an answer like any other."""
    async with batching() as stand:
        stand.node.script.add(Trickle(method=WHOLE, size=40, chunked=True))
        found = await replies(at_once(stand, signed(0), signed(1)))

        assert all("result" in reply for reply in found)
        assert runs_ended(stand, "answered") == 1

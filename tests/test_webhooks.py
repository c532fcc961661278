"""Webhooks, told to real receivers: slow ones, broken ones, ones that want no more."""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from aiohttp import web

from relay import config
from relay.journal.faults import Unavailable
from relay.journal.memory import MemoryJournal
from relay.journal.records import Receipt
from relay.journal.shelf import Shelf
from relay.lifecycle import State
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.testing.samples import admitted, decision, moved
from relay.webhooks import Pace, Webhooks, receivers
from relay.webhooks.backoff import GIVE_UP_S
from relay.webhooks.courier import SLOTS
from relay.webhooks.receiver import receiver_name
from tests.hook import Hook
from tests.stand import signed, submission
from tests.test_app import running
from tests.webhook_sender import QUICK
from tests.workers_rig import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relay.config import Settings
    from relay.journal import Journal
    from tests.hook import Delivery

SECRET = "a secret of the team"


class Clock:
    """The store's, in milliseconds, moved by the test."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Telling:
    """What a test sees: the journal, and the teller's counts."""

    journal: Journal
    shelf: Shelf
    webhooks: Webhooks
    metrics: Metrics

    def ended(self, end: str) -> int:
        """How many tries ended so."""
        return self.metrics.webhooks.cell(end).n

    async def counted(self, **ends: int) -> None:
        """Wait until so many did."""
        await until(lambda: all(self.ended(end) >= count for end, count in ends.items()))

    async def census(self) -> tuple[int, int]:
        """What waits and what is dead."""
        census = await self.journal.census()
        return census.outbox_waiting, census.outbox_dead


def settings_for(*urls: str) -> Settings:
    """With these receivers."""
    return config.check({"journal": {"url": "sqlite:///unused"}, "webhooks": {"urls": list(urls), "secret": SECRET}})


@asynccontextmanager
async def telling(
    *urls: str, url: str = "memory:", journal: MemoryJournal | None = None, pace: Pace = QUICK
) -> AsyncIterator[Telling]:
    """Webhooks to ``urls`` over the journal at ``url``, or over ``journal``. No fault may be reported."""
    faults: list[tuple[str, BaseException]] = []

    def report(name: str, error: BaseException) -> None:
        faults.append((name, error))

    settings, metrics = settings_for(*urls), Metrics()
    background = TaskOwner("test", report)
    shelf = Shelf(url, receivers=receivers(settings.webhooks))
    if journal is None:
        await shelf.start(background)
    else:
        shelf._journal = journal
        shelf.opened.set()
    webhooks = Webhooks(shelf, settings, metrics, report, time.monotonic, pace=pace)
    opened = shelf.journal
    webhooks.start(background)
    try:
        yield Telling(opened, shelf, webhooks, metrics)
    finally:
        await webhooks.close()
        await background.close()
        await shelf.close()
    assert faults == []


def memory(*urls: str) -> tuple[MemoryJournal, Clock]:
    """A journal in memory that tells ``urls``, and its clock."""
    clock = Clock()
    return MemoryJournal(receivers=tuple(map(receiver_name, urls)), now_ms=clock), clock


@pytest.fixture(params=["memory:", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal of each kind that needs no server."""
    return "memory:" if request.param == "memory:" else f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    """A receiver."""
    async with Hook() as hook:
        yield hook


def verify() -> Any:
    """The function that the page tells receivers to use."""
    page = (Path(__file__).parents[1] / "docs" / "journal.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page.split("## Tell")[1].split("\n## ")[0], re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["verify"]


# Deliveries


async def test_each_change_is_told_once_it_is_on_disk(url: str, hook: Hook) -> None:
    """With the state that it led to and the one before, and nothing waits any more."""
    async with telling(hook.url, url=url) as tells:
        record = await moved(tells.journal, await admitted(tells.journal), State.SEALED, State.PENDING, State.MINED)
        got = {delivery.value["version"]: delivery.value for delivery in await hook.take(4)}
        await tells.counted(delivered=4)
        await until(lambda: not hook.inside)
    assert [(got[version]["origin"], got[version]["transaction"]["state"]) for version in (1, 2, 3, 4)] == [
        (None, "queued"),
        ("queued", "sealed"),
        ("sealed", "pending"),
        ("pending", "mined"),
    ]
    assert {value["transaction"]["hash"] for value in got.values()} == {"0x" + record.hash.hex()}


async def test_a_mined_one_is_told_with_its_block(url: str, hook: Hook) -> None:
    """By the receipt that came with the decision."""
    async with telling(hook.url, url=url) as tells:
        record = await moved(tells.journal, await admitted(tells.journal), State.SEALED, State.PENDING)
        seen = Receipt(record.id, 9, b"\x09" * 32, 1)
        await tells.journal.decide([decision(record, State.MINED, facts=(seen,))])
        transactions = [delivery.value["transaction"] for delivery in await hook.take(4)]
    assert [one.get("blockNumber") for one in transactions if one["state"] == "mined"] == ["0x9"]
    assert not any("blockNumber" in one for one in transactions if one["state"] != "mined")


async def test_a_delivery_is_signed_as_the_page_says(url: str, hook: Hook) -> None:
    """The page's own code takes it, and takes it no more when one byte is another."""
    async with telling(hook.url, url=url) as tells:
        await admitted(tells.journal)
        (delivery,) = await hook.take(1)
    assert delivery.headers["content-type"] == "application/json"
    assert delivery.id == delivery.value["id"]
    assert verify()(SECRET, delivery.headers, delivery.body)
    assert not verify()(SECRET, delivery.headers, delivery.body.replace(b"queued", b"sealed"))
    assert not verify()("another secret, as long", delivery.headers, delivery.body)
    assert not verify()(SECRET, {**delivery.headers, "webhook-timestamp": "1614265330"}, delivery.body)


async def test_what_happened_before_is_told_too(url: str, hook: Hook) -> None:
    """The outbox was written without anybody to tell it."""
    shelf = Shelf(url, receivers=(receiver_name(hook.url),))
    if url == "memory:":
        journal, _ = memory(hook.url)
        await admitted(journal)
        async with telling(hook.url, journal=journal):
            await hook.take(1)
        return
    await shelf.start(TaskOwner("test", lambda *_: None))
    await admitted(shelf.journal)
    await shelf.close()
    async with telling(hook.url, url=url):
        await hook.take(1)


async def test_each_receiver_is_told(url: str, hook: Hook) -> None:
    """All of it, by the same ids."""
    async with Hook() as second, telling(hook.url, second.url, url=url) as tells:
        await moved(tells.journal, await admitted(tells.journal), State.SEALED)
        one, two = await hook.take(2), await second.take(2)
    assert {delivery.id for delivery in one} == {delivery.id for delivery in two}


# Receivers in trouble


async def test_a_slow_receiver_holds_nobody_up(url: str, hook: Hook) -> None:
    """It has its sixteen on the wire and no more; the other one gets all, and the journal takes what comes."""
    released = asyncio.Event()

    async def hang(_: Delivery) -> web.Response:
        await released.wait()
        return web.Response()

    async with Hook(hang) as slow, telling(slow.url, hook.url, url=url) as tells:
        for nonce in range(3 * SLOTS):
            await admitted(tells.journal, nonce)
        await hook.take(3 * SLOTS)
        await slow.take(SLOTS)
        assert len(slow.got) == SLOTS
        released.set()
        await slow.take(3 * SLOTS)
        assert slow.most_inside == SLOTS


async def test_no_answer_in_time_is_a_failure(hook: Hook) -> None:
    """The connection is let go, and it is told again."""
    journal, clock = memory(hook.url)
    first = asyncio.Event()

    async def hang_once(_: Delivery) -> web.Response:
        if not first.is_set():
            first.set()
            await asyncio.Event().wait()
        return web.Response()

    hook.answer = hang_once
    async with telling(hook.url, journal=journal, pace=QUICK._replace(post_s=0.05)) as tells:
        await admitted(journal)
        await tells.counted(failed=1)
        await until(lambda: why(journal) == ["no answer in time"])
        clock.now_ms += 7_000
        one, two = await hook.take(2)
        await tells.counted(delivered=1)
    assert (one.id, one.body) == (two.id, two.body)


@pytest.mark.parametrize("status", [300, 302, 400, 404, 429, 500, 503])
async def test_whatever_is_no_success_is_told_again(hook: Hook, status: int) -> None:
    """By the same id, signed anew, later and later; a redirect is not followed."""
    journal, clock = memory(hook.url)
    answers = [status, status, 200]
    hook.answer = lambda _: answered(answers.pop(0))
    async with telling(hook.url, journal=journal) as tells:
        await admitted(journal)
        for tries, later_ms in ((1, 6_500), (2, 13_000)):
            await tells.counted(failed=tries)
            await until(lambda: why(journal) == [f"HTTP {status}"])
            (due_ms,) = (row.due_ms for row in journal._outbox._rows.values())
            assert later_ms / 13 * 7 <= due_ms - clock.now_ms <= later_ms
            clock.now_ms = due_ms
        got = await hook.take(3)
        await tells.counted(delivered=1)
    assert len({(delivery.id, delivery.body) for delivery in got}) == 1
    assert {delivery.path for delivery in got} == {"/hook"}
    assert all(verify()(SECRET, delivery.headers, delivery.body) for delivery in got)


async def test_a_cut_connection_is_a_failure(hook: Hook) -> None:
    """Whether it arrived is not known: it comes again."""
    journal, clock = memory(hook.url)
    cuts = [True, False]
    hook.answer = lambda _: answered(None if cuts.pop(0) else 200)
    async with telling(hook.url, journal=journal) as tells:
        await admitted(journal)
        await tells.counted(failed=1)
        await until(lambda: why(journal) != [""])
        clock.now_ms += 7_000
        one, two = await hook.take(2)
    assert one.id == two.id


async def test_nobody_there_is_a_failure(hook: Hook) -> None:
    """And the words show neither the path nor who it was meant for."""
    async with Hook() as gone:
        url = gone.url.replace("//", "//user:password@")
    journal, _ = memory(url)
    async with telling(url, journal=journal) as tells:
        await admitted(journal)
        await tells.counted(failed=1)
        await until(lambda: why(journal) != [""])
    assert not re.search("user|password|hook", why(journal)[0])


async def test_a_certificate_that_nobody_vouches_for_is_a_failure() -> None:
    """Nothing is told to whoever answers in the receiver's place."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with Hook(tls=context) as hook:
        journal, _ = memory(hook.url)
        async with telling(hook.url, journal=journal) as tells:
            await admitted(journal)
            await tells.counted(failed=1)
            await until(lambda: why(journal) != [""])
    assert "certificate verify failed" in why(journal)[0]
    assert hook.got == []


async def test_retry_after_is_heeded(hook: Hook) -> None:
    """For this delivery and for all others: the receiver is left alone."""
    journal, clock = memory(hook.url)
    hook.answer = lambda _: answered(503, {"Retry-After": "120"})
    async with telling(hook.url, journal=journal) as tells:
        await admitted(journal)
        await tells.counted(failed=1)
        await until(lambda: why(journal) == ["HTTP 503"])
        await admitted(journal, 1)
        ((due_ms, waits_s),) = (
            (row.due_ms, courier._rests_until - time.monotonic())
            for row in journal._outbox._rows.values()
            for courier in tells.webhooks._couriers
            if row.tries
        )
    assert due_ms == clock.now_ms + 120_000
    assert 0 < waits_s <= 120
    assert len(hook.got) == 1


async def test_gone_is_the_end_of_a_delivery(url: str, hook: Hook) -> None:
    """Nothing is tried again, and it can be seen."""
    hook.answer = lambda _: answered(410)
    async with telling(hook.url, url=url) as tells:
        await admitted(tells.journal)
        await tells.counted(dead=1)
        await tells.webhooks.close()
        assert await tells.census() == (0, 1)
        assert tells.ended("failed") == 0


async def test_a_receiver_that_is_down_is_tried_one_by_one(hook: Hook) -> None:
    """After as many failures as there are slots; when it answers, all that is due comes at once."""
    journal, _ = memory(hook.url)
    for nonce in range(2 * SLOTS):
        await admitted(journal, nonce)
    probe, back = asyncio.Event(), asyncio.Event()

    async def answer(_: Delivery) -> web.Response:
        if len(hook.got) <= SLOTS:
            return web.Response(status=500)
        probe.set()
        await back.wait()
        return web.Response()

    hook.answer = answer
    async with telling(hook.url, journal=journal) as tells:
        await probe.wait()
        assert tells.ended("failed") == SLOTS
        assert hook.inside == 1
        back.set()
        await tells.counted(delivered=SLOTS)


async def test_what_was_not_taken_within_a_day_is_given_up(hook: Hook) -> None:
    """Also where its receiver is not configured any more."""
    journal, clock = memory("http://of.old/")
    await admitted(journal)
    clock.now_ms += int(GIVE_UP_S * 1000)
    await admitted(journal, 1)
    async with telling(hook.url, journal=journal) as tells:
        await tells.counted(dead=1)
        assert await tells.census() == (1, 1)
    assert hook.got == []


async def test_the_outbox_is_measured(hook: Hook) -> None:
    """What waits, and for how long the oldest has."""
    journal, clock = memory("http://other/")
    await admitted(journal)
    clock.now_ms += 90_000
    await admitted(journal, 1)
    async with telling(hook.url, journal=journal) as tells:
        read = tells.metrics.snapshot
        await until(lambda: read()["relay_outbox_waiting"] == {(): (2,)})
        assert read()["relay_outbox_lag"] == {(): (90.0,)}


# The relay in trouble


async def test_killed_before_it_could_note_it_tells_again(tmp_path: Path, hook: Hook) -> None:
    """SIGKILL between the delivery and its mark: the next one brings the same, under the same id."""
    url = f"sqlite:///{tmp_path}/journal.db"
    shelf = Shelf(url, receivers=(receiver_name(hook.url),))
    await shelf.start(TaskOwner("test", lambda *_: None))
    await admitted(shelf.journal)
    await shelf.close()
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.webhook_sender", url, hook.url, SECRET, cwd=Path(__file__).parents[1]
    )

    async def kill(_: Delivery) -> web.Response:
        if sender.returncode is None:
            sender.kill()
            await sender.wait()
        return web.Response()

    hook.answer = kill
    await hook.take(1)
    await sender.wait()
    async with telling(hook.url, url=url) as tells:
        one, two = await hook.take(2)
        await tells.counted(delivered=1)
    assert (one.id, one.body) == (two.id, two.body)


async def test_a_delivery_that_cannot_be_noted_is_made_again(hook: Hook) -> None:
    """The journal fails for a moment: nothing dies, and it goes on."""
    journal, clock = memory(hook.url)
    fails = [True]
    mark = journal.mark_notice

    async def failing(*args: Any, **keys: Any) -> None:
        if fails:
            fails.clear()
            raise Unavailable("busy")
        await mark(*args, **keys)

    journal.mark_notice = failing  # type: ignore[method-assign]
    async with telling(hook.url, journal=journal) as tells:
        await admitted(journal)
        await until(lambda: not fails)
        clock.now_ms += 1_000
        one, two = await hook.take(2)
        await until(lambda: not any(row.waits for row in journal._outbox._rows.values()))
        assert tells.ended("delivered") == 2
    assert one.id == two.id


async def test_a_journal_in_trouble_is_waited_out(hook: Hook) -> None:
    """It cannot be read for a while: told afterwards."""
    journal, _ = memory(hook.url)
    take, failures = journal.take_notices, [1, 2, 3]

    async def failing(*args: Any, **keys: Any) -> Any:
        if failures:
            failures.pop()
            raise Unavailable("busy")
        return await take(*args, **keys)

    journal.take_notices = failing  # type: ignore[method-assign]
    await admitted(journal)
    async with telling(hook.url, journal=journal):
        await hook.take(1)
    assert not failures


async def test_the_end_waits_for_what_is_on_the_wire(hook: Hook) -> None:
    """What is answered meanwhile is noted, and nothing more is taken."""
    released = asyncio.Event()

    async def late(_: Delivery) -> web.Response:
        await released.wait()
        return web.Response()

    hook.answer = late
    journal, _ = memory(hook.url)
    async with telling(hook.url, journal=journal) as tells:
        await admitted(journal)
        await hook.take(1)
        closing = asyncio.gather(tells.webhooks.close())
        await asyncio.sleep(0)
        await admitted(journal, 1)
        released.set()
        await closing
        assert tells.ended("delivered") == 1
        assert await tells.census() == (1, 0)


async def test_what_is_taken_at_the_end_is_left_for_the_next(hook: Hook) -> None:
    """The journal answers when nobody delivers any more: nothing is posted."""
    journal, _ = memory(hook.url)
    asked, answer, answered_ = asyncio.Event(), asyncio.Event(), asyncio.Event()
    take = journal.take_notices

    async def late(*args: Any, **keys: Any) -> Any:
        asked.set()
        await answer.wait()
        answered_.set()
        return await take(*args, **keys)

    journal.take_notices = late  # type: ignore[method-assign]
    await admitted(journal)
    async with telling(hook.url, journal=journal) as tells:
        await asked.wait()
        await tells.webhooks.close()
        answer.set()
        await answered_.wait()
        await until(lambda: any(row.tries for row in journal._outbox._rows.values()))
    assert hook.got == []
    assert (await journal.census()).outbox_waiting == 1


async def test_what_hangs_at_the_end_is_told_by_the_next(hook: Hook) -> None:
    """The end does not wait for ever; the hold runs out."""

    async def hang(_: Delivery) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    hook.answer = hang
    journal, clock = memory(hook.url)
    async with telling(hook.url, journal=journal):
        await admitted(journal)
        await hook.take(1)
    hook.answer = None
    clock.now_ms += 1_000
    async with telling(hook.url, journal=journal):
        one, two = await hook.take(2)
    assert one.id == two.id


async def test_an_instance_tells(tmp_path: Path, hook: Hook) -> None:
    """What becomes of a client's transaction, from its ticket on."""
    journal = {"url": f"sqlite:///{tmp_path}/journal.db"}
    async with running(journal=journal, webhooks={"urls": [hook.url], "secret": SECRET}) as relay:
        _, answer = await relay.post(submission(signed(0)))
        got = sorted((delivery.value for delivery in await hook.take(3)), key=lambda value: value["version"])
    assert [value["transaction"]["state"] for value in got] == ["queued", "sealed", "pending"]
    assert {value["transaction"]["hash"] for value in got} == {answer["result"]}


async def test_no_client_waits_for_a_receiver(tmp_path: Path, hook: Hook) -> None:
    """All that may be on the wire hangs there, and submissions are answered as ever."""

    async def hang(_: Delivery) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    hook.answer = hang
    journal = {"url": f"sqlite:///{tmp_path}/journal.db"}
    async with running(journal=journal, webhooks={"urls": [hook.url], "secret": SECRET}) as relay:
        for nonce in range(SLOTS):
            _, answer = await relay.post(submission(signed(nonce)))
            assert "result" in answer
        assert len(await hook.take(SLOTS)) == SLOTS


# Helpers


async def answered(status: int | None, headers: dict[str, str] | None = None) -> web.Response | None:
    """As `Hook.answer` wants it. A redirect leads to another path of the same receiver."""
    if status is None:
        return None
    return web.Response(status=status, headers={"Location": "/elsewhere"} | (headers or {}))


def why(journal: MemoryJournal) -> list[str]:
    """What was said of each notice."""
    return [row.error for row in journal._outbox._rows.values()]

"""Wishes from the wire to the router, and answers by a handle back."""

from __future__ import annotations

from relay.config import Server
from relay.errors import INVALID_KEY, Refusal
from relay.ingress.head import HEAD_END, HeadMemo, Plan
from relay.router import Answer
from relay.wish import NO_WISH, Wish
from tests.ingress_rig import RESULT, on_each_loop, post, serving

JOURNAL = "sqlite:///unused.db"
KEYED = ('Idempotency-Key: "abc"', "Prefer: respond-async", "PREFER: wait=10")
WISH = Wish("abc", respond_async=True, wait_s=10)


@on_each_loop
async def test_a_wish_reaches_the_router() -> None:
    """From a new head and a remembered one, from a body in chunks or in pieces; and each request has its own."""
    async with serving(journal=JOURNAL) as rig:
        wire = await rig.wire()
        chunked = post(*KEYED, "Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n", length=False)
        for request in (post(*KEYED), post(*KEYED), post(*KEYED), chunked, post(), post("idempotency-key: def")):
            await wire.send(request)
            await wire.reply()
        await wire.send(post(*KEYED)[:-5])
        await wire.send(post(*KEYED)[-5:])
        await wire.reply()

        assert rig.routes.wishes == [WISH, WISH, WISH, WISH, NO_WISH, Wish("def"), WISH]


@on_each_loop
async def test_a_key_that_is_none_reaches_the_router_as_a_refusal() -> None:
    """It is refused for a submission; a call that is passed on does not suffer."""
    async with serving(journal=JOURNAL) as rig:
        reply = await rig.ask(post('Idempotency-Key: "abc'))

        assert (reply.status, reply.body) == (200, RESULT)
        [wish] = rig.routes.wishes
        assert isinstance(wish, Refusal)
        assert wish.case is INVALID_KEY


@on_each_loop
async def test_without_a_journal_the_headers_are_headers_like_any_other() -> None:
    """They go to the node with a call that is passed on, with a journal or without."""
    for journal in ("", JOURNAL):
        async with serving(journal=journal) as rig:
            await rig.ask(post(*KEYED))

            assert rig.routes.wishes == [WISH if journal else NO_WISH]
            [sent] = rig.upstream.sent
            assert sent.lines == "".join(f"{line}\r\n" for line in KEYED).encode()


@on_each_loop
async def test_an_answer_by_a_handle_has_its_headers() -> None:
    """And a page may read them."""
    headers = (("Location", "/transactions/0xab"), ("Preference-Applied", "respond-async"))
    async with serving(journal=JOURNAL, cors_origins=["https://app.example"]) as rig:
        rig.routes.decide = lambda body: Answer(200, RESULT, headers)
        reply = await rig.ask(post(*KEYED, "Origin: https://app.example"))

        assert (reply.status, reply.body) == (200, RESULT)
        assert (reply.headers["location"], reply.headers["preference-applied"]) == tuple(value for _, value in headers)
        exposed = reply.headers["access-control-expose-headers"].split(", ")
        assert {"Location", "Preference-Applied"} <= set(exposed)


@on_each_loop
async def test_a_page_may_send_wishes() -> None:
    """Browsers ask first."""
    async with serving() as rig:
        reply = await rig.ask(
            b"OPTIONS / HTTP/1.1\r\nHost: relay\r\nOrigin: https://app.example\r\n"
            b"Access-Control-Request-Method: POST\r\n"
            b"Access-Control-Request-Headers: content-type,idempotency-key,prefer\r\n\r\n"
        )

        assert reply.headers["access-control-allow-headers"] == "content-type,idempotency-key,prefer"


def test_a_wish_is_remembered_with_its_head() -> None:
    """It depends on the head's bytes alone, and a head without one has the one empty wish."""
    memo = HeadMemo(Server(), wishes=True)
    for request, wish in ((post(*KEYED), WISH), (post(), NO_WISH)):
        head = request.partition(HEAD_END)[0] + HEAD_END
        plans = [memo.plan(head) for _ in range(3)]
        assert [isinstance(plan, Plan) and plan.wish == wish for plan in plans] == [True] * 3
        assert plans[1] is plans[2]

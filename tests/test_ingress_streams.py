"""Whole conversations in any cut: heads that are new, heads that came before, bodies beside the length they have."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingress_rig import GET, RESULT, post, run, serving, turns

HEADS: Final = (b"X-Trace: a", b"X-Trace: ab", b"X-Trace: ", b"Y: a")
"""Of two, one begins with the other."""
BODIES: Final = (b"", b"{}", b'{"id":1}', b"\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n")

a_call = st.tuples(st.sampled_from(HEADS), st.sampled_from(BODIES))
calls = st.lists(st.one_of(a_call, st.none()), min_size=1, max_size=12)
"""None is a GET in between, which is answered without the node."""


@settings(max_examples=60, deadline=None)
@given(calls=calls, cuts=st.lists(st.integers(1, 120), max_size=30), loop=st.sampled_from(["asyncio", "uvloop"]))
def test_a_conversation_means_the_same_in_any_cut(
    calls: list[tuple[bytes, bytes] | None], cuts: list[int], loop: str
) -> None:
    """Each call reaches the node with its own lines and its own body, in order, and each request gets its answer."""
    expected = [(line + b"\r\n", body) for line, body in filter(None, calls)]
    stream = b"".join(GET if call is None else post(call[0].decode(), body=call[1]) for call in calls)

    async def talk() -> None:
        async with serving() as rig:
            wire = await rig.wire()
            rest = stream
            for cut in cuts:
                await wire.send(rest[:cut])
                await turns()
                rest = rest[cut:]
            await wire.send(rest)
            replies = [await wire.reply() for _ in calls]
            assert [reply.status for reply in replies] == [200] * len(calls)
            bodies = [reply.body for reply, call in zip(replies, calls, strict=True) if call is not None]
            assert bodies == [RESULT] * len(expected)
            assert [(sent.lines, sent.body) for sent in rig.upstream.sent] == expected

    run(loop, talk)

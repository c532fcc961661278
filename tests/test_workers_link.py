"""Links between the processes of one relay: frames cut anywhere, backpressure, the end told once."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.workers.frames import GREETING, Decoder, Garbled, encode
from relay.workers.link import Link
from tests.scripted_node import both_loops

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.workers.frames import Frame

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=300),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(st.lists(plain, max_size=6).map(tuple), max_size=6), st.lists(st.integers(1, 50), max_size=30))
def test_tuples_come_out_as_they_went_in_wherever_reads_cut(frames: list[Frame], cuts: list[int]) -> None:
    """A read may end anywhere: within the greeting, a length, a body."""
    stream = GREETING + b"".join(map(encode, frames))
    decoder = Decoder()
    out: list[Frame] = []
    for size in [*cuts, len(stream)]:
        out += decoder.feed(stream[:size])
        stream = stream[size:]

    assert out == frames


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        GREETING.replace(b"link ", b"link 1"),
        GREETING + (65).to_bytes(4) + bytes(65),
        GREETING + (4).to_bytes(4) + b"junk",
        GREETING + (0).to_bytes(4),
        GREETING + (1).to_bytes(4) + b"N",
        GREETING + (5).to_bytes(4) + encode(("cut",))[4:9],
    ],
)
def test_what_is_no_frame_is_garbled(stream: bytes) -> None:
    """A stranger, another version, a length above the limit, no tuple, half a tuple."""
    with pytest.raises(Garbled):
        Decoder(limit=64).feed(stream)


class End:
    """One end of a link, and what it heard."""

    def __init__(self, *, answering: bool = False) -> None:
        self.frames: list[Frame] = []
        self.ends: list[str] = []
        self.heard = asyncio.Event()
        self.on_frame: Callable[[Frame], Any] = self.frames.append
        self.link = Link(self._frame, self.ends.append, answering=answering)

    def _frame(self, frame: Frame) -> None:
        self.on_frame(frame)
        self.heard.set()

    async def until(self, count: int) -> None:
        """Until so many frames have come."""
        while len(self.frames) < count:
            self.heard.clear()
            await self.heard.wait()


async def pair(*, answering: bool = False) -> tuple[End, End]:
    """Two ends over a real socket; the second one may be an answering end."""
    loop = asyncio.get_running_loop()
    ends = End(), End(answering=answering)
    for end, sock in zip(ends, socket.socketpair(), strict=True):
        sock.setblocking(False)
        await loop.create_unix_connection(lambda link=end.link: link, sock=sock)  # type: ignore[misc] # link: Link
    return ends


async def test_frames_of_one_turn_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst costs one system call."""
    left, right = await pair()
    writes: list[bytes] = []
    transport = left.link._transport
    assert transport is not None
    real = transport.write

    def write(data: bytes) -> None:
        writes.append(data)
        real(data)

    monkeypatch.setattr(transport, "write", write)
    for number in range(100):
        left.link.send((number,))
    await right.until(100)

    assert right.frames == [(number,) for number in range(100)]
    assert len(writes) == 1
    left.link.abort("over")


@pytest.mark.parametrize("how", ["close", "abort"])
@both_loops
async def test_both_ends_hear_of_the_end_once(how: str) -> None:
    """Closed here or cut here, the other end hears it, too."""
    left, right = await pair()
    left.link.send(("last",))
    if how == "close":
        left.link.close()
    else:
        left.link.abort("broken")
    left.link.close()
    await asyncio.gather(left.link.closed, right.link.closed)

    assert left.ends == ["closed here" if how == "close" else "broken"]
    assert len(right.ends) == 1
    assert right.frames == ([("last",)] if how == "close" else [])
    left.link.send(("into the void",))


@both_loops
async def test_a_frame_of_the_wrong_shape_cuts_the_link() -> None:
    """Whoever reads the frames says so; those behind it are not heard."""
    left, right = await pair()

    def refuse(frame: Frame) -> None:
        raise Garbled(f"what is {frame}?")

    right.on_frame = refuse
    left.link.send(("odd",))
    left.link.send(("even",))
    await asyncio.gather(left.link.closed, right.link.closed)

    assert right.ends == ["what is ('odd',)?"]


@both_loops
async def test_an_answering_end_does_not_read_on_while_its_answers_are_not_taken() -> None:
    """The asking end then sees its backlog grow, and can stop asking."""
    asking, answering = await pair(answering=True)
    assert asking.link._transport is not None
    asking.link._transport.pause_reading()  # a process that is stopped
    answering.link.send((bytes(4 << 20),))
    await asyncio.sleep(0)
    for _ in range(64):
        asking.link.send((bytes(1 << 16),))
        await asyncio.sleep(0)

    assert asking.link.backlog > 1 << 20
    assert answering.link.backlog > 1 << 20
    asking.link._transport.resume_reading()
    await answering.until(64)
    await asking.until(1)

    assert asking.link.backlog == answering.link.backlog == 0
    asking.link.abort("over")

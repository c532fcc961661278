"""Many clients, each with one transaction, that send again until they know what became of it.

Job: post all at once, each at its own place; say when so many have an answer; keep what each post was answered.
Rules: a client that gets no answer, or one that proves nothing or asks for another try, sends the same bytes again, to
the next place. It never signs anew.
Must not know: what the places are.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from acceptance.rig.load import body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from acceptance.rig.signing import Transfer

AGAIN_S: Final = 0.1
GIVE_UP_S: Final = 60.0
JSON: Final = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Post:
    """One request and what it was answered; ``error`` is the text where there was no result."""

    transfer: Transfer
    url: str
    seconds: float
    code: int | None = None
    error: str = ""


@dataclass(slots=True)
class Crowd:
    """``posts`` are all that got an end, in the order of their ends."""

    session: aiohttp.ClientSession
    posts: list[Post] = field(default_factory=list)
    _waiting: list[tuple[int, asyncio.Event]] = field(default_factory=list)

    async def once(self, transfers: Sequence[Transfer], urls: Sequence[str]) -> None:
        """All at once, round the ``urls``; nobody sends again."""
        await asyncio.gather(
            *(self._post(transfer, urls[place % len(urls)]) for place, transfer in enumerate(transfers))
        )

    @asynccontextmanager
    async def insisting(self, transfers: Sequence[Transfer], urls: Sequence[str]) -> AsyncIterator[None]:
        """All at once, round the ``urls``, again and again; left when every client has its transaction accepted."""
        async with asyncio.TaskGroup() as group:
            for place, transfer in enumerate(transfers):
                name = f"client {place}"
                group.create_task(self._insist(transfer, [*urls[place % len(urls) :], *urls]), name=name)
            yield

    async def answered(self, count: int) -> None:
        """Until ``count`` posts have ended."""
        event = asyncio.Event()
        self._waiting.append((count, event))
        self._tell()
        async with asyncio.timeout(GIVE_UP_S):
            await event.wait()

    @property
    def refused(self) -> list[Post]:
        """Posts that did not end in a result."""
        return [post for post in self.posts if post.error]

    def longest_s(self, *urls: str) -> float:
        """The longest that a client waited for an end, at these places or at all."""
        return max((post.seconds for post in self.posts if not urls or post.url in urls), default=0.0)

    async def _insist(self, transfer: Transfer, urls: Sequence[str]) -> None:
        async with asyncio.timeout(GIVE_UP_S):
            tries = 0
            while (await self._post(transfer, urls[tries % len(urls)])).error:
                tries += 1
                await asyncio.sleep(AGAIN_S)

    async def _post(self, transfer: Transfer, url: str) -> Post:
        began = time.monotonic()
        code, error = await self._said(transfer, url)
        post = Post(transfer, url, time.monotonic() - began, code, error)
        self.posts.append(post)
        self._tell()
        return post

    async def _said(self, transfer: Transfer, url: str) -> tuple[int | None, str]:
        try:
            async with self.session.post(url, data=body(transfer), headers=JSON) as response:
                text = await response.read()
        except aiohttp.ClientError as error:
            return None, f"{type(error).__name__}: {error}"
        try:
            answer: dict[str, Any] = json.loads(text)
        except ValueError:
            return None, f"HTTP {response.status}"
        if "error" in answer:
            return answer["error"]["code"], answer["error"]["message"]
        return (None, "") if answer["result"] == transfer.hash else (None, f"answered with {answer['result']}")

    def _tell(self) -> None:
        for count, event in self._waiting:
            if len(self.posts) >= count:
                event.set()


def swapped(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Each two neighbours in the wrong order; an even number of them."""
    return [transfers[place ^ 1] for place in range(len(transfers))]


def mingled(lanes: Sequence[Sequence[Transfer]]) -> list[Transfer]:
    """One of each sender after the other."""
    return [transfer for row in zip(*lanes, strict=True) for transfer in row]

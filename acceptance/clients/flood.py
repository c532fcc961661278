"""A client that posts each line of a file, over so many connections, as fast as the answers come.

Arguments: the URL, the file, the number of connections. Says ``flooding`` when it begins, and how many it sent.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance.rig.load import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acceptance.rig.load import Line


async def flood(url: str, bodies: list[bytes], connections: int) -> None:
    """Open all connections first."""
    todo = iter(bodies)
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connected(url)) for _ in range(connections)]
        print("flooding", flush=True)
        await asyncio.gather(*(post_from(todo, line) for line in lines))
    print(f"sent {len(bodies)}", flush=True)


async def post_from(todo: Iterator[bytes], line: Line) -> None:
    """Post what is left until nothing is."""
    for body in todo:
        await line.post(body)


if __name__ == "__main__":
    asyncio.run(flood(sys.argv[1], Path(sys.argv[2]).read_bytes().splitlines(), int(sys.argv[3])))

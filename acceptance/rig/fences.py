"""Under which fence a submission was sent, as the relays' logs tell it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acceptance.rig.crowd import Crowd
    from acceptance.rig.parts import Part


class Fenced(NamedTuple):
    """``fence`` is 0 where nothing was sent under one; ``url`` is the relay's."""

    fence: int
    url: str


async def logged_fences(crowd: Crowd, relays: Sequence[Part]) -> dict[str, Fenced]:
    """Hash → the fence in the log line of the relay that the crowd posted it to."""
    processes = {relay.url: relay.process for relay in relays}
    found = {}
    for post in crowd.posts:
        line = await processes[post.url].line(post.transfer.hash)
        found[post.transfer.hash] = Fenced(json.loads(line.string)["fence"] or 0, post.url)
    return found

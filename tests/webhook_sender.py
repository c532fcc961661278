"""Tells from a process of its own, to be killed: ``python -m tests.webhook_sender JOURNAL HOOK SECRET``."""

from __future__ import annotations

import asyncio
import sys
import time

from relay import config
from relay.journal.shelf import Shelf
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.webhooks import Pace, Webhooks, receivers

QUICK = Pace(post_s=5.0, poll_s=0.01, hold_s=0.5, rest_s=0.01)


def _died(name: str, error: BaseException) -> None:
    sys.stderr.write(f"{name}: {error!r}\n")


async def main(journal: str, hook: str, secret: str) -> None:
    """Until it is killed."""
    settings = config.check({"journal": {"url": journal}, "webhooks": {"urls": [hook], "secret": secret}})
    shelf = Shelf(journal, receivers=receivers(settings.webhooks))
    background = TaskOwner("sender", _died)
    await shelf.start(background)
    Webhooks(shelf, settings, Metrics(), _died, time.monotonic, pace=QUICK).start(background)
    await background.settled()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

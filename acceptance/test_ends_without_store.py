"""A relay that is told to end while its journal's store does not answer."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.kills import SUBMISSIONS, Store, killing, sent
from acceptance.rig.signing import funded, key_of, sign
from acceptance.test_kills import postgres, programs, store

if TYPE_CHECKING:
    from acceptance.rig.parts import Part, Rig

__all__ = ["postgres", "programs", "store"]

DRAIN_S = 2.0
ENDING_S = 2.0
"""Beyond it: to write the last answers, and to end whatever the store does."""
SENDERS, BURST = 8, 10

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("receivers", [[], ["http://127.0.0.1:1/"]], ids=["", "webhooks"])
async def test_the_end_waits_for_no_store(rig: Rig, store: Store, receivers: list[str], workers: str) -> None:
    """What the node has answered cannot be written, the sweep's claim not given back, the queue not emptied."""
    webhooks: dict[str, Any] = {"webhooks__urls": receivers, "webhooks__secret": "s" * 32} if receivers else {}
    async with killing(rig, store, "--workers", workers, server__drain_s=DRAIN_S, **webhooks) as case:
        relay = await case.relay()
        await case.until(lambda: _has_swept(rig, relay))
        await case.chain.script({"do": "hang", "method": SUBMISSIONS, "when": "after", "times": SENDERS})
        keys = [key_of(account) for account in funded(SENDERS)]
        async with sent(relay, [sign(key, nonce, case.chain.chain_id) for key in keys for nonce in range(BURST)]):
            await case.chain.arrived(SENDERS)
            async with case.store.held():
                await case.chain.call("dev_release")
                began = time.monotonic()
                relay.process.signal(signal.SIGTERM)
                assert await relay.process.ended() == 0
                assert time.monotonic() - began < DRAIN_S + ENDING_S


async def _has_swept(rig: Rig, relay: Part) -> bool:
    return await rig.metric(relay, "relay_sweeps_total") > 0

"""What a dead relay left, much of it, and asked for while it is taken up."""

from __future__ import annotations

import socket
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.kills import LOOK_UPS, STEPS, SqliteStore, killing
from acceptance.rig.processes import memory_bytes
from acceptance.rig.signing import random_keys, sign
from relay.journal.records import Intake
from relay.journal.url import open_journal
from relay.recorder.taking_up import ORPHANS
from relay.transaction import decode
from tests.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.parts import Part, Rig

SENDERS, NONCES = 500, 10
GROWN_MB = 40

pytestmark = pytest.mark.timeout(120)


async def test_clients_attach_over_any_worker(rig: Rig, tmp_path: Path) -> None:
    """To rows whose turns have not come: each hears the hash, and the node has each once."""
    store = SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")
    async with killing(rig, store, "--workers", "2") as case:
        await STEPS["after_seal"](case, await case.relay())
        await case.chain.script({"do": "hang", "method": LOOK_UPS, "times": 1})
        relay = await case.relay()
        await case.hanging()
        crowd = rig.crowd()
        async with crowd.insisting([*case.transfers, *case.transfers], [relay.url]):
            await case.until(lambda: _attached(rig, relay, 6))
            await case.chain.call("dev_release")
        assert not crowd.refused
        await case.all_landed_once()


async def _attached(rig: Rig, relay: Part, count: int) -> bool:
    return await rig.metric(relay, "relay_duplicates_attached_total") >= count


def left(chain_id: int, actor: str) -> Iterator[Intake]:
    """Rows of a process that has died."""
    for key in islice(random_keys(), SENDERS):
        for nonce in range(NONCES):
            raw = bytes.fromhex(sign(key, nonce, chain_id).raw[2:])
            tx = decode(raw)
            hash_ = bytes.fromhex(tx.hash[2:])
            yield Intake(chain_id, tx.sender_bytes, nonce, hash_, raw, "eth_sendRawTransaction", actor=actor)


async def test_five_thousand_are_taken_up_in_bounded_memory(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """A few of each of a few senders at a time."""
    url, place = f"sqlite:///{tmp_path / 'journal.db'}", f"127.0.0.1:{free_port()}"
    node = await rig.yes_node()
    journal = await open_journal(url)
    fresh = await rig.relay(node.url, journal__url=f"sqlite:///{tmp_path / 'other.db'}")
    intakes = list(left(int(await rig.caller(node.url).call("eth_chainId"), 16), f"{socket.gethostname()}/{place}"))
    for first in range(0, len(intakes), 500):
        await journal.admit(intakes[first : first + 500])
    relay = await rig.relay(node.url, "--listen", place, journal__url=url)
    await relay.process.line(r'taken up".*"submissions":5000')
    assert await journal.unfinished(states=ORPHANS) == []
    grown = memory_bytes(relay.process.pid, "VmHWM") - memory_bytes(fresh.process.pid, "VmHWM")
    measured(f"5,000 rows taken up, {grown / 2**20:.0f} MB more at most than a relay without")
    assert grown < GROWN_MB * 2**20
    await journal.close()

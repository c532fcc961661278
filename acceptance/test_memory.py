"""What the relay holds on to: at rest, after very many senders, after very many transactions."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.load import batch, body, pump
from acceptance.rig.signing import random_keys, sign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acceptance.conftest import Measured
    from acceptance.rig.load import Answered
    from acceptance.rig.parts import Part, Rig

MIB = 2**20
IDLE_LIMIT, LANES_LIMIT, GROWTH_LIMIT = 80 * MIB, 50 * MIB, 8 * MIB
LANES, IN_A_BATCH = 100_000, 100
SENDERS, WARM_UP, ROUNDS = 1000, 20, 200
CHAIN = 1337
LINES = 16

pytestmark = pytest.mark.timeout(900)


async def before_a_yes_node(rig: Rig) -> Part:
    """A relay before a node that accepts everything."""
    node = await rig.yes_node()
    return await rig.relay(node.url)


def succeeded(answers: list[Answered]) -> int:
    """How many results the answers hold, batches included."""
    return sum(answer.body.count(b'"result"') for answer in answers)


async def test_idle_memory(rig: Rig, measured: Measured) -> None:
    """A relay that has served one transaction holds less than 80 MiB."""
    relay = await before_a_yes_node(rig)
    answers = await pump(relay.url, [body(sign(next(random_keys()), 0, CHAIN))], 1)
    assert succeeded(answers) == 1
    measured(f"{relay.process.rss_bytes() / MIB:.1f} MiB")
    assert relay.process.rss_bytes() < IDLE_LIMIT


async def test_a_hundred_thousand_idle_lanes(rig: Rig, measured: Measured) -> None:
    """A hundred thousand senders that have sent one transaction each add less than 50 MiB."""
    relay = await before_a_yes_node(rig)
    assert succeeded(await pump(relay.url, sender_batches(LANES // 100), LINES)) == LANES // 100
    before = relay.process.rss_bytes()
    accepted = succeeded(await pump(relay.url, sender_batches(LANES), LINES))
    added = relay.process.rss_bytes() - before
    measured(f"{LANES} lanes added {added / MIB:.1f} MiB to {before / MIB:.1f}")
    assert accepted == LANES
    assert added < LANES_LIMIT


async def test_memory_is_flat(rig: Rig, measured: Measured) -> None:
    """Two hundred thousand transactions of a thousand senders leave the memory where it was after the first tenth."""
    relay = await before_a_yes_node(rig)
    bodies = rounds()
    assert succeeded(await pump(relay.url, itertools.islice(bodies, SENDERS * WARM_UP), LINES)) == SENDERS * WARM_UP
    before = relay.process.rss_bytes()
    accepted = succeeded(await pump(relay.url, bodies, LINES))
    growth = relay.process.rss_bytes() - before
    measured(f"{accepted} transactions added {growth / MIB:.1f} MiB to {before / MIB:.1f}")
    assert accepted == SENDERS * (ROUNDS - WARM_UP)
    assert growth < GROWTH_LIMIT


def sender_batches(count: int) -> Iterator[bytes]:
    """First transactions of ``count`` new senders, a hundred a body."""
    keys = random_keys()
    for _ in range(count // IN_A_BATCH):
        yield batch([sign(key, 0, CHAIN) for key in itertools.islice(keys, IN_A_BATCH)])


def rounds() -> Iterator[bytes]:
    """One transaction of each sender after the other, round after round."""
    keys = list(itertools.islice(random_keys(), SENDERS))
    return (body(sign(key, nonce, CHAIN)) for nonce in range(ROUNDS) for key in keys)

"""A burst with swapped neighbours against a strict node whose checks take 0 to 20 ms each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acceptance.rig.load import body, connected
from acceptance.rig.signing import MNEMONIC, funded, key_of, sign

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.parts import Rig

SENDERS, COUNT = 3, 100
BURST = ("--senders", str(SENDERS), "--count", str(COUNT), "--shuffle", "1", "--mnemonic", MNEMONIC)
CHECKS_MS = (0, 20)
LONE_S = 0.3


async def test_a_swapped_burst_reaches_the_node_in_order(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """All are accepted and mined; at the node none comes after a higher nonce and never two of a sender at once."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url)
    summary = await rig.burst(relay.url, tmp_path / "burst.json", *BURST)
    seen = await chain.report()
    p99_ms = summary["latency_s"]["p99"] * 1000
    measured(f"{summary['accepted']} accepted, {summary['per_second']:.0f}/s, p99 {p99_ms:.0f} ms, at the node {seen}")
    assert (summary["accepted"], summary["mined"], summary["refused"]) == (SENDERS * COUNT, SENDERS * COUNT, 0)
    assert (seen["submissions"], seen["inversions"], seen["overlaps"]) == (SENDERS * COUNT, 0, 0)


async def test_without_the_relay_most_of_the_burst_fails(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """The control: the same burst straight to the same node loses most transactions to their nonces."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    summary = await rig.burst(chain.url, tmp_path / "burst.json", *BURST, "--timeout", "5")
    measured(f"{summary['accepted']} of {summary['sent']} accepted, {summary['nonce_failures']} nonce failures")
    assert summary["nonce_failures"] > SENDERS * COUNT / 2


async def test_a_lone_transaction_waits_for_no_window(rig: Rig, measured: Measured) -> None:
    """A transaction that is next goes straight to the node: each answer comes long before a reorder window is over."""
    chain = await rig.chain(delay_ms=CHECKS_MS)
    relay = await rig.relay(chain.url)
    transfers = [sign(key_of(funded(1)[0]), nonce, chain.chain_id) for nonce in range(20)]
    async with connected(relay.url) as line:
        answers = [await line.post(body(transfer)) for transfer in transfers]
    slowest = max(answer.seconds for answer in answers)
    measured(f"slowest of {len(answers)} lone transactions {slowest * 1000:.1f} ms")
    assert all(transfer.hash.encode() in answer.body for transfer, answer in zip(transfers, answers, strict=True))
    assert slowest < LONE_S

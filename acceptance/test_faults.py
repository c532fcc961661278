"""A node that resets connections after it took a transaction, behind a proxy that is at times unavailable."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from acceptance.rig.signing import MNEMONIC, funded

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.parts import Rig

SENDERS, COUNT = 3, 100
BURST = ("--senders", str(SENDERS), "--count", str(COUNT), "--shuffle", "1", "--mnemonic", MNEMONIC)
FAULTS = (
    {"do": "reset", "when": "after", "first": 5, "every": 5},
    {"do": "page", "when": "before", "status": 503, "first": 11, "every": 11},
)


async def test_every_answer_is_success_and_nothing_is_taken_twice(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """Every fifth connection reset behind the acceptance, every eleventh refused with a page: nobody notices."""
    chain = await rig.chain()
    await chain.script(*FAULTS)
    relay = await rig.relay(chain.url)
    summary = await rig.burst(relay.url, tmp_path / "burst.json", *BURST)
    seen, arrivals = await chain.report(), await chain.arrivals()
    taken = Counter(arrival["hash"] for arrival in arrivals if arrival["taken"])
    outcomes = Counter(arrival["outcome"] for arrival in arrivals)
    measured(f"{summary['accepted']} accepted in {summary['duration_s']:.1f} s, outcomes at the node {dict(outcomes)}")
    assert (summary["accepted"], summary["mined"]) == (SENDERS * COUNT, SENDERS * COUNT)
    assert len(taken) == SENDERS * COUNT
    assert set(taken.values()) == {1}
    assert (seen["overlaps"], seen["inversions"]) == (0, 0)
    assert [await chain.count(account.address) for account in funded(SENDERS)] == [COUNT] * SENDERS

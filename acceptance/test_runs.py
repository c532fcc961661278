"""Bursts with ``[upstream] submit = "batch"``: as fast as promised, and in order whatever goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acceptance.rig.signing import MNEMONIC
from acceptance.test_instances import disorder

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.conftest import Measured
    from acceptance.rig.parts import Rig

BATCH = {"upstream__submit": "batch"}
FAR_S = 0.05
FAR_COUNT = 200
SENDERS, COUNT = 3, 100
BURST = ("--senders", str(SENDERS), "--count", str(COUNT), "--shuffle", "1", "--mnemonic", MNEMONIC)
FAULTS = (
    {"do": "reset", "when": "after", "every": 5},
    {"do": "page", "every": 11},
    {"do": "page", "method": "dev_batch", "status": 502, "when": "after", "every": 3},
)


async def test_a_burst_to_a_node_far_away_takes_a_tenth_of_the_time(
    rig: Rig, tmp_path: Path, measured: Measured
) -> None:
    """200 of one sender, shuffled, to a node 50 ms away: singly a round trip each, in runs a few in all."""
    took: dict[str, float] = {}
    burst = ("--senders", "1", "--count", str(FAR_COUNT), "--shuffle", "5", "--mnemonic", MNEMONIC)
    for submit in ("single", "batch"):
        chain = await rig.chain()
        wire = await rig.wire(urlsplit(chain.url).port or 0)
        wire.delay_s = FAR_S
        relay = await rig.relay(f"http://127.0.0.1:{wire.port}", upstream__submit=submit)
        summary = await rig.burst(relay.url, tmp_path / f"{submit}.json", *burst)
        seen = await chain.report()
        took[submit] = summary["duration_s"]
        assert (summary["accepted"], summary["refused"]) == (FAR_COUNT, 0)
        assert (seen["submissions"], seen["inversions"], seen["overlaps"]) == (FAR_COUNT, 0, 0)
    measured(
        f"{FAR_COUNT} of one sender over {FAR_S * 1000:.0f} ms: {took['single']:.2f} s, {took['batch']:.2f} s in runs"
    )
    assert took["batch"] < took["single"] / 10


async def test_instances_keep_one_order_in_runs(rig: Rig, measured: Measured) -> None:
    """Ten nonces of each sender here, ten there, neighbours swapped, to a strict node: none refused, none overtaken."""
    chain, server = await rig.chain(delay_ms=(0, 5)), await rig.redis()
    relays = await rig.instances(2, chain.url, server.url, **BATCH)
    crowd = rig.crowd()
    await crowd.once(disorder(chain), [relay.url for relay in relays for _ in range(10 * SENDERS)])
    seen = await chain.report()
    sent = [await rig.metric(relay, "relay_run_submissions_total") for relay in relays]
    measured(f"{sum(sent):.0f} in runs, longest answer {crowd.longest_s() * 1000:.0f} ms, at the node {seen}")
    assert crowd.refused == []
    assert seen == {"submissions": SENDERS * COUNT, "inversions": 0, "overlaps": 0}
    assert sum(sent) > SENDERS * COUNT / 2


async def test_lost_answers_inside_runs_are_found_out(rig: Rig, tmp_path: Path, measured: Measured) -> None:
    """Connections reset behind an acceptance, pages for one or for a whole batch: every answer is success."""
    chain = await rig.chain()
    await chain.script(*FAULTS)
    relay = await rig.relay(chain.url, **BATCH)
    summary = await rig.burst(relay.url, tmp_path / "burst.json", *BURST)
    taken = [arrival["hash"] for arrival in await chain.arrivals() if arrival["taken"]]
    measured(f"{summary['accepted']} accepted in {summary['duration_s']:.1f} s")
    assert (summary["accepted"], summary["mined"]) == (SENDERS * COUNT, SENDERS * COUNT)
    assert len(taken) == len(set(taken)) == SENDERS * COUNT

"""Group ``order``: what becomes of bursts at a strict chain, without the relay and with it.

Rules: the burst command, each transaction on a new connection; the chain's own record is the judge. Each contender has
a chain of its own, so that nobody's leftovers are another's trouble.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from acceptance.bench.sheet import Findings, table
from acceptance.rig.signing import MNEMONIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acceptance.bench.turns import Turns
    from acceptance.rig.chain import Chain
    from acceptance.rig.parts import Rig

SENDERS, COUNT = 3, 100
CHECKS_MS: Final = (0, 10)
SHUFFLES: Final = {"in nonce order": 0, "neighbours swapped": 1}


class Came(NamedTuple):
    """One burst's end."""

    sent: int
    accepted: int
    refused: int
    out_of_order: int
    inversions: int
    overlaps: int


async def measure(rig: Rig, turns: Turns) -> Findings:
    """Bursts in order and with neighbours swapped."""
    alone, one, many = [await rig.chain(delay_ms=CHECKS_MS) for _ in range(3)]
    relay, server = await rig.relay(one.url), await rig.redis()
    fleet = await rig.instances(2, many.url, server.url)
    contenders = {
        "none": (alone, [alone.url]),
        "1 relay": (one, [relay.url]),
        "2 relays, Redis": (many, [part.url for part in fleet]),
    }
    rows = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "burst.json"
        for title, shuffle in SHUFFLES.items():
            found = await turns.of(
                {name: partial(_burst, rig, file, chain, urls, shuffle) for name, (chain, urls) in contenders.items()}
            )
            rows += [[title, name, *_row(came)] for name, came in found.items()]
    info = await server.admin.info("server")
    head = ["sent", "relay", "accepted", "refused", "mined in order", "inversions", "two at once"]
    return Findings(
        [
            f"{SENDERS} senders × {COUNT} transactions at once, each on a new connection, to a strict chain that takes"
            f" {CHECKS_MS[0]}–{CHECKS_MS[1]} ms for its checks; sums over {turns.rounds} bursts.",
            "*Inversions* are nonces that reached the node after a higher one of their sender, *two at once* are"
            " transactions that reached it while another one of their sender was being checked.",
            "",
            *table(head, rows),
        ],
        [f"Valkey {info['valkey_version']}"],
    )


async def _burst(rig: Rig, file: Path, chain: Chain, urls: Sequence[str], shuffle: int) -> Came:
    await chain.call("dev_clear")
    first, *others = urls
    flags = [flag for url in others for flag in ("--rpc", url)]
    flags += ["--senders", str(SENDERS), "--count", str(COUNT), "--shuffle", str(shuffle), "--mnemonic", MNEMONIC]
    summary = await rig.burst(first, file, *flags)
    assert summary["failed"] == 0, summary["reasons"]
    seen = await chain.report()
    unsorted = sum(not lane["in_order"] for lane in summary["lanes"])
    return Came(
        summary["sent"], summary["accepted"], summary["refused"], unsorted, seen["inversions"], seen["overlaps"]
    )


def _row(came: Sequence[Came]) -> list[str]:
    total = Came(*map(sum, zip(*came, strict=True)))
    return [
        f"{total.accepted} of {total.sent}",
        str(total.refused),
        "yes" if total.out_of_order == 0 else f"**no**, {total.out_of_order} of {len(came) * SENDERS} lanes",
        str(total.inversions),
        str(total.overlaps),
    ]

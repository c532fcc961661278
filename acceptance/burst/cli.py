"""``burst``: flags in, exit code out.

Exit code: 0 everything was accepted and mined in order · 1 it was not · 2 the burst could not be run as asked.
"""

from __future__ import annotations

import asyncio
import json
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console

from acceptance.burst import chain, flags, keys, run, sign, timeline
from acceptance.burst.faults import BurstFault
from acceptance.burst.plan import Pattern, Shot, schedule
from acceptance.burst.progress import Bars
from acceptance.burst.report import Summary, show, summarise
from acceptance.burst.rpc import Endpoint, open_session

try:
    import uvloop
except ImportError:  # asyncio's own loop does as well, only slower
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
else:
    new_loop = uvloop.new_event_loop

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from eth_account.signers.local import LocalAccount

INTERRUPTED: Final = 130  # what shells report for Ctrl-C
SPARE_FILES: Final = 64  # open files beside one connection for each request


@dataclass(frozen=True, slots=True)
class Burst:
    """All that was asked for. ``repr`` shows no account."""

    urls: Sequence[str]
    pattern: Pattern
    accounts: Sequence[LocalAccount]
    wish: chain.Wish
    timeout_s: float

    def __repr__(self) -> str:
        return f"<burst {self.pattern} to {len(self.urls)} URLs>"


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit code."""
    asked = flags.parser().parse_args(argv)
    console = Console()
    try:
        burst = _burst(asked)
        with asyncio.Runner(loop_factory=new_loop) as runner, Bars(Console(stderr=True)) as bars:
            flights, summary = runner.run(perform(burst, bars))
        show(summary, burst.pattern, console)
        _write(asked, burst, flights, summary)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BurstFault as fault:
        Console(stderr=True, highlight=False).print(f"burst: {fault}", style="red", markup=False, soft_wrap=True)
        return 2
    return 0 if summary.good else 1


async def perform(burst: Burst, bars: Bars) -> tuple[list[run.Flight], Summary]:
    """Prepare, sign, send, wait."""
    addresses = [account.address for account in burst.accounts]
    total = burst.pattern.senders * burst.pattern.count
    _allow_files(total)
    async with open_session(burst.timeout_s) as calm, open_session(burst.timeout_s) as fresh:
        endpoints = [Endpoint(calm, url) for url in burst.urls]
        terms = await chain.terms(endpoints, burst.wish, addresses[0])
        first_nonces = await chain.nonces(endpoints[0], addresses)
        await chain.check_funds(endpoints[0], addresses, terms.cost * burst.pattern.count)
        shots = schedule(burst.pattern)
        work = (_signed(burst.accounts, first_nonces, shot, terms) for shot in shots)
        signed = list(bars.signing(work, total))
        targets = [Endpoint(fresh, url) for url in burst.urls]  # no shot has the head start of an open connection
        flights = await run.fire(
            targets, list(zip(shots, signed, strict=True)), lambda kind: bars.answered(kind, total)
        )
        accepted = [flight.hash for flight in flights if flight.kind == "accepted"]
        bars.mined(len(accepted), more=0)
        positions = await run.receipts(endpoints[0], accepted, burst.timeout_s, lambda: bars.mined(len(accepted)))
    return flights, summarise(addresses, flights, positions)


def _signed(
    accounts: Sequence[LocalAccount], first_nonces: Sequence[int], shot: Shot, terms: chain.Terms
) -> sign.Signed:
    return sign.transfer(accounts[shot.sender], first_nonces[shot.sender] + shot.index, terms)


def _burst(asked: argparse.Namespace) -> Burst:
    accounts = (
        keys.from_mnemonic(asked.mnemonic, asked.first_index, asked.senders)
        if asked.mnemonic is not None
        else keys.from_file(asked.keys, asked.first_index, asked.senders)
    )
    return Burst(
        urls=asked.rpc,
        pattern=Pattern(asked.senders, asked.count, len(asked.rpc), asked.gap_us, asked.shuffle, asked.seed),
        accounts=accounts,
        wish=chain.Wish(asked.to, asked.value, asked.gas, asked.type, asked.max_fee, asked.tip),
        timeout_s=asked.timeout,
    )


def _write(asked: argparse.Namespace, burst: Burst, flights: Sequence[run.Flight], summary: Summary) -> None:
    try:
        if asked.json:
            asked.json.write_text(json.dumps(summary.to_json(), indent=2) + "\n", "utf-8")
        if asked.png:
            timeline.draw(flights, [account.address for account in burst.accounts], summary).save(asked.png, "PNG")
    except OSError as error:
        raise BurstFault(f"{error.filename}: cannot be written: {error.strerror}") from None


def _allow_files(connections: int) -> None:
    """Raise this process's limit of open files where ``connections`` at once need it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    if hard < wanted:
        raise BurstFault(f"{connections} connections at once need more open files than the limit of {hard} (ulimit -n)")

"""wrk: as many calls as go through in some seconds, on so many connections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acceptance.bench.turns import spent_s
from acceptance.rig.processes import ROOT

if TYPE_CHECKING:
    from acceptance.bench.proxies import Contender
    from acceptance.rig.parts import Rig

SCRIPT: Final = str(ROOT / "acceptance" / "bench" / "post.lua")
UNITS: Final = {"us": 1.0, "ms": 1e3, "s": 1e6}
COUNT: Final = re.compile(r"(\d+) requests in")
SHARE: Final = re.compile(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", re.MULTILINE)
TROUBLE: Final = re.compile(r"^.*(?:Socket errors|Non-2xx).*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Load:
    """What a turn came to; times in microseconds."""

    cpu_us: float
    per_second: float
    p50_us: float
    p99_us: float


async def wrk(rig: Rig, contender: Contender, connections: int, seconds: int, *flags: str) -> Load:
    """One turn."""
    before = spent_s(contender.pid)
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", SCRIPT, *flags, contender.url]
    output = await rig.run(*argv)
    spent = spent_s(contender.pid) - before
    assert TROUBLE.search(output) is None, f"{contender.url}: {output}"
    counted = COUNT.search(output)
    assert counted, output
    share = {percent: float(number) * UNITS[unit] for percent, number, unit in SHARE.findall(output)}
    return Load(spent / int(counted[1]) * 1e6, int(counted[1]) / seconds, share["50"], share["99"])

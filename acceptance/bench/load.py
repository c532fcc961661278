"""wrk: as many calls as go through in some seconds. h2load: so many a second, over kept connections.

Rules: h2load's clients start apart, for it would fire them all at once and measure its own queue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from acceptance.bench.turns import spent_s
from acceptance.rig.processes import ROOT

if TYPE_CHECKING:
    from acceptance.bench.proxies import Contender
    from acceptance.rig.parts import Rig

SCRIPTS: Final = ROOT / "acceptance" / "bench"
UNITS: Final = {"us": 1.0, "ms": 1e3, "s": 1e6}
COUNT: Final = re.compile(r"(\d+) requests in")
SHARE: Final = re.compile(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", re.MULTILINE)
CALL: Final = b'{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'
APART: Final = ("-r1", "--rate-period=13ms")
TROUBLE: Final = re.compile(r"^.*(?:Socket errors|Non-2xx).*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Load:
    """What a turn came to; times in microseconds."""

    cpu_us: float
    per_second: float
    p50_us: float
    p99_us: float


async def wrk(
    rig: Rig, contender: Contender, connections: int, seconds: int, *flags: str, script: str = "post.lua"
) -> Load:
    """One turn of the calls that ``script`` makes."""
    before = spent_s(contender.pid)
    argv = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}",
        "--latency",
        "-s",
        str(SCRIPTS / script),
        *flags,
        contender.url,
    ]
    output = await rig.run(*argv)
    spent = spent_s(contender.pid) - before
    assert TROUBLE.search(output) is None, f"{contender.url}: {output}"
    counted = COUNT.search(output)
    assert counted, output
    share = {percent: float(number) * UNITS[unit] for percent, number, unit in SHARE.findall(output)}
    return Load(spent / int(counted[1]) * 1e6, int(counted[1]) / seconds, share["50"], share["99"])


async def paced(rig: Rig, contender: Contender, connections: int, per_second: float, seconds: int) -> Load:
    """One turn at a fixed rate, spread over the connections."""
    with TemporaryDirectory() as folder:
        body, log = Path(folder) / "body", Path(folder) / "log"
        body.write_bytes(CALL)
        count, rate = int(per_second * seconds), round(per_second / connections)
        argv = ["h2load", "--h1", "-t1", f"-c{connections}", f"-n{count}", f"--rps={rate}", *APART]
        argv += [f"-d{body}", "-Hcontent-type: application/json", f"--log-file={log}", contender.url]
        before = spent_s(contender.pid)
        await rig.run(*argv)
        spent = spent_s(contender.pid) - before
        rows = [[int(cell) for cell in row.split("\t")] for row in log.read_text("ascii").splitlines()]
    assert [status for _, status, _ in rows] == [200] * count, f"{contender.url}: calls failed"
    took_s = (max(start for start, _, _ in rows) - min(start for start, _, _ in rows)) / 1e6
    cuts = quantiles([took for _, _, took in rows], n=100)
    return Load(spent / count * 1e6, count / took_s, cuts[49], cuts[98])

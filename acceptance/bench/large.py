"""Group ``large``: 1.6 MB up, 50 MB down, and 50 MB for a client that reads slowly; CPU, and the most memory held.

Rules: nginx stands here twice, as it is by default (what does not fit its buffers goes through files) and with
buffering off both ways, which streams. The relay must have a request whole before it knows whether it is a submission.
Memory is the kernel's high-water mark of a turn, above what the process held after some small calls; what may be kept
after its turn comes last.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from acceptance.bench import proxies
from acceptance.bench.bulk_node import LARGE_BYTES
from acceptance.bench.costs import cpu_table, cpu_us, work
from acceptance.bench.load import CALL
from acceptance.bench.sheet import Findings, ratio, table
from acceptance.rig.load import pump
from acceptance.rig.processes import forget_peak, memory_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from acceptance.bench.proxies import Contender
    from acceptance.bench.turns import Turns
    from acceptance.rig.parts import Rig

MB: Final = 10**6
WARM_UP: Final = 500
UNBUFFERED: Final = "nginx, buffering off"
STREAMING: Final = ("proxy_buffering off", "proxy_request_buffering off")
TRACE: Final = b'{"jsonrpc":"2.0","id":1,"method":"debug_traceBlockByNumber","params":["0x1"]}'
SIP_BYTES, SIP_S = 65_536, 0.01
MOST_CPU, MOST_MB = 1.0, 20.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """A turn's result, and the most memory its contender held in it."""

    result: T
    peak_bytes: int


async def measure(rig: Rig, turns: Turns) -> Findings:
    """CPU a call and peak memory, for each kind of large body."""
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        contenders = await _contenders(rig, core, Path(folder))
        idle = {name: await _idle_bytes(contender) for name, contender in contenders.items()}

        def loaded(script: str) -> dict[str, Callable[[], Awaitable[Held[Any]]]]:
            return _watched(contenders, work(rig, contenders, 1, turns.seconds, script=script))

        slow = {name: partial(_read_slowly, contender, turns.seconds) for name, contender in contenders.items()}
        waiting = await turns.of(_watched(contenders, slow))
        down = await turns.of(loaded("download.lua"))
        up = await turns.of(loaded("upload.lua"))
    return Findings(
        [
            f"Passed through over one kept connection; {turns}.",
            "",
            *_cpu("a request of 1.6 MB", up),
            "",
            *_cpu("an answer of 50 MB", down),
            "",
            *_memory(idle, {"50 MB to a slow client": waiting, "50 MB answers": down, "1.6 MB requests": up}),
        ]
    )


async def _contenders(rig: Rig, core: set[int], folder: Path) -> dict[str, Contender]:
    node = await proxies.bench_node(rig, "bulk_node")
    folders = [folder / "default", folder / "unbuffered"]
    for one in folders:
        one.mkdir()
    return {
        "nginx": await proxies.nginx_proxy(rig, node, core, folders[0]),
        UNBUFFERED: await proxies.nginx_proxy(rig, node, core, folders[1], *STREAMING),
        "relay": await proxies.relay(rig, node, core),
    }


async def _idle_bytes(contender: Contender) -> int:
    await pump(contender.url, [CALL] * WARM_UP, 1)
    return memory_bytes(contender.pid)


def _watched(
    contenders: Mapping[str, Contender], turns: Mapping[str, Callable[[], Awaitable[T]]]
) -> dict[str, Callable[[], Awaitable[Held[T]]]]:
    return {name: partial(_held, contenders[name], turn) for name, turn in turns.items()}


async def _held(contender: Contender, turn: Callable[[], Awaitable[T]]) -> Held[T]:
    forget_peak(contender.pid)
    result = await turn()
    return Held(result, memory_bytes(contender.pid, "VmHWM"))


async def _read_slowly(contender: Contender, seconds: int) -> None:
    """Take a large answer in sips for ``seconds``, then the rest of it at once."""
    parts, loop = urlsplit(contender.url), asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=SIP_BYTES)
    writer.write(b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\n")
    writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(TRACE), TRACE))
    await reader.readuntil(b"\r\n\r\n")
    came, until = 0, loop.time() + seconds
    while loop.time() < until:
        came += len(await reader.read(SIP_BYTES))
        await asyncio.sleep(SIP_S)
    assert came < LARGE_BYTES, "the client was not slow"
    while data := await reader.read(MB):
        came += len(data)
    writer.close()
    assert came == LARGE_BYTES, f"{came} bytes of {LARGE_BYTES} came"


def _cpu(title: str, found: Mapping[str, Sequence[Held[Any]]]) -> list[str]:
    loads = {name: [turn.result for turn in held] for name, held in found.items()}
    cost = cpu_us(loads)
    return [
        *cpu_table(title, loads),
        "",
        ratio("relay ÷ nginx", cost["relay"] / cost["nginx"], MOST_CPU),
        f"- beside nginx with buffering off: {cost['relay'] / cost[UNBUFFERED]:.2f}",
    ]


def _memory(idle: Mapping[str, int], found: Mapping[str, Mapping[str, Sequence[Held[Any]]]]) -> list[str]:
    above = {
        kind: {name: (max(turn.peak_bytes for turn in held) - idle[name]) / MB for name, held in turns.items()}
        for kind, turns in found.items()
    }
    rows = [[name, f"{idle[name] / MB:.1f} MB", *(f"{above[kind][name]:+.1f} MB" for kind in found)] for name in idle]
    return [
        *table(["memory (RSS), the most in any turn", "idle", *found], rows),
        "",
        *(ratio(f"relay, MB above idle, {kind}", above[kind]["relay"], MOST_MB) for kind in found),
    ]

"""The contenders before one node: nginx with one worker, a plain aiohttp proxy, the relay.

Rules: whatever is measured has the first core for itself; the node, the load and this program have the others. Each
contender keeps its connections to the node.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acceptance.bench.load import CALL
from acceptance.bench.turns import children, pin
from acceptance.rig import nginx
from acceptance.rig.load import pump
from acceptance.rig.parts import READY, Part
from tests.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from acceptance.rig.parts import Rig

FILES: Final = 12_000
"""What nginx may have open: 10,000 clients and the node."""
SEARCHED: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
"""Where Debian keeps nginx is not in everybody's PATH."""
NGINX: Final = """\
worker_processes 1;
pid {folder}/nginx.pid;
{user}
worker_rlimit_nofile {files};
events {{ worker_connections {files}; }}
http {{
    access_log off;
    client_max_body_size 0;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
{temporary}
    upstream node {{ server {node}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen {place} backlog=4096;
        location / {{
            proxy_pass {scheme}://node; proxy_http_version 1.1; proxy_set_header Connection "";
{extra}
        }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Contender:
    """Where it listens, and the process whose CPU counts."""

    url: str
    pid: int


@contextmanager
def cores_apart() -> Iterator[set[int]]:
    """This program, and what it starts, leave the first core; that one is given."""
    all_cores = os.sched_getaffinity(0)
    first = {min(all_cores)}
    pin(os.getpid(), all_cores - first or first)
    try:
        yield first
    finally:
        pin(os.getpid(), all_cores)


async def bench_node(rig: Rig, module: str = "node", *flags: str) -> Part:
    """The other end."""
    process = await rig.start("bench node", [sys.executable, "-m", f"acceptance.bench.{module}", *flags])
    return Part(process, (await process.line(READY))["url"])


async def relay(rig: Rig, node: Part, core: set[int], **settings: object) -> Contender:
    """``relay serve`` with its defaults but for ``settings``."""
    part = await rig.relay(node.url, **settings)
    pin(part.process.pid, core)
    return Contender(part.url, part.process.pid)


async def plain_proxy(rig: Rig, node: Part, core: set[int]) -> Contender:
    """The aiohttp one."""
    process = await rig.start("plain proxy", [sys.executable, "-m", "acceptance.bench.plain_proxy", node.url])
    url = (await process.line(READY))["url"]
    pin(process.pid, core)
    return Contender(url, process.pid)


async def nginx_proxy(rig: Rig, node: Part, core: set[int], folder: Path, *extra: str) -> Contender:
    """nginx, with ``extra`` lines where it passes on; its worker counts, the master does nothing."""
    place = f"127.0.0.1:{free_port()}"
    scheme, _, upstream = node.url.partition("://")
    temporary = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in nginx.TEMPORARY)
    file = folder / "nginx.conf"
    file.write_text(
        NGINX.format(
            folder=folder,
            user="user root;" if os.geteuid() == 0 else "",
            temporary=temporary,
            files=FILES,
            scheme=scheme,
            node=upstream,
            place=place,
            extra="\n".join(f"            {line};" for line in extra),
        ),
        "utf-8",
    )
    process = await rig.start("nginx", nginx.command(folder, file))
    await nginx.listening(place)
    url = f"http://{place}"
    await pump(url, [CALL], 1)  # the master listens already, only the worker answers
    (worker,) = children(process.pid)
    pin(worker, core)
    return Contender(url, worker)


def nginx_binary() -> str:
    """Where nginx is."""
    found = shutil.which("nginx", path=SEARCHED)
    assert found, "nginx is missing; on Debian: apt install nginx-light"
    return found

"""nginx as ``deploy/nginx.conf`` sets it up, with the addresses of a test.

Rules: only addresses and the places of its own files are changed, so that what is tested is what is shipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from acceptance.rig.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SERVERS: Final = re.compile(r"(?:^ *server relay-\d:8645 (?P<options>.*)\n)+", re.MULTILINE)
TEMPORARY: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def command(folder: Path, file: Path) -> list[str]:
    """How to start it; skips the test where there is none."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("nginx is missing; on Debian: apt install nginx-light")
    return [found, "-p", str(folder), "-c", str(file), "-e", "stderr", "-g", "daemon off;"]


def written(folder: Path, place: str, relays: Sequence[str]) -> Path:
    """The file, listening on ``place`` before ``relays`` (HOST:PORT each)."""
    text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
    servers = SERVERS.search(text)
    assert servers
    lines = "".join(f"        server {relay} {servers['options']}\n" for relay in relays)
    text = text.replace(servers[0], lines).replace("listen 8645", f"listen {place}")
    paths = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in TEMPORARY)
    main = f"pid {folder}/nginx.pid;\n" + ("user root;\n" if os.geteuid() == 0 else "")  # or it may not write there
    text = main + text.replace("http {\n", "http {\n" + paths, 1)
    file = folder / "nginx.conf"
    file.write_text(text, "utf-8")
    return file


async def listening(place: str, patience_s: float = 10) -> None:
    """Until something accepts connections at ``place``: nginx says nothing when it is ready."""
    host, _, port = place.rpartition(":")
    async with asyncio.timeout(patience_s):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                return
            await asyncio.sleep(0.05)

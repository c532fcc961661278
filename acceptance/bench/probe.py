"""How long the relay's event loop does nothing else, seen from outside: a browser's preflight each millisecond.

Run as ``python -m acceptance.bench.probe URL``; prints ``ready``, and at SIGINT the longest answer and the one that
99 % are as fast as, in milliseconds, as JSON. The relay answers a preflight by itself and at once; whatever it waits,
the loop was busy or the process was off its core. Before other programs on its own core it goes first, if it may.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

EVERY_S: Final = 0.001
PREFLIGHT: Final = (
    b"OPTIONS / HTTP/1.1\r\nHost: relay\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n\r\n"
)


def probe(url: str) -> None:
    """Ask until interrupted."""
    parts = urlsplit(url)
    waits: list[float] = []
    with socket.create_connection((parts.hostname, parts.port)) as line, suppress(KeyboardInterrupt):
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _waited_s(line)
        print("ready", flush=True)
        while True:
            waits.append(_waited_s(line))
            time.sleep(EVERY_S)
    waits.sort()
    print(json.dumps({"longest": waits[-1] * 1e3, "most": waits[len(waits) * 99 // 100] * 1e3}))


def _waited_s(line: socket.socket) -> float:
    began = time.monotonic()
    line.sendall(PREFLIGHT)
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        part = line.recv(65536)
        assert part, "the relay has closed the connection"
        answer += part
    return time.monotonic() - began


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    probe(sys.argv[1])

"""A client that posts each line of a file on a connection of its own, says ``written`` and waits to be killed.

Arguments: the URL, the file.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

HEAD = b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def main(url: str, file: str) -> None:
    """Write everything, read nothing."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    bodies = Path(file).read_bytes().splitlines()
    sockets = [socket.create_connection((parts.hostname, parts.port)) for _ in bodies]
    for connection, body in zip(sockets, bodies, strict=True):
        connection.sendall(HEAD % len(body) + body)
    print("written", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])

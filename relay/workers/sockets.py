"""The sockets that outlive workers: the parent binds them, and a worker's replacement gets the same ones.

Job: for each worker that takes clients a socket of its own at every address of `[server] listen`, so that the kernel
spreads connections over them and a queue never dies with a process; and the one that leads to the lanes.
Rules: `SO_REUSEPORT` would let a second relay of the same user in; a socket without it finds out first.
Must not know: processes, what is served.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Final

from relay.config import address
from relay.errors import Fault
from relay.listening import unable

LANES_BACKLOG: Final = 128


def bound(listen: str, workers: int) -> list[list[socket.socket]]:
    """For each of ``workers`` its sockets at ``listen`` (HOST:PORT), bound and not yet listening.

    Raises Fault if that place cannot be had.
    """
    host, port = address(listen, "server.listen")
    mine: list[list[socket.socket]] = [[] for _ in range(workers)]
    try:
        for family, place in _places(host, port):
            if port:
                _bind(family, (place, port), shared=False).close()
            for sockets in mine:
                sockets.append(_bind(family, (place, port), shared=True))
                port = sockets[-1].getsockname()[1]
    except OSError as error:
        for sockets in mine:
            close(sockets)
        raise unable("server.listen", listen, error) from error
    return mine


def close(sockets: list[socket.socket]) -> None:
    """Let go of them; a process that inherited one goes on with it."""
    while sockets:
        sockets.pop().close()


class LanesPlace:
    """Where tickets are handed in: a Unix socket without a name. Raises Fault.

    Its name is gone once it is bound, so that nobody can remove it, reach it, or leave it behind. What leads to it is
    ``door``, a descriptor of the file that it was (`path_of`).
    """

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with tempfile.TemporaryDirectory(prefix="relay-") as directory:
                path = str(Path(directory) / "lanes")
                self.socket.bind(path)
                self.door = os.open(path, os.O_PATH)
            self.socket.listen(LANES_BACKLOG)
        except OSError as error:
            self.socket.close()
            raise Fault(
                f"no Unix socket can be made in the directory for temporary files: {error}; set TMPDIR to another"
            ) from error

    def __repr__(self) -> str:
        return f"<LanesPlace {self.door}>"

    def close(self) -> None:
        """Nothing is left of it. Idempotent."""
        self.socket.close()
        if self.door >= 0:
            os.close(self.door)
            self.door = -1


def path_of(door: int) -> str:
    """What to connect to, in a process that has inherited a `LanesPlace.door` (proc(5): such a link needs no name)."""
    return f"/proc/self/fd/{door}"


def _places(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))


def _bind(family: socket.AddressFamily, place: tuple[str, int], *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(place)
    except OSError:
        made.close()
        raise
    return made

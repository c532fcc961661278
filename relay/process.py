"""The process's own limits and memory.

Job: what a server asks of the system at start: files, allocator, garbage collector.
Rules: nothing here may stop the relay from starting; what cannot be had is said in a warning.
Must not know: rooms.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

if TYPE_CHECKING:
    from relay.config import Settings

_SPARE_FILES: Final = 64
LEAST_UPSTREAM: Final = 2
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def open_standard_files() -> None:
    """Put /dev/null where standard input, output or error are closed: before any file is opened, for the next socket
    would take their place, and get what is meant for a person. Children inherit them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the os module's own spelling
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))


def fit_files(settings: Settings) -> Settings:
    """``settings`` with no more connections than the process may have files for; where that is fewer, it is said.

    The limit is raised as far as the system agrees. A client that was accepted must be answered, so each one has room
    for what is opened in its name; those beyond are told so, or wait in the system's queue.
    """
    server, upstream = settings.server, settings.upstream
    wanted = server.max_connections + upstream.max_connections + _SPARE_FILES
    limit = _raised(wanted)
    if limit >= wanted:
        return settings
    clients, to_node = shares(limit, upstream.max_connections, sockets=2 if upstream.ws_url else 1)
    clients = min(clients, server.max_connections)
    structlog.get_logger("relay").warning(
        "the file limit is too low for [server] max_connections and [upstream] max_connections, so fewer are taken;"
        " raise it (ulimit -n, LimitNOFILE, nofile)",
        limit=limit,
        wanted=wanted,
        clients=clients,
        upstream=to_node,
    )
    return msgspec.structs.replace(
        settings,
        server=msgspec.structs.replace(server, max_connections=clients),
        upstream=msgspec.structs.replace(upstream, max_connections=to_node),
    )


def shares(limit: int, upstream: int, *, sockets: int) -> tuple[int, int]:
    """Of ``limit`` files: clients, each with ``sockets`` files and one for another that is turned away; connections to
    the node, at most ``upstream``. The rest is for listeners, the journal, Redis, links, operators."""
    left = limit - min(_SPARE_FILES, limit * 3 // 8)
    to_node = max(LEAST_UPSTREAM, min(upstream, left // 4))
    return max(1, (left - to_node) // (sockets + 1)), to_node


def _raised(wanted: int) -> int:
    """The limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or hard == resource.RLIM_INFINITY:
        soft = hard if hard != resource.RLIM_INFINITY else max(soft, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def prefer_large_blocks() -> None:
    """glibc gives large blocks back and faults them in again for each large body: keep them. Elsewhere a no-op."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 * 1024 * 1024)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 * 1024 * 1024)
    except (OSError, AttributeError):
        return


def settle_memory() -> None:
    """What was built at start lives for ever: keep the collector from walking it, and from stopping a busy process.

    While lanes are made, a young collection walks all of them that are new: 50,000 at a time are a pause of 25 ms,
    10,000 of 2 ms. The full one walks every lane (45 ms for 100,000), so it waits for 300,000 objects more than were
    freed. It has to come: a WebSocket session leaves cycles behind, and one that has lived long is no longer young.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_500, 2, 30)

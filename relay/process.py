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
from typing import Final

import structlog

_SPARE_FILES: Final = 64
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


def raise_file_limit(connections: int) -> None:
    """Let the process have as many sockets as its settings allow, as far as the system agrees."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if soft < hard:
        soft = hard if hard != resource.RLIM_INFINITY else max(soft, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        structlog.get_logger("relay").warning(
            "the file limit is below [server] max_connections + [upstream] max_connections; raise it (ulimit -n)",
            limit=soft,
            wanted=wanted,
        )


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

"""What the process asks of the system at start."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from relay import config, process


def limited(soft: int, hard: int, **server: int) -> list[int]:
    """Clients, connections to the node and the limit, in a process of its own: a limit is for good."""
    code = (
        "import resource; from relay import config, process;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        f"settings = process.fit_files(config.check({{'server': {server}}}));"
        "print(settings.server.max_connections, settings.upstream.max_connections,"
        " resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(word) for word in run.stdout.split()[-3:]]


def test_the_soft_file_limit_is_raised() -> None:
    """As far as the hard one; then nothing is taken from what was configured."""
    assert limited(100, 2000, max_connections=500) == [500, 256, 2000]


def test_a_limit_that_is_too_low_bounds_what_is_taken() -> None:
    """Clients, those that are turned away, connections to the node and a reserve find room in it."""
    clients, to_node, limit = limited(64, 64)

    assert 2 * clients + to_node < limit
    assert min(clients, to_node) > 1


@given(limit=st.integers(16, 100_000), upstream=st.integers(2, 1000), sockets=st.sampled_from([1, 2]))
def test_shares_of_a_limit_fit_into_it(limit: int, upstream: int, sockets: int) -> None:
    """With room left, and nobody with nothing."""
    clients, to_node = process.shares(limit, upstream, sockets=sockets)

    assert clients >= 1
    assert 2 <= to_node <= upstream
    assert clients == 1 or clients * (sockets + 1) + to_node <= limit - min(64, limit * 3 // 8)


def test_a_limit_that_is_too_low_is_said() -> None:
    """With all numbers and what to do."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return
    with capture_logs() as lines:
        process.fit_files(config.check({"server": {"max_connections": hard + 1}}))

    assert [(line["log_level"], line["limit"]) for line in lines] == [("warning", hard)]
    assert "ulimit" in lines[0]["event"]


def test_memory_is_settled_without_a_word() -> None:
    """What was built at start is frozen; the collector runs seldom."""
    before = gc.get_threshold()
    try:
        process.prefer_large_blocks()
        process.settle_memory()

        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_growing_pauses_the_process_only_for_moments() -> None:
    """While a hundred thousand objects are made that stay, no collection walks more than some ten thousand."""
    before, walked = gc.get_threshold(), list[int]()

    def count(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            walked.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    try:
        process.settle_memory()
        gc.callbacks.append(count)
        kept = [[number] for number in range(100_000)]
    finally:
        gc.callbacks.remove(count)
        gc.unfreeze()
        gc.set_threshold(*before)

    assert len(kept) == 100_000
    assert walked
    assert max(walked) < 11_000

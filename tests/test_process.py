"""What the process asks of the system at start."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from typing import Any

from structlog.testing import capture_logs

from relay import process


def test_the_soft_file_limit_is_raised() -> None:
    """As far as the hard one; in a process of its own, for a limit is for good."""
    code = (
        "import resource; from relay import process;"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 2000 if hard < 0 else min(hard, 2000)));"
        "process.raise_file_limit(50); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    soft, hard = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert soft == hard


def test_a_limit_that_is_too_low_is_said() -> None:
    """With both numbers and what to do."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return
    with capture_logs() as lines:
        process.raise_file_limit(hard + 1)

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

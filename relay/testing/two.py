"""The contract with real processes: paused, killed, side by side."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from relay.journal.records import Record, Taken
from relay.journal.url import open_journal
from relay.lifecycle import State
from relay.testing.samples import CHAIN, moved

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from relay.journal import Journal

COUNT = 200


class TwoProcesses:
    """Subclass it as ``Test…`` and override the fixture ``url``: of a set of stores that is empty."""

    @pytest.fixture
    def url(self) -> str:
        """To be overridden."""
        raise NotImplementedError

    @pytest.fixture
    async def journal(self, url: str) -> AsyncIterator[Journal]:
        """In this process."""
        journal = await open_journal(url)
        yield journal
        await journal.close()

    async def test_two_processes_make_one_row_of_each(self, url: str, journal: Journal) -> None:
        """Both put the same submissions on disk at the same time: each is new to exactly one of them."""
        async with worker(url, "admit", str(COUNT)) as one, worker(url, "admit", str(COUNT)) as two:
            told = [await _lines(each) for each in (one, two)]
        assert [len(lines) for lines in told] == [COUNT, COUNT]
        for mine, theirs in zip(*told, strict=True):
            assert sorted((mine.split()[1], theirs.split()[1])) == ["found", "new"]
        assert len(await journal.unfinished(limit=2 * COUNT)) == COUNT

    async def test_what_was_answered_survives_the_kill(self, url: str, journal: Journal) -> None:
        """SIGKILL in the middle of writing: whatever the process said was on disk is there, with its bytes and key."""
        async with worker(url, "admit", str(1_000_000)) as process:
            told = [await _line(process) for _ in range(50)]
            process.kill()
            told += await _lines(process)
        for line in told:
            number = int(line.split()[0])
            record = await journal.by_hash(CHAIN, number.to_bytes(32, "big"))
            assert record is not None
            assert await journal.payload(record.id) is not None
            assert await journal.by_key(CHAIN, record.sender, f"key {number}") is not None
            assert [event.state for event in await journal.history(record.id)] == [State.QUEUED]
        assert len(await journal.unfinished(limit=1000)) - len(told) in (0, 1)

    async def test_a_paused_process_wakes_up_and_writes(self, url: str, journal: Journal) -> None:
        """Stopped after its seal, overtaken under a newer fence, woken: refused, its fact kept."""
        async with worker(url, "sleeper") as process:
            submission, version = map(int, (await _line(process)).split())
            process.send_signal(signal.SIGSTOP)
            record = await journal.by_id(submission)
            assert record is not None
            assert record.version == version
            newest = await moved(journal, record, State.SENT, State.SEALED, State.PENDING, State.MINED, fence=20)
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.write(b"go on\n")
            assert await _line(process) == "Stale"
        after = await journal.by_id(submission)
        assert isinstance(after, Record)
        assert after == newest
        assert (await journal.attempts(submission))[0].taken is Taken.YES

    async def test_a_killed_one_leaves_no_lock(self, url: str, journal: Journal) -> None:
        """Whoever is left goes on at once."""
        async with worker(url, "admit", str(1_000_000)) as process:
            await _line(process)
            process.kill()
            await process.wait()
        await journal.check()


@asynccontextmanager
async def worker(url: str, *role: str) -> AsyncIterator[Process]:
    """A process that has its journal open; killed at the end, whatever became of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "relay.testing.worker", url, *role,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert await _line(process) == "open"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _line(process: Process) -> str:
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line.endswith(b"\n"), "the process ended"
    return line.decode().strip()


async def _lines(process: Process) -> list[str]:
    """Whole lines until the end."""
    assert process.stdout is not None
    return [line.decode() for line in (await process.stdout.read()).split(b"\n")[:-1]]

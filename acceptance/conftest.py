"""Fixtures of the black-box suite. Every test starts its own programs and ends them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import aiohttp
import pytest

from acceptance.rig.parts import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FINDINGS = pytest.StashKey[list[str]]()

Measured = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--workers 2``: each relay of the suite runs with so many, unless a test says otherwise."""
    parser.addoption("--workers", default="1", help="worker processes of each relay (1)")


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """Starts programs; they end with the test."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=90))
        )
        yield Rig(stack, session, request.config.getoption("--workers", "1"))


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    """Takes a line about what the test measured; all are shown at the end of the run."""
    findings = request.config.stash.setdefault(FINDINGS, [])

    def note(line: str) -> None:
        print(line)
        findings.append(f"{request.node.name}: {line}")

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was measured."""
    if lines := config.stash.get(FINDINGS, []):
        terminalreporter.section("measured")
        for line in sorted(lines):
            terminalreporter.write_line(line)

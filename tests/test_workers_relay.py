"""A relay with several workers, as a command: it starts, says what is wrong, listens, reads settings again, ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from acceptance.conftest import rig as started_parts
from acceptance.rig.workers import pids

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.parts import Rig

rig = started_parts


async def test_a_relay_that_cannot_start_says_why_once(rig: Rig, tmp_path: Path) -> None:
    """A fault in the workers is one line of the parent's and its exit code; so is a port that another relay has."""
    (tmp_path / "ca.pem").write_text("no certificate", "utf-8")
    argv = ["serve", "--workers", "2", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
    wrong = await rig.command(*argv, "--upstream", "https://127.0.0.1:9", upstream__ca_file=str(tmp_path / "ca.pem"))
    assert await wrong.ended() == 2
    (line,) = [line for line in wrong.lines if not line.startswith("{")]
    assert line.startswith("relay: upstream.ca_file: ")
    first = await rig.relay("http://127.0.0.1:9", "--workers", "2")
    taken = first.url.removeprefix("http://")
    second = await rig.command(*argv, "--upstream", "http://127.0.0.1:9", "--listen", taken)
    assert await second.ended() == 1
    (line,) = [line for line in second.lines if not line.startswith("{")]
    assert line == f"relay: server.listen: cannot listen on {taken}: the port is taken; choose another"


async def test_settings_are_read_again(rig: Rig, tmp_path: Path) -> None:
    """SIGHUP with a file that changed: the workers have the new settings; a wrong file changes nothing."""
    chain = await rig.chain()
    file = tmp_path / "relay.toml"
    file.write_text("", "utf-8")
    relay = await rig.relay(chain.url, "--workers", "2", "--config", str(file))
    caller = rig.caller(relay.url)
    assert await caller.call("eth_chainId")
    file.write_text("[server]\ndeny_methods = 5\n", "utf-8")
    before = pids(relay.process.pid)
    relay.process.signal(signal.SIGHUP)
    await relay.process.line("the settings cannot be used.*server.deny_methods")
    assert pids(relay.process.pid) == before
    file.write_text('[server]\ndeny_methods = ["eth_chainId"]\nworkers = 3\n', "utf-8")
    relay.process.signal(signal.SIGHUP)
    await relay.process.line('"restarted"')
    with pytest.raises(Exception, match="eth_chainId"):
        await caller.call("eth_chainId")


async def test_a_replacement_that_cannot_start_replaces_nobody(rig: Rig) -> None:
    """SIGHUP, and the first replacement dies while it starts: it is told, and the workers that are there go on."""
    chain = await rig.chain()
    relay = await rig.relay(chain.url, "--workers", "2")
    before = pids(relay.process.pid)
    relay.process.signal(signal.SIGHUP)
    async with asyncio.timeout(20):
        while not (fresh := set(pids(relay.process.pid).values()) - set(before.values())):  # noqa: ASYNC110 - others
            await asyncio.sleep(0.01)
    os.kill(fresh.pop(), signal.SIGKILL)
    await relay.process.line("the replacement did not start.*SIGKILL")
    assert pids(relay.process.pid) == before
    assert await rig.caller(relay.url).call("eth_chainId") == hex(chain.chain_id)


async def test_a_relay_listens_on_ipv6(rig: Rig) -> None:
    """A port of its own choice, one for all workers."""
    chain = await rig.chain()
    relay = await rig.relay(chain.url, "--workers", "2", "--listen", "[::1]:0")
    answers = await asyncio.gather(*(rig.caller(relay.url).call("eth_chainId") for _ in range(20)))
    assert set(answers) == {hex(chain.chain_id)}
    assert json.dumps(relay.url).startswith('"http://[::1]:')


async def test_a_signal_ends_a_relay_that_still_starts(rig: Rig) -> None:
    """SIGTERM before it is ready: it ends as after a drain, and its workers with it."""
    argv = ["serve", "--workers", "2", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
    process = await rig.command(*argv, "--upstream", "http://127.0.0.1:9")
    async with asyncio.timeout(20):
        while not pids(process.pid):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.01)
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0, process.output

"""A relay with several workers, as a command: it starts, says what is wrong, listens, reads settings again, ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest

from acceptance.conftest import rig as started_parts
from acceptance.rig.load import pump
from acceptance.rig.parts import RELAY_READY
from acceptance.rig.workers import pids
from relay.errors import TOO_MANY_CONNECTIONS, UPSTREAM_UNREACHABLE
from tests.redis_server import free_port
from tests.stand import signed, submission

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.parts import Rig

rig = started_parts
OPS = "127.0.0.1:0"


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


@pytest.mark.parametrize(("workers", "closed"), [("1", "<&-"), ("1", ">&-"), ("2", "2>&-"), ("2", "<&- >&- 2>&-")])
async def test_closed_standard_files_are_no_sockets(rig: Rig, workers: str, closed: str) -> None:
    """What would be written to a person goes nowhere, and to no client; the relay answers, and ends with 0."""
    chain, place = await rig.chain(), f"127.0.0.1:{free_port()}"
    command = f'exec "$@" {closed}'
    argv = [sys.executable, "-m", "relay", "serve", "--upstream", chain.url, "--workers", workers]
    process = await rig.start("relay", ["sh", "-c", command, "sh", *argv, "--listen", place, "--ops-listen", OPS])
    caller = rig.caller(f"http://{place}")
    async with asyncio.timeout(20):
        while True:
            with suppress(aiohttp.ClientError):
                assert await caller.call("eth_chainId") == hex(chain.chain_id)
                break
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0


async def test_no_file_leads_to_the_lanes(rig: Rig, tmp_path: Path) -> None:
    """Whatever is removed from the place for temporary files, a lane process that dies is replaced and found."""
    chain = await rig.chain()
    argv = [sys.executable, "-m", "relay", "serve", "--upstream", chain.url, "--workers", "2", "--listen", OPS]
    process = await rig.start("relay", [*argv, "--ops-listen", OPS], env={"TMPDIR": str(tmp_path)})
    url = (await process.line(RELAY_READY))["url"]
    shutil.rmtree(tmp_path)
    os.kill(pids(process.pid)[0], signal.SIGKILL)
    answers = await pump(url, map(submission, map(signed, range(8))), 1)
    assert all(b'"result"' in answer.body for answer in answers), answers


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_too_few_files_are_said_and_shared_out(rig: Rig, workers: str) -> None:
    """Who is taken is answered, who is not hears so or is cut; afterwards all is as before."""
    chain = await rig.chain()
    argv = [sys.executable, "-m", "relay", "serve", "--upstream", chain.url, "--workers", workers, "--listen", OPS]
    process = await rig.start("relay", ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *argv, "--ops-listen", OPS])
    url = (await process.line(RELAY_READY))["url"]
    assert any("file limit is too low" in line for line in process.lines)
    caller = rig.caller(url)
    ends = await asyncio.gather(*(caller.answer("eth_chainId") for _ in range(200)), return_exceptions=True)
    answers = [end for end in ends if not isinstance(end, aiohttp.ClientError)]
    wrong = [one for one in answers if not isinstance(one, dict) or not {"result", "error"} & one.keys()]
    assert not wrong, wrong[0]
    codes = {one["error"]["code"] for one in answers if isinstance(one, dict) and "error" in one}
    assert codes <= {TOO_MANY_CONNECTIONS.code, UPSTREAM_UNREACHABLE.code}, codes
    assert any(isinstance(one, dict) and "result" in one for one in answers)
    assert await caller.call("eth_chainId") == hex(chain.chain_id)

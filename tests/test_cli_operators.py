"""The operator's commands, against the real API: what they ask, show and end with."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from relay.cli import main
from relay.config import ConfigFault, check
from relay.console.routes import ROUTES
from relay.lifecycle import State
from relay.remote.client import place_of, plain
from relay.remote.runs import RUNS
from relay.testing.samples import ALICE, BOB, admitted, intake, moved
from tests.console_rig import TOKEN, Desk, at_the_desk
from tests.stand import signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ADDRESS = "0x" + ALICE.hex()
WHY = ("--reason", "ticket 7")


class Shell:
    """Where an operator types; the relay is at ``desk``."""

    def __init__(self, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
        self.desk = desk
        self._capsys = capsys

    async def type(self, *words: object) -> tuple[int, str, str]:
        """The exit code, stdout, stderr."""
        code = await asyncio.to_thread(main, [*map(str, words), "--ops", self.desk.url])
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err

    async def well(self, *words: object) -> str:
        """What a command that must succeed writes."""
        code, out, err = await self.type(*words)
        assert (code, err) == (0, "")
        return out

    async def json(self, *words: object) -> Any:
        """Its JSON."""
        return json.loads(await self.well(*words, "--json"))


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that the relay has, too."""
    monkeypatch.setenv("RELAY_OPS__TOKEN", TOKEN)


@asynccontextmanager
async def shell(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Shell]:
    """At a relay with a journal in memory."""
    async with at_the_desk() as desk:
        yield Shell(desk, capsys)


# Submissions


async def test_lists_go_on_where_the_page_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """As a table with what to type next, and as JSON; nothing is said to be nothing."""
    async with shell(capsys) as at:
        assert await at.well("tx", "list", "sent") == "none\n"
        rows = [await admitted(at.desk.journal, nonce) for nonce in range(3)]
        first = await at.well("tx", "list", "queued", "--limit", 2)
        assert ADDRESS in first
        (more,) = [line for line in first.splitlines() if line.startswith("more: --before ")]
        second = await at.json("tx", "list", "queued", *more.split()[1:])
        shown = [row["id"] for row in second["transactions"]]
        assert shown == [(await at.desk.journal.listing(State.QUEUED))[-1].id]
        assert shown[0] in {row.id for row in rows}


async def test_without_a_state_they_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """By state and reason."""
    async with shell(capsys) as at:
        assert (await at.well("tx", "list")).startswith("nothing is open\n")
        await admitted(at.desk.journal)
        assert "queued" in await at.well("tx", "list")
        assert (await at.json("tx", "list"))["open"][0]["rows"] == 1


async def test_one_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """By its hash, whole, with its sends, history and keys; by its id the same."""
    async with shell(capsys) as at:
        record = (await at.desk.journal.admit([intake(7, key="pay-7")]))[0].record
        record = await moved(at.desk.journal, record, State.SEALED, State.SENT)
        out = await at.well("tx", "show", f"0x{record.hash.hex()}")
        for part in (f"0x{record.hash.hex()}", "nonce", "pay-7", "sends", "history", "sealed", "1, 1 unproven"):
            assert part in out
        assert await at.well("tx", "show", record.id) == out


async def test_what_others_wrote_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """No markup, and nothing that a terminal would act on."""
    async with shell(capsys) as at:
        record = await admitted(at.desk.journal)
        await at.well("tx", "fail", record.id, "--reason", "[bold]x[/bold] \x1b[2Jgone")
        out = await at.well("tx", "show", record.id)
        assert "[bold]x[/bold] �[2Jgone" in out
        assert plain("a\x00b\u202ec") == "a�b�c"


async def test_each_action_is_done_with_reason_and_actor(capsys: pytest.CaptureFixture[str]) -> None:
    """The history has both; the actor is who is logged in, unless he says otherwise."""
    async with shell(capsys) as at:
        journal = at.desk.journal
        record = await admitted(journal)
        assert "queued" in await at.well("tx", "resend", record.id, *WHY, "--actor", "ann")
        assert "failed" in await at.well("tx", "fail", f"0x{record.hash.hex()}", *WHY, "--actor", "ann")
        assert "queued" in await at.well("tx", "retry", record.id, *WHY, "--actor", "ann")
        assert "cancelled" in await at.well("tx", "cancel", record.id, *WHY, "--actor", "ann")
        events = (await journal.history(record.id))[1:]
        assert {(event.actor, event.detail) for event in events} == {("ann", "ticket 7")}
        other = await admitted(journal, 1)
        await at.well("tx", "cancel", other.id, *WHY)
        assert (await journal.history(other.id))[-1].actor not in ("", "ann")


async def test_a_refusal_says_what_else_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1; one line for what is so, and one for each way out; nothing on stdout."""
    async with shell(capsys) as at:
        record = await moved(at.desk.journal, await admitted(at.desk.journal), State.SEALED, State.DEAD_LETTER)
        code, out, err = await at.type("tx", "retry", record.id, *WHY)
        assert (code, out) == (1, "")
        first, *ways = err.splitlines()
        assert first.startswith("relay: 1 of its 1 sends")
        assert any("attest" in way for way in ways)
        assert "queued" in await at.well("tx", "retry", record.id, *WHY, "--attest")


async def test_cancel_says_what_the_keys_holder_signs(capsys: pytest.CaptureFixture[str]) -> None:
    """Nonce and least fees, in wei."""
    async with shell(capsys) as at:
        raw = bytes.fromhex(signed(7, maxFeePerGas=10**9, maxPriorityFeePerGas=10)[2:])
        record = (await at.desk.journal.admit([intake(7, raw=raw)]))[0].record
        await moved(at.desk.journal, record, State.SEALED, State.SENT)
        code, _out, err = await at.type("tx", "cancel", record.id, *WHY)
        assert code == 1
        assert f"from {ADDRESS}, nonce 7, maxFeePerGas 1100000000, maxPriorityFeePerGas 11" in err


async def test_what_was_seen_is_what_is_decided_on(capsys: pytest.CaptureFixture[str]) -> None:
    """``--seen`` with another version does nothing."""
    async with shell(capsys) as at:
        record = await admitted(at.desk.journal)
        code, _out, err = await at.type("tx", "cancel", record.id, *WHY, "--seen", 7)
        assert (code, "version is 1" in err) == (1, True)
        await at.well("tx", "cancel", record.id, *WHY, "--seen", 1)


@pytest.mark.parametrize("which", ["77", "0x12", "../census", "a b"])
async def test_what_is_not_there_is_a_fault(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not recorded, or no id at all: never another route."""
    async with shell(capsys) as at:
        code, out, err = await at.type("tx", "show", which)
        assert (code, out) == (1, "")
        assert err.startswith("relay: ")


# Lanes


async def test_lanes_are_listed_shown_paused_and_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each as text and as JSON."""
    async with shell(capsys) as at:
        for sender in (ALICE, BOB):
            await admitted(at.desk.journal, 3, sender=sender)
        assert ": paused (version 1)" in await at.well("lane", "pause", ADDRESS, *WHY)
        out = await at.well("lane", "list", "--limit", 1)
        assert "paused lanes" in out
        (more,) = [line for line in out.splitlines() if line.startswith("more: --after ")]
        rest = await at.json("lane", "list", *more.split()[1:])
        assert [lane["address"] for lane in rest["lanes"]] == ["0x" + BOB.hex()]
        assert ADDRESS in await at.well("lane", "list", "--paused")
        shown = await at.well("lane", "show", ADDRESS)
        assert "ticket 7" in shown
        assert "queued" in shown
        assert (await at.json("lane", "show", ADDRESS, "--chain", 5))["open"] == []
        assert ": not paused (version 2)" in await at.well("lane", "resume", ADDRESS, *WHY)
        assert at.desk.hand.asked == ["lanes changed"] * 2


async def test_a_sweep_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """And said to be."""
    async with shell(capsys) as at:
        assert (await at.well("sweep", *WHY)).startswith("asked for")
        assert at.desk.hand.asked == ["sweep"]


# Where, and whether


async def test_another_token_is_a_wrong_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2; the token is not shown."""
    monkeypatch.setenv("RELAY_OPS__TOKEN", "another-token-of-length")
    async with shell(capsys) as at:
        code, _out, err = await at.type("tx", "list")
        assert (code, err) == (2, f"relay: ops.token: {at.desk.url} has another one\n")


def test_without_a_token_nothing_is_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, with where it comes from."""
    monkeypatch.delenv("RELAY_OPS__TOKEN")
    assert main(["tx", "list"]) == 2
    assert capsys.readouterr().err.startswith("relay: ops.token: is not set; give RELAY_OPS__TOKEN")


def test_where_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, the address that was tried, and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert main(["tx", "list", "--ops", f"http://127.0.0.1:{port}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"relay: no relay answers at http://127.0.0.1:{port} (")


async def test_what_answers_is_no_relay(capsys: pytest.CaptureFixture[str]) -> None:
    """Another server's page is not shown as a table."""

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<br>")
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert await asyncio.to_thread(main, ["tx", "list", "--ops", url]) == 1
    assert "is no operator's API" in capsys.readouterr().err
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("0.0.0.0:9645", "http://127.0.0.1:9645"),
        ("[::]:1", "http://[::1]:1"),
        ("ops.example:7", "http://ops.example:7"),
    ],
)
def test_the_relay_is_where_its_settings_say(listen: str, url: str) -> None:
    """What listens everywhere is asked here."""
    settings = check({"ops": {"listen": listen, "token": TOKEN}})
    assert place_of(settings, None) == (url, TOKEN)
    assert place_of(settings, "https://far.example/relay/") == ("https://far.example/relay", TOKEN)
    with pytest.raises(ConfigFault, match=r"^--ops: "):
        place_of(settings, "ftp://far.example")


async def test_a_file_says_where_and_with_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay's own one."""
    monkeypatch.delenv("RELAY_OPS__TOKEN")
    async with at_the_desk() as desk:
        file = tmp_path / "relay.toml"
        file.write_text(f'[ops]\nlisten = "{desk.url.removeprefix("http://")}"\ntoken = "{TOKEN}"\n', "utf-8")
        assert await asyncio.to_thread(main, ["tx", "list", "--config", str(file)]) == 0
        assert "nothing is open" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["tx"],
        ["lane"],
        ["sweep", *WHY, "--actor", "Jürgen"],
        ["sweep", *WHY, "--actor", "a\nb"],
        ["tx", "fail", "1"],
        ["tx", "list", "odd"],
        ["tx", "cancel", "1", "--attest", *WHY],
        ["sweep"],
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An action without its reason among them."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: relay" in capsys.readouterr().err


def test_every_route_has_its_command() -> None:
    """But for the document; the counts are the list without a state."""
    commands = {words.replace("tx ", "").replace("lane ", "") for words in RUNS}
    actions = {route.name for route in ROUTES if route.method == "POST"}
    assert actions | {"list", "show"} == commands


@pytest.mark.parametrize(("sink", "code", "said"), [("| true", 0, ""), ("> /dev/full", 1, "relay: it is done, but ")])
async def test_an_answer_that_nobody_takes(sink: str, code: int, said: str) -> None:
    """A closed pipe is no fault, a full disk is one; no traceback in either."""
    async with at_the_desk() as desk:
        for nonce in range(300):
            await admitted(desk.journal, nonce)
        for more in ("", "--json"):
            command = f"{sys.executable} -m relay tx list queued --limit 300 --ops {desk.url} {more} {sink}"
            command += "; exit ${PIPESTATUS[0]}"
            process = await asyncio.create_subprocess_exec("bash", "-c", command, stderr=asyncio.subprocess.PIPE)
            _, err = await process.communicate()
            assert process.returncode == code
            assert err.decode().startswith(said)
            assert len(err.splitlines()) == code

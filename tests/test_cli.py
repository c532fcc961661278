"""The command: what it prints, what it exits with, and that it ends quietly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relay import __version__
from relay.cli import FLAGS, main
from relay.config import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
NOBODY = "http://127.0.0.1:9"
"""A node that need not be there: the relay starts without it."""


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of whoever runs the tests are not ours."""
    for name in list(os.environ):
        if name.startswith("RELAY_"):
            monkeypatch.delenv(name)


def relay(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "relay", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,
    )


def default_interrupt() -> None:
    """A test run started in the background ignores interrupts, and hands that down."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def serving() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A relay that has said it is ready, and what it said."""
    process = relay(
        "serve", "--upstream", "http://u:s3cret@127.0.0.1:9", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    yield process, next((line for line in lines if not line.startswith("{")), "")
    process.kill()
    process.communicate()


# Usage


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """``relay --version``."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"relay {__version__}\n")


def test_the_module_is_the_command() -> None:
    """``python -m relay`` and the installed ``relay`` run the same function."""
    out, err = relay("--version").communicate()
    assert (out, err) == (f"relay {__version__}\n", "")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts == {"relay": f"{main.__module__}:{main.__name__}"}


@pytest.mark.parametrize(
    "arguments",
    [[], ["frobnicate"], ["serve", "--lis", "127.0.0.1:1"], ["check-config"], ["dev", "--upstream", NOBODY],
     ["serve", "extra"]],
)  # fmt: skip
def test_wrong_usage_is_told_with_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No command, an unknown one, a shortened flag, a missing file, a flag of another command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: relay" in capsys.readouterr().err


def test_each_flag_sets_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of flags names existing options, and ``serve`` takes each."""
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    for flag, path in FLAGS.items():
        section, _, key = path.partition(".")
        assert key in OPTIONS[section]
        assert f"{flag} " in shown


# Settings


@pytest.mark.parametrize("flag", ["--listen", "--ops-listen", "--upstream"])
def test_a_wrong_flag_is_one_clear_line(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, the option's path, and no traceback."""
    assert main(["serve", "--upstream", NOBODY, flag, "8080"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"relay: {FLAGS[flag]}: ")
    assert line.endswith("(from the command line)")


def test_a_wrong_address_of_the_chain_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    """It has no option, so the fault names the flag."""
    assert main(["dev", "--chain-listen", "8545"]) == 2
    assert capsys.readouterr().err.startswith("relay: --chain-listen: '8545' is not HOST:PORT")


def test_serve_without_a_node_says_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Flag, variable, file."""
    assert main(["serve"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "relay: upstream.url: is not set; give --upstream URL, RELAY_UPSTREAM__URL or url in [upstream]"


def test_serve_reads_the_file_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in it is told with its name."""
    file = tmp_path / "relay.toml"
    file.write_text("[upstream]\nulr = 'http://node'\n")
    assert main(["serve", "--config", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"relay: upstream.ulr: unknown key; did you mean upstream.url? (from {file})\n"
    )  # fmt: skip


def test_check_config_shows_what_a_file_changes_and_hides_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with the environment, as ``serve`` would see it."""
    file = tmp_path / "relay.toml"
    file.write_text(
        "[upstream]\nurl = 'https://u:Q1@node.example/Q2'\nheaders = { X-Key = 'Q3' }\n[server]\nmax_batch = 1000\n"
    )
    monkeypatch.setenv("RELAY_PRECHECKS__BALANCE", "true")
    assert main(["check-config", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok",
        'upstream.url = "https://***@node.example/***"',
        'upstream.headers = {"X-Key": "***"}',
        "prechecks.balance = true",
    ]


def test_check_config_says_that_the_node_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """The example is fine as it is, but for that."""
    assert main(["check-config", str(ROOT / "config.example.toml")]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "ok"
    assert second.startswith("upstream.url is not set")


def test_check_config_refuses_what_serve_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, nothing on stdout."""
    file = tmp_path / "relay.toml"
    file.write_text("[log]\nlevel = 'loud'\n")
    assert main(["check-config", str(file)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith('relay: log.level: cannot be "loud"')


def test_check_config_does_not_load_the_application() -> None:
    """It is fast, and works where the servers could not start."""
    script = (
        "import sys; from relay.cli import main; code = main(['check-config', 'config.example.toml']);"
        "sys.exit(code or int(bool({'relay.app', 'aiohttp', 'uvloop', 'web3', 'eth_account'} & set(sys.modules))))"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode == 0
    )


# Running


def test_an_interrupt_before_the_start_ends_quietly(tmp_path: Path) -> None:
    """Ctrl-C while the settings are read: no traceback."""
    file = tmp_path / "relay.toml"
    os.mkfifo(file)
    process = relay("check-config", file, preexec_fn=default_interrupt)
    writer = os.open(file, os.O_WRONLY)  # returns when the command has opened it and waits for its content
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    os.close(writer)
    assert (process.returncode, out, err) == (130, "", "")


def test_serve_says_once_that_it_is_ready(serving: tuple[subprocess.Popen[str], str]) -> None:
    """One line with the address that takes calls and that of the operators; the node's credentials masked."""
    _process, ready = serving
    assert ready.startswith("relay ready on http://127.0.0.1:")
    assert "http://***@127.0.0.1:9" in ready
    url = ready.rpartition("ops ")[2].strip(")\n")
    with urllib.request.urlopen(f"{url}/livez", timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("command", [("serve", "--upstream", NOBODY), ("dev", "--chain-listen", "127.0.0.1:0")])
def test_nobody_need_hear_that_it_is_ready(command: tuple[str, ...]) -> None:
    """Whoever closes the pipe before the ready line does not end the relay: it serves, and ends as it always does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    with relay(*command, "--listen", "127.0.0.1:0", "--ops-listen", place) as process:
        assert process.stdout is not None
        process.stdout.close()
        metrics = scraped(process, f"http://{place}/metrics")
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "relay_" in metrics


def scraped(process: subprocess.Popen[str], url: str) -> str:
    """What stands at ``url``, once it is there."""
    while process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
            return text
    return ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_quietly_on_a_signal(serving: tuple[subprocess.Popen[str], str], number: signal.Signals) -> None:
    """Exit code 0, and nothing on stderr."""
    process, _ready = serving
    process.send_signal(number)
    _out, err = process.communicate()
    assert (process.returncode, err) == (0, "")


def test_a_port_that_is_taken_is_one_clear_line() -> None:
    """Exit code 1, the address, and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        process = relay("serve", "--upstream", NOBODY, "--listen", place, "--ops-listen", "127.0.0.1:0")
        _out, err = process.communicate()
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert line.startswith("relay: ")
    assert place in line

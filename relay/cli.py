"""The ``relay`` command: serve, dev, check-config, and the operator's (`relay.remote`).

Job: flags to settings, faults to one clear line, results to exit codes: 0 done, 1 a fault, 2 a wrong command or
setting.
Rules: a wrong setting is told without a traceback; what is unforeseen keeps its own. The application is imported only
by the commands that run it.
Must not know: rooms.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from relay import __version__
from relay.config import DEFAULTS, ConfigFault, address, changed, doubts, load
from relay.errors import Fault
from relay.process import open_standard_files
from relay.remote.commands import add_commands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relay.config import Settings

FLAGS: Final[Mapping[str, str]] = {
    "--upstream": "upstream.url",
    "--listen": "server.listen",
    "--ops-listen": "ops.listen",
    "--redis": "redis.url",
    "--workers": "server.workers",
}
"""Flags that set an option, and its path."""

INTERRUPTED: Final = 130
"""What shells report for a command ended by Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    open_standard_files()
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except ConfigFault as fault:
        return _failed(fault, 2)
    except Fault as fault:
        return _failed(fault, 1)
    except KeyboardInterrupt:
        return INTERRUPTED


def _serve(given: argparse.Namespace) -> int:
    settings = _settings(given)
    if not settings.upstream.url:
        raise ConfigFault("upstream.url: is not set; give --upstream URL, RELAY_UPSTREAM__URL or url in [upstream]")
    from relay import app  # noqa: PLC0415 - it loads the servers, which check-config does not need

    return app.serve(settings, lambda: _settings(given))


def _dev(given: argparse.Namespace) -> int:
    settings = _settings(given)
    address(given.chain_listen, "--chain-listen")
    from relay import app  # noqa: PLC0415 - as above

    return app.dev(settings, given.chain_listen)


def _check_config(given: argparse.Namespace) -> int:
    settings = load(given.config)
    lines = ["ok", *(f"{path} = {value}" for path, value in changed(settings))]
    if not settings.upstream.url:
        lines.append("upstream.url is not set: serve will need --upstream URL or RELAY_UPSTREAM__URL")
    lines.extend(f"doubt: {doubt}" for doubt in doubts(settings))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _settings(given: argparse.Namespace) -> Settings:
    values: dict[str, Any] = vars(given)
    flags = {path: values.get(flag.removeprefix("--").replace("-", "_")) for flag, path in FLAGS.items()}
    return load(values.get("config"), flags=flags)


def _failed(fault: Fault, code: int) -> int:
    sys.stderr.write(f"relay: {fault}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="relay",
        description="A JSON-RPC relay that keeps every sender's transactions in order.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"relay {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    serve = _command(commands, "serve", _serve, "run the relay in front of a node")
    serve.add_argument("--config", metavar="FILE", type=Path, help="settings, as in config.example.toml")
    serve.add_argument("--upstream", metavar="URL", help="the node: http://HOST:PORT or https://HOST")
    serve.add_argument("--redis", metavar="URL", help="the server that keeps instances in one order: redis://HOST:PORT")
    serve.add_argument("--workers", metavar="N", help=f"processes that share the work ({DEFAULTS.server.workers})")
    _add_listeners(serve)

    dev = _command(commands, "dev", _dev, "run the relay in front of a development chain of its own")
    _add_listeners(dev)
    dev.add_argument(
        "--chain-listen", metavar="HOST:PORT", default="127.0.0.1:8545", help="for the chain (%(default)s)"
    )

    check = _command(commands, "check-config", _check_config, "check a settings file and show what it changes")
    check.add_argument("config", metavar="FILE", type=Path)

    add_commands(commands)
    return parser


def _command(commands: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary.capitalize() + ".", allow_abbrev=False
    )
    command.set_defaults(run=run)
    return command


def _add_listeners(command: argparse.ArgumentParser) -> None:
    command.add_argument("--listen", metavar="HOST:PORT", help=f"for clients ({DEFAULTS.server.listen})")
    command.add_argument("--ops-listen", metavar="HOST:PORT", help=f"for health and metrics ({DEFAULTS.ops.listen})")

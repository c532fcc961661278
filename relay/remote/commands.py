"""``relay tx``, ``relay lane`` and ``relay sweep``: what there is to say.

Rules: every action takes a reason. What a command needs to run (`runs`) is loaded when it runs.
Must not know: what is asked and shown.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from relay.lifecycle import State

Commands = Any
"""What argparse's ``add_subparsers`` returns; it has no public name."""

MAX_NAME: Final = 100

_TX: Final = {
    "retry": "queue a dead or failed submission again, with a fresh budget; the same bytes",
    "resend": "send a live submission's bytes once more",
    "fail": "end a submission that cannot land any more",
    "cancel": "withdraw a submission that was never sent; afterwards: say what replaces it",
}
_TRANSACTION: Final = ("transaction", "HASH|ID")
_ADDRESS: Final = ("address", "ADDRESS")
_LANE: Final = {"pause": "let a sender's lane begin no turn", "resume": "let a paused lane go on"}


def add_commands(commands: Commands) -> None:
    """To the parser of ``relay``."""
    tx = _group(commands, "tx", "see and steer submissions (operators)")
    listing = _command(tx, "tx list", "list the submissions of one state; without one: how many there are")
    listing.add_argument("state", metavar="STATE", nargs="?", choices=[str(state) for state in State])
    _add_page(listing, "--before")
    _command(tx, "tx show", "show one submission with all that is known of it", _TRANSACTION)
    for name, summary in _TX.items():
        action = _action(tx, f"tx {name}", summary, _TRANSACTION)
        action.add_argument("--seen", metavar="VERSION", type=int, help="only if this is still its version")
        if name == "retry":
            action.add_argument("--attest", action="store_true", help="you know that the bytes were stopped")
    lane = _group(commands, "lane", "see and steer senders' lanes (operators)")
    lanes = _command(lane, "lane list", "list the lanes in which something is live")
    lanes.add_argument("--paused", action="store_true", help="only those that are paused")
    _add_page(lanes, "--after")
    _add_chain(_command(lane, "lane show", "show a sender's lane, and what is open in it", _ADDRESS))
    for name, summary in _LANE.items():
        _add_chain(_action(lane, f"lane {name}", summary, _ADDRESS))
    _action(commands, "sweep", "sweep now (operators)")


def _run(given: argparse.Namespace) -> int:
    from relay.remote.runs import RUNS  # noqa: PLC0415 - tables are not needed to serve

    return RUNS[given.words](given)


def _group(commands: Commands, name: str, summary: str) -> Commands:
    group = commands.add_parser(name, help=summary, description=f"{summary.capitalize()}.", allow_abbrev=False)
    return group.add_subparsers(metavar="ACTION", required=True)


def _command(
    commands: Commands, words: str, summary: str, subject: tuple[str, str] | None = None
) -> argparse.ArgumentParser:
    name = words.rpartition(" ")[2]
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary.capitalize()}.", allow_abbrev=False
    )
    command.set_defaults(run=_run, words=words, action=name)
    if subject is not None:
        command.add_argument(subject[0], metavar=subject[1])
    command.add_argument("--ops", metavar="URL", help="the relay's ops listener (by [ops] listen)")
    command.add_argument("--config", metavar="FILE", type=Path, help="settings, for [ops] listen and token")
    command.add_argument("--json", action="store_true", help="as JSON, as the API answers")
    return command


def _action(
    commands: Commands, words: str, summary: str, subject: tuple[str, str] | None = None
) -> argparse.ArgumentParser:
    command = _command(commands, words, summary, subject)
    command.add_argument("--reason", metavar="TEXT", required=True, help="why, for the history")
    command.add_argument("--actor", metavar="NAME", type=_name, help="who, for the history (your login)")
    return command


def _name(text: str) -> str:
    """It travels in a header."""
    if not text.strip() or not text.isascii() or not text.isprintable() or len(text) > MAX_NAME:
        raise argparse.ArgumentTypeError(f"a name has 1 to {MAX_NAME} visible ASCII characters")
    return text.strip()


def _add_page(command: argparse.ArgumentParser, flag: str) -> None:
    command.add_argument(flag, metavar="CURSOR", help="the next page, as the one before says")
    command.add_argument("--limit", metavar="N", type=int, help="rows of a page (100)")


def _add_chain(command: argparse.ArgumentParser) -> None:
    command.add_argument("--chain", metavar="ID", type=int, help="the chain's id (the node's)")

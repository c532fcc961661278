"""What each of the operator's commands asks, and how its answer is shown.

Rules: every action goes with a reason and an actor: whoever is logged in, or ``--actor``. Exit codes are the command
line's (`relay.cli`): a refusal is 1, a wrong token 2.
Must not know: HTTP's messages.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from relay.config import load
from relay.errors import Fault
from relay.remote import tables
from relay.remote.client import ask, place_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping


def _tx_list(given: argparse.Namespace) -> int:
    if given.state is None:
        return _shown(given, _ask(given, "GET", "/census"), tables.census)
    query = {"state": given.state, "before": given.before, "limit": given.limit}
    return _shown(given, _ask(given, "GET", "/transactions", query=query), tables.submissions)


def _tx_show(given: argparse.Namespace) -> int:
    return _shown(given, _ask(given, "GET", f"/transactions/{_part(given.transaction)}"), tables.submission_in_full)


def _tx_act(given: argparse.Namespace) -> int:
    headers = {} if given.seen is None else {"If-Match": f'"{given.seen}"'}
    body = {"attest": True} if getattr(given, "attest", False) else {}
    path = f"/transactions/{_part(given.transaction)}/{given.action}"
    return _shown(given, _act(given, path, body, headers=headers), tables.submission)


def _lane_list(given: argparse.Namespace) -> int:
    query = {"after": given.after, "limit": given.limit, "paused": "true" if given.paused else None}
    return _shown(given, _ask(given, "GET", "/lanes", query=query), tables.lanes)


def _lane_show(given: argparse.Namespace) -> int:
    found = _ask(given, "GET", f"/lanes/{_part(given.address)}", query={"chain": given.chain})
    return _shown(given, found, tables.lane_in_full)


def _lane_act(given: argparse.Namespace) -> int:
    path = f"/lanes/{_part(given.address)}/{given.action}"
    return _shown(given, _act(given, path, {}, query={"chain": given.chain}), tables.lane)


def _sweep(given: argparse.Namespace) -> int:
    return _shown(given, _act(given, "/sweep", {}), lambda _: ["asked for: it begins when the one before has ended"])


def _act(given: argparse.Namespace, path: str, body: dict[str, Any], **more: Any) -> Any:
    headers = {"X-Actor": given.actor or _login(), **more.pop("headers", {})}
    return _ask(given, "POST", path, body={"reason": given.reason, **body}, headers=headers, **more)


def _ask(given: argparse.Namespace, method: str, path: str, **more: Any) -> Any:
    return ask(place_of(load(given.config), given.ops), method, path, **more)


def _shown(given: argparse.Namespace, answer: Any, table: Callable[[Any], list[Any]]) -> int:
    _write(json.dumps(answer, indent=2) + "\n" if given.json else tables.drawn(*table(answer)))
    return 0


def _write(text: str) -> None:
    """What was asked is done, whether or not somebody hears it: one who has closed the pipe did not want to."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries once more when it ends
        if not isinstance(error, BrokenPipeError):
            raise Fault(f"it is done, but the answer cannot be written: {error.strerror}") from None


def _part(text: str) -> str:
    """One part of a path: what is typed wrong must not become another route."""
    return quote(text, safe="")


def _login() -> str:
    """Who is logged in, as far as the system knows and a header can hold it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return "operator"
    return name if name.isascii() and name.isprintable() and name.strip() else "operator"


RUNS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "tx list": _tx_list,
    "tx show": _tx_show,
    "tx retry": _tx_act,
    "tx resend": _tx_act,
    "tx fail": _tx_act,
    "tx cancel": _tx_act,
    "lane list": _lane_list,
    "lane show": _lane_show,
    "lane pause": _lane_act,
    "lane resume": _lane_act,
    "sweep": _sweep,
}
"""By the command's words."""

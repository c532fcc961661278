"""The other end of all groups: a node that says yes, remembers what it answered, and can hold submissions back.

Run as ``python -m acceptance.bench.node [--tls FILE] [--unique]``; prints ``ready http://HOST:PORT``. ``FILE`` has key
and certificate as PEM; with ``--unique`` no two answers have the same head. ``bench_hold`` sets for how many
milliseconds a submission is held, ``bench_away`` how many every answer is late, as if the node were far away.
``bench_record`` gives, and forgets, the submissions in order of arrival, those in batches included: hash, when its
bytes came, when its answer was handed to the kernel (this process's monotonic seconds), and the connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import uvloop

from acceptance.rig import yes_node

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED: Final = 1000
SUBMISSION: Final = "eth_sendRawTransaction"


@dataclass(slots=True)
class Node:
    """``record`` has a list for each submission: hash, came, left, connection."""

    hold_s: float = 0.0
    away_s: float = 0.0
    record: list[list[Any]] = field(default_factory=list)
    remembered: dict[bytes, bytes] = field(default_factory=dict)
    connections: int = 0


class Connection(yes_node.Connection):
    """One connection to ``node``."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node
        self._came = 0.0
        node.connections += 1
        self._number = node.connections

    def data_received(self, data: bytes) -> None:
        """Take the time before anything else."""
        self._came = time.monotonic()
        super().data_received(data)

    def take(self, body: bytes) -> None:
        """Answer from memory, or as a yes node does."""
        if answer := self._node.remembered.get(body):
            self._send(answer)
            return
        call = json.loads(body)
        if isinstance(call, dict) and call["method"] in CONTROLS:
            self.write(json.dumps(_envelope(call, CONTROLS[call["method"]](self._node, *call["params"]))).encode())
            return
        result = yes_node.answer(call)
        answer = json.dumps(result).encode()
        if hashes := _submitted(call, result):
            self._hold(answer, [[hash_, self._came, 0.0, self._number] for hash_ in hashes])
            return
        if len(self._node.remembered) < REMEMBERED:
            self._node.remembered[body] = answer
        self._send(answer)

    def _send(self, answer: bytes) -> None:
        if self._node.away_s:
            asyncio.get_running_loop().call_later(self._node.away_s, self.write, answer)
        else:
            self.write(answer)

    def _hold(self, answer: bytes, arrivals: list[list[Any]]) -> None:
        self._node.record += arrivals
        if late_s := self._node.hold_s + self._node.away_s:
            asyncio.get_running_loop().call_later(late_s, self._leave, answer, arrivals)
        else:
            self._leave(answer, arrivals)

    def _leave(self, answer: bytes, arrivals: list[list[Any]]) -> None:
        self.write(answer)
        left = time.monotonic()
        for arrival in arrivals:
            arrival[2] = left


def _submitted(call: Any, result: Any) -> list[str]:
    """The hashes of the submissions in a call or a batch."""
    pairs = zip(call, result, strict=True) if isinstance(call, list) else [(call, result)]
    return [answered["result"] for asked, answered in pairs if asked["method"] == SUBMISSION]


class UniqueConnection(Connection):
    """One whose answers all have heads of their own, as those behind a gateway that numbers them."""

    _numbers = count()

    def write(self, body: bytes) -> None:
        """Send one answer."""
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: %032x\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % (next(self._numbers), len(body)) + body)


def _hold(node: Node, milliseconds: float) -> bool:
    node.hold_s = milliseconds / 1000
    return True


def _away(node: Node, milliseconds: float) -> bool:
    node.away_s = milliseconds / 1000
    return True


def _record(node: Node) -> list[list[Any]]:
    record, node.record = node.record, []
    return record


CONTROLS: Final[dict[str, Callable[..., Any]]] = {
    "bench_hold": _hold,
    "bench_away": _away,
    "bench_record": _record,
}


def _envelope(call: dict[str, Any], result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call["id"], "result": result}


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tls", metavar="FILE")
    parser.add_argument("--unique", action="store_true")
    options = parser.parse_args()
    tls = None
    if options.tls:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(options.tls)
    node, kind = Node(), UniqueConnection if options.unique else Connection
    uvloop.run(yes_node.serve(lambda: kind(node), tls))


if __name__ == "__main__":
    _main()

"""What a WebSocket client waits for, and which message of the node answers it.

Job: the ids of a message, in either direction, and the table of forwarded messages that the node owes an answer.
Rules: ids are echoed as the client wrote them and compared by value, for nodes may write them anew (``"\\u0061"`` and
``"a"``, ``1`` and ``1.0``); equal ids are answered oldest first. What has no id of its own, or is no request, is
answered under ``null``. A batch is one entry: one array answers it. An entry that timed out stays listed for a while,
so that the late answer is known as such and the client does not get a second one.
Must not know: sockets, tasks, time.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from relay import jsonrpc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relay.errors import Refusal
    from relay.ingress.websocket.news import Hearing

MAX_ELEMENTS: Final = 50_000
MAX_LATE: Final = 1000
"""Timed-out entries that are remembered for one client."""

Key = tuple[bool, object]
"""Is it a batch's, and the id's value."""


@dataclass(slots=True, eq=False)
class Pending:
    """One message of a client that is in work."""

    kind: str
    """The label it is counted under."""
    size: int
    since: float
    ids: tuple[bytes, ...] = ()
    """The ids that wait for an answer, as texts; none for a notification, and for what the router answers itself."""
    batch: bool = False
    sent: bool = False
    """The node may have it."""
    late: bool = False
    """Timed out: the client has its answer."""
    hearing: Hearing | None = None
    """Who is told of what it subscribes to."""

    def refused(self, refusal: Refusal) -> bytes:
        """``refusal`` under each id: an object, or an array for a batch; empty if nothing waits."""
        texts = [jsonrpc.refusal_text(id_, refusal) for id_ in self.ids]
        return jsonrpc.join(texts) if self.batch and texts else b"".join(texts)


class _Named(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    method: msgspec.Raw = msgspec.Raw()


_named: Final = msgspec.json.Decoder(_Named)
_batch: Final = msgspec.json.Decoder(list[_Named])
_BROKEN: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

Ids = tuple[tuple[bytes, ...], bool]


def read_ids(message: bytes) -> Ids:
    """The ids in a message, as texts, in order, and whether it is a batch. Notifications have none."""
    if message.lstrip(b" \t\r\n").startswith(b"["):
        return _ids_of_batch(message)
    id_ = _id_of(message)
    return () if id_ is None else (id_,), False


def read_ids_of_call(message: bytes) -> Ids:
    """The same for a message of the client, which nobody has judged: it may be a million empty elements."""
    return ((jsonrpc.NULL,), False) if message.count(b"{") > MAX_ELEMENTS else read_ids(message)


class PendingCalls:
    """The entries of one client, in the order in which they came."""

    def __init__(self) -> None:
        self._keys: dict[Pending, tuple[Key, ...]] = {}
        self._waiting: dict[Pending, None] = {}
        self._late: deque[Pending] = deque()
        self._by_key: dict[Key, deque[Pending]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, pending: Pending) -> None:
        """``pending`` waits from now on."""
        self._waiting[pending] = None
        self._keys[pending] = keys = tuple(dict.fromkeys(_keys(pending.ids, batch=pending.batch)))
        for key in keys:
            self._by_key.setdefault(key, deque()).append(pending)

    def answered_by(self, message: bytes) -> Pending | None:
        """The entry, late ones included, that this message of the node answers, taken out of the table."""
        if not self._keys:
            return None
        ids, batch = read_ids(message)
        keys = _keys(ids, batch=batch)
        pending = next((self._by_key[key][0] for key in keys if key in self._by_key), None)
        if pending is None and keys and all(value is None for _, value in keys):
            pending = self._oldest_batch()
        if pending is not None:
            self._remove(pending)
        return pending

    def done(self, pending: Pending) -> None:
        """``pending`` waits no longer."""
        self._remove(pending)

    def overdue(self, before: float) -> list[Pending]:
        """Whatever waits since ``before`` or longer; from now on it is late."""
        found = []
        for pending in self._waiting:
            if pending.since > before:
                break
            found.append(pending)
        for pending in found:
            del self._waiting[pending]
            self._remember(pending)
        return found

    def clear(self) -> list[Pending]:
        """Empty the table; gives back whatever still waited."""
        waiting = list(self._waiting)
        for table in (self._keys, self._waiting, self._late, self._by_key):
            table.clear()
        return waiting

    def _remember(self, pending: Pending) -> None:
        pending.late = True
        self._late.append(pending)
        if len(self._late) > MAX_LATE:
            self._remove(self._late[0])

    def _oldest_batch(self) -> Pending | None:
        """Some nodes refuse a whole batch with one error under no id."""
        return next((pending for pending in self._waiting if pending.batch), None)

    def _remove(self, pending: Pending) -> None:
        if pending.late:
            self._late.remove(pending)
        else:
            del self._waiting[pending]
        for key in self._keys.pop(pending):
            same = self._by_key[key]
            same.remove(pending)
            if not same:
                del self._by_key[key]


def _ids_of_batch(message: bytes) -> Ids:
    try:
        ids = [_id_in(named) for named in _batch.decode(message)]
    except _BROKEN:
        # an element is no object, or it is no JSON
        elements = jsonrpc.split(message) if message.count(b",") <= MAX_ELEMENTS else None
        ids = [_id_of(element) for element in elements or ()]
    if not ids:
        return (jsonrpc.NULL,), False
    return tuple(id_ for id_ in ids if id_ is not None), True


def _id_of(text: bytes) -> bytes | None:
    try:
        return _id_in(_named.decode(text))
    except _BROKEN:
        return jsonrpc.NULL


def _id_in(named: _Named) -> bytes | None:
    """The id under which a call is, or will be, answered; None for a notification."""
    id_ = bytes(named.id)
    if not id_:
        return None if bytes(named.method) else jsonrpc.NULL
    return jsonrpc.NULL if id_[:1] in (b"[", b"{") else id_


def _keys(ids: Iterable[bytes], *, batch: bool) -> list[Key]:
    return [(batch, _value(id_)) for id_ in ids]


def _value(id_: bytes) -> object:
    try:
        return json.loads(id_)
    except ValueError:
        return id_

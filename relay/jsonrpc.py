"""JSON-RPC 2.0 texts: bytes in, bytes out; ids, params and unknown fields stay as they came.

Job: find the calls in a body that could hold a submission, without building objects nobody needs, and write answers.
Rules: what is kept is a slice of the client's bytes, never re-encoded. A ``method`` key that appears twice or in
another case makes a request malformed, for nodes disagree on which one counts. An ``id`` of null is an id; a call
without one is a notification.
Must not know: which methods matter, HTTP, Ethereum.

Source: https://www.jsonrpc.org/specification
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

if TYPE_CHECKING:
    from relay.errors import Refusal

NULL: Final = b"null"


class Call(msgspec.Struct, frozen=True):
    """One request object. ``raw`` is its text, ``id`` and ``params`` are texts of their own (None: absent)."""

    raw: bytes
    method: str
    id: bytes | None
    params: bytes | None


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that is no request object. ``id`` is the text under which the error goes back.

    ``ambiguous``: a node might read a method out of it that we did not.
    """

    raw: bytes
    id: bytes
    detail: str
    ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """An array of requests, never empty."""

    elements: tuple[Call | Malformed, ...]


@dataclass(frozen=True, slots=True)
class NotJson:
    """A body that is no JSON at all."""

    detail: str


class _Request(msgspec.Struct):
    method: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    params: msgspec.Raw = msgspec.Raw()


class _Reply(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_request: Final = msgspec.json.Decoder(_Request)
_reply: Final = msgspec.json.Decoder(_Reply)
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw])
_anything: Final = msgspec.json.Decoder(msgspec.Raw)
_text: Final = msgspec.json.Decoder(str)

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_BROKEN: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def parse(body: bytes) -> Call | Malformed | Batch | NotJson:
    """Read a body: one call, a batch, or what is wrong with it."""
    if not _is_utf8(body):
        return NotJson("it is not UTF-8")
    text = body.lstrip(b" \t\r\n")
    if not text.startswith(b"["):
        return _parse_one(body)
    try:
        elements = _elements.decode(body)
    except _BROKEN as error:
        return NotJson(_words(error))
    if not elements:
        return Malformed(body, NULL, "empty batch")
    parsed = [_parse_one(bytes(element)) for element in elements]
    broken = next((one for one in parsed if isinstance(one, NotJson)), None)
    return broken or Batch(tuple(one for one in parsed if not isinstance(one, NotJson)))


def without_lone_surrogates(body: bytes) -> bytes:
    """``body`` with each escaped surrogate replaced, byte for byte in length.

    JSON's grammar allows half a pair (``"\\ud800"``), the reader here does not. What comes out is good for finding the
    methods, not for anything that is sent.
    """
    return _SURROGATE.sub(rb"\\u0000", body)


def read_json(text: bytes) -> Any:
    """``text`` as Python values; ValueError if it is no JSON. Integers past 64 bits become floats."""
    try:
        return orjson.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class Reply(msgspec.Struct, frozen=True):
    """One response object: ``result`` is its text (None with an error); ``error`` is the error's value and text."""

    id: bytes | None
    result: bytes | None
    error: Any
    error_text: bytes | None


def parse_reply(body: bytes) -> Reply | None:
    """Read one response object; None if ``body`` is none (no JSON, or neither a result nor an error object)."""
    try:
        reply = _reply.decode(body)
        error_text = bytes(reply.error)
        error = orjson.loads(error_text) if error_text else None
    except (*_BROKEN, ValueError):
        return None
    result = bytes(reply.result) or None
    if error is not None and not isinstance(error, dict):
        return None
    if error is not None:
        return Reply(bytes(reply.id) or None, None, error, error_text)
    if result is None:
        return None
    return Reply(bytes(reply.id) or None, result, None, None)


def split(body: bytes) -> list[bytes] | None:
    """The elements of a JSON array as texts; None if ``body`` is no array."""
    try:
        return [bytes(element) for element in _elements.decode(body)]
    except _BROKEN:
        return None


def call_text(id_: bytes, method: str, params: bytes) -> bytes:
    """A request object."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (id_, orjson.dumps(method), params)


def result_text(id_: bytes, result: bytes) -> bytes:
    """A response object with a result, given as text."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_, result)


def error_text(id_: bytes, error: bytes) -> bytes:
    """A response object with an error, given as text."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, error)


def refusal_text(id_: bytes, refusal: Refusal) -> bytes:
    """A response object for a refusal of our own."""
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return error_text(id_, orjson.dumps(error))


def join(elements: list[bytes]) -> bytes:
    """A JSON array of texts."""
    return b"[" + b",".join(elements) + b"]"


def _parse_one(text: bytes) -> Call | Malformed | NotJson:
    try:
        request = _request.decode(text)
    except msgspec.ValidationError:
        return _not_an_object(text)
    except _BROKEN as error:
        return NotJson(_words(error))
    id_ = bytes(request.id)
    answer_id = id_ if id_ and id_[:1] not in b"[{" else NULL
    if _method_is_ambiguous(text, bytes(request.params)):
        return Malformed(text, answer_id, "the key method appears more than once or in another case", ambiguous=True)
    try:
        method = _text.decode(request.method)
    except _BROKEN:
        return Malformed(text, answer_id, "method is no string" if bytes(request.method) else "no method")
    if id_[:1] in (b"[", b"{"):
        return Malformed(text, NULL, "id is no string, number or null")
    return Call(text, method, id_ or None, bytes(request.params) or None)


def _not_an_object(text: bytes) -> Malformed | NotJson:
    try:
        _anything.decode(text)
    except _BROKEN as error:
        return NotJson(_words(error))
    return Malformed(text, NULL, "not an object")


def _method_is_ambiguous(text: bytes, params: bytes) -> bool:
    """Is there a second ``method`` key, in any case? Cheap when there is one plain one, exact when in doubt.

    The params are cut out first: they are long, and a key inside them is not the request's.
    """
    if params:
        start = text.find(params)
        text_without = text[:start] + text[start + len(params) :]
    else:
        text_without = text
    in_any_case = text_without.lower().count(b'"method"')
    if b"\\" not in text_without and in_any_case <= 1 and in_any_case == text_without.count(b'"method"'):
        return False
    try:
        keys = json.loads(text, object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    except (ValueError, RecursionError):
        return True
    methods = [key for key in keys if key.lower() == "method"]
    return methods not in ([], ["method"])


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _words(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)

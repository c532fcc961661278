"""Answers of a split batch back to its calls.

Job: give each call that went upstream its own answer out of what came back, whatever order or shape that has.
Rules: by id, equal ids in their order; an upstream's single error for the whole batch is everybody's; a call whose
answer is missing gets an error under its own id, never silence.
Must not know: how the answers travelled.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from relay import errors, jsonrpc

if TYPE_CHECKING:
    from relay.jsonrpc import Call


def match(calls: list[Call], body: bytes) -> dict[int, bytes]:
    """Each call's answer (a response object's text) by ``id(call)``; notifications have none."""
    waiting: dict[str, deque[Call]] = defaultdict(deque)
    for call in calls:
        if call.id is not None:
            waiting[_norm(call.id)].append(call)
    answers: dict[int, bytes] = {}
    elements = jsonrpc.split(body)
    for text in [body] if elements is None else elements:
        reply = jsonrpc.parse_reply(text)
        queue = waiting.get(_norm(reply.id or jsonrpc.NULL)) if reply else None
        if queue:
            answers[id(queue.popleft())] = text
    shared = _shared_error(body, elements)
    for call in (call for queue in waiting.values() for call in queue):
        assert call.id is not None
        answers[id(call)] = shared_text(call.id, shared)
    return answers


def shared_text(id_: bytes, shared: bytes | None) -> bytes:
    """The upstream's one error under this call's id, or our own where it gave none."""
    if shared is not None:
        return jsonrpc.error_text(id_, shared)
    refusal = errors.UPSTREAM_UNUSABLE.refusal(detail="no answer to this call in the answer to its batch")
    return jsonrpc.refusal_text(id_, refusal)


def _shared_error(body: bytes, elements: list[bytes] | None) -> bytes | None:
    """An error object that stands alone, bare or in an array of one, under no call's id."""
    if elements is not None and len(elements) != 1:
        return None
    reply = jsonrpc.parse_reply(body if elements is None else elements[0])
    return reply.error_text if reply is not None and reply.error is not None else None


def _norm(id_: bytes) -> str:
    """An id's text in one spelling: ``"a"`` and ``"\\u0061"`` are the same id, ``1`` and ``"1"`` are not."""
    try:
        return json.dumps(json.loads(id_))
    except ValueError:
        return id_.decode("utf-8", "replace")

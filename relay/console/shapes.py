"""The JSON that the operator's API answers with, as schemas (JSON Schema 2020-12).

Job: what `relay.views` and `relay.console.views` make, in words for a machine; a test holds the answers to it.
Must not know: routes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from relay.console.reading import Reasoned, Retrying
from relay.journal.records import Taken
from relay.lifecycle import Mode, Reason, State, SubStatus

Schema = dict[str, Any]

REF: Final = "#/components/schemas/{name}"


def ref(name: str) -> Schema:
    """To a schema of this table."""
    return {"$ref": REF.format(name=name)}


def _object(properties: Schema, *, optional: Schema | None = None) -> Schema:
    return {
        "type": "object",
        "properties": properties | (optional or {}),
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"oneOf": [schema, {"type": "null"}]}


def _one_of(values: Any) -> Schema:
    return {"type": "string", "enum": [str(value) for value in values]}


def _hex(octets: int) -> Schema:
    return {"type": "string", "pattern": f"^0x[0-9a-f]{{{2 * octets}}}$"}


_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0}
_QUANTITY: Final[Schema] = {"type": "string", "pattern": "^0x(0|[1-9a-f][0-9a-f]*)$"}
_HASH: Final = _hex(32)
_MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
_SUB_STATUS: Final = _or_null(ref("SubStatus"))

_INCLUSION: Final[Schema] = {"blockNumber": _QUANTITY, "blockHash": _HASH, "status": _QUANTITY}
_ROW: Final[Schema] = {
    "id": _NUMBER,
    "version": _NUMBER,
    "hash": _HASH,
    "chainId": _QUANTITY,
    "from": _hex(20),
    "nonce": _QUANTITY,
    "state": _one_of(State),
    "subStatus": _SUB_STATUS,
    "mayStillLand": _FLAG,
    "admitted": _MOMENT,
    "since": _MOMENT,
    "otherHash": _or_null(_HASH),
    "detail": _TEXT,
    "method": _TEXT,
    "mode": _one_of(Mode),
    "fence": _NUMBER,
    "tries": _NUMBER,
    "attemptCount": _NUMBER,
    "openAttempts": _NUMBER,
}
_IN_FULL: Final[Schema] = {
    "attempts": _list(ref("Attempt")),
    "receipts": _list(ref("Receipt")),
    "history": _list(ref("Event")),
    "idempotencyKeys": _list(_object({"key": _TEXT, "first": _MOMENT})),
}
_SETTING: Final[Schema] = {
    "chainId": _QUANTITY,
    "address": _hex(20),
    "paused": _FLAG,
    "version": _NUMBER,
    "detail": _TEXT,
    "actor": _TEXT,
    "at": _or_null(_MOMENT),
}
_NEXT: Final = _or_null({"type": "string", "description": "The next page's cursor."})

_ANSWERS: Final[dict[str, Schema]] = {
    "SubStatus": _object({"kind": _one_of(SubStatus), "reason": _one_of(Reason), "words": _TEXT}),
    "Submission": _object(_ROW, optional=_INCLUSION),
    "Submissions": _object({"transactions": _list(ref("Submission")), "next": _NEXT}),
    "SubmissionInFull": _object(_ROW | _IN_FULL, optional=_INCLUSION),
    "Attempt": _object(
        {
            "id": _NUMBER,
            "at": _MOMENT,
            "node": _TEXT,
            "fence": _NUMBER,
            "actor": _TEXT,
            "answered": _or_null(_MOMENT),
            "taken": _or_null(_one_of(Taken)),
            "verdict": _TEXT,
            "text": _TEXT,
        }
    ),
    "Receipt": _object(_INCLUSION | {"node": _TEXT, "seen": _MOMENT}),
    "Event": _object(
        {
            "id": _NUMBER,
            "at": _MOMENT,
            "origin": _or_null(_one_of(State)),
            "state": _one_of(State),
            "subStatus": _SUB_STATUS,
            "detail": _TEXT,
            "actor": _TEXT,
            "fence": _NUMBER,
            "version": _NUMBER,
        }
    ),
    "LaneSetting": _object(_SETTING),
    "LaneInFull": _object(
        _SETTING | {"open": _list(ref("Submission")), "more": _FLAG, "settings": _list(ref("LaneSetting"))}
    ),
    "Lanes": _object(
        {
            "lanes": _list(
                _object(
                    {
                        "chainId": _QUANTITY,
                        "address": _hex(20),
                        "lowest": _QUANTITY,
                        "rows": _NUMBER,
                        "oldest": _MOMENT,
                        "paused": _FLAG,
                    }
                )
            ),
            "paused": _list(ref("LaneSetting")),
            "next": _NEXT,
        }
    ),
    "Census": _object(
        {
            "now": _MOMENT,
            "open": _list(
                _object({"state": _one_of(State), "subStatus": _SUB_STATUS, "rows": _NUMBER, "oldest": _MOMENT})
            ),
            "outbox": _object({"waiting": _NUMBER, "oldest": _or_null(_MOMENT), "dead": _NUMBER}),
        }
    ),
    "Asked": _object({"asked": _one_of(["sweep"])}),
    "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
    "Problem": {
        "type": "object",
        "description": "RFC 9457.",
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": _TEXT,
            "status": _NUMBER,
            "detail": _TEXT,
            "ways": _list(_TEXT) | {"description": "What can be done about it."},
            "version": _NUMBER | {"description": "With `changed`: the newest."},
            "replacement": ref("Replacement"),
        },
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": False,
    },
    "Replacement": _object(
        {"from": _hex(20), "chainId": _QUANTITY, "nonce": _QUANTITY, "type": _QUANTITY, "words": _TEXT},
        optional={
            "gasPrice": _QUANTITY,
            "maxFeePerGas": _QUANTITY,
            "maxPriorityFeePerGas": _QUANTITY,
            "maxFeePerBlobGas": _QUANTITY,
        },
    )
    | {"description": "With `was_sent`: what the key's holder signs to take its place; fees are the least."},
}


def schemas() -> dict[str, Schema]:
    """Every schema by its name: bodies, answers, problems."""
    _, bodies = msgspec.json.schema_components([Reasoned, Retrying], ref_template=REF)
    return {**bodies, **_ANSWERS}

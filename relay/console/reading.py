"""From a request to what is asked: parameters, headers and the body, each as described or refused.

Job: the parameters there are, each with the schema that the document shows and the function that reads it.
Rules: what is not described is refused by name, so that a slip of the pen does nothing. Must not know: what is done.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec

from relay.console.problems import Problem
from relay.journal.records import LARGEST, Cursor
from relay.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_REASON: Final = 1_000
PAGE: Final = 100
MAX_PAGE: Final = 500
NOBODY: Final = "operator"
"""The actor of whoever does not say who he is."""

Reason = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_REASON, pattern=r"\S", description="For the history, in your words.")
]


class Reasoned(msgspec.Struct, forbid_unknown_fields=True):
    """Why it is done."""

    reason: Reason


class Retrying(msgspec.Struct, forbid_unknown_fields=True):
    """Why, and whether the operator vouches that the bytes were stopped: that no node and no peer has them any more."""

    reason: Reason
    attest: bool = False


class Param(NamedTuple):
    """One row. ``read`` raises ValueError."""

    name: str
    place: Literal["path", "query", "header"]
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    words: str
    required: bool = False
    default: Any = None


def _matching(pattern: str, value: Callable[[str], Any]) -> Callable[[str], Any]:
    form = re.compile(pattern)

    def read(text: str) -> Any:
        if form.fullmatch(text) is None:
            raise ValueError
        return value(text)

    return read


def _text(name: str, place: Any, pattern: str, value: Callable[[str], Any], words: str, **more: Any) -> Param:
    schema = {"type": "string", "pattern": f"^{pattern}$"}
    return Param(name, place, schema, _matching(pattern, value), words, **more)


def _number(name: str, least: int, most: int, words: str, default: int | None = None) -> Param:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Param(
        name, "query", schema | ({} if default is None else {"default": default}), read, words, default=default
    )


def _which(text: str) -> int | bytes:
    return bytes.fromhex(text[2:]) if text.startswith("0x") else int(text)


def _before(text: str) -> tuple[int, int]:
    since, _, id_ = text.partition("-")
    return int(since), int(id_)


def _after(text: str) -> Cursor:
    chain, _, sender = text.partition("-")
    return Cursor(int(chain), bytes.fromhex(sender[2:]))


TRANSACTION: Final = _text(
    "transaction", "path", "(0x[0-9a-fA-F]{64}|[1-9][0-9]{0,17})", _which, "Its hash, or its id.", required=True
)
ADDRESS: Final = _text(
    "address", "path", "0x[0-9a-fA-F]{40}", lambda text: bytes.fromhex(text[2:]), "The sender.", required=True
)
STATE: Final = Param(
    "state", "query", {"type": "string", "enum": [str(state) for state in State]}, State, "Where they stand.",
    required=True,
)  # fmt: skip
BEFORE: Final = _text("before", "query", "[0-9]{1,18}-[0-9]{1,18}", _before, "`next` of the page before.")
AFTER: Final = _text("after", "query", "[0-9]{1,18}-0x[0-9a-f]{40}", _after, "`next` of the page before.")
LIMIT: Final = _number("limit", 1, MAX_PAGE, "Rows of a page.", PAGE)
CHAIN: Final = _number("chain", 0, LARGEST, "The chain's id; the node's own without it.")
PAUSED: Final = Param(
    "paused", "query", {"type": "string", "enum": ["true"]}, _matching("true", bool), "Only the lanes that are paused."
)
ACTOR: Final = _text(
    "X-Actor", "header", "[!-~]([ -~]{0,98}[!-~])?", str, "Who does it, for the history.", default=NOBODY
)
IF_MATCH: Final = Param(
    "If-Match", "header", {"type": "string"}, str, "The `ETag` that you saw: refused (412) if it has changed since."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read. ``values`` has each parameter by its name, its default where it was not given."""

    values: Mapping[str, Any]
    body: Any = None

    def __getitem__(self, param: Param) -> Any:
        return self.values[param.name]

    def saw(self, version: int) -> bool:
        """Is ``version`` what the operator saw, if he says what that was?"""
        tags = self.values.get(IF_MATCH.name)
        return tags is None or any(tag.strip() in ("*", etag(version)) for tag in tags.split(","))


def etag(version: int) -> str:
    """Of a row or a lane at this version."""
    return f'"{version}"'


def read_params(
    params: tuple[Param, ...], path: Mapping[str, str], query: Mapping[str, str], headers: Mapping[str, str]
) -> dict[str, Any] | Problem:
    """Every value by its parameter's name."""
    known = [param.name for param in params if param.place == "query"]
    if len(set(query)) < len(query):
        return Problem("bad_request", "a parameter is given twice")
    if strange := [name for name in query if name not in known]:
        return Problem(
            "bad_request", f"{strange[0]!r:.60} is no parameter here; known are: {', '.join(known) or 'none'}"
        )
    given = {"path": path, "query": query, "header": headers}
    values = {}
    for param in params:
        text = given[param.place].get(param.name)
        if text is None and param.required:
            return Problem("bad_request", f"{param.name} is missing: {described(param)}")
        try:
            values[param.name] = param.default if text is None else param.read(text)
        except ValueError:
            return Problem("bad_request", f"{param.name} is {text!r:.80}, and should be {described(param)}")
    return values


def read_body(kind: type[msgspec.Struct], content_type: str, text: bytes) -> msgspec.Struct | Problem:
    """The body as ``kind``."""
    if content_type != "application/json":
        return Problem("wrong_type", f"the body is {content_type[:60]}; send JSON with Content-Type: application/json")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Problem("bad_request", f"the body cannot be used: {error}; it is {_fields(kind)}")


def described(param: Param) -> str:
    """What a value must be, in words."""
    schema = param.schema
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if "minimum" in schema:
        return f"a number from {schema['minimum']} to {schema['maximum']}"
    return f"of the form {schema.get('pattern', 'of a text')}"


def _fields(kind: type[msgspec.Struct]) -> str:
    return "an object of " + ", ".join(
        f"{field.name}{' (required)' if field.required else ''}" for field in msgspec.structs.fields(kind)
    )

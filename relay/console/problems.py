"""What the operator's API answers when it does not do what was asked: RFC 9457.

Job: the kinds of problems, one table that code, document and tests share, and a problem as a value.
Rules: ``detail`` says what is so, ``ways`` what can be done about it. No text shows the token or a raw transaction.
Must not know: HTTP's messages, stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

URN: Final = "urn:relay:problem:"


class Kind(NamedTuple):
    """One row: the problem's name, its HTTP status, what it is called, and when it comes."""

    name: str
    status: int
    title: str
    when: str


_ROWS: Final = (
    Kind("bad_request", 400, "The request cannot be read", "a parameter, a header or the body is not as described"),
    Kind("unauthorized", 401, "The token is missing or wrong", "no `Authorization: Bearer` with `[ops] token`"),
    Kind("no_api", 404, "There is no operator's API here", "`[ops] token` or `[journal] url` is not set"),
    Kind("not_found", 404, "There is no such thing", "no such route, or no such submission"),
    Kind("wrong_method", 405, "The route has another method", "the method is not one of `Allow`"),
    Kind("may_still_land", 409, "The transaction may still land", "what was asked would claim that it cannot"),
    Kind("was_sent", 409, "The transaction was sent", "cancel, after the first send"),
    Kind("not_live", 409, "The submission is not live", "resend, and nothing is on its way"),
    Kind("still_live", 409, "The submission is live", "retry, while the relay works on it"),
    Kind("has_ended", 409, "The submission has ended", "it is final, and nothing leads out of it"),
    Kind("contested", 409, "Somebody else changes it", "it changed each time it was looked at; ask again"),
    Kind("changed", 412, "It has changed", "`If-Match` names another version than the newest"),
    Kind("too_large", 413, "The body is too large", "more than 64 KiB"),
    Kind("wrong_type", 415, "The body is not JSON", "`Content-Type` is not `application/json`"),
    Kind("internal", 500, "The relay has a fault", "the log of the relay names it"),
    Kind("journal_unavailable", 503, "The journal cannot be used for now", "the store of `[journal] url` is away"),
    Kind(
        "chain_unknown", 503, "The chain is not known yet", "the node has not said which chain it is on; give `chain`"
    ),
)

KINDS: Final = {row.name: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class Problem:
    """An expected "no". ``more``: members beside those of RFC 9457."""

    name: str
    detail: str
    ways: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """Its row."""
        return KINDS[self.name]

    def body(self) -> dict[str, Any]:
        """As JSON."""
        kind = self.kind
        members = {"type": URN + kind.name, "title": kind.title, "status": kind.status, "detail": self.detail}
        return members | ({"ways": list(self.ways)} if self.ways else {}) | dict(self.more)

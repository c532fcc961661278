"""The operator's API as one table: what serves it, what documents it and what its commands call.

Must not know: how a route does its work (`api` has a method of each name), how the document looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from relay.console.reading import (
    ACTOR,
    ADDRESS,
    AFTER,
    BEFORE,
    CHAIN,
    IF_MATCH,
    LIMIT,
    PAUSED,
    STATE,
    TRANSACTION,
    Param,
    Reasoned,
    Retrying,
)

if TYPE_CHECKING:
    import msgspec

PREFIX: Final = "/api"


class Route(NamedTuple):
    """One row. ``answer`` is the name of a schema (`shapes`); ``tagged``: the answer has an ETag.

    ``problems`` are those beside the ones that every route has.
    """

    method: str
    path: str
    name: str
    summary: str
    answer: str
    params: tuple[Param, ...] = ()
    body: type[msgspec.Struct] | None = None
    status: int = 200
    tagged: bool = False
    problems: tuple[str, ...] = ()


_WHO: Final = (ACTOR, IF_MATCH)
_ACTION: Final = ("bad_request", "not_found", "contested", "changed", "too_large", "wrong_type")
_LANE: Final = ("bad_request", "contested", "changed", "too_large", "wrong_type", "chain_unknown")


def _action(name: str, summary: str, *problems: str, body: type[msgspec.Struct] = Reasoned, status: int = 200) -> Route:
    path = f"/transactions/{{transaction}}/{name}"
    taken = (*_ACTION, "has_ended", *problems)
    return Route("POST", path, name, summary, "Submission", (TRANSACTION, *_WHO), body, status, True, taken)  # noqa: FBT003


def _setting(name: str, summary: str) -> Route:
    return Route(
        "POST", f"/lanes/{{address}}/{name}", name, summary, "LaneSetting", (ADDRESS, CHAIN, *_WHO), Reasoned,
        tagged=True, problems=_LANE,
    )  # fmt: skip


ROUTES: Final = (
    Route(
        "GET", "/transactions", "transactions", "The submissions of one state, latest change first", "Submissions",
        (STATE, BEFORE, LIMIT), problems=("bad_request",),
    ),
    Route(
        "GET", "/transactions/{transaction}", "transaction", "One submission with all that is known of it",
        "SubmissionInFull", (TRANSACTION,), tagged=True, problems=("bad_request", "not_found"),
    ),
    _action(
        "retry", "Queue a dead or failed submission again, with a fresh budget; the same bytes", "still_live",
        "may_still_land", body=Retrying,
    ),
    _action("resend", "Send a live submission's bytes once more", "not_live", status=202),
    _action("fail", "End a submission that cannot land any more", "may_still_land"),
    _action("cancel", "Withdraw a submission that was never sent", "was_sent"),
    Route(
        "GET", "/lanes", "lanes", "The lanes in which something is live, or those that are paused", "Lanes",
        (AFTER, LIMIT, PAUSED), problems=("bad_request",),
    ),
    Route(
        "GET", "/lanes/{address}", "lane", "A sender's lane: its setting, what is open in it", "LaneInFull",
        (ADDRESS, CHAIN), tagged=True, problems=("bad_request", "chain_unknown"),
    ),
    _setting("pause", "Let a sender's lane begin no turn"),
    _setting("resume", "Let a paused lane go on"),
    Route(
        "POST", "/sweep", "sweep", "Sweep now", "Asked", (ACTOR,), Reasoned, 202,
        problems=("bad_request", "too_large", "wrong_type"),
    ),
    Route("GET", "/census", "census", "How many are open, by state and reason, and what waits to be told", "Census"),
    Route("GET", "/openapi.json", "openapi", "This document", "Document"),
)  # fmt: skip

EVERYWHERE: Final = ("unauthorized", "journal_unavailable", "internal")
"""Problems that every route has."""

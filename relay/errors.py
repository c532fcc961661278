"""The catalogue of everything the relay itself answers "no" with.

Job: one row for each case: name, JSON-RPC code, HTTP status, text. Code, tests and ``docs/errors.md`` share it.
Rules: a refusal is a value, a fault is an exception. HTTP 200 for whatever concerns one call; another status only
for what concerns the whole request or instance (wallets read an error's text only at 200). A text says what to do
and avoids the words clients classify by ("nonce … too low", "insufficient funds", "underpriced", "already known",
"revert", "rate limit", "request limit", "too many requests", "header not found") unless it means them; ``data``
never has a key ``message``.
Must not know: JSON, HTTP or any other room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the catalogue. ``text`` is a format string; ``when`` is for the docs."""

    name: str
    code: int
    http: int
    text: str
    when: str

    def refusal(self, *, data: Any = None, **values: object) -> Refusal:
        """This case with its blanks filled in."""
        return Refusal(self, self.text.format(**values) if values else self.text, data)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An expected "no". ``data`` is any JSON value, None for none."""

    case: Case
    message: str
    data: Any = None

    @property
    def code(self) -> int:
        """The JSON-RPC error code."""
        return self.case.code


class Fault(Exception):  # noqa: N818 - the field's word: a broken thing, not an expected "no"
    """A broken thing: a bug, a dead part, a failed system call. Its text tells an operator what to do."""


_ROWS: Final = (
    Case(
        "parse_error", -32700, 400, "the body is not JSON: {detail}", "the body could hold a submission and is not JSON"
    ),
    Case(
        "invalid_request",
        -32600,
        400,
        "invalid request: {detail}",
        "the body could hold a submission and is no request object",
    ),
    Case(
        "invalid_params",
        -32602,
        200,
        "{detail}",
        "the params hold no raw transaction, or not hex (geth's words), or are not those of a relay_ method",
    ),
    Case(
        "rejected", -32000, 200, "{detail}", "the transaction cannot be decoded, or a precheck refuses it; geth's words"
    ),
    Case(
        "queue_full",
        -32005,
        200,
        "queue of this sender is full ({waiting} waiting, [ordering] max_queue)",
        "the sender has max_queue submissions waiting",
    ),
    Case(
        "waited_too_long",
        -32005,
        200,
        "waited {seconds:.1f} s for earlier transactions of this sender ([ordering] max_wait_s)",
        "the turn did not come within max_wait_s; nothing was sent",
    ),
    Case(
        "at_capacity",
        -32005,
        200,
        "{senders} senders are busy at once ([ordering] max_senders); send again shortly",
        "max_senders lanes are busy",
    ),
    Case(
        "too_much_waiting",
        -32005,
        200,
        "submissions of {mib} MiB are waiting at this instance; send again shortly",
        "the waiting submissions of all senders together are too large to keep",
    ),
    Case(
        "ordering_unavailable",
        -32005,
        200,
        "the order between instances cannot be kept for now ([redis] on_loss), nothing was sent; send again shortly",
        'Redis is gone and on_loss is "refuse"',
    ),
    Case(
        "lanes_unavailable",
        -32005,
        200,
        "no process kept the order for {seconds:.1f} s, nothing was sent; send again shortly",
        "with several workers: the lane process is gone or stuck for longer than max_wait_s",
    ),
    Case(
        "nonce_gap",
        -32000,
        200,
        "nonce too high: next nonce {next}, tx nonce {nonce}",
        'a gap was not filled within the reorder window and on_gap is "refuse"',
    ),
    Case(
        "outcome_unknown",
        -32040,
        200,
        "outcome unknown: the node may have this transaction; look up its hash before you send another",
        'the bytes were sent and no answer proves what became of them; data is {"hash": …}',
    ),
    Case(
        "invalid_key",
        -32600,
        200,
        "invalid Idempotency-Key: {detail}",
        "with a journal: a submission's request has an Idempotency-Key that is none",
    ),
    Case(
        "key_conflict",
        -32030,
        200,
        "this idempotency key cannot be used: {detail}",
        "the key belongs to another transaction, was first used longer ago than [journal] dedupe_h, came with several "
        "submissions, or with one that cannot be recorded",
    ),
    Case(
        "key_closed",
        -32031,
        200,
        "this transaction was recorded before, and is not sent again: {detail}",
        "the same bytes ended before by other means than success; data says how, and whether they may still land",
    ),
    Case(
        "journal_unavailable",
        -32032,
        200,
        "the journal cannot be written, nothing was sent: {detail}",
        "the store of [journal] url cannot be written for now; nothing is sent unrecorded",
    ),
    Case(
        "journal_unreadable",
        -32032,
        200,
        "the journal cannot be read for now; ask again",
        "a relay_ method: the store of [journal] url cannot be read; GET /transactions answers with HTTP 503",
    ),
    Case(
        "internal",
        -32603,
        200,
        "internal fault of the relay, nothing was sent; the log of the relay names it",
        "our own fault, nothing was sent",
    ),
    Case(
        "method_denied",
        -32601,
        200,
        "the method {method} does not exist/is not available",
        "the method matches [server] deny_methods, or is eth_subscribe over WebSocket without [upstream] ws_url, "
        "or begins with relay_ and is none of the relay's own (with a journal; relay_subscribe is for WebSocket)",
    ),
    Case(
        "batch_too_long",
        -32014,
        200,
        "batch of {length} calls is longer than {limit} ([server] max_batch)",
        "a batch is longer than max_batch; answered for each element under its own id",
    ),
    Case(
        "body_too_large",
        -32021,
        413,
        "request body too large: the limit is {limit} bytes ([server] max_body_bytes)",
        "the body is larger than max_body_bytes",
    ),
    Case(
        "upstream_unreachable",
        -32011,
        503,
        "no connection to the upstream, nothing was sent: {detail}",
        "no connection to the node could be had; nothing was sent",
    ),
    Case("draining", -32012, 503, "this instance is shutting down, nothing was sent; send again", "the relay drains"),
    Case(
        "upstream_timeout",
        -32015,
        504,
        "the upstream did not answer within {seconds:g} s ([upstream] timeout_s)",
        "a passed-through call timed out",
    ),
    Case(
        "upstream_unusable",
        -32013,
        502,
        "the answer of the upstream cannot be used: {detail}",
        "a passed-through call got an answer that is no HTTP, or was cut short",
    ),
    Case(
        "receipt_timeout",
        4,
        200,
        "the transaction was accepted, but there is no receipt after {seconds:g} s",
        "eth_sendRawTransactionSync: accepted, not mined in time; data is the hash",
    ),
    Case("http_invalid", -32600, 400, "invalid HTTP request: {detail}", "a request that is no HTTP/1.1 or 1.0"),
    Case(
        "http_head_too_large",
        -32600,
        431,
        "request head too large: at most {bytes} bytes and {lines} lines",
        "the request's head is too large",
    ),
    Case(
        "transaction_unknown",
        -32001,
        404,
        "no transaction with this hash is recorded here",
        "GET /transactions/{hash}: nobody sent it through this relay, or it is no longer kept",
    ),
    Case(
        "http_hash",
        -32602,
        400,
        "the hash of a transaction is 0x and 64 hex digits",
        "GET /transactions/…: what follows is no hash",
    ),
    Case("http_method", -32600, 405, "send calls with POST", "an HTTP method other than POST, OPTIONS, GET and HEAD"),
    Case(
        "http_encoding",
        -32600,
        415,
        "content encoding {encoding} is not understood; send the body plain or as gzip",
        "a Content-Encoding that hides the body",
    ),
    Case(
        "http_expectation", -32600, 417, "expectation {expectation} cannot be met", "an Expect other than 100-continue"
    ),
    Case(
        "http_transfer",
        -32600,
        501,
        "transfer encoding {encoding} is not implemented; send chunked or Content-Length",
        "a Transfer-Encoding other than chunked",
    ),
    Case("http_version", -32600, 505, "HTTP version not supported; send HTTP/1.1", "a version other than 1.1 and 1.0"),
    Case(
        "http_timeout",
        -32600,
        408,
        "the request was not complete within {seconds:g} s",
        "a request's body came too slowly",
    ),
    Case(
        "too_many_connections",
        -32005,
        503,
        "all {limit} connections are taken ([server] max_connections)",
        "max_connections clients are connected",
    ),
    Case(
        "origin_denied",
        -32600,
        403,
        "origin {origin} is not allowed ([server] cors_origins)",
        "a WebSocket upgrade from a page whose origin is not in cors_origins",
    ),
)

CATALOGUE: Final[dict[str, Case]] = {row.name: row for row in _ROWS}

PARSE_ERROR: Final = CATALOGUE["parse_error"]
INVALID_REQUEST: Final = CATALOGUE["invalid_request"]
INVALID_PARAMS: Final = CATALOGUE["invalid_params"]
REJECTED: Final = CATALOGUE["rejected"]
QUEUE_FULL: Final = CATALOGUE["queue_full"]
WAITED_TOO_LONG: Final = CATALOGUE["waited_too_long"]
AT_CAPACITY: Final = CATALOGUE["at_capacity"]
TOO_MUCH_WAITING: Final = CATALOGUE["too_much_waiting"]
ORDERING_UNAVAILABLE: Final = CATALOGUE["ordering_unavailable"]
LANES_UNAVAILABLE: Final = CATALOGUE["lanes_unavailable"]
NONCE_GAP: Final = CATALOGUE["nonce_gap"]
OUTCOME_UNKNOWN: Final = CATALOGUE["outcome_unknown"]
INVALID_KEY: Final = CATALOGUE["invalid_key"]
KEY_CONFLICT: Final = CATALOGUE["key_conflict"]
KEY_CLOSED: Final = CATALOGUE["key_closed"]
JOURNAL_UNAVAILABLE: Final = CATALOGUE["journal_unavailable"]
JOURNAL_UNREADABLE: Final = CATALOGUE["journal_unreadable"]
INTERNAL: Final = CATALOGUE["internal"]
METHOD_DENIED: Final = CATALOGUE["method_denied"]
BATCH_TOO_LONG: Final = CATALOGUE["batch_too_long"]
BODY_TOO_LARGE: Final = CATALOGUE["body_too_large"]
UPSTREAM_UNREACHABLE: Final = CATALOGUE["upstream_unreachable"]
DRAINING: Final = CATALOGUE["draining"]
UPSTREAM_TIMEOUT: Final = CATALOGUE["upstream_timeout"]
UPSTREAM_UNUSABLE: Final = CATALOGUE["upstream_unusable"]
RECEIPT_TIMEOUT: Final = CATALOGUE["receipt_timeout"]
HTTP_INVALID: Final = CATALOGUE["http_invalid"]
HTTP_HEAD_TOO_LARGE: Final = CATALOGUE["http_head_too_large"]
TRANSACTION_UNKNOWN: Final = CATALOGUE["transaction_unknown"]
HTTP_HASH: Final = CATALOGUE["http_hash"]
HTTP_METHOD: Final = CATALOGUE["http_method"]
HTTP_ENCODING: Final = CATALOGUE["http_encoding"]
HTTP_EXPECTATION: Final = CATALOGUE["http_expectation"]
HTTP_TRANSFER: Final = CATALOGUE["http_transfer"]
HTTP_VERSION: Final = CATALOGUE["http_version"]
HTTP_TIMEOUT: Final = CATALOGUE["http_timeout"]
TOO_MANY_CONNECTIONS: Final = CATALOGUE["too_many_connections"]
ORIGIN_DENIED: Final = CATALOGUE["origin_denied"]

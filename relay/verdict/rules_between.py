"""Rows about what stands between: gateways, balancers, limits, other relays, and nodes that lost their answer.

Job: tell what was turned away before it reached a node from what may have reached one. Notation: `relay.verdict.rule`.
Rules: not_now only where the text proves that nothing went further; every other broken answer is uncertain, because the
transaction may be in a pool behind it. These rows hold whoever the node is.
Must not know: how rows are found.
"""

from __future__ import annotations

from typing import Final

from relay import errors
from relay.verdict.rule import ANYONE, Disposition, Rule, meaning

_OWN: Final = {
    # A relay behind this one speaks by the catalogue in `relay.errors`. Its lanes turned the transaction away:
    errors.QUEUE_FULL: Disposition.NOT_NOW,
    errors.WAITED_TOO_LONG: Disposition.NOT_NOW,
    errors.AT_CAPACITY: Disposition.NOT_NOW,
    errors.TOO_MUCH_WAITING: Disposition.NOT_NOW,
    errors.ORDERING_UNAVAILABLE: Disposition.NOT_NOW,
    errors.LANES_UNAVAILABLE: Disposition.NOT_NOW,
    # … or it could not or would not pass anything on, and says that nothing was sent:
    errors.INTERNAL: Disposition.NOT_NOW,
    errors.JOURNAL_UNAVAILABLE: Disposition.NOT_NOW,
    errors.UPSTREAM_UNREACHABLE: Disposition.NOT_NOW,
    errors.DRAINING: Disposition.NOT_NOW,
    errors.HTTP_TIMEOUT: Disposition.NOT_NOW,
    errors.TOO_MANY_CONNECTIONS: Disposition.NOT_NOW,
    # … or its settings, or its reading of the request, keep such a call out, and another endpoint may let it in:
    errors.PARSE_ERROR: Disposition.REFUSED_HERE,
    errors.INVALID_REQUEST: Disposition.REFUSED_HERE,
    errors.METHOD_DENIED: Disposition.REFUSED_HERE,
    errors.INVALID_KEY: Disposition.REFUSED_HERE,
    errors.KEY_CONFLICT: Disposition.REFUSED_HERE,
    errors.BATCH_TOO_LONG: Disposition.REFUSED_HERE,
    errors.BODY_TOO_LARGE: Disposition.REFUSED_HERE,
    errors.ORIGIN_DENIED: Disposition.REFUSED_HERE,
    errors.HTTP_INVALID: Disposition.REFUSED_HERE,
    errors.HTTP_HEAD_TOO_LARGE: Disposition.REFUSED_HERE,
    errors.HTTP_METHOD: Disposition.REFUSED_HERE,
    errors.HTTP_ENCODING: Disposition.REFUSED_HERE,
    errors.HTTP_EXPECTATION: Disposition.REFUSED_HERE,
    errors.HTTP_TRANSFER: Disposition.REFUSED_HERE,
    errors.HTTP_VERSION: Disposition.REFUSED_HERE,
    # … or it answers a question, which no transaction is:
    errors.JOURNAL_UNREADABLE: Disposition.REFUSED_HERE,
    errors.TRANSACTION_UNKNOWN: Disposition.REFUSED_HERE,
    errors.HTTP_HASH: Disposition.REFUSED_HERE,
    # … or it had sent the bytes and knows no more than we do. A missing receipt is no missing transaction.
    errors.OUTCOME_UNKNOWN: Disposition.UNCERTAIN,
    errors.UPSTREAM_TIMEOUT: Disposition.UNCERTAIN,
    errors.UPSTREAM_UNUSABLE: Disposition.UNCERTAIN,
    errors.RECEIPT_TIMEOUT: Disposition.UNCERTAIN,
    # … or it has given the transaction up, which may have been sent long before and still land:
    errors.KEY_CLOSED: Disposition.UNCERTAIN,
}
# Not listed: rejected and invalid_params repeat geth's words, nonce_gap is a "nonce too high".

RULES: Final[tuple[Rule, ...]] = (
    *(row for case, disposition in _OWN.items() for row in meaning(disposition, case.name, (ANYONE, case.text))),
    # A limit counts calls before anybody reads them.
    *meaning(
        Disposition.NOT_NOW, "rate_limited",
        ("any", "rate limit"),
        ("any", "rate limited"),
        ("any", "request limit"),
        ("any", "too many requests"),
        ("any", "compute units per second"),
    ),
    # The endpoint takes no batches, or none of this length: it has looked at none of the calls. geth says so under the
    # id of the first one.
    *meaning(
        Disposition.NOT_NOW, "batch_refused",
        ("any", "batch too large"),
        ("any", "batch request was too large"),
        ("any", "batch size limit exceeded"),
        ("any", "exceeds max batch size"),
        ("any", "batch request amount {101} exceeds max {100}"),
        ("any", "batch requests are not supported"),
        ("any", "batched requests are not supported"),
        ("any", "batch requests are disabled"),
    ),
    # The endpoint does not take submissions; there is nothing wrong with this one.
    *meaning(
        Disposition.REFUSED_HERE, "method_denied",
        ("any", "method not found"),
        ("any", "rpc method is not whitelisted"),
    ),
    # Whoever gave up waiting had sent it. Besu, anvil, Arbitrum (12 s in the sequencer's queue), ZKsync and the Hedera
    # relay say so themselves.
    *meaning(
        Disposition.UNCERTAIN, "timeout",
        ("any", "timeout"),
        ("any", "time-out"),
        ("any", "timed out"),
        ("any", "deadline exceeded"),
    ),
    # A gateway reports how it fared with its nodes, not what they did: any of them may have taken it.
    *meaning(
        Disposition.UNCERTAIN, "gateway",
        ("any", "bad gateway"),
        ("any", "service unavailable"),
        ("any", "service temporarily unavailable"),
        ("any", "internal server error"),
        ("any", "no backend is currently healthy"),
        ("any", "backend offline"),
        ("any", "backend returned an invalid response"),
        ("any", "no available upstreams"),
        ("any", "connection refused"),
        ("any", "connection reset"),
        ("any", "unexpected EOF"),
    ),
    # The node itself broke off, or hides one of many causes behind one text: Besu's default arm covers refusals that
    # have no code of their own. What such a text quotes is not the verdict on this transaction.
    *meaning(
        Disposition.UNCERTAIN, "internal_ambiguous",
        ("any", "internal error"),
        ("arbitrum", "failed to publish transaction to any of the forwarding targets"),
        ("hedera-relay", "Dependent service returned immature records"),
        ("hedera-relay", "Error invoking RPC{: failed precheck with status BUSY}"),
        ("hedera-relay", "Mirror node upstream failure: statusCode={404}, message={not found}"),
        ("reth", "Batch transaction sender channel closed"),
    ),
    # Hedera has a hash before consensus refuses it, and may charge for it; only the look-up tells.
    *meaning(
        Disposition.UNCERTAIN, "consensus_rejected",
        ("hedera-relay", "Consensus node error: {BUSY (12): precheck failed}"),
        ("hedera-relay", "Transaction rejected: WRONG_NONCE"),
    ),
    # Hardhat answers with the revert of a transaction that it has mined: it is in a block, at its own hash.
    *meaning(
        Disposition.UNCERTAIN, "mined_and_reverted",
        ("hardhat", "VM Exception while processing transaction{: reverted with reason string 'paused'}"),
        ("hardhat", "Transaction reverted{ without a reason string}"),
    ),
)  # fmt: skip

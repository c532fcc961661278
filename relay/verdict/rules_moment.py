"""Rows about the moment: the pool, the nonce, the balance, the fees. The same bytes may fare otherwise later.

Job: what nodes say when the transaction itself is sound. Notation: `relay.verdict.rule`.
Rules: a row holds the shortest text that means only this, as the clients spell it; names for whoever says it, and
"any" where everybody means the same by it.
Must not know: how rows are found.
"""

from __future__ import annotations

from typing import Final

from relay.verdict.rule import Disposition, Rule, meaning

RULES: Final[tuple[Rule, ...]] = (
    # The pool, or what it remembers of it, holds these very bytes, so the sender has what it asked for. Nethermind
    # answers from a cache of hashes that outlives the pool: a look-up by hash is the surer sign there.
    *meaning(
        Disposition.IN_POOL, "already_known",
        ("any", "already known"),
        ("any", "known transaction"),
        ("anvil", "transaction already imported"),
        ("erigon", "existing tx with same hash"),
        ("erigon", "existing txn with same hash"),
        ("nethermind", "AlreadyKnown"),
    ),
    # The nonce is used, by this transaction or by another: the text is the same for a copy that came late.
    *meaning(
        Disposition.NONCE_SPENT, "nonce_too_low",
        ("any", "nonce too low"),
        ("nethermind", "OldNonce"),
    ),
    # Erigon's word for a transaction that left the pool into a block; not proof that it is this one.
    *meaning(
        Disposition.NONCE_SPENT, "already_mined",
        ("erigon", "INTERNAL_ERROR: mined"),
    ),
    # Another transaction holds the nonce, and this one bids too little to take its place.
    *meaning(
        Disposition.SLOT_TAKEN, "replacement_underpriced",
        ("any", "replacement transaction underpriced"),
        ("erigon", "could not replace existing tx"),
        ("nethermind", "ReplacementNotAllowed"),
    ),
    # The account has something in the pool that no fee can displace: a transaction in the other pool (blobs and the
    # rest are kept apart), a delegation, one being inserted. Nethermind's OwnNonceAlreadyUsed is *not* this
    # transaction, whatever its name suggests.
    *meaning(
        Disposition.SLOT_TAKEN, "pool_conflict",
        ("geth reth", "address already reserved"),
        ("erigon geth reth", "authority already reserved"),
        ("erigon", "can't replace blob-txn with a non-blob-txn"),
        ("nethermind", "OwnNonceAlreadyUsed"),
        ("nethermind", "PendingTxsOfConflictingType"),
        ("nethermind", "pending transaction type conflict"),
        ("zksync", "insertion of another transaction with the same nonce is in progress"),
    ),
    # It was in the pool and another one took its place.
    *meaning(
        Disposition.SLOT_TAKEN, "evicted",
        ("erigon", "replaced by transaction with higher tip"),
    ),
    # A nonce before it is missing, and this node does not queue what comes early.
    *meaning(
        Disposition.NOT_NOW, "nonce_too_high",
        ("any", "nonce too high"),
        ("besu", "Incorrect nonce"),
        ("nethermind", "NonceGap"),
        ("geth", "future transaction tries to replace pending"),
    ),
    # This node does queue, but not so far ahead (Besu: 200 by default).
    *meaning(
        Disposition.NOT_NOW, "nonce_too_far",
        ("besu", "Transaction nonce is too distant from current sender nonce"),
        ("nethermind", "NonceTooFarInFuture"),
        ("nethermind", "nonce too far in future"),
    ),
    # One of the same sender's lower nonces cannot run, so nothing above it is taken.
    *meaning(
        Disposition.NOT_NOW, "lane_blocked",
        ("besu", "An invalid transaction with a lower nonce exists"),
    ),
    # The sender fills its share of the pool.
    *meaning(
        Disposition.NOT_NOW, "account_limit",
        ("erigon", "INTERNAL_ERROR: spammer"),
        ("geth", "account limit exceeded"),
    ),
    # An account with delegated code (EIP-7702) may be emptied by others, so nodes hold at most its next nonce.
    *meaning(
        Disposition.NOT_NOW, "delegated_limit",
        ("geth reth", "gapped-nonce tx from delegated accounts"),
        ("geth reth", "in-flight transaction limit reached for delegated accounts"),
        ("nethermind", "delegation authority has pending transaction"),
        ("nethermind", "delegation nonce gap"),
        ("nethermind", "DelegatorHasPendingTx"),
        ("nethermind", "NotCurrentNonceForDelegation"),
    ),
    *meaning(
        Disposition.NOT_NOW, "txpool_full",
        ("any", "txpool is full"),
        ("erigon", "sub-pool is full"),
    ),
    # Without the head of the chain a node can judge nothing.
    *meaning(
        Disposition.NOT_NOW, "node_syncing",
        ("besu", "Initial sync is still in progress"),
        ("besu", "Transaction pool not enabled"),
        ("erigon", "TxPool Disabled"),
        ("nethermind", "Syncing"),
    ),
    # The node says itself that it takes nothing at the moment, before it has looked at the bytes.
    *meaning(
        Disposition.NOT_NOW, "service_unavailable",
        ("arbitrum", "currently not accepting transactions"),
        ("arbitrum", "publishing transactions not supported by this endpoint"),
        ("arbitrum", "sequencer temporarily not available"),
        ("zksync", "server is shutting down"),
        ("zksync", "server shutting down"),
    ),
    # geth and Nethermind count what the sender already has in the pool: it may pass unchanged once that has run.
    *meaning(
        Disposition.FUNDS, "insufficient_funds",
        ("any", "insufficient funds"),
        ("besu", "Upfront cost exceeds account balance"),
        ("hardhat", "Sender doesn't have enough funds to send tx"),
        ("nethermind", "InsufficientFunds"),
        ("zksync", "not enough balance to cover the fee. error message: {balance is 0}"),
    ),
    # Below what this pool takes at all, or below the cheapest one in a full pool.
    *meaning(
        Disposition.REPRICE, "underpriced",
        ("any", "transaction underpriced"),
        ("besu", "Gas price below configured minimum gas price"),
        ("erigon", "FEE_TOO_LOW: fee too low"),
        ("erigon", "FEE_TOO_LOW: underpriced"),
        ("geth", "transaction gas price below minimum"),
        ("hardhat", "Transaction gas price is {1}, which is below the minimum of {7}"),
        ("hedera-relay", "Gas price '{1}' is below configured minimum gas price '{7}'"),
        ("nethermind", "FeeTooLow"),
        ("nethermind", "FeeTooLowToCompete"),
        ("reth", "transaction priority fee below minimum required priority fee"),
    ),
    # The fee cap does not reach the price of the block.
    *meaning(
        Disposition.REPRICE, "fee_below_base_fee",
        ("any", "max fee per gas less than block base fee"),
        ("besu", "Gas price below current base fee"),
        ("geth", "fee cap less than base fee"),
        ("hardhat", "Transaction gasPrice ({1}) is too low for the next block"),
        ("hardhat", "Transaction maxFeePerGas ({1}) is too low for the next block"),
    ),
    *meaning(
        Disposition.REPRICE, "blob_fee_too_low",
        ("anvil", "Block `blob_gas_price` is greater than tx-specified `max_fee_per_blob_gas`"),
        ("besu", "blob gas price below current blob base fee"),
        ("geth reth", "max fee per blob gas less than block blob gas fee"),
        ("geth", "transaction gas price below minimum: blob fee cap"),
        ("hardhat", "Transaction maxFeePerBlobGas ({1}) is too low for the next block"),
    ),
)  # fmt: skip

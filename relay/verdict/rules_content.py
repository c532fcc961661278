"""Rows about the bytes: what no node will take (refused), and what only this node does not take (refused_here).

Job: what nodes say when the transaction itself is at fault. Notation: `relay.verdict.rule`.
Rules: a row holds the shortest text that means only this, as the clients spell it; names for whoever says it, and
"any" where everybody means the same by it.
Must not know: how rows are found.
"""

from __future__ import annotations

from typing import Final

from relay.verdict.rule import Disposition, Rule, meaning

RULES: Final[tuple[Rule, ...]] = (
    # No transaction at all. Besu's words for it speak of a block, and mean the bytes.
    *meaning(
        Disposition.REFUSED, "decode_error",
        ("any", "rlp: {value size exceeds available input length}"),
        ("any", "invalid argument 0: {json: cannot unmarshal hex string without 0x prefix}"),
        ("anvil reth", "empty transaction data"),
        ("anvil", "Failed to decode transaction"),
        ("besu", "Invalid block param (block not found)"),
        ("geth", "typed transaction too short"),
        ("reth", "failed to decode signed transaction"),
        ("zksync", "decodeRlpError {expected list}"),
    ),
    # Values that no transaction may have. Nethermind's general arm quotes the check that failed.
    *meaning(
        Disposition.REFUSED, "malformed",
        ("erigon geth reth", "negative value"),
        ("anvil", "Cyclic transaction detected"),
        ("hedera-relay", "Value can't be non-zero and less than 10_000_000_000 wei"),
        ("nethermind", "Invalid, transaction Hash is null"),
        ("nethermind", "transaction invalid, {MaxFeePerGas is absent}"),
    ),
    # The signature gives no sender. geth wraps the signer's reason, so a foreign chain has a longer row of its own.
    *meaning(
        Disposition.REFUSED, "invalid_signature",
        ("erigon geth reth", "invalid sender{: invalid transaction v, r, s values}"),
        ("geth", "invalid transaction v, r, s values"),
        ("besu zksync", "invalid signature"),
        ("reth", "invalid transaction signature"),
        ("nethermind", "InvalidTxSignature"),
        ("nethermind", "FailedToResolveSender"),
        ("nethermind", "failed to recover sender"),
        ("zksync", "incompleteSignature"),
    ),
    # Signed for another chain: a node of that chain takes it, no node of this one does.
    *meaning(
        Disposition.REFUSED, "wrong_chain_id",
        ("geth", "invalid sender: invalid chain id for signer"),
        ("anvil erigon reth", "invalid chain id"),
        ("anvil hardhat", "incompatible EIP-155 transaction, signed for another chain"),
        ("besu", "ChainId not supported"),
        ("besu", "Wrong chainId"),
        ("hardhat", "Invalid chainId {5} provided, expected {1} instead"),
        ("hedera-relay", "ChainId ({0x5}) not supported. The correct chainId is {0x1}"),
        ("nethermind", "InvalidTxChainId"),
        ("zksync", "wrong chain id"),
    ),
    # The account at the sender's address has code of its own (EIP-3607).
    *meaning(
        Disposition.REFUSED, "sender_not_eoa",
        ("any", "sender not an eoa"),
        ("nethermind", "SenderIsContract"),
        ("reth", "sender is not an EOA"),
        ("zksync", "invalid sender. can't start a transaction from a non-account"),
    ),
    # 2^64 - 1 is no usable nonce (EIP-2681). Nethermind spells it like a gap, and it is none.
    *meaning(
        Disposition.REFUSED, "nonce_max",
        ("any", "nonce has max value"),
        ("nethermind", "NonceTooHigh: Nonce exceeds max nonce"),
    ),
    # Fees beyond the width of their fields, or whose product with the gas is.
    *meaning(
        Disposition.REFUSED, "fee_overflow",
        ("any", "gas uint64 overflow"),
        ("geth reth", "max fee per gas higher than 2^256-1"),
        ("geth reth", "max priority fee per gas higher than 2^256-1"),
        ("erigon", "GasUintOverflow"),
        ("nethermind", "Int256Overflow"),
        ("nethermind", "transaction cost overflow"),
        ("zksync", "max fee per gas higher than 2^64-1"),
        ("zksync", "max fee per pubdata byte higher than 2^64-1"),
        ("zksync", "max priority fee per gas higher than 2^64-1"),
    ),
    *meaning(
        Disposition.REFUSED, "tip_above_fee_cap",
        ("any", "max priority fee per gas higher than max fee per gas"),
        ("anvil", "`max_priority_fee_per_gas` greater than `max_fee_per_gas`"),
        ("besu", "Max priority fee per gas exceeds max fee per gas"),
        ("nethermind", "InvalidMaxPriorityFeePerGas"),
    ),
    # Arbitrum says so too when the gas does not cover the fee for the parent chain.
    *meaning(
        Disposition.REFUSED, "intrinsic_gas_too_low",
        ("any", "intrinsic gas too low"),
        ("besu", "Intrinsic gas exceeds gas limit"),
        ("erigon", "INTERNAL_ERROR: IntrinsicGas"),
        ("hedera-relay", "Transaction gas limit provided '{1}' is insufficient of intrinsic gas required '{21000}'"),
        ("zksync", "not enough gas to publish compressed bytecodes"),
    ),
    # The floor on call data of EIP-7623.
    *meaning(
        Disposition.REFUSED, "floor_data_gas",
        ("geth", "insufficient gas for floor data gas cost"),
    ),
    # More gas than a block has, or than a transaction may have (EIP-7825).
    *meaning(
        Disposition.REFUSED, "gas_limit_exceeded",
        ("any", "exceeds block gas limit"),
        ("anvil", "Transaction gas limit is greater than the block gas limit"),
        ("anvil reth", "intrinsic gas too high{ -- CallGasCostMoreThanGasLimit}"),
        ("besu", "Transaction gas limit cap exceeded"),
        ("erigon", "gas limit is too high"),
        ("geth", "transaction gas limit too high"),
        ("hardhat", "and exceeds transaction gas cap"),
        ("hedera-relay", "exceeds max gas per sec limit"),
        ("nethermind", "gas limit reached"),
        ("nethermind", "GasLimitExceeded"),
        ("nethermind", "TxGasLimitCapExceeded"),
        ("reth", "exceeds max transaction gas limit"),
        ("reth", "gas limit too high"),
    ),
    # EIP-3860.
    *meaning(
        Disposition.REFUSED, "initcode_too_large",
        ("any", "max initcode size exceeded"),
        ("erigon", "initcode too large"),
        ("hedera-relay", "Oversized data: initcode size"),
    ),
    # Nodes that run a transaction before they take it. Not Hardhat, which has mined it by then: see rules_between.
    *meaning(
        Disposition.REFUSED, "execution_reverted",
        ("any", "execution reverted{: ERC20: transfer amount exceeds balance}"),
    ),
    *meaning(
        Disposition.REFUSED, "blob_count",
        ("anvil", "too many blobs in one transaction"),
        ("besu", "Total blob gas too high"),
        ("erigon", "max number of blobs exceeded"),
        ("geth", "blob transaction has too many blobs"),
        ("geth", "transaction blob limit exceeded"),
        ("nethermind", "BlobTxGasLimitExceeded{: Transaction's totalDataGas=917504 exceeded MaxBlobGas=786432}"),
        ("reth", "blob transaction exceeds max blobs per block"),
        ("reth", "too many blobs in transaction"),
    ),
    *meaning(
        Disposition.REFUSED, "blob_create",
        ("anvil", "Blob transaction can't be a create transaction"),
        ("erigon", "EIP-4844 transactions cannot have the form of a create transaction"),
        ("geth nethermind", "blob transaction of type create"),
        ("reth", "blob transaction is a create transaction"),
    ),
    # Hashes, blobs, commitments and proofs that do not belong together, or in the wrapper of another fork.
    *meaning(
        Disposition.REFUSED, "blob_malformed",
        ("any", "blob transaction missing blob hashes"),
        ("anvil", "Blob transaction contains a versioned hash with an incorrect version"),
        ("anvil", "There should be at least one blob in a Blob transaction"),
        ("anvil", "`blob_hashes` are required for EIP-4844 transactions"),
        ("besu", "blobs failed kzg validation"),
        ("erigon", "KZGcommitment's versioned hash has to be equal to blob_versioned_hash at the same index"),
        ("erigon", "blob transactions must have at least one blob"),
        ("erigon", "blob_versioned_hashes, blobs, commitments and proofs must have equal number"),
        ("geth reth", "blobless blob transaction"),
        ("geth", "KZG verification error: {invalid proof}"),
        ("geth", "Wrong sidecar format"),
        ("geth", "legacy blob sidecar unsupported post-osaka"),
        ("geth", "missing sidecar in blob transaction"),
        ("geth", "unsupported blob tx version"),
        ("nethermind", "InvalidBlobDataSize{: Cannot be more than 131072}"),
        ("nethermind", "InvalidBlobProof"),
        ("nethermind", "InvalidBlobVersionedHashVersion{: Blob version not supported}"),
        ("nethermind", "InvalidTxProofVersion{: Version of network wrapper is not supported}"),
        ("nethermind", "blob transaction must have at least {1} blob"),
        ("reth", "blob hash version mismatch"),
        ("reth", "blob sidecar not found for EIP4844 transaction"),
        ("reth", "eip-7594 sidecar disallowed"),
        ("reth", "unexpected eip-4844 sidecar after osaka"),
        ("reth", "unexpected eip-7594 sidecar before osaka"),
    ),
    # A set-code transaction (EIP-7702) needs authorizations and cannot create a contract.
    *meaning(
        Disposition.REFUSED, "setcode_invalid",
        ("anvil", "EIP-7702 authorization lists are not supported before the Prague hardfork"),
        ("erigon", "EIP-7702 transactions cannot have the form of a create transaction"),
        ("erigon", "EIP-7702 transactions with an empty authorization list are invalid"),
        ("geth", "EIP-7702 transaction cannot be used to create contract"),
        ("geth", "EIP-7702 transaction with empty auth list"),
        ("geth", "set code tx must have at least one authorization tuple"),
        ("hardhat", "Invalid EIP-7702 transaction"),
        ("nethermind", "MissingAuthorizationList"),
        ("reth", "EIP-7702 authorization list has invalid fields"),
        ("reth", "EIP-7702 authorization list not supported"),
        ("reth", "no items in authorization list for EIP7702 transaction"),
    ),
    # A safety belt of this node's operator (geth: --rpc.txfeecap); the currency's name varies with the chain.
    *meaning(
        Disposition.REFUSED_HERE, "fee_cap_exceeded",
        ("any", "tx fee ({1.50 ether}) exceeds the configured cap ({1.00 ether})"),
        ("besu", "Transaction fee cap exceeded"),
    ),
    # The limit protects the pool and is no rule of the chain.
    *meaning(
        Disposition.REFUSED_HERE, "oversized",
        ("any", "oversized data"),
        ("erigon", "RLPTooLong"),
        ("nethermind", "MaxTxSizeExceeded"),
        ("nethermind", "transaction too large"),
    ),
    # A fork ahead of this node, or a type that this chain's nodes were told not to take.
    *meaning(
        Disposition.REFUSED_HERE, "tx_type_unsupported",
        ("any", "transaction type not supported"),
        ("anvil", "not supported by the current hardfork"),
        ("besu hardhat", "Invalid transaction type"),
        ("erigon", "fork supporting this transaction type is not activated yet"),
        ("hardhat", "An EIP-4844 (shard blob) transaction was received while auto-mine was disabled"),
        ("hedera-relay nethermind", "unsupported transaction type"),
        ("nethermind", "InvalidTxType"),
        ("nethermind", "transaction invalid, InvalidTxType"),
        ("nethermind", "NotSupportedTxType"),
        ("zksync", "transaction type is not supported"),
    ),
    # Signed without a chain id: valid on every chain, and most operators do not let it in.
    *meaning(
        Disposition.REFUSED_HERE, "unprotected_tx",
        ("any", "only replay-protected (EIP-155) transactions allowed over RPC"),
        ("besu", "ChainId is required"),
    ),
    *meaning(
        Disposition.REFUSED_HERE, "sender_not_allowed",
        ("arbitrum", "transaction sender is not on the whitelist"),
        ("besu", "Sender account not authorized to send transactions"),
        ("zksync", "contract deployer address {0x11} is not in the allow list"),
    ),
    # Rules of one operator or one chain's sequencer; the words behind the colon are the contract's or the plugin's.
    *meaning(
        Disposition.REFUSED_HERE, "policy_rejected",
        ("besu", "Plugin has marked the transaction as"),
        ("hedera-relay", "Operation is not supported when receiver's signature is enabled"),
        ("zksync", "failed paymaster validation. error message: {paymaster is out of funds}"),
        ("zksync", "failed pre-paymaster preparation. error message: {allowance is too low}"),
        ("zksync", "failed to include transaction in the system. reason: {bootloader is out of gas}"),
        ("zksync", "failed to validate the transaction. reason: {account validation returned no magic value}"),
        ("zksync", "transaction failed block.timestamp assertion"),
    ),
)  # fmt: skip

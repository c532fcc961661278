"""What is refused before the node is asked, in geth's order and words.

Job: two tables of checks. The stateless ones look at the transaction and the settings alone and run before a ticket is
taken; the stateful ones also look at what is known of the sender's account and run when the turn has come.
Rules: a check refuses only on evidence that cannot be stale, and only what every node would refuse or what the
operator asked for; whatever is not known (None) refuses nothing. Of two defects the earlier row is named. A text that
is geth's own is spelled as geth spells it, for wallets match it; one of a setting of ours names the setting.
Must not know: where the account view comes from, HTTP, JSON-RPC.

Sources: go-ethereum, `internal/ethapi` SubmitTransaction, `core/txpool` ValidateTransaction and
ValidateTransactionWithState, `core` preCheck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, ParamSpec

from relay.errors import REJECTED
from relay.gas import floor_gas, intrinsic_gas

if TYPE_CHECKING:
    from relay.config import Prechecks
    from relay.errors import Refusal
    from relay.gas import GasSchedule
    from relay.transaction import SignedTransaction

_SET_CODE: Final = 4
_MAX_NONCE: Final = (1 << 64) - 1
_MAX_COST: Final = (1 << 256) - 1


@dataclass(frozen=True, slots=True)
class Policy:
    """What the checks hold a transaction to."""

    settings: Prechecks
    chain_id: int | None
    """None: not known, or not to be checked."""
    gas: GasSchedule | None
    """None: gas is not checked."""


@dataclass(frozen=True, slots=True)
class View:
    """What is known of the sender's account. None: not known, which is no evidence."""

    latest_nonce: int | None = None
    """The count at the latest block, if read after the turn came. A cached one must be None: a reorg lowers it."""
    balance: int | None = None
    """In wei, read just as freshly."""


Blanks = Mapping[str, object]
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Check(Generic[_P]):
    """One row. ``when`` is for the docs; ``find`` gives the blanks of ``text``, None if there is nothing to refuse."""

    name: str
    when: str
    text: str
    find: Callable[_P, Blanks | None]

    def refusal(self, blanks: Blanks) -> Refusal:
        """This row's answer."""
        return REJECTED.refusal(detail=self.text.format(**blanks))


def stateless(transaction: SignedTransaction, policy: Policy) -> Refusal | None:
    """The first of `STATELESS` that refuses ``transaction``."""
    for check in STATELESS:
        blanks = check.find(transaction, policy)
        if blanks is not None:
            return check.refusal(blanks)
    return None


def stateful(transaction: SignedTransaction, view: View, policy: Policy) -> Refusal | None:
    """The first of `STATEFUL` that refuses ``transaction``."""
    for check in STATEFUL:
        blanks = check.find(transaction, view, policy)
        if blanks is not None:
            return check.refusal(blanks)
    return None


_NOTHING_TO_FILL: Final[Blanks] = {}


def _unprotected(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    return _NOTHING_TO_FILL if transaction.chain_id is None and not policy.settings.allow_unprotected else None


def _type(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    return None if transaction.type in policy.settings.allow_types else {"type": transaction.type}


def _size(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    limit = policy.settings.max_tx_bytes
    return {"size": transaction.size, "limit": limit} if limit and transaction.size > limit else None


def _initcode(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    if transaction.to is not None or policy.gas is None or policy.gas.initcode_limit is None:
        return None
    size, limit = transaction.data_length, policy.gas.initcode_limit
    return {"size": size, "limit": limit} if size > limit else None


def _gas_cap(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    cap = policy.gas.gas_cap if policy.gas else None
    return {"cap": cap, "gas": transaction.gas} if cap is not None and transaction.gas > cap else None


def _max_gas(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    cap = policy.settings.max_gas
    return {"cap": cap, "gas": transaction.gas} if cap and transaction.gas > cap else None


def _priority(transaction: SignedTransaction, _policy: Policy) -> Blanks | None:
    priority = transaction.max_priority_fee_per_gas
    return _NOTHING_TO_FILL if priority is not None and priority > transaction.fee_cap else None


def _chain_id(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    have, want = transaction.chain_id, policy.chain_id
    return {"have": have, "want": want} if have is not None and want is not None and have != want else None


def _high_s(transaction: SignedTransaction, _policy: Policy) -> Blanks | None:
    return _NOTHING_TO_FILL if transaction.high_s else None


def _max_nonce(transaction: SignedTransaction, _policy: Policy) -> Blanks | None:
    return _NOTHING_TO_FILL if transaction.nonce == _MAX_NONCE else None


def _cost(transaction: SignedTransaction, _policy: Policy) -> Blanks | None:
    return _NOTHING_TO_FILL if transaction.max_cost > _MAX_COST else None


def _intrinsic(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    return _brings_less(intrinsic_gas, transaction, policy)


def _floor(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    return _brings_less(floor_gas, transaction, policy)


def _brings_less(
    least: Callable[[GasSchedule, SignedTransaction, int | None], int], transaction: SignedTransaction, policy: Policy
) -> Blanks | None:
    """Zeros, which are cheaper, are counted only where the gas does not do for other bytes: 48 KB take 15 to 130 µs."""
    if policy.gas is None or transaction.gas >= least(policy.gas, transaction, 0):
        return None
    needed = least(policy.gas, transaction, None)
    return {"gas": transaction.gas, "needed": needed} if transaction.gas < needed else None


def _gas_price(transaction: SignedTransaction, policy: Policy) -> Blanks | None:
    price, needed = transaction.fee_cap, policy.settings.min_gas_price_wei
    return {"price": price, "needed": needed} if price < needed else None


def _set_code_creation(transaction: SignedTransaction, _policy: Policy) -> Blanks | None:
    return _NOTHING_TO_FILL if transaction.type == _SET_CODE and transaction.to is None else None


def _no_authorization(transaction: SignedTransaction, _policy: Policy) -> Blanks | None:
    return _NOTHING_TO_FILL if transaction.type == _SET_CODE and not transaction.authorizations else None


def _nonce(transaction: SignedTransaction, view: View, policy: Policy) -> Blanks | None:
    next_nonce = view.latest_nonce
    if next_nonce is None or not policy.settings.nonce or transaction.nonce >= next_nonce:
        return None
    return {"next": next_nonce, "nonce": transaction.nonce}


def _balance(transaction: SignedTransaction, view: View, policy: Policy) -> Blanks | None:
    balance, cost = view.balance, transaction.max_cost
    if balance is None or not policy.settings.balance or cost <= balance:
        return None
    return {"balance": balance, "cost": cost, "overshot": cost - balance}


STATELESS: Final[tuple[Check[[SignedTransaction, Policy]], ...]] = (
    Check("unprotected", "a legacy transaction without a chain id (EIP-155), and allow_unprotected is false",
          "only replay-protected (EIP-155) transactions allowed over RPC", _unprotected),
    Check("type", "its type is not in allow_types",
          "transaction type not supported: received type {type}", _type),
    Check("size", "more than max_tx_bytes, blobs included",
          "oversized data: transaction size {size}, limit {limit}", _size),
    Check("initcode", "more initcode than the fork allows",
          "max initcode size exceeded: code size {size} limit {limit}", _initcode),
    Check("gas_cap", "a higher gas limit than the fork allows one transaction",
          "transaction gas limit too high (cap: {cap}, tx: {gas})", _gas_cap),
    Check("max_gas", "a higher gas limit than max_gas",
          "transaction gas limit too high (cap: {cap}, tx: {gas}), set by [prechecks] max_gas", _max_gas),
    Check("priority_fee", "maxPriorityFeePerGas is above maxFeePerGas",
          "max priority fee per gas higher than max fee per gas", _priority),
    Check("chain_id", "signed for another chain",
          "invalid sender: invalid chain id for signer: have {have} want {want}", _chain_id),
    Check("high_s", "the signature's s is in the upper half (EIP-2)",
          "invalid sender: invalid transaction v, r, s values", _high_s),
    Check("max_nonce", "the nonce is 2^64-1 (EIP-2681)",
          "nonce has max value", _max_nonce),
    Check("cost", "gas, value and blobs together can cost more than 2^256-1 wei",
          "insufficient funds for gas * price + value", _cost),
    Check("intrinsic_gas", "less gas than the fork asks for before a transaction runs",
          "intrinsic gas too low: gas {gas}, minimum needed {needed}", _intrinsic),
    Check("floor_gas", "less gas than the fork asks for its bytes (EIP-7623)",
          "insufficient gas for floor data gas cost: gas {gas}, minimum needed {needed}", _floor),
    Check("gas_price", "gasPrice, or maxFeePerGas, is below min_gas_price_wei",
          "transaction gas price below minimum: gas fee cap {price}, minimum needed {needed}", _gas_price),
    Check("set_code_creation", "a set-code transaction (EIP-7702) without a recipient",
          "EIP-7702 transaction cannot be used to create contract", _set_code_creation),
    Check("authorization", "a set-code transaction (EIP-7702) without an authorization",
          "set code tx must have at least one authorization tuple", _no_authorization),
)  # fmt: skip

STATEFUL: Final[tuple[Check[[SignedTransaction, View, Policy]], ...]] = (
    Check("nonce", "the nonce was used already, by a count read afresh",
          "nonce too low: next nonce {next}, tx nonce {nonce}", _nonce),
    Check("balance", "the sender cannot pay for it, by a balance read afresh",
          "insufficient funds for gas * price + value: balance {balance}, tx cost {cost}, overshot {overshot}",
          _balance),
)  # fmt: skip

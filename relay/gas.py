"""What a transaction must bring in gas, fork by fork.

Job: the gas rules of each fork as one table, the gas that follows from them for a transaction, and which row a chain is
held to. Rows are named as in `[prechecks] gas_rules`; a fork that changed none of this has no row of its own.
Rules: an estimate may be too low, never too high: a transaction that some rule in force accepts must pass. Where the
fork is not known, or a fork is scheduled, the rows that may hold are combined by `lenient`.
Must not know: settings, the node, what is refused and in which words.

Sources: beside each row; for Amsterdam, whose values may still move, go-ethereum's `core.IntrinsicGas` and
`FloorDataGas`. `eth_config`: EIP-7910.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from relay.transaction import SignedTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class GasSchedule:
    """One row: amounts of gas. A limit of None is none.

    What a fork does not have yet (access lists, authorizations) costs what it cost at first: it is refused as a type,
    not as too cheap, and must not make `LENIENT` lenient.
    """

    name: str
    source: str
    call: int = 21_000
    """A transaction to another account, without value."""
    call_value: int = 0
    """Added if it moves value."""
    call_self: int = 21_000
    """A transaction to the sender's own account, with or without value."""
    creation: int = 53_000
    zero_byte: int = 4
    other_byte: int = 16
    initcode_word: int = 0
    """For each 32 bytes of initcode, begun ones included."""
    access_address: int = 2_400
    access_key: int = 1_900
    authorization: int = 25_000
    floor_creation: int = 0
    """What the floor of a creation starts from; other floors start from what the call itself costs."""
    floor_zero_byte: int = 0
    floor_other_byte: int = 0
    floor_access_address: int = 0
    floor_access_key: int = 0
    initcode_limit: int | None = None
    """Bytes of initcode."""
    gas_cap: int | None = None
    """Gas limit of one transaction."""


_PRAGUE: Final[dict[str, int]] = {
    "initcode_word": 2, "initcode_limit": 49_152,
    "floor_creation": 21_000, "floor_zero_byte": 10, "floor_other_byte": 40,
}  # fmt: skip

_ROWS: Final = (
    GasSchedule(name="frontier", source="Yellow Paper, appendix G", creation=21_000, other_byte=68),
    GasSchedule(name="homestead", source="EIP-2", other_byte=68),
    GasSchedule(name="istanbul", source="EIP-2028"),
    GasSchedule(name="berlin", source="EIP-2930"),
    GasSchedule(name="shanghai", source="EIP-3860", initcode_word=2, initcode_limit=49_152),
    GasSchedule(name="prague", source="EIP-7623, EIP-7702", **_PRAGUE),
    GasSchedule(name="osaka", source="EIP-7825", **_PRAGUE, gas_cap=1 << 24),
    GasSchedule(
        name="amsterdam",
        source="EIP-2780, EIP-7954, EIP-7976, EIP-7981, EIP-8037, EIP-8038",
        call=15_000,
        call_value=6_000,
        call_self=12_000,
        creation=24_000,
        initcode_word=2,
        access_address=2_900 + 20 * 64,
        access_key=2_000 + 32 * 64,
        authorization=7_816,
        floor_creation=24_000,
        floor_zero_byte=64,
        floor_other_byte=64,
        floor_access_address=20 * 64,
        floor_access_key=32 * 64,
        initcode_limit=131_072,
    ),
)

FORKS: Final[dict[str, GasSchedule]] = {row.name: row for row in _ROWS}


def lenient(*rows: GasSchedule) -> GasSchedule:
    """The lowest cost and the largest limit of ``rows``: what it refuses, each of them refuses."""
    if len(rows) == 1:
        return rows[0]
    amounts: dict[str, Any] = {
        column.name: _loosest(column.name, [getattr(row, column.name) for row in rows])
        for column in fields(GasSchedule)
        if column.name not in {"name", "source"}
    }
    return GasSchedule(name=" or ".join(row.name for row in rows), source="the loosest of each", **amounts)


def _loosest(column: str, values: list[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    return max(numbers) if column in {"initcode_limit", "gas_cap"} else min(numbers)


LENIENT: Final = lenient(*_ROWS)
"""For a chain whose fork is not known: no transaction that is valid under a fork of the table is refused."""


def intrinsic_gas(rules: GasSchedule, transaction: SignedTransaction, zeros: int | None = None) -> int:
    """The gas that a transaction costs before it runs, which is the least that it must bring.

    ``zeros``: how many bytes of its data to take for zero; None: they are counted. With 0 it is at its highest.
    """
    length, zeros = transaction.data_length, transaction.data_zeros if zeros is None else zeros
    gas = _base(rules, transaction) + zeros * rules.zero_byte + (length - zeros) * rules.other_byte
    if transaction.to is None:
        gas += (length + 31) // 32 * rules.initcode_word
    named = transaction.access_list
    return (
        gas
        + named.addresses * rules.access_address
        + named.keys * rules.access_key
        + transaction.authorizations * rules.authorization
    )


def floor_gas(rules: GasSchedule, transaction: SignedTransaction, zeros: int | None = None) -> int:
    """The least that a transaction pays for its bytes, so that it must bring it (EIP-7623); 0: there is no floor.

    ``zeros``: as in `intrinsic_gas`.
    """
    if not rules.floor_other_byte:
        return 0
    base = rules.floor_creation if transaction.to is None else _base(rules, transaction)
    zeros = transaction.data_zeros if zeros is None else zeros
    named = transaction.access_list
    return (
        base
        + zeros * rules.floor_zero_byte
        + (transaction.data_length - zeros) * rules.floor_other_byte
        + named.addresses * rules.floor_access_address
        + named.keys * rules.floor_access_key
    )


def _base(rules: GasSchedule, transaction: SignedTransaction) -> int:
    if transaction.to is None:
        return rules.creation
    if transaction.to == transaction.sender_bytes:
        return rules.call_self
    return rules.call + (rules.call_value if transaction.value else 0)


# --- eth_config (EIP-7910) -----------------------------------------------------------------------------------------

_CANCUN_CONTRACTS: Final = frozenset({"BEACON_ROOTS_ADDRESS"})
_PRAGUE_CONTRACTS: Final = _CANCUN_CONTRACTS | {
    "CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS", "DEPOSIT_CONTRACT_ADDRESS", "HISTORY_STORAGE_ADDRESS",
    "WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS",
}  # fmt: skip
_AMSTERDAM_CONTRACTS: Final = _PRAGUE_CONTRACTS | {"BUILDER_DEPOSIT_CONTRACT_ADDRESS", "BUILDER_EXIT_CONTRACT_ADDRESS"}

_CANCUN_PRECOMPILES: Final = frozenset(range(1, 0x0B))
_PRAGUE_PRECOMPILES: Final = frozenset(range(1, 0x12))
_OSAKA_PRECOMPILES: Final = _PRAGUE_PRECOMPILES | {0x100}

_ETHEREUM: Final = frozenset({1, 17_000, 560_048, 11_155_111})
"""Mainnet, Holešky, Hoodi, Sepolia."""

_MARKS: Final = {
    (_CANCUN_PRECOMPILES, _CANCUN_CONTRACTS): "shanghai",
    (_PRAGUE_PRECOMPILES, _PRAGUE_CONTRACTS): "prague",
    (_OSAKA_PRECOMPILES, _PRAGUE_CONTRACTS): "osaka",
    (_OSAKA_PRECOMPILES, _AMSTERDAM_CONTRACTS): "amsterdam",
}
"""Addresses of the precompiles and names of the system contracts → row. Cancun kept Shanghai's gas rules."""


def from_eth_config(result: Any) -> GasSchedule | None:
    """The rules to hold a chain to, from an `eth_config` result; None if they cannot be told (then use `LENIENT`).

    ``result`` is {"current": {…}, "next": {…} or null, "last": {…} or null}: the fork in force, the next one and the
    last one that the node knows of. The answer is `lenient` of all three, so it holds before, across and after each
    activation, whatever the clocks say, until a fork that the node does not know yet: ask again now and then, a node
    must be upgraded for that one first. One fork that cannot be told makes the whole answer None.
    """
    if not isinstance(result, dict):
        return None
    scheduled = [result[key] for key in ("next", "last") if result.get(key) is not None]
    names = dict.fromkeys(fork_name(entry) for entry in (result.get("current"), *scheduled))
    rows = [FORKS[name] for name in names if name is not None]
    return lenient(*rows) if None not in names else None


def fork_name(entry: Any) -> str | None:
    """The row for one fork object of `eth_config`, None unless it can be told for certain.

    The object does not carry the fork's name. It lists the precompiles and the system contracts, and these must be
    exactly those of a known fork: a chain with precompiles of its own may have gas rules of its own. Osaka's list is
    also that of a Prague chain with the P-256 precompile of RIP-7212, where no cap holds (the OP stack is one), so
    it is believed of Ethereum's own networks only.
    """
    try:
        precompiles = frozenset(int(address, 16) for address in entry["precompiles"].values())
        contracts = frozenset(entry["systemContracts"])
        chain_id = int(entry["chainId"], 16)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    name = _MARKS.get((precompiles, contracts))
    return None if name == "osaka" and chain_id not in _ETHEREUM else name

"""The gas rules of each fork, against the public records and against what EIP-7910 tells of a node."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from relay.config import GasRules
from relay.gas import FORKS, LENIENT, GasSchedule, floor_gas, fork_name, from_eth_config, intrinsic_gas, lenient
from relay.transaction import AccessList, SignedTransaction, Span, decode

CORPORA: Final = Path(__file__).parents[2] / "shared" / "corpora"
needs_corpora = pytest.mark.skipif(not CORPORA.is_dir(), reason="the public records are not beside the project")

ME: Final = b"\x11" * 20
OTHER: Final = b"\x22" * 20


def transaction(data: bytes = b"", to: bytes | None = OTHER, value: int = 0, **more: Any) -> SignedTransaction:
    """A transaction with only what costs gas; ``data`` is all of its bytes."""
    return SignedTransaction(
        raw=data, type=2, chain_id=1, sender_bytes=ME, hash="0x", nonce=0, gas=0, to=to, value=value,
        data_span=Span(0, len(data)), high_s=False, **more,
    )  # fmt: skip


def test_there_is_a_row_for_each_setting() -> None:
    """`[prechecks] gas_rules` names the rows, and auto and off."""
    assert set(FORKS) == set(get_args(GasRules)) - {"auto", "off"}
    assert all(row.source for row in FORKS.values())


@pytest.mark.parametrize(
    ("fork", "call", "creation"),
    [
        ("frontier", 21_000 + 4 + 3 * 68, 21_000 + 4 + 3 * 68),
        ("homestead", 21_000 + 4 + 3 * 68, 53_000 + 4 + 3 * 68),
        ("istanbul", 21_000 + 4 + 3 * 16, 53_000 + 4 + 3 * 16),
        ("berlin", 21_000 + 4 + 3 * 16, 53_000 + 4 + 3 * 16),
        ("shanghai", 21_000 + 4 + 3 * 16, 53_000 + 4 + 3 * 16 + 2),
        ("prague", 21_000 + 4 + 3 * 16, 53_000 + 4 + 3 * 16 + 2),
        ("osaka", 21_000 + 4 + 3 * 16, 53_000 + 4 + 3 * 16 + 2),
        ("amsterdam", 15_000 + 4 + 3 * 16, 24_000 + 4 + 3 * 16 + 2),
    ],
)
def test_intrinsic_gas_by_fork(fork: str, call: int, creation: int) -> None:
    """Base, creation, zero and other bytes, and initcode words of each fork."""
    data = b"\x00\x01\x02\x03"
    assert intrinsic_gas(FORKS[fork], transaction(data)) == call
    assert intrinsic_gas(FORKS[fork], transaction(data, to=None)) == creation


@pytest.mark.parametrize(
    ("to", "value", "gas"),
    [(OTHER, 0, 15_000), (OTHER, 1, 21_000), (ME, 0, 12_000), (ME, 1, 12_000), (None, 0, 24_000), (None, 1, 24_000)],
)
def test_amsterdam_prices_what_is_touched(to: bytes | None, value: int, gas: int) -> None:
    """EIP-2780: the base depends on the recipient and on whether value moves; the floor starts from the same base."""
    rules = FORKS["amsterdam"]
    assert intrinsic_gas(rules, transaction(to=to, value=value)) == gas
    assert floor_gas(rules, transaction(b"\x00\x01", to, value)) == gas + 2 * 64


def test_access_lists_and_authorizations() -> None:
    """EIP-2930 and EIP-7702, and in Amsterdam the access list's bytes as well (EIP-7981)."""
    heavy = transaction(access_list=AccessList(2, 3), authorizations=4)
    assert intrinsic_gas(FORKS["prague"], heavy) == 21_000 + 2 * 2_400 + 3 * 1_900 + 4 * 25_000
    listed = (2 * 20 + 3 * 32) * 64
    assert intrinsic_gas(FORKS["amsterdam"], heavy) == 15_000 + 2 * 2_900 + 3 * 2_000 + listed + 4 * 7_816
    assert floor_gas(FORKS["amsterdam"], heavy) == 15_000 + listed


def test_initcode_words_are_rounded_up() -> None:
    """EIP-3860: 33 bytes are two words."""
    sizes = (0, 1, 32, 33, 64)
    words = [
        intrinsic_gas(FORKS["shanghai"], transaction(b"\x01" * size, to=None)) - 53_000 - 16 * size for size in sizes
    ]
    assert words == [0, 2, 2, 4, 4]


def test_the_floor() -> None:
    """EIP-7623: from Prague on, 10 for a zero byte and 40 for another one on 21,000, a creation's too; none before."""
    data = b"\x00" * 3 + b"\x01" * 5
    assert floor_gas(FORKS["prague"], transaction(data)) == 21_000 + 30 + 200
    assert floor_gas(FORKS["osaka"], transaction(data, to=None)) == 21_000 + 30 + 200
    assert floor_gas(FORKS["shanghai"], transaction(data)) == 0


def test_limits() -> None:
    """EIP-3860, EIP-7825, EIP-7954: initcode from Shanghai on, one transaction's gas in Osaka alone."""
    limits = [FORKS[name].initcode_limit for name in ("berlin", "shanghai", "osaka", "amsterdam")]
    assert limits == [None, 49_152, 49_152, 131_072]
    assert {name: row.gas_cap for name, row in FORKS.items() if row.gas_cap} == {"osaka": 16_777_216}


def test_lenient_is_never_stricter_than_a_row_it_combines() -> None:
    """Whatever the combined rules ask for, each of their rows asks for at least as much; its limits are no lower."""
    shapes = [
        transaction(data, to, value, access_list=AccessList(*listed), authorizations=authorizations)
        for data, to, value, listed, authorizations in itertools.product(
            (b"", b"\x00" * 40, b"\x01" * 40), (ME, OTHER, None), (0, 1), ((0, 0), (1, 2)), (0, 2)
        )
    ]
    for rows in itertools.chain(itertools.combinations(FORKS.values(), 2), [tuple(FORKS.values())]):
        mixed = lenient(*rows)
        for row, shape in itertools.product(rows, shapes):
            assert intrinsic_gas(mixed, shape) <= intrinsic_gas(row, shape)
            assert floor_gas(mixed, shape) <= max(floor_gas(row, shape), intrinsic_gas(row, shape))
        for limit in ("initcode_limit", "gas_cap"):
            values = [getattr(row, limit) for row in rows]
            assert getattr(mixed, limit) == (None if None in values else max(values))


def test_lenient_still_refuses_what_is_hopeless() -> None:
    """Without a known fork, less than the cheapest fork asks for is still too little."""
    assert intrinsic_gas(LENIENT, transaction()) == 15_000
    assert intrinsic_gas(LENIENT, transaction(to=ME)) == 12_000
    assert intrinsic_gas(LENIENT, transaction(access_list=AccessList(1, 1))) == 15_000 + 2_400 + 1_900
    assert (LENIENT.initcode_limit, LENIENT.gas_cap, floor_gas(LENIENT, transaction(b"\x01" * 999))) == (None, None, 0)


ROW_OF: Final = {
    "Frontier": "frontier",
    **dict.fromkeys(("Homestead", "EIP150", "EIP158", "Byzantium", "Constantinople", "ConstantinopleFix"), "homestead"),
    "Istanbul": "istanbul",
    **dict.fromkeys(("Berlin", "London", "Paris"), "berlin"),
    **dict.fromkeys(("Shanghai", "Cancun"), "shanghai"),
}


@pytest.mark.parametrize("rules", [*FORKS.values(), LENIENT], ids=lambda rules: rules.name)
def test_no_transaction_costs_more_than_one_without_zeros(rules: GasSchedule) -> None:
    """So whoever brings enough for that needs no count of the zeros."""
    for to in (OTHER, None):
        for zeros in (0, 1, 60, 100):
            one = transaction(b"\x00" * zeros + b"\x01" * (100 - zeros), to=to)
            assert intrinsic_gas(rules, one) == intrinsic_gas(rules, one, zeros) <= intrinsic_gas(rules, one, 0)
            assert floor_gas(rules, one) == floor_gas(rules, one, zeros) <= floor_gas(rules, one, 0)


@needs_corpora
def test_intrinsic_gas_of_the_public_records() -> None:
    """Each record that states its intrinsic gas under a fork gets exactly that, and LENIENT asks for no more."""
    count = 0
    with (CORPORA / "transactions.jsonl").open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            for fork, verdict in record["result"].items():
                if "sender" in verdict and "intrinsicGas" in verdict:
                    tx = decode(bytes.fromhex(record["txbytes"][2:]))
                    stated = int(verdict["intrinsicGas"], 16)
                    assert intrinsic_gas(FORKS[ROW_OF[fork]], tx) == stated, (record["name"], fork)
                    assert intrinsic_gas(LENIENT, tx) <= stated
                    count += 1
    assert count > 100


# --- eth_config ------------------------------------------------------------------------------------------------------

CANCUN_CONTRACTS: Final = ["BEACON_ROOTS_ADDRESS"]
PRAGUE_CONTRACTS: Final = [
    *CANCUN_CONTRACTS, "CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS", "DEPOSIT_CONTRACT_ADDRESS",
    "HISTORY_STORAGE_ADDRESS", "WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS",
]  # fmt: skip
AMSTERDAM_CONTRACTS: Final = [
    *PRAGUE_CONTRACTS, "BUILDER_DEPOSIT_CONTRACT_ADDRESS", "BUILDER_EXIT_CONTRACT_ADDRESS",
]  # fmt: skip


def entry(precompiles: list[int], contracts: list[str], chain_id: int = 1) -> dict[str, Any]:
    """A fork object of `eth_config`."""
    return {
        "activationTime": 0, "blobSchedule": {"baseFeeUpdateFraction": 5007716, "max": 9, "target": 6},
        "chainId": hex(chain_id), "forkId": "0x00000000",
        "precompiles": {f"NAME_{number}": f"0x{number:040x}" for number in precompiles},
        "systemContracts": dict.fromkeys(contracts, "0x000f3df6d732807ef1319fb7b8bb8522d0beac02"),
    }  # fmt: skip


CANCUN: Final = entry([*range(1, 11)], CANCUN_CONTRACTS)
PRAGUE: Final = entry([*range(1, 18)], PRAGUE_CONTRACTS)
OSAKA: Final = entry([*range(1, 18), 256], PRAGUE_CONTRACTS)
AMSTERDAM: Final = entry([*range(1, 18), 256], AMSTERDAM_CONTRACTS)


def config(current: Any, next_: Any = None, last: Any = None) -> dict[str, Any]:
    return {"current": current, "next": next_, "last": last}


@needs_corpora
def test_besus_answer_is_read() -> None:
    """A real `eth_config` answer, of Cancun, gives Shanghai's rules, which Cancun kept."""
    with (CORPORA / "jsonrpc.jsonl").open(encoding="utf-8") as lines:
        record = next(row for row in map(json.loads, lines) if row["name"] == "besu/eth/eth_config")
    assert from_eth_config(json.loads(record["response"])["result"]) == FORKS["shanghai"]


@pytest.mark.parametrize(
    ("fork", "name"), [(CANCUN, "shanghai"), (PRAGUE, "prague"), (OSAKA, "osaka"), (AMSTERDAM, "amsterdam")]
)
def test_a_fork_is_told_by_its_precompiles_and_contracts(fork: dict[str, Any], name: str) -> None:
    """The lists of EIP-7910 tell the fork, whose name is not in the object."""
    assert fork_name(fork) == name
    assert from_eth_config(config(fork)) == FORKS[name]


@pytest.mark.parametrize(
    "fork",
    [
        entry([*range(1, 18), 256], PRAGUE_CONTRACTS, chain_id=10),
        entry([*range(1, 11), 0x64], CANCUN_CONTRACTS, chain_id=42161),
        entry([*range(1, 10)], []),
        entry([*range(1, 18), 256], [*AMSTERDAM_CONTRACTS, "SOMETHING_NEW"]),
        {},
        None,
        "osaka",
        {**OSAKA, "precompiles": None},
        {**OSAKA, "precompiles": {"ECREC": 1}},
        {**OSAKA, "precompiles": {"0x0000000000000000000000000000000000000001": "ECREC"}},
        {**OSAKA, "systemContracts": 5},
        {**OSAKA, "chainId": None},
    ],
    ids=["op-stack", "own precompile", "before Cancun", "after Amsterdam", "empty", "null", "string", "no precompiles",
         "numbers", "names and addresses swapped", "no contracts", "no chain id"],
)  # fmt: skip
def test_a_fork_that_cannot_be_told(fork: Any) -> None:
    """A chain with lists of its own, or an answer of another shape, gives None: nothing is guessed."""
    assert fork_name(fork) is None
    assert from_eth_config(config(fork)) is None


def test_a_scheduled_fork_is_allowed_for() -> None:
    """Across an activation both forks' transactions pass: the rules are those of whichever is looser."""
    rules = from_eth_config(config(OSAKA, AMSTERDAM, AMSTERDAM))
    assert rules == lenient(FORKS["osaka"], FORKS["amsterdam"])
    assert rules is not None
    assert (rules.gas_cap, rules.initcode_limit, rules.call, rules.authorization) == (None, 131_072, 15_000, 7_816)
    assert from_eth_config(config(PRAGUE, OSAKA, AMSTERDAM)) == lenient(
        FORKS["prague"], FORKS["osaka"], FORKS["amsterdam"]
    )
    assert from_eth_config(config(OSAKA, OSAKA, OSAKA)) == FORKS["osaka"]


@pytest.mark.parametrize("result", [None, [], "0x1", {}, config(OSAKA, entry([1], [])), config(OSAKA, None, {})])
def test_an_answer_that_cannot_be_read(result: Any) -> None:
    """An answer that is none, and a scheduled fork that cannot be told, give None."""
    assert from_eth_config(result) is None


def test_rows_are_frozen() -> None:
    """A row is shared by everyone: nobody changes it."""
    with pytest.raises(AttributeError):
        FORKS["osaka"].gas_cap = 0  # type: ignore[misc] # that is the point
    assert isinstance(LENIENT, GasSchedule)

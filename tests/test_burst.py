"""The burst command: its schedule, its figures, its picture, and the whole of it against a scripted node."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("rich", reason="the burst command needs the dependency group acceptance (rich)")
pytest.importorskip("PIL", reason="the burst command needs the dependency group acceptance (pillow)")

from aiohttp import web
from eth_account import Account
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from eth_utils.crypto import keccak
from hexbytes import HexBytes
from hypothesis import given
from hypothesis import strategies as st

from acceptance.burst import cli, keys, timeline
from acceptance.burst.chain import Terms
from acceptance.burst.faults import BurstFault
from acceptance.burst.plan import Pattern, Shot, disordered, schedule
from acceptance.burst.report import generic, percentile, summarise
from acceptance.burst.run import Flight, Kind, Position
from acceptance.burst.sign import transfer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from PIL import Image

JUNK = "test test test test test test test test test test test junk"
ADDRESSES = ["0x" + "aa" * 20, "0x" + "bb" * 20]


def flight(sender: int, index: int, kind: Kind = "accepted", text: str = "", took_s: float = 0.010) -> Flight:
    """A flight of ``sender`` that was sent at ``index`` ms."""
    sent = index / 1000
    code = -32000 if kind == "refused" else None
    hash_ = f"0x{sender:032x}{index:032x}"
    return Flight(Shot(sender, index, 0, 0), 7 + index, hash_, sent, sent + took_s, kind, text, code)


# the schedule


@given(count=st.integers(0, 200), places=st.integers(0, 30), seed=st.integers())
def test_nothing_is_lost_and_nothing_moves_further_than_asked(count: int, places: int, seed: int) -> None:
    """A shuffle is a permutation in which no number is more than `places` away from its own place."""
    order = disordered(count, places, random.Random(seed))
    assert sorted(order) == list(range(count))
    assert all(abs(number - place) <= places for place, number in enumerate(order))


def test_one_place_swaps_all_neighbours() -> None:
    """--shuffle 1 swaps each pair whatever the seed; an odd one at the end stays."""
    assert disordered(5, 1, random.Random(1)) == disordered(5, 1, random.Random(2)) == [1, 0, 3, 2, 4]


def test_a_shuffle_leaves_no_number_of_a_whole_block_in_its_place() -> None:
    """Every transaction of a shuffled burst is out of order, so that the test is as hard as it can be."""
    order = disordered(40, 4, random.Random(3))
    assert all(place != number for place, number in enumerate(order))


def test_a_senders_shots_go_round_the_urls() -> None:
    """Neighbours of one sender go to different URLs, even with as many senders as URLs."""
    shots = schedule(Pattern(senders=2, count=4, urls=2))
    assert [shot.url for shot in shots if shot.sender == 0] == [0, 1, 0, 1]
    assert [shot.url for shot in shots if shot.sender == 1] == [1, 0, 1, 0]


def test_senders_run_side_by_side_at_the_gap() -> None:
    """The gap lies between two shots of a sender; the senders share it evenly, and the list is in sending order."""
    shots = schedule(Pattern(senders=2, count=3, gap_us=300))
    assert [(shot.sender, shot.at_us) for shot in shots] == [(0, 0), (1, 150), (0, 300), (1, 450), (0, 600), (1, 750)]


def test_without_a_gap_all_are_due_at_once() -> None:
    """A gap of 0 makes every shot due at the start."""
    assert {shot.at_us for shot in schedule(Pattern(senders=3, count=5))} == {0}


def test_the_same_seed_makes_the_same_schedule() -> None:
    """A burst can be repeated exactly, and another seed shuffles otherwise."""
    assert schedule(Pattern(2, 50, shuffle=9, seed=4)) == schedule(Pattern(2, 50, shuffle=9, seed=4))
    assert schedule(Pattern(2, 50, shuffle=9, seed=4)) != schedule(Pattern(2, 50, shuffle=9, seed=5))


# the figures


def test_percentiles_are_values_that_occurred() -> None:
    """Nearest rank: the value that the given share of all does not exceed."""
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert percentile([3.0], 50) == 3.0


def test_refusals_of_one_reason_are_one_group() -> None:
    """Numbers and hashes in the texts do not make reasons of their own; the most frequent comes first."""
    flights = [
        flight(0, 0, "refused", "insufficient funds: balance 0x12"),
        flight(0, 1, "refused", "nonce too low: next nonce 9, tx nonce 5"),
        flight(0, 2, "refused", "nonce too low: next nonce 10, tx nonce 6"),
    ]
    summary = summarise(ADDRESSES[:1], flights, {})
    assert [(reason.count, reason.text) for reason in summary.reasons] == [
        (2, "nonce too low: next nonce …, tx nonce …"),
        (1, "insufficient funds: balance …"),
    ]
    assert (summary.refused, summary.nonce_failures, summary.good) == (3, 2, False)


def test_order_is_judged_by_block_and_index() -> None:
    """A sender whose transactions the chain put in another order than their nonces is not in order."""
    flights = [flight(0, 0), flight(0, 1), flight(1, 0), flight(1, 1)]
    positions = {
        flights[0].hash: Position(4, 9),
        flights[1].hash: Position(5, 0),
        flights[2].hash: Position(5, 2),
        flights[3].hash: Position(5, 1),
    }
    summary = summarise(ADDRESSES, flights, positions)
    assert [(lane.mined, lane.in_order) for lane in summary.lanes] == [(2, True), (2, False)]
    assert not summary.good


def test_accepted_but_never_mined_is_not_good() -> None:
    """A transaction that was answered yes and has no receipt spoils the burst."""
    flights = [flight(0, 0), flight(0, 1)]
    assert not summarise(ADDRESSES[:1], flights, {flights[0].hash: Position(1, 0)}).good
    assert summarise(ADDRESSES[:1], flights[:1], {flights[0].hash: Position(1, 0)}).good


def test_latency_and_throughput() -> None:
    """Latency counts answers only; throughput is over the time from the first request to the last answer."""
    flights = [flight(0, 0), flight(0, 1, took_s=0.029), flight(0, 2, "failed", "reset", took_s=0.048)]
    summary = summarise(ADDRESSES[:1], flights, {})
    assert summary.latency_s["max"] == pytest.approx(0.029)
    assert summary.per_second == pytest.approx(3 / 0.050)


def test_a_text_without_values_stays_as_it_is() -> None:
    """Grouping touches values only."""
    assert generic("replacement transaction underpriced") == "replacement transaction underpriced"


# the picture


def count_near(image: Image.Image, colour: tuple[int, int, int]) -> int:
    """How many pixels are about ``colour``."""
    wanted = image.convert("RGB").tobytes()
    pixels = zip(wanted[0::3], wanted[1::3], wanted[2::3], strict=True)
    return sum(all(abs(part - goal) < 40 for part, goal in zip(pixel, colour, strict=True)) for pixel in pixels)


def test_refused_is_red_in_the_picture() -> None:
    """Refused transactions add red that the picture of accepted ones shows in its legend only."""
    red = (214, 39, 40)
    fine = [flight(0, index) for index in range(20)]
    bad = [flight(0, index, "refused", "nonce too high") for index in range(20)]
    pictures = [timeline.draw(some, ADDRESSES[:1], summarise(ADDRESSES[:1], some, {})) for some in (fine, bad)]
    assert count_near(pictures[1], red) > count_near(pictures[0], red) + 100


@pytest.mark.parametrize(("senders", "count"), [(1, 1), (3, 100), (200, 5)])
def test_the_picture_stays_within_bounds(senders: int, count: int) -> None:
    """One transaction or a thousand, the picture has the same width and a height a screen can take."""
    flights = [flight(sender, index) for sender in range(senders) for index in range(count)]
    addresses = [f"0x{sender:040x}" for sender in range(senders)]
    image = timeline.draw(flights, addresses, summarise(addresses, flights, {}))
    assert image.width == timeline.WIDTH
    assert 150 < image.height < 1500


def test_ticks_are_round_numbers() -> None:
    """The axis is divided by 1, 2 or 5 times a power of ten, into no more parts than asked."""
    assert [timeline.step(span, 10) for span in (10, 11, 43, 95, 101, 0.09)] == [1, 2, 5, 10, 20, pytest.approx(0.01)]


# keys and signatures


def test_keys_come_from_a_mnemonic_by_the_usual_path() -> None:
    """The well-known test mnemonic gives the addresses every development chain funds."""
    assert [account.address for account in keys.from_mnemonic(JUNK, 1, 2)] == [
        "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    ]


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    """One key a line; empty lines and comments do not count."""
    file = tmp_path / "keys"
    file.write_text(f"# two keys\n{'11' * 32}\n\n0x{'22' * 32}  # second\n")
    expected = [Account.from_key("0x" + "11" * 32), Account.from_key("0x" + "22" * 32)]
    assert keys.from_file(file, 0, 2) == expected
    assert keys.from_file(file, 1, 1) == expected[1:]


def test_a_bad_key_is_named_by_its_line_and_not_shown(tmp_path: Path) -> None:
    """The text says where, never what."""
    file = tmp_path / "keys"
    file.write_text(f"{'11' * 32}\nsecret-that-is-no-key\n")
    with pytest.raises(BurstFault, match="line 2") as caught:
        keys.from_file(file, 0, 2)
    assert "secret" not in str(caught.value)


def test_too_few_keys_say_how_many_are_missing(tmp_path: Path) -> None:
    """A file with one key cannot serve two senders."""
    file = tmp_path / "keys"
    file.write_text("11" * 32)
    with pytest.raises(BurstFault, match="holds 1 of the 2 keys"):
        keys.from_file(file, 0, 2)


@pytest.mark.parametrize("kind", [0, 2])
def test_a_transfer_is_signed_for_its_chain(kind: int) -> None:
    """The signature is the sender's, for both types, and the hash is the transaction's."""
    account = keys.from_mnemonic(JUNK, 0, 1)[0]
    signed = transfer(account, 5, Terms(31337, kind, 10**9, 10**8, 21000, 3, None))
    assert Account.recover_transaction(signed.raw) == account.address
    assert (signed.nonce, len(signed.hash)) == (5, 66)


# the whole command, against a node that says what it is told


class Node:
    """Takes every transaction, or answers ``refusal``; mines them in nonce order."""

    def __init__(self, refusal: str | None = None, balance: int = 10**18) -> None:
        self.refusal = refusal
        self.balance = balance
        self.mined: dict[str, int] = {}

    async def answer(self, request: web.Request) -> web.Response:
        """One call."""
        call = await request.json()
        handler = getattr(self, call["method"], None)
        if handler is None:
            return self._error(call, f"the method {call['method']} does not exist/is not available", -32601)
        if call["method"] == "eth_sendRawTransaction" and self.refusal is not None:
            return self._error(call, self.refusal, -32000)
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": handler(*call["params"])})

    @staticmethod
    def _error(call: dict[str, Any], message: str, code: int) -> web.Response:
        error = {"code": code, "message": message}
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "error": error})

    def eth_chainId(self) -> str:  # noqa: N802 - the method's name
        return "0x7a69"

    def eth_getBlockByNumber(self, *_: object) -> dict[str, str]:  # noqa: N802 - the method as the wire spells it
        return {"baseFeePerGas": "0x3b9aca00"}

    def eth_gasPrice(self) -> str:  # noqa: N802 - the method as the wire spells it
        return "0x3b9aca07"

    def eth_estimateGas(self, *_: object) -> str:  # noqa: N802 - the method as the wire spells it
        return "0x5208"

    def eth_getTransactionCount(self, *_: object) -> str:  # noqa: N802 - the method as the wire spells it
        return "0x0"

    def eth_getBalance(self, *_: object) -> str:  # noqa: N802 - the method as the wire spells it
        return hex(self.balance)

    def eth_sendRawTransaction(self, raw: str) -> str:  # noqa: N802 - the method as the wire spells it
        hash_ = "0x" + keccak(hexstr=raw).hex()
        self.mined[hash_] = TypedTransaction.from_bytes(HexBytes(raw)).as_dict()["nonce"]
        return hash_

    def eth_getTransactionReceipt(self, hash_: str) -> dict[str, str] | None:  # noqa: N802 - the method as the wire spells it
        if hash_ not in self.mined:
            return None
        return {"blockNumber": "0x1", "transactionIndex": hex(self.mined[hash_])}


@asynccontextmanager
async def listening(node: Node) -> AsyncIterator[str]:
    """The node's URL while it listens."""
    app = web.Application()
    app.router.add_post("/", node.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def burst(*flags: str) -> int:
    """The command's exit code; it has a loop of its own, so it runs beside the test's."""
    return await asyncio.to_thread(cli.main, flags)


async def test_a_good_burst_ends_with_0_and_its_files(tmp_path: Path) -> None:
    """All accepted, all mined in order: exit code 0, the summary as JSON, the timeline as PNG."""
    node = Node()
    json_file, png_file = tmp_path / "b.json", tmp_path / "b.png"
    async with listening(node) as url:
        flags = ["--rpc", url, "--mnemonic", JUNK, "--count", "5", "--json", str(json_file), "--png", str(png_file)]
        assert await burst(*flags) == 0
    summary = json.loads(json_file.read_text())
    assert (summary["good"], summary["accepted"], summary["mined"]) == (True, 5, 5)
    assert png_file.read_bytes().startswith(b"\x89PNG")


async def test_several_urls_share_a_burst() -> None:
    """With two URLs each gets half of a sender's transactions; the receipts are asked of the first."""
    first, second = Node(), Node()
    first.mined = second.mined = {}
    async with listening(first) as one, listening(second) as other:
        assert await burst("--rpc", one, "--rpc", other, "--mnemonic", JUNK, "--count", "6") == 0
    assert len(first.mined) == 6


async def test_a_refused_burst_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """Refusals are grouped under their text and end with exit code 1."""
    async with listening(Node(refusal="nonce too high: next nonce 0, tx nonce 3")) as url:
        assert await burst("--rpc", url, "--mnemonic", JUNK, "--count", "5") == 1
    assert "nonce too high: next nonce …, tx nonce …" in capsys.readouterr().out


async def test_a_poor_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is sent for a key that cannot pay, and the text says which and how much."""
    node = Node(balance=1)
    async with listening(node) as url:
        assert await burst("--rpc", url, "--mnemonic", JUNK) == 2
    assert "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266 has 1 wei" in capsys.readouterr().err
    assert not node.mined


async def test_an_unreachable_url_is_named(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A URL where nobody listens ends with 2 and is named."""
    url = f"http://127.0.0.1:{unused_tcp_port}"
    assert await burst("--rpc", url, "--mnemonic", JUNK) == 2
    assert f"{url} cannot be reached" in capsys.readouterr().err


async def test_a_mnemonic_with_a_typo_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong mnemonic ends with 2; no word of it is printed."""
    assert await burst("--rpc", "http://127.0.0.1:1", "--mnemonic", "horse battery staple") == 2
    error = capsys.readouterr().err
    assert "no BIP-39 mnemonic" in error
    assert "horse" not in error


@pytest.mark.parametrize(
    "flags",
    [
        ["--rpc", "127.0.0.1:8545", "--mnemonic", JUNK],
        ["--rpc", "http://127.0.0.1:8545"],
        ["--mnemonic", JUNK],
        ["--rpc", "http://127.0.0.1:8545", "--mnemonic", JUNK, "--count", "0"],
        ["--rpc", "http://127.0.0.1:8545", "--mnemonic", JUNK, "--to", "0x123"],
    ],
    ids=["no scheme", "no keys", "no URL", "count 0", "bad address"],
)
def test_wrong_flags_end_with_2(flags: list[str]) -> None:
    """What cannot be used is refused before anything is asked of a node."""
    with pytest.raises(SystemExit) as caught:
        cli.main(flags)
    assert caught.value.code == 2

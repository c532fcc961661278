"""The flags of the burst command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eth_utils.address import is_address, to_checksum_address

if TYPE_CHECKING:
    from collections.abc import Callable


def parser() -> argparse.ArgumentParser:
    """Reads the command line; leaves with code 2 and a text where it cannot be used."""
    made = argparse.ArgumentParser(
        prog="python -m acceptance burst",
        description="Sign transfers for one or many keys, submit them all at once, and report what became of them.",
        epilog="Exit code: 0 all accepted and mined in order, 1 not, 2 could not be run. Amounts are in wei.",
    )
    add = made.add_argument
    add(
        "--rpc",
        metavar="URL",
        action="append",
        required=True,
        type=_url,
        help="where to send; given several times, each sender's transactions go round them",
    )
    add("--senders", metavar="N", type=_from(1), default=1, help="keys to send from (1)")
    add("--count", metavar="N", type=_from(1), default=10, help="transactions of each sender (10)")
    add(
        "--gap-us",
        metavar="N",
        type=_from(0),
        default=0,
        help="microseconds between two transactions of a sender (0: all at once)",
    )
    add(
        "--shuffle",
        metavar="N",
        type=_from(0),
        default=0,
        help="each transaction comes up to N places early or late; 1 swaps neighbours (0: nonce order)",
    )
    add("--seed", metavar="N", type=int, default=0, help="another seed shuffles in another way (0)")
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--mnemonic", metavar="WORDS", help="BIP-39 words; keys are m/44'/60'/0'/0/i")
    source.add_argument("--keys", metavar="FILE", type=Path, help="private keys in hex, one a line")
    _add_transaction_flags(made)
    add("--timeout", metavar="S", type=float, default=60.0, help="seconds for each answer, and for the receipts (60)")
    add("--json", metavar="FILE", type=Path, help="write the summary as JSON")
    add("--png", metavar="FILE", type=Path, help="draw when each transaction was sent and answered")
    return made


def _add_transaction_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--first-index", metavar="N", type=_from(0), default=0, help="leave out the first N keys (0)")
    add("--to", metavar="ADDRESS", type=_address, help="receiver (each sender itself)")
    add("--value", metavar="WEI", type=_from(0), default=0, help="value of each transfer (0)")
    add("--gas", metavar="N", type=_from(0), help="gas limit (the node's estimate)")
    add("--type", type=int, choices=(0, 2), help="transaction type (2, or 0 where blocks have no base fee)")
    add("--max-fee", metavar="WEI", type=_from(0), help="max fee per gas; with type 0 the gas price (the node's)")
    add("--tip", metavar="WEI", type=_from(0), help="max priority fee per gas (the node's)")


def _from(least: int) -> Callable[[str], int]:
    """An argparse type: an integer of at least ``least``."""

    def integer(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more")
        return number

    return integer


def _url(text: str) -> str:
    if urlsplit(text).scheme not in ("http", "https"):
        raise argparse.ArgumentTypeError(f"{text!r} is no http:// or https:// URL")
    return text


def _address(text: str) -> str:
    if not is_address(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no address, or its checksum is wrong")
    return to_checksum_address(text)

"""The keys a burst signs with.

Job: accounts from a mnemonic (BIP-39 words, BIP-44 path m/44'/60'/0'/0/i) or from a file of private keys.
Rules: no text of an error shows a word or a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eth_account import Account
from eth_utils.exceptions import ValidationError

from acceptance.burst.faults import BurstFault

if TYPE_CHECKING:
    from pathlib import Path

    from eth_account.signers.local import LocalAccount


def from_mnemonic(words: str, first: int, senders: int) -> list[LocalAccount]:
    """The accounts ``first`` … of ``words``. Raises BurstFault if they are no mnemonic."""
    Account.enable_unaudited_hdwallet_features()
    try:
        return [
            Account.from_mnemonic(" ".join(words.split()), account_path=f"m/44'/60'/0'/0/{first + number}")
            for number in range(senders)
        ]
    except (ValueError, TypeError, ValidationError):
        raise BurstFault(
            f"--mnemonic: these {len(words.split())} words are no BIP-39 mnemonic: check the spelling and the order"
        ) from None


def from_file(file: Path, first: int, senders: int) -> list[LocalAccount]:
    """The keys ``first`` … of ``file``: one of 32 bytes in hex a line, empty lines and ``#`` comments left out.

    Raises BurstFault naming the file, the line or how many keys are missing.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BurstFault(f"--keys: {file} cannot be read: {error}") from None
    filled = [(number, text) for number, line in enumerate(lines, 1) if (text := line.partition("#")[0].strip())]
    wanted = filled[first : first + senders]
    if len(wanted) < senders:
        raise BurstFault(
            f"--keys: {file} holds {len(filled)} of the {first + senders} keys that --first-index and --senders need"
        )
    return [_account(file, number, text) for number, text in wanted]


def _account(file: Path, number: int, text: str) -> LocalAccount:
    try:
        account: LocalAccount = Account.from_key(text)
    except (ValueError, TypeError, ValidationError):
        raise BurstFault(f"--keys: {file}, line {number}: is no private key (32 bytes in hex)") from None
    return account

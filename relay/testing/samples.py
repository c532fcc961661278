"""Submissions to try a store with, and short ways to move them.

Job: the bytes mean nothing; stores do not read them.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from relay.journal.records import Answer, Decision, Intake, Record, Seal, Sealed, Taken
from relay.lifecycle import Mode, State

if TYPE_CHECKING:
    from relay.journal import Journal
    from relay.journal.records import Fact

CHAIN: Final = 31337
ALICE: Final = b"\xaa" * 20
BOB: Final = b"\xbb" * 20

_numbers = count(1)


def intake(  # noqa: PLR0913 - one value for each column that a test may care for
    nonce: int = 0,
    *,
    sender: bytes = ALICE,
    chain_id: int = CHAIN,
    hash_: bytes | None = None,
    key: str = "",
    mode: Mode = Mode.VERDICT,
    raw: bytes | None = None,
) -> Intake:
    """A submission that differs from every other one."""
    number = next(_numbers)
    hash_ = number.to_bytes(32, "big") if hash_ is None else hash_
    raw = b"\x02" + hash_ if raw is None else raw
    return Intake(chain_id, sender, nonce, hash_, raw, "eth_sendRawTransaction", mode=mode, key=key, actor="one")


def seal(record: Record, *, fence: int = 0, node: str = "node", actor: str = "one") -> Seal:
    """The intent to send ``record``."""
    return Seal(record.id, record.state, record.version, node, fence=fence, actor=actor)


def decision(
    record: Record,
    target: State,
    *,
    fence: int = 0,
    facts: tuple[Fact, ...] = (),
    other_hash: bytes | None = None,
    attested: bool = False,
) -> Decision:
    """To move ``record``."""
    return Decision(
        record.id,
        record.state,
        record.version,
        target,
        fence=fence,
        actor="one",
        other_hash=other_hash,
        attested=attested,
        facts=facts,
    )


async def admitted(journal: Journal, nonce: int = 0, *, sender: bytes = ALICE, mode: Mode = Mode.VERDICT) -> Record:
    """A new one, QUEUED."""
    return (await journal.admit([intake(nonce, sender=sender, mode=mode)]))[0].record


async def moved(journal: Journal, record: Record, *targets: State, fence: int = 0) -> Record:
    """Moved through ``targets``; sealed where the target is SEALED."""
    for target in targets:
        if target is State.SEALED:
            record = (await sealed(journal, record, fence=fence)).record
        else:
            result = (await journal.decide([decision(record, target, fence=fence)]))[0]
            assert isinstance(result, Record), result
            record = result
    return record


async def sealed(journal: Journal, record: Record, *, fence: int = 0) -> Sealed:
    """With its intent on disk."""
    result = (await journal.seal([seal(record, fence=fence)]))[0]
    assert isinstance(result, Sealed), result
    return result


async def failed(journal: Journal, nonce: int = 0, *, mode: Mode = Mode.VERDICT) -> Record:
    """One that a node refused."""
    done = await sealed(journal, await admitted(journal, nonce, mode=mode))
    facts = (Answer(done.attempt, Taken.NO, "refused", "intrinsic gas too low"),)
    result = (await journal.decide([decision(done.record, State.FAILED, facts=facts)]))[0]
    assert isinstance(result, Record), result
    return result

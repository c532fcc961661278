"""What is sent when, in which order and to which URL.

Job: the whole schedule of a burst, decided before anything is signed or sent.
Rules: pure and repeatable: the same numbers and the same seed make the same schedule.
Must not know: keys, transactions, clocks, networks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """The shape of a burst. ``gap_us`` lies between two transactions of one sender; ``shuffle`` in places."""

    senders: int
    count: int
    urls: int = 1
    gap_us: int = 0
    shuffle: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Shot:
    """One transaction's place: ``index`` counts in its sender's nonce order, ``at_us`` from the start of the burst."""

    sender: int
    index: int
    url: int
    at_us: int


def schedule(pattern: Pattern) -> list[Shot]:
    """Every shot of the burst in the order of sending.

    Senders run side by side, spread evenly over one gap. A sender's shots go round the URLs, the first of each
    sender to another one.
    """
    rng = random.Random(pattern.seed)
    orders = [disordered(pattern.count, pattern.shuffle, rng) for _ in range(pattern.senders)]
    return [
        Shot(
            sender=sender,
            index=orders[sender][place],
            url=(place + sender) % pattern.urls,
            at_us=place * pattern.gap_us + sender * pattern.gap_us // pattern.senders,
        )
        for place in range(pattern.count)
        for sender in range(pattern.senders)
    ]


def disordered(count: int, places: int, rng: random.Random) -> list[int]:
    """0 … count-1 with each number at most ``places`` away from its own place.

    Each block of ``places`` + 1 numbers is put into a random cyclic order, so that none of it stays where it was:
    0 keeps the order, 1 swaps all neighbours.
    """
    order = list(range(count))
    for start in range(0, count, places + 1):
        end = min(start + places + 1, count)
        for last in range(end - 1, start, -1):
            other = rng.randrange(start, last)
            order[last], order[other] = order[other], order[last]
    return order

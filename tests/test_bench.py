"""Benchmarks: turns, and the places where figures go. (What they measure is tried out in the acceptance suite.)"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from acceptance.bench import profile
from acceptance.bench.__main__ import GROUPS
from acceptance.bench.bursts import inversions
from acceptance.bench.turns import CannotMeasure, Turns

ROOT = Path(__file__).parents[1]


async def test_turns_alternate() -> None:
    """Each round goes the other way, and every contender gets its results in order."""
    log: list[str] = []

    async def turn(name: str) -> int:
        log.append(name)
        return len(log)

    found = await Turns(rounds=4, most_foreign=99).of({name: partial(turn, name) for name in "abc"})
    assert "".join(log) == "abccbaabccba"
    assert found == {"a": [1, 6, 7, 12], "b": [2, 5, 8, 11], "c": [3, 4, 9, 10]}


async def test_a_busy_machine_ends_the_run() -> None:
    """A turn that never counts is not repeated for ever: the run ends, and says what is the matter."""
    turns = Turns(most_foreign=-99, patience_s=0)

    async def turn() -> None:
        pass

    with pytest.raises(CannotMeasure, match=r"other programs take .* after 1 dropped turns .* measure later"):
        await turns.of({"any": turn})
    assert turns.dropped == 1


def test_every_group_has_its_place() -> None:
    """In the page that is written, and in what `make` says of itself."""
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert re.findall(r"<!-- bench (\w+) -->.*?<!-- end \1 -->", page, re.DOTALL) == list(GROUPS)
    named = re.search(r"GROUP=([\w, ]+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert named is not None
    assert named[1].split(", ") == list(GROUPS)


@pytest.mark.parametrize(
    ("nonces", "expected"), [([], 0), ([0, 1, 2], 0), ([1, 0, 3, 2], 2), ([2, 0, 1], 2), ([0, 2, 1, 3], 1)]
)
def test_inversions_are_nonces_after_a_higher_one(nonces: list[int], expected: int) -> None:
    """However far back the higher one is."""
    assert inversions(nonces) == expected


def test_samples_are_read_from_perf() -> None:
    """A row is samples, library, symbol; each library is a part of the program, what is not known is its own part."""
    found = profile.read(
        " 255   \tlibpython3.11.so.1.0    \t[.] _PyEval_EvalFrameDefault  \n"
        " 250   \t[kernel.kallsyms]       \t[k] tcp_ack\n"
        " 3     \t_libsecp256k1.cpython-311-x86_64-linux-gnu.so\t[.] 0x00000000000192b3\n"
        " 2     \t[unknown]\t[.] 0x1\n"
    )
    assert [(profile.part(library), symbol, samples) for (library, symbol), samples in found.items()] == [
        ("interpreter", "_PyEval_EvalFrameDefault", 255),
        ("kernel", "tcp_ack", 250),
        ("libsecp256k1", "0x00000000000192b3", 3),
        ("other libraries", "0x1", 2),
    ]

"""What was made of bytes is remembered, within bounds."""

from __future__ import annotations

import itertools

from relay.upstream.memo import REMEMBERED, REMEMBERED_BYTES, Memo


def test_what_comes_again_is_kept() -> None:
    """Made twice and then no more: what comes once is not kept, nor a text above the limit however often it comes."""
    numbers = itertools.count(1)
    memo = Memo(lambda _: next(numbers))
    longest, longer = b"a" * REMEMBERED_BYTES, b"a" * (REMEMBERED_BYTES + 1)
    assert [memo[text] for text in (b"", longest, b"", longest, b"", longest)] == [1, 2, 3, 4, 3, 4]
    assert [memo[longer] for _ in range(3)] == [5, 6, 7]


def test_any_number_of_texts_leaves_a_bounded_number() -> None:
    """And the newest is among them, if it came twice; of those that come once, none is."""
    memo = Memo(bytes.upper)
    for number in range(5 * REMEMBERED // 2):
        assert [memo[b"a%d" % number] for _ in range(2)] == [b"A%d" % number] * 2
        assert len(memo) <= REMEMBERED
    assert b"a%d" % (5 * REMEMBERED // 2 - 1) in memo
    memo = Memo(bytes.upper)
    for number in range(5 * REMEMBERED // 2):
        assert memo[b"b%d" % number] == b"B%d" % number
        assert len(memo) == 0
        assert len(memo._doorkeeper._marks) <= REMEMBERED

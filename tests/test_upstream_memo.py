"""What was made of bytes is remembered, within bounds."""

from __future__ import annotations

import itertools

from relay.upstream.memo import REMEMBERED, REMEMBERED_BYTES, Memo


def test_made_once_but_for_long_ones() -> None:
    """The same object comes back; a text above the limit is made each time."""
    numbers = itertools.count(1)
    memo = Memo(lambda _: next(numbers))
    longest, longer = b"a" * REMEMBERED_BYTES, b"a" * (REMEMBERED_BYTES + 1)
    assert [memo[text] for text in (b"", longest, b"", longest, longer, longer)] == [1, 2, 1, 2, 3, 4]


def test_any_number_of_texts_leaves_a_bounded_number() -> None:
    """And the newest is among them."""
    memo = Memo(bytes.upper)
    for number in range(5 * REMEMBERED // 2):
        assert memo[b"a%d" % number] == b"A%d" % number
        assert len(memo) <= REMEMBERED
    assert b"a%d" % (5 * REMEMBERED // 2 - 1) in memo

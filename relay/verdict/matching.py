"""Finding the row that a message speaks by.

Job: an index over the rows by their rarest word, and the choice among those that match.
Rules, all on the careful side:
- A message is cut into statements: from the left, the row with the most text wins, and what begins inside it is part
  of it. So "replacement transaction underpriced" is not "transaction underpriced", and words that a row quotes decide
  nothing.
- Statements that disagree prove nothing, be it that several nodes speak in one message, or that two clients mean
  different things by one text and nobody knows which of them speaks.
- Success must be a statement of its own: "block already known" and "unknown transaction" are none.
Time is linear in what is read, the head of the message.
Must not know: what the rows say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from relay.verdict.rule import Client, Disposition, Rule, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_READ: Final = 2_000
"""Characters of a message that are read. The reason stands in front; revert data, stacks and pages follow."""

CONTRADICTORY: Final = Verdict(Disposition.UNCERTAIN, "contradictory")
UNRECOGNISED: Final = Verdict(Disposition.UNRECOGNISED, "unrecognised")

_words: Final = re.compile(r"\w{3,}").findall  # shorter ones tell no two rows apart


class _Pattern(NamedTuple):
    """A row, ready to be compared. ``weight``: how much text; ``place``: its place in the table."""

    place: int
    rule: Rule
    fragments: tuple[str, ...]
    words: frozenset[str]
    weight: int
    quotes: bool


_Match: TypeAlias = tuple[int, int, int, int, Rule]
"""(start, -weight, place, end, row): sorts as statements are read, leftmost first, then the most text."""


class Table:
    """The rows, indexed at the first message, so that importing them costs next to nothing."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    def read(self, message: str, client: Client | None) -> Verdict:
        """What ``message`` means, by the rows of ``client`` if one of them matches, else by all rows.

        A row that quotes counts whoever the client is: something before the node may have wrapped its words.
        """
        matches = self._matches(message[:MAX_READ].lower())
        if not matches:
            return UNRECOGNISED
        return _agreed(_statements(sorted(_heard(matches, client))))

    def _matches(self, text: str) -> list[_Match]:
        index = self._by_word
        candidates = [pattern for word in index.keys() & _words(text) for pattern in index[word]]
        return [match for pattern in candidates if (match := _match(pattern, text))]

    @cached_property
    def _by_word(self) -> Mapping[str, list[_Pattern]]:
        """Each row under the rarest of its words: a message that lacks it cannot be that row's."""
        patterns = [_compile(place, rule) for place, rule in enumerate(self._rules)]
        frequency = Counter(word for pattern in patterns for word in pattern.words)
        index = defaultdict(list)
        for pattern in patterns:
            index[min(pattern.words, key=frequency.__getitem__)].append(pattern)
        return index


def _compile(place: int, rule: Rule) -> _Pattern:
    fragments = rule.fragments
    text = " ".join(fragments)
    return _Pattern(place, rule, fragments, frozenset(_words(text)), len(text), rule.quotes)


def _match(pattern: _Pattern, text: str) -> _Match | None:
    start, end = -1, 0
    for fragment in pattern.fragments:
        at = _find(text, fragment, end)
        if at < 0:
            return None
        start = at if start < 0 else start
        end = at + len(fragment)
    if pattern.rule.verdict.disposition is Disposition.IN_POOL and not _stands_alone(text, start, end):
        return None
    return start, -pattern.weight, pattern.place, len(text) if pattern.quotes else end, pattern.rule


def _find(text: str, fragment: str, start: int) -> int:
    """Where ``fragment`` stands as whole words at or after ``start``; -1 if nowhere."""
    at = text.find(fragment, start)
    while at >= 0 and (_inside_word(text, at) or _inside_word(text, at + len(fragment))):
        at = text.find(fragment, at + 1)
    return at


def _inside_word(text: str, at: int) -> bool:
    return _is_word(text[at - 1 : at]) and _is_word(text[at : at + 1])


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Is nothing but punctuation next to it?"""
    return not (_is_word(text[:start].rstrip()[-1:]) or _is_word(text[end:].lstrip()[:1]))


def _is_word(character: str) -> bool:
    """Is it part of a word? "" is what lies beside the ends of a text, and is not."""
    return character.isalnum() or character == "_"


def _heard(matches: list[_Match], client: Client | None) -> list[_Match]:
    """The matches that count when ``client`` speaks."""
    if client is None or len(matches) == 1 or not any(client in match[-1].clients for match in matches):
        return matches
    return [match for match in matches if client in match[-1].clients or match[-1].quotes]


def _statements(matches: Iterable[_Match]) -> list[Verdict]:
    """The verdicts of those that do not begin inside another; ``matches`` are sorted. Equal texts count each."""
    verdicts, end, last = [], 0, (-1, 0)
    for start, lightness, _, its_end, rule in matches:
        if start >= end or (start, lightness) == last:
            verdicts.append(rule.verdict)
            end, last = its_end, (start, lightness)
    return verdicts


def _agreed(verdicts: Sequence[Verdict]) -> Verdict:
    """The first of them, if all may be concluded alike."""
    first = verdicts[0]
    return first if len({each.disposition for each in verdicts}) == 1 else CONTRADICTORY

"""Runs in a lane: what may share a turn, and that order and ends are those of single turns."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay.lanes import ASK, REST, SLEEP, Effect, Go, Lane, Ticket, TurnAway
from tests.test_lanes import answer, knowing, lane, take


def begin(lane_: Lane[str], most: int = 50, now: float = 0.0) -> list[Ticket[str]]:
    """The turn that begins now."""
    step = lane_.decide(now)
    assert isinstance(step, Go)
    run = [step.ticket, *islice(lane_.following(step.ticket), most - 1)]
    for ticket in run:
        lane_.granted(ticket)
    return run


def end(lane_: Lane[str], run: list[Ticket[str]], *effects: Effect, now: float = 0.0) -> None:
    """Each its effect; ``effects`` cut short go on with the last one."""
    for place, ticket in enumerate(run):
        lane_.released(ticket, effects[min(place, len(effects) - 1)], now)


def nonces(run: list[Ticket[str]]) -> list[int]:
    """What goes."""
    return [ticket.nonce for ticket in run]


def test_a_run_is_what_waits_nonce_by_nonce() -> None:
    """Whatever came first; after it next has risen over all of it."""
    known = knowing(3)
    for number, nonce in enumerate((5, 3, 4, 6), 1):
        take(known, nonce, number=number)

    run = begin(known)
    end(known, run, Effect.ACCEPTED)

    assert nonces(run) == [3, 4, 5, 6]
    assert known.next == 7
    assert known.decide(0.0) is REST


def test_a_hole_ends_a_run() -> None:
    """What stands above it waits by the rules of a gap."""
    known = knowing(3)
    for nonce in (3, 4, 6):
        take(known, nonce)

    assert nonces(begin(known)) == [3, 4]


def test_a_second_ticket_of_a_nonce_ends_a_run() -> None:
    """A replacement goes after what it replaces was answered, alone or at the head of the next run."""
    known = knowing(3)
    for number, nonce in enumerate((3, 4, 4, 5), 1):
        take(known, nonce, number=number)
    first = begin(known)
    end(known, first, Effect.ACCEPTED)

    assert (nonces(first), nonces(begin(known))) == ([3, 4], [4, 5])


def test_replacements_may_run_up_to_next_and_over_it() -> None:
    """Proven by a count, they stand before what is new."""
    known = knowing(5)
    for nonce in (3, 4, 5):
        take(known, nonce)
    answer(known, 5)

    run = begin(known)
    end(known, run, Effect.ACCEPTED)

    assert nonces(run) == [3, 4, 5]
    assert known.next == 6


def test_a_passed_gap_makes_no_run() -> None:
    """The first one finds out whether the node queues what comes early."""
    known = knowing(5)
    for nonce in (7, 8, 9):
        take(known, nonce)
    answer(known, 5)
    answer(known, 5, now=1.0)

    assert nonces(begin(known, now=1.0)) == [7]


def test_while_next_is_unknown_there_is_no_run() -> None:
    """A node that cannot say its counts is not sent what it may have already."""
    blind = lane()
    for nonce in (7, 8):
        take(blind, nonce)
    answer(blind, None)

    assert nonces(begin(blind)) == [7]


def test_by_arrival_there_is_no_run() -> None:
    """Nonces mean nothing there."""
    arrival = lane(order="arrival")
    for nonce in (7, 8):
        take(arrival, nonce)

    assert nonces(begin(arrival)) == [7]


def test_nothing_goes_before_the_whole_run_has_ended() -> None:
    """A run is one submission to the lane (G1)."""
    known = knowing(0)
    for nonce in (0, 1):
        take(known, nonce)
    first, second = begin(known)
    take(known, 2)

    known.released(first, Effect.ACCEPTED, 0.0)
    assert known.decide(0.0) is SLEEP
    known.released(second, Effect.ACCEPTED, 0.0)
    assert nonces(begin(known)) == [2]


def test_what_comes_back_waits_at_the_gap_for_what_was_refused() -> None:
    """It keeps its place and its time, and goes when the missing nonce has come."""
    known = knowing(0, max_wait_s=10)
    for nonce in range(4):
        take(known, nonce, now=nonce / 10)
    run = begin(known, now=1.0)
    end(known, run, Effect.ACCEPTED, Effect.REFUSED, Effect.WITHHELD, now=1.0)
    assert known.next == 1
    answer(known, 1, now=1.0)
    missing = take(known, 1, now=1.1, number=9)

    again = begin(known, now=1.1)
    assert again == [missing, *run[2:]]
    end(known, again, Effect.ACCEPTED, Effect.WITHHELD, now=1.1)
    late = known.overdue(8.25)
    assert late is not None
    assert nonces([ticket for ticket, _ in late.tickets]) == [2]


def test_what_comes_back_is_overdue_in_the_order_of_its_arrival() -> None:
    """One that came later and stayed does not hide it."""
    known = knowing(0, max_wait_s=10)
    for nonce in range(3):
        take(known, nonce, now=0.0)
    run = begin(known)
    take(known, 9, now=5.0)
    assert known.overdue(1.0) is None
    end(known, run, Effect.REFUSED, Effect.WITHHELD, now=2.0)

    late = known.overdue(8.0)
    assert late is not None
    assert nonces([ticket for ticket, _ in late.tickets]) == [1, 2]


def test_a_doubt_inside_a_run_outlasts_the_acceptances_after_it() -> None:
    """Next is read afresh, whatever the later ones say."""
    known = knowing(0)
    for nonce in range(3):
        take(known, nonce)
    end(known, begin(known), Effect.ACCEPTED, Effect.DOUBTFUL, Effect.ACCEPTED)

    assert known.next is None


class RunMachine(RuleBasedStateMachine):
    """Random arrivals, runs, refusals and pauses against a strict node that runs batches in order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.node_next = 0
        self.lane = lane(max_queue=20, reorder_window_ms=1000, max_wait_s=10)
        self.run_: list[Ticket[str]] = []
        self.reading: Any = None
        self.taken: set[Ticket[str]] = set()
        self.left: list[Ticket[str]] = []

    @rule(nonces=st.lists(st.integers(0, 15), min_size=1, max_size=6))
    def arrive(self, nonces: list[int]) -> None:
        """Submissions come."""
        for nonce in nonces:
            self.number += 1
            ticket = self.lane.join("tx", nonce, self.now, self.number)
            if isinstance(ticket, Ticket):
                self.taken.add(ticket)

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 4.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes, and overdue tickets leave."""
        self.now += seconds
        self._away(self.lane.overdue(self.now))

    def _away(self, away: TurnAway[str] | None) -> None:
        self.left += [ticket for ticket, _ in away.tickets] if away else []

    @precondition(lambda self: not self.run_)
    @rule(most=st.integers(1, 8))
    def step(self, most: int) -> None:
        """Do what the lane says."""
        step = self.lane.decide(self.now)
        if isinstance(step, Go):
            self.run_ = begin(self.lane, most, self.now)
            self._assert_order()
        elif step is ASK:
            self.reading = self.lane.asked(self.now)
        elif isinstance(step, TurnAway):
            self._away(step)

    def _assert_order(self) -> None:
        head, next_ = self.run_[0].nonce, self.lane.next
        assert nonces(self.run_) == list(range(head, head + len(self.run_)))
        waiting = [ticket.nonce for ticket in self.taken if ticket.waiting]
        overtaken = [nonce for nonce in waiting if nonce < self.run_[-1].nonce and next_ is not None and nonce >= next_]
        proven_twice = set(nonces(self.run_))  # a second bid for a nonce waits behind the run
        assert set(overtaken) <= proven_twice, "a proven lower nonce was overtaken"

    @precondition(lambda self: self.reading is not None)
    @rule(known=st.booleans())
    def told(self, known: bool) -> None:
        """A count comes back, or does not."""
        self._away(self.lane.told(self.reading, self.node_next if known else None, self.now))
        self.reading = None

    @precondition(lambda self: self.run_)
    @rule(refused=st.sets(st.integers(0, 7)), unknown=st.sets(st.integers(0, 7), max_size=1))
    def node_answers(self, refused: set[int], unknown: set[int]) -> None:
        """A strict node takes only its next nonce, and that not always; what is for want of a lower nonce goes back."""
        for place, ticket in enumerate(self.run_):
            effect = self._judged(ticket, head=place == 0, refused=place in refused, unknown=place in unknown)
            self.lane.released(ticket, effect, self.now)
            if effect is not Effect.WITHHELD:
                self.left.append(ticket)
        self.run_ = []

    def _judged(self, ticket: Ticket[str], *, head: bool, refused: bool, unknown: bool) -> Effect:
        if ticket.nonce > self.node_next:
            return Effect.DOUBTFUL if head else Effect.WITHHELD
        if refused:
            return Effect.REFUSED
        accepted = ticket.nonce == self.node_next
        self.node_next += accepted
        return Effect.ACCEPTED if accepted and not unknown else Effect.DOUBTFUL

    @invariant()
    def each_ends_once(self) -> None:
        """Each ticket waits, runs, or has left with an answer, once; the lane's count agrees."""
        waiting = {ticket for ticket in self.taken if ticket.waiting}
        assert len(waiting) == self.lane.waiting
        assert len(self.left) == len(set(self.left))
        assert sorted(map(id, self.taken)) == sorted(map(id, [*waiting, *self.left, *self.run_]))

    @invariant()
    def the_lane_never_stalls(self) -> None:
        """With tickets and nobody's turn it asks, goes, turns away, or sleeps with a reason to wake."""
        if not self.run_ and self.lane.waiting:
            step = self.lane.decide(self.now)
            assert not (step is SLEEP and self.reading is None)
            assert step is not REST


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)

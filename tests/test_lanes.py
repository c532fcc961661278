"""Lanes decide: whose turn it is, what must be asked first, who has waited too long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relay import errors
from relay.config import Ordering
from relay.errors import Refusal
from relay.lanes import ASK, REST, SLEEP, Effect, Go, Lane, LaneBook, Rules, Sleep, Ticket, TurnAway, lane_key
from relay.lanes.lane import LOOK_S

KEY = lane_key(1337, b"\x11" * 20)


def lane(**options: Any) -> Lane[str]:
    """A lane under the default rules, but for ``options`` of ``[ordering]``."""
    return Lane(KEY, Rules.of(Ordering(**options)))


def knowing(next_: int, **options: Any) -> Lane[str]:
    """A lane that once read ``next_`` as its pending count, and has rested since."""
    fresh = lane(**options)
    fresh.told(fresh.asked(0.0), next_, 0.0)
    fresh.rest()
    return fresh


def take(lane_: Lane[str], nonce: int, now: float = 0.0, number: int = 0) -> Ticket[str]:
    """A ticket that the lane gives."""
    ticket = lane_.join(f"tx {nonce}", nonce, now, number or nonce + 1)
    assert isinstance(ticket, Ticket)
    return ticket


def carry_out(lane_: Lane[str], ticket: Ticket[str], effect: Effect = Effect.ACCEPTED, now: float = 0.0) -> None:
    """A whole turn."""
    assert lane_.decide(now) == Go(ticket)
    lane_.granted(ticket)
    lane_.released(ticket, effect, now)


def answer(lane_: Lane[str], pending: int | None, now: float = 0.0) -> TurnAway[str] | None:
    """A read of the count, as the lane asked for it."""
    assert lane_.decide(now) is ASK
    return lane_.told(lane_.asked(now), pending, now)


def look_on(lane_: Lane[str], pending: int, until: float) -> float:
    """Answer each look at the upstream while the lane waits at a gap; until when it then sleeps."""
    now = 0.0
    while True:
        match lane_.decide(now):
            case Sleep(float(wake)) if wake >= until:
                return wake
            case Sleep(float(wake)):
                now = wake
            case step:
                assert step is ASK
                lane_.told(lane_.asked(now), pending, now)


def test_a_new_lane_asks_before_the_first_turn() -> None:
    """While ``next`` is unknown nothing goes; the count decides at once, without any window."""
    fresh = lane()
    ticket = take(fresh, 7)

    assert fresh.decide(0.0) is ASK
    reading = fresh.asked(0.0)
    assert fresh.decide(0.0) is SLEEP
    fresh.told(reading, 7, 0.0)
    assert fresh.decide(0.0) == Go(ticket)


def test_a_lane_that_knows_asks_nothing() -> None:
    """Each acceptance of ``next`` raises it by one, so a steady sender costs no reads."""
    known = knowing(3)
    for nonce in (3, 4, 5):
        carry_out(known, take(known, nonce))

    assert known.next == 6


def test_lower_nonces_go_first_whatever_came_first() -> None:
    """Order is nonce order where the lane knows it."""
    known = knowing(0)
    tickets = {nonce: take(known, nonce, number=9 - nonce) for nonce in (2, 0, 1)}

    for nonce in (0, 1, 2):
        carry_out(known, tickets[nonce])


def test_by_arrival_the_first_to_come_goes_first() -> None:
    """``order = "arrival"`` asks nothing and waits for nothing."""
    arrival = lane(order="arrival")
    tickets = [take(arrival, nonce, number=number) for number, nonce in enumerate((5, 3, 4), 1)]

    for ticket in tickets:
        carry_out(arrival, ticket)


def test_a_gap_asks_when_it_opens_and_the_count_may_close_it() -> None:
    """A lane that fell behind (the sender used another way) is told so at once."""
    known = knowing(5)
    ticket = take(known, 8, now=10.0)

    answer(known, 8, now=10.0)

    assert known.decide(10.0) == Go(ticket)


def test_an_open_gap_is_looked_at_more_and_more_seldom() -> None:
    """What fills it may go by other ways, another instance's while nothing tells of it: that costs no whole window."""
    known = knowing(5)
    ticket = take(known, 6, now=0.0)
    looks: list[float] = []
    while len(looks) < 5:
        step = known.decide(now := looks[-1] if looks else 0.0)
        if isinstance(step, Sleep) and step.until is not None:
            now = step.until
        known.told(known.asked(now), 5, now)
        looks.append(round(now, 3))
    assert looks == [0.0, 0.05, 0.15, 0.35, 0.75]

    known.told(known.asked(0.8), 6, 0.8)
    assert known.decide(0.8) == Go(ticket)


def test_a_ticket_above_a_gap_lets_the_lower_one_pass() -> None:
    """A gap does not hold the lane: the missing nonce goes at once when it comes, and its successor after it."""
    known = knowing(5)
    above = take(known, 6, now=0.0)
    answer(known, 5)
    assert known.decide(0.0) == Sleep(LOOK_S)
    missing = take(known, 5, now=0.2)

    carry_out(known, missing, now=0.2)
    carry_out(known, above, now=0.2)

    assert known.next == 7


def test_a_gap_is_passed_after_the_window_when_the_upstream_says_the_same() -> None:
    """The clock runs from the ticket's arrival; at its end the upstream is asked once more, then it goes."""
    known = knowing(5)
    ticket = take(known, 7, now=2.0)
    answer(known, 5, now=2.0)
    assert look_on(known, 5, until=3.0) == 3.0
    answer(known, 5, now=3.0)

    assert known.decide(3.0) == Go(ticket)


def test_the_window_runs_anew_when_next_rises() -> None:
    """While lower nonces keep coming the sender is still sending: nobody jumps the queue."""
    known = knowing(5)
    take(known, 9, now=0.0)
    answer(known, 5)
    carry_out(known, take(known, 5, now=0.9), now=0.9)
    answer(known, 6, now=0.9)

    assert look_on(known, 6, until=1.9) == 1.9


def test_the_window_runs_from_when_a_ticket_came_here() -> None:
    """It arrived long before, at another process: what is below it may have come the same way, and be as late."""
    known = knowing(5)
    ticket = known.join("tx 7", 7, -60.0, 1, came=0.0)
    assert isinstance(ticket, Ticket)
    answer(known, 5)
    assert look_on(known, 5, until=1.0) == 1.0
    answer(known, 5, now=1.0)

    assert known.decide(1.0) == Go(ticket)
    assert known.overdue(1.0) == TurnAway([(ticket, errors.WAITED_TOO_LONG.refusal(seconds=61.0))])


def test_no_gap_counts_as_older_than_it_can_be_told() -> None:
    """Until then the upstream is looked at as ever, and then a whole window runs."""
    known = knowing(5)
    ticket = take(known, 7)
    answer(known, 5)
    now = 0.0
    for _ in range(10):
        step = known.decide(now, float("inf"))
        if isinstance(step, Sleep):
            assert step.until is not None
            now = step.until
        else:
            assert step is ASK
            known.told(known.asked(now), 5, now)
    assert now > 1.0
    known.told(known.asked(now + 0.5), 5, now + 0.5)
    assert known.decide(now + 0.5, now) == Sleep(now + 1)
    known.told(known.asked(now + 1), 5, now + 1)

    assert known.decide(now + 1, now) == Go(ticket)


def test_no_window_runs_while_somebody_holds_the_lane() -> None:
    """The predecessor may be at the node right now."""
    known = knowing(5)
    holder = take(known, 5)
    known.decide(0.0)
    known.granted(holder)
    take(known, 7, now=0.0)

    assert known.decide(60.0) is SLEEP


def test_a_passed_gap_is_passed_for_all_that_waits_above_it() -> None:
    """One window for a whole queue behind a hole, not one for each ticket; holes between them count for nothing."""
    known = knowing(5)
    tickets = [take(known, nonce, now=nonce / 100) for nonce in (7, 8, 11)]
    answer(known, 5)
    answer(known, 5, now=1.07)

    for ticket in tickets:
        carry_out(known, ticket, now=1.08)

    assert known.next == 5


def test_a_refused_gap_refuses_all_that_waits_above_it() -> None:
    """``on_gap = "refuse"`` names the nonce that is missing, in geth's words."""
    known = knowing(5, on_gap="refuse")
    tickets = [take(known, nonce) for nonce in (7, 8)]
    answer(known, 5)
    answer(known, 5, now=1.0)

    step = known.decide(1.0)

    assert step == TurnAway([(ticket, errors.NONCE_GAP.refusal(next=5, nonce=ticket.nonce)) for ticket in tickets])
    assert known.decide(1.0) is REST


def test_a_gap_that_cannot_be_asked_about_is_passed() -> None:
    """If the count cannot be read the upstream decides."""
    known = knowing(5)
    ticket = take(known, 7)
    answer(known, None)
    answer(known, None, now=1.0)

    assert known.decide(1.0) == Go(ticket)


def test_without_a_count_the_lowest_goes() -> None:
    """A node that cannot say its counts still gets its transactions, lowest nonce first."""
    blind = lane()
    high, low = take(blind, 9), take(blind, 8)
    answer(blind, None)

    carry_out(blind, low)
    carry_out(blind, high)


def test_a_blind_lane_does_not_wait_for_the_next_read() -> None:
    """A count that never comes is waited for once, not by each ticket that arrives meanwhile."""
    blind = lane()
    early = take(blind, 0)
    reading = blind.asked(0.0)
    take(blind, 1)
    blind.told(reading, None, 5.0)
    assert blind.decide(5.0) is ASK  # for the one that came meanwhile
    blind.asked(5.0)

    assert blind.decide(5.0) == Go(early)


def test_a_count_that_lags_behind_does_not_lower_next() -> None:
    """Asynchronous nodes say less than they have accepted; the acceptance counts."""
    known = knowing(5)
    carry_out(known, take(known, 5))
    take(known, 8)
    answer(known, 3)

    assert known.next == 6


def test_after_doubt_the_count_is_read_afresh_and_may_fall() -> None:
    """A refusal about the nonce, or an unknown outcome, leaves nothing to rely on."""
    known = knowing(5)
    first, second = take(known, 5), take(known, 6)
    carry_out(known, first, Effect.DOUBTFUL)
    answer(known, 4)

    assert known.next == 4
    assert known.decide(0.0) == Sleep(LOOK_S)  # 6 is above a gap now, and the count is fresh
    assert second.waiting


def test_other_refusals_leave_next_alone() -> None:
    """Too little gas says nothing about nonces."""
    known = knowing(5)
    carry_out(known, take(known, 5), Effect.REFUSED)

    assert known.next == 5


def test_a_read_that_began_before_the_doubt_is_void() -> None:
    """Its count is older than the answer that made it doubtful."""
    known = knowing(5)
    holder = take(known, 5)
    known.decide(0.0)
    known.granted(holder)
    replacement = take(known, 4)
    reading = known.asked(0.0)
    known.released(holder, Effect.DOUBTFUL, 0.1)
    known.told(reading, 9, 0.2)

    assert known.next is None
    assert replacement.waiting
    assert known.decide(0.2) is ASK


def test_a_replacement_is_proven_by_a_fresh_count_and_then_waits_for_nothing() -> None:
    """Below ``next`` a nonce may be spent; a count read after the ticket came says that it is not."""
    known = knowing(10)
    ticket = take(known, 7, now=50.0)

    answer(known, 10, now=50.0)

    assert known.decide(50.0) == Go(ticket)


def test_unproven_tickets_do_not_hold_up_the_next_nonce() -> None:
    """Anyone can replay what the sender once signed; the read that judges it goes beside the lane."""
    known = knowing(10)
    take(known, 1)
    ticket = take(known, 10)
    assert known.decide(0.0) is ASK
    known.asked(0.0)

    assert known.decide(0.0) == Go(ticket)


def test_a_withdrawn_ticket_is_not_proven() -> None:
    """What the read found to be spent has left, and does not come back."""
    known = knowing(10)
    dead = take(known, 1)
    reading = known.asked(0.0)
    known.withdraw(dead)
    known.told(reading, 10, 0.0)

    assert known.decide(0.0) is REST


def test_replays_do_not_fill_the_queue() -> None:
    """Unproven tickets have a room of their own: the sender's next transaction still finds a place."""
    known = knowing(1000, max_queue=2)
    for nonce in range(8):
        take(known, nonce)

    assert known.join("replay", 9, 0.0, 99) == errors.QUEUE_FULL.refusal(waiting=8)
    assert isinstance(known.join("mine", 1000, 0.0, 100), Ticket)


def test_a_full_queue_refuses_with_its_length() -> None:
    """One flooding sender fills only its own lane (G11)."""
    known = knowing(0, max_queue=3)
    for nonce in range(3):
        take(known, nonce)

    assert known.join("too many", 3, 0.0, 4) == errors.QUEUE_FULL.refusal(waiting=3)


def test_proven_tickets_beyond_the_queue_are_turned_away_newest_first() -> None:
    """A burst on a cold lane is bounded as on a warm one, once the count is known."""
    fresh = lane(max_queue=2)
    tickets = [take(fresh, nonce) for nonce in range(4)]

    away = answer(fresh, 0)

    assert away is not None
    assert tickets[2:] == [ticket for ticket, _ in away.tickets]


def test_a_ticket_waits_no_longer_than_its_limit() -> None:
    """The limit holds whoever has the lane (G5): four fifths of ``max_wait_s``, the rest is kept for the answer."""
    known = knowing(5, max_wait_s=10)
    holder = take(known, 5, now=0.0)
    known.decide(0.0)
    known.granted(holder)
    waiting = take(known, 6, now=1.0)

    assert known.overdue(8.9) is None
    assert known.overdue(9.0) == TurnAway([(waiting, errors.WAITED_TOO_LONG.refusal(seconds=8.0))])


def test_a_ticket_that_comes_late_has_the_limit_of_its_first_arrival() -> None:
    """It was handed to another process before: what arrived after it, and came before it, does not extend its time."""
    known = knowing(7, max_wait_s=10)
    later = take(known, 9, 5.0, 1)
    earlier = take(known, 8, 1.0, 2)

    assert known.overdue(9.0) == TurnAway([(earlier, errors.WAITED_TOO_LONG.refusal(seconds=8.0))])
    assert known.overdue(13.0) == TurnAway([(later, errors.WAITED_TOO_LONG.refusal(seconds=8.0))])


def test_a_drained_lane_lets_all_waiting_go_but_not_the_holder() -> None:
    """What is at the node is finished, what waits is refused (G12)."""
    known = knowing(5)
    holder = take(known, 5)
    known.decide(0.0)
    known.granted(holder)
    waiting = [take(known, 6), take(known, 2)]
    refusal = errors.DRAINING.refusal()

    assert known.turn_all_away(refusal) == TurnAway([(ticket, refusal) for ticket in waiting])
    known.released(holder, Effect.ACCEPTED, 0.0)
    assert known.decide(0.0) is REST


def test_a_lane_does_not_rest_while_it_is_asking() -> None:
    """Its tickets may all have left meanwhile; the read still comes back to it."""
    fresh = lane()
    take(fresh, 7)
    reading = fresh.asked(0.0)
    fresh.turn_all_away(errors.DRAINING.refusal())

    assert fresh.decide(0.0) is SLEEP
    fresh.told(reading, 7, 0.1)
    assert fresh.decide(0.1) is REST


def test_idle_lanes_are_forgotten_oldest_first_and_busy_ones_never() -> None:
    """The LRU holds ``max_senders`` lanes; a lane with a ticket is not in it (a held lock is never evicted)."""
    book: LaneBook[str] = LaneBook(Ordering(max_senders=3))
    keys = [bytes([number]) * 20 for number in range(5)]
    lanes = []
    for key in keys[:3]:
        joined = book.join(key, "tx", 0, 0.0)
        assert not isinstance(joined, Refusal)
        lanes.append(joined[0])
    assert book.join(keys[3], "tx", 0, 0.0) == errors.AT_CAPACITY.refusal(senders=3)
    lanes[1].turn_all_away(errors.DRAINING.refusal())
    book.rest(lanes[1])

    assert not isinstance(book.join(keys[3], "tx", 0, 0.0), Refusal)
    assert (book.busy, book.idle) == (3, 0)


def test_an_idle_lane_remembers_next() -> None:
    """The next burst of a known sender costs no read."""
    book: LaneBook[str] = LaneBook(Ordering())
    joined = book.join(KEY, "tx", 4, 0.0)
    assert not isinstance(joined, Refusal)
    known, ticket = joined
    answer(known, 4)
    carry_out(known, ticket)
    book.rest(known)

    again = book.join(KEY, "tx", 5, 9.0)

    assert not isinstance(again, Refusal)
    assert again[0] is known
    assert known.decide(9.0) == Go(again[1])


@pytest.mark.parametrize("chain_id", [0, 1, 1337, 2**64, 2**255])
def test_a_lane_is_one_sender_on_one_chain(chain_id: int) -> None:
    """The key holds both; the sender stands first."""
    assert lane_key(chain_id, b"\x07" * 20)[:20] == b"\x07" * 20
    assert lane_key(chain_id, b"\x07" * 20) != lane_key(chain_id + 1, b"\x07" * 20)


class LaneMachine(RuleBasedStateMachine):
    """Random arrivals, answers and pauses against a strict node: what goes, goes in order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.node_next = 0
        self.sent: list[int] = []
        self.lane = lane(max_queue=20, reorder_window_ms=1000, max_wait_s=10)
        self.holder: Ticket[str] | None = None
        self.reading: Any = None
        self.left: set[Ticket[str]] = set()
        self.taken: set[Ticket[str]] = set()

    @rule(nonce=st.integers(0, 12))
    def arrive(self, nonce: int) -> None:
        """A submission comes."""
        self.number += 1
        ticket = self.lane.join("tx", nonce, self.now, self.number)
        if isinstance(ticket, Ticket):
            self.taken.add(ticket)

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 4.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes, and overdue tickets leave."""
        self.now += seconds
        late = self.lane.overdue(self.now)
        self.left |= {ticket for ticket, _ in late.tickets} if late else set()

    @precondition(lambda self: self.holder is None)
    @rule()
    def step(self) -> None:
        """Do what the lane says."""
        step = self.lane.decide(self.now)
        if isinstance(step, Go):
            head = step.ticket
            waiting = [t for t in self.taken if t.waiting and t is not head]
            lower = [t for t in waiting if t.nonce < head.nonce and self.lane.next is not None]
            assert all(t.nonce < (self.lane.next or 0) for t in lower), "a proven lower nonce was overtaken"
            self.lane.granted(head)
            self.holder = head
        elif step is ASK:
            self.reading = self.lane.asked(self.now)
        elif isinstance(step, TurnAway):
            self.left |= {ticket for ticket, _ in step.tickets}

    @precondition(lambda self: self.reading is not None)
    @rule(known=st.booleans())
    def told(self, known: bool) -> None:
        """A count comes back, or does not."""
        away = self.lane.told(self.reading, self.node_next if known else None, self.now)
        self.left |= {ticket for ticket, _ in away.tickets} if away else set()
        self.reading = None

    @precondition(lambda self: self.holder is not None)
    @rule()
    def node_answers(self) -> None:
        """A strict node accepts only its next nonce."""
        assert self.holder is not None
        accepted = self.holder.nonce == self.node_next
        self.node_next += accepted
        self.left.add(self.holder)
        self.lane.released(self.holder, Effect.ACCEPTED if accepted else Effect.DOUBTFUL, self.now)
        self.holder = None

    @invariant()
    def nothing_is_lost(self) -> None:
        """Each ticket waits, holds, or has left with an answer; the lane's counts agree."""
        waiting = {ticket for ticket in self.taken if ticket.waiting}
        assert len(waiting) == self.lane.waiting
        assert self.taken == waiting | self.left | ({self.holder} if self.holder else set())

    @invariant()
    def the_lane_never_stalls(self) -> None:
        """With tickets and no holder it asks, goes, turns away, or sleeps with a reason to wake."""
        if self.holder is None and self.lane.waiting:
            step = self.lane.decide(self.now)
            assert not (step is SLEEP and self.reading is None)
            assert step is not REST


TestLaneMachine = LaneMachine.TestCase
TestLaneMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)

"""Lanes: one for each sender, one submission at a time, in nonce order (`lane`); all of them (`book`). Pure."""

from relay.lanes.book import LaneBook, lane_key
from relay.lanes.lane import Lane
from relay.lanes.rules import Rules
from relay.lanes.steps import ASK, REST, SLEEP, Ask, Effect, Go, Pass, Reading, Rest, Sleep, Step, Ticket, TurnAway

__all__ = [
    "ASK", "REST", "SLEEP", "Ask", "Effect", "Go", "Lane", "LaneBook", "Pass", "Reading", "Rest", "Rules", "Sleep",
    "Step", "Ticket", "TurnAway", "lane_key",
]  # fmt: skip
